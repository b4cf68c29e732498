//! Memory accounting by node: each allocation is charged to the node for which it was made, and stays charged
//! until it is freed, wherever that happens. So a node's memory is what its machine and its store really
//! hold, including every structure that no code counts.
//!
//! One thread runs a cluster, and each thread has its own counters.
#![allow(unsafe_code)] // an allocator is unsafe by its signature

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::hint::black_box;

/// Nodes with counters of their own, and the index of all other memory.
const OWNERS: usize = 32;
const UNOWNED: usize = 0;
/// Size of the header in front of each allocation, which holds the owner; larger if the alignment demands it.
const MARK: usize = 16;

thread_local! {
    static OWNER: Cell<usize> = const { Cell::new(UNOWNED) };
    static IN_USE: [Cell<isize>; OWNERS] = const { [const { Cell::new(0) }; OWNERS] };
}

struct Marking;

#[global_allocator]
static ALLOCATOR: Marking = Marking;

fn count(owner: usize, bytes: isize) {
    IN_USE.with(|in_use| in_use[owner].set(in_use[owner].get() + bytes));
}
/// The layout with the header in front; none if that overflows.
fn marked(layout: Layout) -> Option<(Layout, usize)> {
    let room = layout.align().max(MARK);
    let size = layout.size().checked_add(room)?;
    Some((Layout::from_size_align(size, room).ok()?, room))
}
/// Hides the origin of the pointer: an optimiser that knows it treats the header in front as undefined.
fn opaque(behind: *mut u8) -> *mut u8 {
    black_box(behind)
}

impl Marking {
    /// Writes the header of a new allocation and returns the address behind it.
    unsafe fn mark(at: *mut u8, room: usize, size: usize) -> *mut u8 {
        if at.is_null() {
            return at;
        }
        let owner = OWNER.get();
        count(owner, size as isize);
        unsafe {
            let behind = at.add(room);
            behind.cast::<usize>().sub(1).write(owner);
            behind
        }
    }
}

unsafe impl GlobalAlloc for Marking {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let Some((whole, room)) = marked(layout) else { return std::ptr::null_mut() };
        unsafe { Self::mark(System.alloc(whole), room, layout.size()) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let Some((whole, room)) = marked(layout) else { return std::ptr::null_mut() };
        unsafe { Self::mark(System.alloc_zeroed(whole), room, layout.size()) }
    }
    unsafe fn dealloc(&self, behind: *mut u8, layout: Layout) {
        let Some((whole, room)) = marked(layout) else { return };
        let behind = opaque(behind);
        unsafe {
            count(behind.cast::<usize>().sub(1).read(), -(layout.size() as isize));
            System.dealloc(behind.sub(room), whole);
        }
    }
    unsafe fn realloc(&self, behind: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let Some((whole, room)) = marked(layout) else { return std::ptr::null_mut() };
        let Some(more) = size.checked_add(room) else { return std::ptr::null_mut() };
        let behind = opaque(behind);
        unsafe {
            let owner = behind.cast::<usize>().sub(1).read();
            let at = System.realloc(behind.sub(room), whole, more);
            if at.is_null() {
                return at;
            }
            count(owner, size as isize - layout.size() as isize);
            at.add(room)
        }
    }
}

/// Allocations are charged to the node until this is dropped.
pub struct Charge(usize);

pub fn charge_to(node: usize) -> Charge {
    Charge(OWNER.replace((node + 1).min(OWNERS - 1)))
}

impl Drop for Charge {
    fn drop(&mut self) {
        OWNER.set(self.0);
    }
}

/// Bytes charged to the node.
pub fn of(node: usize) -> usize {
    IN_USE.with(|in_use| in_use[(node + 1).min(OWNERS - 1)].get()).max(0) as usize
}

/// Clears all counters, for another cluster.
pub fn reset() {
    OWNER.set(UNOWNED);
    IN_USE.with(|in_use| in_use.iter().for_each(|bytes| bytes.set(0)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_charged_to_its_owner_wherever_it_is_freed() {
        reset();
        let (mut first, second) = {
            let _first = charge_to(0);
            // Unused allocations may be optimised away.
            let list = black_box(vec![1_u8; 1000]);
            let _second = charge_to(1);
            (list, black_box(Box::new([0_u64; 100])))
        };
        assert_eq!((of(0), of(1)), (1000, 800));
        first.reserve_exact(4000);
        assert_eq!(of(0), 5000, "a reallocation keeps its owner");
        let _second = charge_to(1);
        drop(first);
        assert_eq!((of(0), of(1)), (0, 800));
        drop(second);
        assert_eq!(of(1), 0);
    }
}
