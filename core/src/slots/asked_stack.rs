//! How much of the stack that a thread was started on the kernel was asked about.

use crate::span::Span;
use core::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

/// Pages up to the end of a thread's own stack, each of which was found readable once. An end of 0 is none. Only the
/// slot's owner writes it, and tasks that share its thread pointer; a handler that interrupts that leaves a range that
/// was found readable as well.
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
        // The end first: a handler, or a task with this thread pointer, may set both meanwhile. Whoever sees the end
        // sees a start that was set before it.
        let end = self.end.load(Acquire);
        Span { start: self.start.load(Relaxed), end }
    }

    /// Sets the pages. Their end does not change in a thread's life.
    pub fn set(&self, pages: Span) {
        self.start.store(pages.start, Relaxed);
        self.end.store(pages.end, Release);
    }

    /// Nothing was asked so far, of the next owner's stack.
    pub(super) fn forget(&self) {
        // Only the end: no page lies before it, and a start of 0 beside an old end would be all memory.
        self.end.store(0, Relaxed);
    }
}
