//! Secure mode at the level of frames; crc mode is examined through whole connections in `tests/it`.

use super::*;
use crate::seal::{End, TAG_LEN, keys};

const RECORDED: &str = include_str!("../../../../check/corpus/data/msgr_secure.txt");
/// Of a frame's first piece.
const BLOCK_LEN: usize = 32 + 48 + TAG_LEN;

fn secret() -> Vec<u8> {
    (1..=64).collect()
}
fn sealer() -> Sealer {
    keys(&secret(), End::Client).unwrap().0
}
fn opener() -> Opener {
    keys(&secret(), End::Server).unwrap().1
}
fn writer() -> FrameWriter {
    FrameWriter::Secure(sealer())
}
fn reader() -> FrameReader {
    let mut reader = FrameReader::new();
    reader.secure(opener()).unwrap();
    reader
}

fn any(_: &Preamble) -> Result<(), FaultReason> {
    Ok(())
}

fn some_bytes(len: usize) -> Bytes {
    (0..len).map(|at| (at * 7 + len) as u8).collect()
}

fn header(seq: u64) -> MessageHeader {
    MessageHeader { seq, tid: 9, kind: 42, priority: 63, version: 8, ack_seq: 5, compat: 3 }
}

fn written(out: &mut Outbox) -> Bytes {
    let len = out.remaining();
    out.copy_to_bytes(len)
}

fn control(writer: &mut FrameWriter, payload: &[u8]) -> Bytes {
    let mut out = Outbox::default();
    writer.put_control(&mut out, Tag::ClientIdent, payload);
    written(&mut out)
}

fn message(writer: &mut FrameWriter, seq: u64, [front, middle, data]: [usize; 3]) -> Bytes {
    let mut out = Outbox::default();
    let rest = [some_bytes(middle), some_bytes(data)];
    writer.put_message(&mut out, &header(seq), Front::Own(some_bytes(front)), rest, &Sums::default());
    written(&mut out)
}

/// What `bytes` are to the reader, through which they must pass whole.
fn only_frame(reader: &mut FrameReader, mut bytes: Bytes) -> Frame {
    let frame = reader.next(&mut bytes, any).unwrap().expect("a whole frame");
    assert!(bytes.is_empty() && reader.is_idle() && reader.wanted().is_none());
    frame
}

fn assert_message(frame: &Frame, seq: u64, lens: [usize; 3]) {
    assert_eq!((frame.tag, frame.complete, frame.data_crc), (Tag::Message, true, None));
    assert_eq!(MessageHeader::decode(&frame.segments[0]), header(seq));
    assert_eq!(frame.segments[1..], lens.map(some_bytes), "{lens:?}");
}

/// A frame of these segments that ends in that status, whatever a decent sender would do.
fn made(lens: [usize; SEGMENTS_MAX], status: u8) -> Bytes {
    let mut sealer = sealer();
    let mut block = Vec::new();
    Preamble::of(Tag::Message, lens).encode(&mut block);
    block.resize(BLOCK_LEN, 0);
    sealer.seal(&mut block);
    let tail_len: usize = lens[1..].iter().map(|len| len.next_multiple_of(16)).sum();
    let mut tail = vec![0; tail_len + 16 + TAG_LEN];
    tail[tail_len] = status;
    sealer.seal(&mut tail);
    [block, tail].concat().into()
}

#[test]
fn frames_of_all_shapes_come_as_they_left() {
    let (mut writer, mut reader) = (writer(), reader());
    for len in [0, 1, 47, 48, 49, 63, 64, 65, 5000, 40_000] {
        let payload = some_bytes(len);
        let sent = control(&mut writer, &payload);
        let rest = len.saturating_sub(48).next_multiple_of(16);
        assert_eq!(sent.len(), BLOCK_LEN + if rest > 0 { rest + TAG_LEN } else { 0 });
        let frame = only_frame(&mut reader, sent);
        assert_eq!((frame.tag, frame.complete, &frame.segments[0]), (Tag::ClientIdent, true, &payload));
        assert!(frame.segments[1..].iter().all(Bytes::is_empty));
    }
    let some = [0, 1, 16, 17, 3000, 40_000];
    let shapes = some.iter().flat_map(|&a| some.iter().flat_map(move |&b| some.map(|c| [a, b, c])));
    for (seq, lens) in (1..).zip(shapes) {
        let frame = only_frame(&mut reader, message(&mut writer, seq, lens));
        assert_message(&frame, seq, lens);
    }
}

#[test]
fn a_lent_front_is_sent_like_an_owned_one() {
    for front in [0, 5, 5000] {
        let mut out = Outbox::default();
        let lent = some_bytes(front);
        let rest = [Bytes::new(), some_bytes(9)];
        writer().put_message(&mut out, &header(1), Front::Lent(&lent), rest, &Sums::default());
        assert_eq!(written(&mut out), message(&mut writer(), 1, [front, 0, 9]));
    }
}

#[test]
fn a_frame_may_be_cut_at_every_byte() {
    let sent = [control(&mut writer(), &some_bytes(100)), message(&mut writer(), 1, [30, 0, 50])];
    for whole in sent {
        for at in 0..whole.len() {
            let mut reader = reader();
            assert!(reader.next(&mut whole.slice(..at), any).unwrap().is_none());
            assert_eq!(reader.is_idle(), at == 0);
            only_frame(&mut reader, whole.slice(at..));
        }
        let (last, others) = whole.split_last().unwrap();
        let mut reader = reader();
        for &byte in others {
            assert!(reader.next(&mut vec![byte].into(), any).unwrap().is_none());
        }
        only_frame(&mut reader, vec![*last].into());
    }
}

#[test]
fn frames_received_together_are_split() {
    let mut writer = writer();
    let lens = [[10, 0, 0], [0, 0, 0], [40_000, 3, 70_000]];
    let mut input: Bytes = (1..).zip(lens).flat_map(|(seq, lens)| message(&mut writer, seq, lens)).collect();
    let mut reader = reader();
    for (seq, lens) in (1..).zip(lens) {
        assert_message(&reader.next(&mut input, any).unwrap().unwrap(), seq, lens);
    }
    assert!(reader.next(&mut input, any).unwrap().is_none() && reader.is_idle());
}

#[test]
fn large_data_is_received_in_place_and_aligned() {
    for lens in [[200, 0, 4 << 20], [5000, 20, 100_000], [0, 0, 1 << 20], [100_000, 0, 0]] {
        let whole = message(&mut writer(), 1, lens);
        for before in [BLOCK_LEN, BLOCK_LEN + 1, BLOCK_LEN + 20_000] {
            let mut reader = reader();
            assert!(reader.next(&mut whole.slice(..before), any).unwrap().is_none());
            let mut left = whole.slice(before..);
            while let Some(wanted) = reader.wanted() {
                let n = wanted.len().min(50_000);
                left.copy_to_slice(&mut wanted[..n]);
                reader.filled(n);
            }
            assert!(left.len() < READ_INTO_MIN, "{} bytes are left", left.len());
            let frame = only_frame(&mut reader, left);
            assert_message(&frame, 1, lens);
            let data = &frame.segments[3];
            assert!(data.is_empty() || data.as_ptr().align_offset(4096) == 0);
        }
    }
}

#[test]
fn a_stream_goes_over_to_secure_mode_in_the_middle_of_an_input() {
    let mut out = Outbox::default();
    FrameWriter::Crc.put_control(&mut out, Tag::AuthDone, b"done");
    let mut writer = writer();
    writer.put_control(&mut out, Tag::AuthSignature, &[7; 32]);
    let message = message(&mut writer, 1, [1, 2, 3]);
    let mut input = Bytes::from([written(&mut out), message].concat());
    let whole = input.clone();
    let mut reader = FrameReader::new();
    assert_eq!(reader.next(&mut input, any).unwrap().unwrap().segments[0], b"done"[..]);
    reader.secure(opener()).unwrap();
    assert_eq!(reader.next(&mut input, any).unwrap().unwrap().segments[0], [7; 32][..]);
    assert_message(&reader.next(&mut input, any).unwrap().unwrap(), 1, [1, 2, 3]);

    // A sender that does not wait to be told how frames are protected.
    let mut reader = FrameReader::new();
    assert!(reader.next(&mut whole.slice(..20), any).unwrap().is_none());
    assert_eq!(reader.secure(opener()), Err(FaultReason::Hasty));
}

#[test]
fn a_flipped_bit_anywhere_is_refused() {
    for whole in [control(&mut writer(), &some_bytes(100)), message(&mut writer(), 1, [30, 5, 50])] {
        for bit in 0..8 * whole.len() {
            let mut flipped = whole.to_vec();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let refused = reader().next(&mut flipped.into(), any).unwrap_err();
            let expected = match refused {
                FaultReason::PreambleSeal => bit / 8 < BLOCK_LEN,
                FaultReason::SegmentSeal { .. } => bit / 8 >= BLOCK_LEN,
                _ => false,
            };
            assert!(expected, "bit {bit}: {refused}");
        }
    }
}

#[test]
fn frames_that_are_left_out_or_come_again_are_refused() {
    let mut writer = writer();
    let [first, second] = [1, 2].map(|seq| message(&mut writer, seq, [30, 0, 0]));
    assert_eq!(reader().next(&mut second.clone(), any).unwrap_err(), FaultReason::PreambleSeal);
    let mut reader = reader();
    only_frame(&mut reader, first.clone());
    assert_eq!(reader.next(&mut first.clone(), any).unwrap_err(), FaultReason::PreambleSeal);
}

#[test]
fn what_is_not_admitted_gets_no_memory() {
    let whole = made([41, 0, 0, 100 << 20], STATUS_COMPLETE).slice(..BLOCK_LEN);
    let mut reader = reader();
    let refused = reader.next(&mut whole.clone(), |preamble| {
        assert_eq!((preamble.tag, preamble.lens), (Tag::Message, [41, 0, 0, 100 << 20]));
        Err(FaultReason::NoAddress)
    });
    assert_eq!(refused.unwrap_err(), FaultReason::NoAddress);
    assert!(reader.wanted().is_none());
}

#[test]
fn a_frame_ends_complete_or_given_up_and_nothing_else() {
    let next = |status| reader().next(&mut made([41, 20, 0, 7], status), any);
    for (status, complete) in [(0x0e, true), (0x01, false), (0xfe, true), (0xf1, false)] {
        let frame = next(status).unwrap().unwrap();
        assert_eq!((frame.complete, frame.segments[3].len()), (complete, 7));
    }
    for status in [0, 2, 0xe0] {
        assert_eq!(next(status).unwrap_err(), FaultReason::LateStatus { tag: Tag::Message, status });
    }
}

/// What is recorded under that label.
fn recorded(label: &str) -> Bytes {
    let line = RECORDED.lines().find_map(|line| line.strip_prefix(label)?.strip_prefix('\t'));
    let digits = line.expect("it is recorded").as_bytes().chunks(2);
    digits.map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap()).collect()
}

#[test]
fn recorded_streams_are_read_to_their_ends_and_written_again_byte_for_byte() {
    use Tag::*;
    let banner_len = 26;
    let mon = [AuthSignature, ServerIdent, Message, Message, Message];
    let main_mon = [AuthSignature, ServerIdent, Message, Message, Message, Message, Message];
    let main_client = [AuthSignature, ClientIdent, Message, Message, Message, Message];
    let cases: [(&str, &[Tag], &[Tag]); 3] = [
        ("mon-bootstrap", &[AuthSignature, ClientIdent, Message, Message], &mon),
        ("mon", &main_client, &main_mon),
        ("osd", &[AuthSignature, ClientIdent, Message], &[AuthSignature, ServerIdent, Message]),
    ];
    for (name, of_client, of_server) in cases {
        let secret = recorded(&format!("{name} secret"));
        let (to_server, to_client) =
            (keys(&secret, End::Client).unwrap(), keys(&secret, End::Server).unwrap());
        let ends = [
            ("C", AuthRequestMore, to_server.0, to_client.1, of_client),
            ("S", AuthDone, to_client.0, to_server.1, of_server),
        ];
        for (end, last_in_crc, sealer, opener, tags) in ends {
            let crc = recorded(&format!("{name} {end} crc")).slice(banner_len..);
            let sealed = recorded(&format!("{name} {end} secure"));
            let mut input = Bytes::from([crc, sealed.clone()].concat());
            let mut reader = FrameReader::new();
            while reader.next(&mut input, any).unwrap().unwrap().tag != last_in_crc {}
            reader.secure(opener).unwrap();

            let (mut out, mut writer) = (Outbox::default(), FrameWriter::Secure(sealer));
            let mut found = Vec::new();
            while let Some(frame) = reader.next(&mut input, any).unwrap() {
                found.push(frame.tag);
                let [head, front, middle, data] = &frame.segments;
                if frame.tag == Message {
                    let (header, rest) = (MessageHeader::decode(head), [middle.clone(), data.clone()]);
                    writer.put_message(&mut out, &header, Front::Lent(front), rest, &Sums::default());
                } else {
                    writer.put_control(&mut out, frame.tag, head);
                }
            }
            assert!(reader.is_idle() && input.is_empty());
            assert_eq!(found, tags, "{name} {end}");
            assert_eq!(written(&mut out), sealed, "{name} {end}");
        }
    }
}
