//! How much of the stack that a thread was started on the kernel was asked about.

use crate::span::Span;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Pages up to the end of a thread's own stack, each of which was found readable once. All-zero is none. Only the
/// slot's owner writes it; a handler that interrupts that leaves a range that was found readable as well.
#[derive(Debug)]
pub struct AskedStack {
    start: AtomicU64,
    end: AtomicU64,
}

impl AskedStack {
    pub(super) const fn new() -> AskedStack {
        AskedStack { start: AtomicU64::new(0), end: AtomicU64::new(0) }
    }

    /// The pages (process addresses).
    #[inline(always)]
    pub fn get(&self) -> Span {
        Span { start: self.start.load(Relaxed), end: self.end.load(Relaxed) }
    }

    /// Sets the pages. Their end does not change in a thread's life.
    pub fn set(&self, pages: Span) {
        self.start.store(pages.start, Relaxed);
        self.end.store(pages.end, Relaxed);
    }

    /// Nothing was asked so far, of the next owner's stack.
    pub(super) fn forget(&self) {
        // The end first: no page lies before it.
        self.end.store(0, Relaxed);
        self.start.store(0, Relaxed);
    }
}
