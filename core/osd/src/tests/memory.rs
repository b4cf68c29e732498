//! What an OSD's long-lived structures take of memory, in bytes that are counted as they are asked
//! for. Only the slope counts: what each further piece takes.
#![allow(unsafe_code)] // an allocator is unsafe by its signature

use crate::pg::missing::{Missing, part_of};
use nacre_base::{Epoch, Name, PoolId, Rng, Version};
use nacre_proto::messages::part::Act;
use nacre_proto::types::ObjectId;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    static IN_USE: Cell<isize> = const { Cell::new(0) };
}

unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        IN_USE.set(IN_USE.get() + layout.size() as isize);
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

/// So a million take 64 MB on who missed them, and as much on the primaries together.
#[test]
fn each_further_scattered_write_that_a_member_missed_takes_at_most_64_bytes() {
    let (few, bytes_of_few) = after_writes(10_000);
    let (many, bytes_of_many) = after_writes(20_000);
    let slope = (bytes_of_many - bytes_of_few) / 10_000;
    assert!(slope <= 64, "{slope} bytes each, {} and {} objects", few.len(), many.len());
}
