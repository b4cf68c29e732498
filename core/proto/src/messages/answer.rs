//! Dup entries: the results of writes whose log entries were trimmed. A busy placement group
//! keeps thousands, so each is encoded as its difference to the one before: about twelve
//! bytes each.

use crate::types::{EntityName, ReqId};
use bytes::Bytes;
use nacre_base::{Epoch, Version};
use nacre_wire::{Decode, DecodeError, Encode, Reader, versioned};

/// A request that was carried out, and what was said then. Ceph: `pg_log_dup_t`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    pub reqid: ReqId,
    pub version: Version,
    pub user_version: u64,
    pub result: i32,
    /// Of each operation, its code and output; empty unless the client wanted them.
    pub outputs: Vec<(i32, Bytes)>,
}

/// Some of them, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answers(pub Vec<Answer>);

/// The result is not zero, or there are outputs.
const SAYS_MORE: u8 = 1;
/// Another client than that of the answer before.
const OTHER_CLIENT: u8 = 2;

impl Answers {
    /// Whether they come in the order of their versions, which may be the same for several where
    /// two groups became one.
    fn are_in_order(&self) -> bool {
        self.0.is_sorted_by_key(|answer| answer.version)
    }
}

impl Encode for Answers {
    fn encode(&self, out: &mut Vec<u8>) {
        versioned(out, 1, 1, |out| {
            (self.0.len() as u32).encode(out);
            let mut last = Answer::default();
            for answer in &self.0 {
                let says_more = answer.result != 0 || !answer.outputs.is_empty();
                let (client, inc) = (answer.reqid.client, answer.reqid.inc);
                let other_client = (client, inc) != (last.reqid.client, last.reqid.inc);
                let more = if says_more { SAYS_MORE } else { 0 };
                out.push(more | if other_client { OTHER_CLIENT } else { 0 });
                step(last.version.epoch.0.into(), answer.version.epoch.0.into(), out);
                step(last.version.version, answer.version.version, out);
                step(last.user_version, answer.user_version, out);
                step(last.reqid.tid, answer.reqid.tid, out);
                if other_client {
                    out.push(client.kind);
                    step(last.reqid.client.num as u64, client.num as u64, out);
                    inc.encode(out);
                }
                if says_more {
                    answer.result.encode(out);
                    answer.outputs.encode(out);
                }
                last = Answer { outputs: Vec::new(), ..answer.clone() };
            }
        });
    }
}

impl Decode for Answers {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.versioned("answers", 1, |r, _| {
            let mut last = Answer::default();
            let answers = Answers(r.list(|r| {
                let flags = u8::decode(r)?;
                let epoch = stepped(last.version.epoch.0.into(), r)?;
                let too_far = |_| DecodeError::BadValue { what: "epoch of an answer", value: epoch };
                last.version.epoch = Epoch(u32::try_from(epoch).map_err(too_far)?);
                last.version.version = stepped(last.version.version, r)?;
                last.user_version = stepped(last.user_version, r)?;
                last.reqid.tid = stepped(last.reqid.tid, r)?;
                if flags & OTHER_CLIENT != 0 {
                    let kind = u8::decode(r)?;
                    let num = stepped(last.reqid.client.num as u64, r)? as i64;
                    last.reqid.client = EntityName { kind, num };
                    last.reqid.inc = i32::decode(r)?;
                }
                let (result, outputs) =
                    if flags & SAYS_MORE != 0 { Decode::decode(r)? } else { (0, Vec::new()) };
                Ok(Answer { result, outputs, ..last.clone() })
            })?);
            match answers.are_in_order() {
                true => Ok(answers),
                false => Err(DecodeError::BadValue { what: "answers: versions out of order", value: 0 }),
            }
        })
    }
}

/// From one number to the next, seven bits in a byte; small steps in either direction are short.
fn step(from: u64, to: u64, out: &mut Vec<u8>) {
    let by = to.wrapping_sub(from) as i64;
    let mut left = ((by << 1) ^ (by >> 63)) as u64;
    while left >= 0x80 {
        out.push(left as u8 | 0x80);
        left >>= 7;
    }
    out.push(left as u8);
}

fn stepped(from: u64, r: &mut Reader<'_>) -> Result<u64, DecodeError> {
    let mut folded = 0;
    for at in 0..10 {
        let byte = u8::decode(r)?;
        folded |= u64::from(byte & 0x7f) << (7 * at);
        if byte < 0x80 {
            let by = (folded >> 1) as i64 ^ -((folded & 1) as i64);
            return Ok(from.wrapping_add(by as u64));
        }
    }
    Err(DecodeError::BadValue { what: "a number of too many bytes", value: folded })
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_wire::{from_slice, to_vec};

    fn answer(client: i64, tid: u64, version: u64) -> Answer {
        let reqid = ReqId { client: EntityName { kind: 8, num: client }, tid, inc: 0 };
        let version = Version::new(Epoch(40), version);
        Answer { reqid, version, user_version: version.version, ..Answer::default() }
    }

    #[test]
    fn answers_read_back_whatever_their_numbers() {
        let far = Answer {
            reqid: ReqId { client: EntityName { kind: 255, num: i64::MIN }, tid: u64::MAX, inc: -1 },
            version: Version::new(Epoch(u32::MAX), u64::MAX),
            user_version: 0,
            result: -17,
            outputs: vec![(1, Bytes::from_static(b"out")), (-2, Bytes::new())],
        };
        let all = Answers(vec![answer(4100, 7, 3), answer(4100, 6, 4), answer(1, 9, 4), far.clone(), far]);
        let bytes = to_vec(&all);
        assert_eq!(from_slice::<Answers>(&bytes), Ok(all));
        for cut in 0..bytes.len() {
            assert!(from_slice::<Answers>(&bytes[..cut]).is_err());
        }
    }

    #[test]
    fn answers_out_of_order_are_refused() {
        let all = Answers(vec![answer(1, 1, 4), answer(1, 2, 3)]);
        assert!(from_slice::<Answers>(&to_vec(&all)).is_err());
    }

    #[test]
    fn an_answer_among_those_of_a_few_clients_takes_a_dozen_bytes() {
        let all: Vec<Answer> =
            (1..=3000).map(|n| answer(4100 + 37 * (n as i64 % 5), 900 + 40 * n, n)).collect();
        let each = to_vec(&Answers(all.clone())).len() / all.len();
        assert!(each <= 14, "{each}");
    }
}
