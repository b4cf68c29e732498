//! What an OSD's long-lived structures take of memory, in bytes that are counted as they are asked
//! for: only the slope counts, what each further piece takes. And how often a write asks for some.
#![allow(unsafe_code)] // an allocator is unsafe by its signature

use super::world::World;
use crate::pg::history::missing::{Missing, part_of};
use bytes::Bytes;
use nacre_base::{Epoch, Name, PoolId, Rng, Version};
use nacre_proto::messages::part::Act;
use nacre_proto::types::{ObjectId, Op};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    static IN_USE: Cell<isize> = const { Cell::new(0) };
    static CALLS: Cell<usize> = const { Cell::new(0) };
}

/// How often this thread has allocated so far.
pub fn allocations() -> usize {
    CALLS.get()
}

unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        IN_USE.set(IN_USE.get() + layout.size() as isize);
        CALLS.set(CALLS.get() + 1);
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        IN_USE.set(IN_USE.get() - layout.size() as isize);
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What is missing after that many 4 KiB writes at random places of as many objects as to give
/// each fifty, and how many bytes it takes.
fn after_writes(writes: u64) -> (Missing, isize) {
    let mut rng = Rng::new(1);
    let before = IN_USE.get();
    let mut missing = Missing::default();
    for n in 1..=writes {
        let name = format!("rbd_data.1234567890ab.{:016x}", rng.below(writes / 50));
        let object = ObjectId::head(PoolId(1), Name::default(), Name::default(), name.as_str().into());
        let act = Act::Data { offset: rng.below(1024) << 12, len: 4096 };
        missing.add(&object, Version::new(Epoch(3), n), &part_of(&[act]));
    }
    (missing, IN_USE.get() - before)
}

/// A million therefore take 64 MB on the member that missed them, and as much on all primaries together.
#[test]
fn missed_scattered_write_takes_at_most_64_bytes() {
    let (few, bytes_of_few) = after_writes(10_000);
    let (many, bytes_of_many) = after_writes(20_000);
    let slope = (bytes_of_many - bytes_of_few) / 10_000;
    assert!(slope <= 64, "{slope} bytes each, {} and {} objects", few.len(), many.len());
}

/// Of all three OSDs together, from the request to the answer, without what messages and stores take.
#[test]
fn a_small_write_allocates_so_often_and_no_more() {
    let mut w = World::new(1, 3, 3, 2, 4);
    w.run_until("clean", World::all_clean);
    let data = Bytes::from(vec![7; 4096]);
    let write = |w: &mut World, n: u64| {
        let ops = vec![Op::WriteFull { data: data.clone() }];
        assert_eq!(w.run_ops(&format!("object{}", n % 20), ops).result, 0);
    };
    (0..100).for_each(|n| write(&mut w, n));
    let before = w.allocations;
    (0..200).for_each(|n| write(&mut w, n));
    let each = (w.allocations - before) / 200;
    // Logs hold 10 entries here, so each write trims them and stores a page of answers.
    assert!(each <= 165, "{each} allocations for a write");
}
