//! Windows, one behind the other by their links: what a change has made, or has taken out.

use super::window::Held;
use core::sync::atomic::Ordering;

/// The windows.
pub(super) struct Chain {
    pub(super) first: *mut Held,
    pub(super) last: *mut Held,
}

impl Default for Chain {
    fn default() -> Chain {
        Chain { first: core::ptr::null_mut(), last: core::ptr::null_mut() }
    }
}

impl Chain {
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

    /// Calls `f` for each; it may give the window back.
    pub(super) fn each(&self, mut f: impl FnMut(&Held)) {
        let mut at = self.first;
        // SAFETY: cells of the pool.
        while let Some(held) = unsafe { at.as_ref() } {
            at = held.link.load(Ordering::Relaxed) as *mut Held;
            f(held);
        }
    }
}
