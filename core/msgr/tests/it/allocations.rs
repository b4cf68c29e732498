//! What a message costs, and that a peer cannot make us pay for what it only announces. Counts, unlike
//! times, are the same on every machine.
#![allow(unsafe_code)] // an allocator is unsafe by its signature

use super::*;
use crate::hostile::announcing;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    static COUNT: Cell<usize> = const { Cell::new(0) };
    static LARGEST: Cell<usize> = const { Cell::new(0) };
}

unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        LARGEST.set(LARGEST.get().max(layout.size()));
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// How many allocations `act` made on this thread, and how large the largest was.
fn allocations(act: impl FnOnce()) -> (usize, usize) {
    COUNT.set(0);
    LARGEST.set(0);
    act();
    (COUNT.get(), LARGEST.get())
}

#[test]
fn a_message_costs_two_small_allocations_to_send_and_at_most_one_to_receive() {
    let (mut client, mut server) = pair();
    let data = Bytes::from(vec![7; 4 << 20]);
    let write = || RawMessage { data: data.clone(), ..message(1, b"front", b"") };
    let mut events = Vec::with_capacity(8);
    for warm_up in [true, false] {
        let message = write();
        let (count, largest) = allocations(|| client.send(message));
        assert!(warm_up || (count <= 2 && largest < 200), "{count} allocations, up to {largest} bytes");
        let chunk = written(&mut client);
        let (count, largest) = allocations(|| server.receive(NOW, chunk, &mut events).unwrap());
        assert!(count <= 1 && largest < 100, "{count} allocations, up to {largest} bytes");
    }
}

#[test]
fn unauthenticated_peer_can_cause_only_small_allocations() {
    for announced in [8 << 10, (8 << 10) + 1, 1 << 20, u32::MAX] {
        let mut server = new_server(osd_config());
        receive(&mut server, written(&mut new_client(client_config())).slice(..26)).unwrap();
        let hello = announcing(1, &[announced]);
        let (_, largest) = allocations(|| {
            let mut events = Vec::new();
            for byte in hello {
                let _ = server.receive(NOW, vec![byte].into(), &mut events);
            }
            let _ = server.receive(NOW, vec![0; 100].into(), &mut events);
        });
        assert!(largest <= (8 << 10) + 4, "{largest} bytes for {announced} announced");
    }
}

#[test]
fn a_message_over_the_limit_is_refused_before_anything_is_allocated_for_it() {
    for lens in [[41, 65 << 20, 0, 0], [41, 0, 5 << 20, 0], [41, 0, 0, 129 << 20], [41, u32::MAX, 1, 1]] {
        let (_, mut server) = pair();
        let used = lens.iter().rposition(|&len| len > 0).unwrap() + 1;
        let preamble = announcing(17, &lens[..used]);
        let (_, largest) = allocations(|| {
            let refused = server.receive(NOW, preamble.into(), &mut Vec::new());
            assert!(matches!(refused, Err(FaultReason::SegmentTooLong { .. })), "{refused:?}");
            assert!(server.wanted().is_none());
        });
        assert!(largest < 1000, "{largest} bytes");
    }
}

#[test]
fn oversized_sealed_message_allocates_nothing_and_4_mib_is_copied_once() {
    let (mut client, mut server) = secure::pair();
    let sent = RawMessage { data: Bytes::from(vec![7; 4 << 20]), ..message(1, b"front", b"") };
    let (_, largest) = allocations(|| client.send(sent));
    assert!(largest < (4 << 20) + (64 << 10), "{largest} bytes");
    let mut events = Vec::with_capacity(8);
    let whole = written(&mut client);
    let (_, largest) = allocations(|| server.receive(NOW, whole, &mut events).unwrap());
    assert!(largest < (4 << 20) + (64 << 10), "{largest} bytes");

    for lens in
        [[41, 65 << 20, 0, 0], [41, 0, 0, 129 << 20], [u32::MAX, 0, 0, 0], [41, u32::MAX, u32::MAX, 1]]
    {
        let (_, mut server) = secure::pair();
        let used = lens.iter().rposition(|&len| len > 0).unwrap() + 1;
        let block = secure::block(&announcing(17, &lens[..used]));
        let (_, largest) = allocations(|| {
            let refused = server.receive(NOW, block.into(), &mut Vec::new());
            assert!(matches!(refused, Err(FaultReason::SegmentTooLong { .. })), "{refused:?}");
            assert!(server.wanted().is_none());
        });
        assert!(largest < 1000, "{largest} bytes");
    }
}
