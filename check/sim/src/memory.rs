//! Whose memory it is: each allocation is marked with the node on whose behalf it was asked for, and
//! counts as that node's until it is given back, by whomever. So a node's memory is what its machine and
//! its store really hold, with every structure that nobody thought of counting.
//!
//! One thread runs a cluster, and each cluster has its numbers for itself.
#![allow(unsafe_code)] // an allocator is unsafe by its signature

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::hint::black_box;

/// Nodes that are told apart, and nobody in particular.
const OWNERS: usize = 32;
const NOBODY: usize = 0;
/// In front of each allocation, unless its alignment wants more: whose it is.
const MARK: usize = 16;

thread_local! {
    static OWNER: Cell<usize> = const { Cell::new(NOBODY) };
    static IN_USE: [Cell<isize>; OWNERS] = const { [const { Cell::new(0) }; OWNERS] };
}

struct Marking;

#[global_allocator]
static ALLOCATOR: Marking = Marking;

fn count(owner: usize, bytes: isize) {
    IN_USE.with(|in_use| in_use[owner].set(in_use[owner].get() + bytes));
}
/// With the mark in front; none if that is more than there can be.
fn marked(layout: Layout) -> Option<(Layout, usize)> {
    let room = layout.align().max(MARK);
    let size = layout.size().checked_add(room)?;
    Some((Layout::from_size_align(size, room).ok()?, room))
}
/// Where linking optimises, the compiler sees that nothing was asked for in front of this, and takes what is read
/// there for anything.
fn opaque(behind: *mut u8) -> *mut u8 {
    black_box(behind)
}

impl Marking {
    /// Marks what was just taken, and gives what lies behind the mark.
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

/// Until it is dropped, what is asked for is the node's.
pub struct OnBehalf(usize);

pub fn on_behalf_of(node: usize) -> OnBehalf {
    OnBehalf(OWNER.replace((node + 1).min(OWNERS - 1)))
}

impl Drop for OnBehalf {
    fn drop(&mut self) {
        OWNER.set(self.0);
    }
}

/// Bytes that the node holds.
pub fn of(node: usize) -> usize {
    IN_USE.with(|in_use| in_use[(node + 1).min(OWNERS - 1)].get()).max(0) as usize
}

/// Another cluster: nobody holds anything.
pub fn forget() {
    OWNER.set(NOBODY);
    IN_USE.with(|in_use| in_use.iter().for_each(|bytes| bytes.set(0)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_his_for_whom_it_was_asked_for_whoever_gives_it_back() {
        forget();
        let (mut first, second) = {
            let _first = on_behalf_of(0);
            // What nobody looks at need not be asked for.
            let list = black_box(vec![1_u8; 1000]);
            let _second = on_behalf_of(1);
            (list, black_box(Box::new([0_u64; 100])))
        };
        assert_eq!((of(0), of(1)), (1000, 800));
        first.reserve_exact(4000);
        assert_eq!(of(0), 5000, "what grows stays whose it was");
        let _second = on_behalf_of(1);
        drop(first);
        assert_eq!((of(0), of(1)), (0, 800));
        drop(second);
        assert_eq!(of(1), 0);
    }
}
