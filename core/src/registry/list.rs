//! A list of windows, linked through the windows themselves: those that a change has made, or has removed.

use super::window::Held;
use core::sync::atomic::Ordering;

/// First and last window of the list.
pub(super) struct List {
    pub(super) first: *mut Held,
    pub(super) last: *mut Held,
}

impl Default for List {
    fn default() -> List {
        List { first: core::ptr::null_mut(), last: core::ptr::null_mut() }
    }
}

impl List {
    pub(super) fn push(&mut self, held: *mut Held) {
        // SAFETY: cells of the pool; their links belong to the lock's holder.
        unsafe {
            (*held).link.store(0, Ordering::Relaxed);
            match self.last.as_ref() {
                Some(last) => last.link.store(held as u64, Ordering::Relaxed),
                None => self.first = held,
            }
        }
        self.last = held;
    }

    /// Calls `f` for each window; `f` may free it.
    pub(super) fn each(&self, mut f: impl FnMut(&Held)) {
        let mut at = self.first;
        // SAFETY: cells of the pool.
        while let Some(held) = unsafe { at.as_ref() } {
            at = held.link.load(Ordering::Relaxed) as *mut Held;
            f(held);
        }
    }
}
