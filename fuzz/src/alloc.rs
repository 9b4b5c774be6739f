//! An allocator with a bound: while a target runs, its thread cannot have more than [`LIMIT`] bytes.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// Limit of the bytes that a target may hold at a time. Inputs are smaller than a hundredth of it.
pub const LIMIT: usize = 256 << 20;

thread_local! {
    /// Bytes allocated since [`bounded`] began; `None`: not counting.
    static HELD: Cell<Option<usize>> = const { Cell::new(None) };
    static MOST: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator, with the bound.
pub struct Bounded;

/// Runs `f` under the limit. An allocation beyond it fails, which ends the process as running out of memory does.
pub fn bounded<T>(f: impl FnOnce() -> T) -> T {
    HELD.set(Some(0));
    let made = f();
    HELD.set(None);
    made
}

/// Bytes that are held now, within a [`bounded`] call. What a stream's reader keeps must be in proportion to its input.
pub fn held() -> usize {
    HELD.get().unwrap_or(0)
}

/// Bytes that a reader may keep for any input.
pub const FREE: usize = 1 << 20;

/// The largest number of bytes that this thread held in any [`bounded`] call since the last call of this function.
pub fn most() -> usize {
    MOST.take()
}

fn take(bytes: usize) -> bool {
    let Ok(Some(held)) = HELD.try_with(Cell::get) else { return true };
    let held = held.saturating_add(bytes);
    if held > LIMIT {
        return false;
    }
    HELD.set(Some(held));
    MOST.set(MOST.get().max(held));
    true
}

/// Memory from before the call may be freed within it: the count stops at zero.
fn give(bytes: usize) {
    if let Ok(Some(held)) = HELD.try_with(Cell::get) {
        HELD.set(Some(held.saturating_sub(bytes)));
    }
}

// SAFETY: the memory is the system allocator's; this only counts, and refuses with null as the trait allows.
unsafe impl GlobalAlloc for Bounded {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !take(layout.size()) {
            return std::ptr::null_mut();
        }
        // SAFETY: passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if !take(layout.size()) {
            return std::ptr::null_mut();
        }
        // SAFETY: passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        give(layout.size());
        // SAFETY: passed on.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !take(size.saturating_sub(layout.size())) {
            return std::ptr::null_mut();
        }
        give(layout.size().saturating_sub(size));
        // SAFETY: passed on.
        unsafe { System.realloc(at, layout, size) }
    }
}
