//! AArch64 has no plain frames so far, so no steps are cached.

use crate::cursor::Cursor;
use crate::memory::Reader;
use core::convert::Infallible;
use core::marker::PhantomData;

pub use crate::cache::query::{At, Rules, Top, Validity, EXACT_KEY};

/// A thread's step cache, always empty.
pub struct StepCache;

impl StepCache {
    /// An empty cache.
    #[allow(clippy::new_without_default, reason = "made once, as a static")]
    pub const fn new() -> StepCache {
        StepCache
    }

    /// Does nothing: nothing is cached.
    ///
    /// # Safety
    /// As on x86-64.
    pub unsafe fn clear(&self) {}

    /// Always `None`: no steps are logged.
    ///
    /// # Safety
    /// As on x86-64.
    pub unsafe fn begin(&self, _: u64) -> Option<WalkSteps<'_>> {
        None
    }
}

/// The log of a walk's steps. No value of it exists.
pub struct WalkSteps<'c>(Infallible, PhantomData<&'c ()>);

impl WalkSteps<'_> {
    /// Ends the log.
    pub fn finish(self) {
        match self.0 {}
    }
}

/// The inner frames of a stack that were unwound before its walk. No value of it exists.
pub struct Part<'c> {
    /// Number of frames.
    pub count: usize,
    /// The log of their steps.
    pub steps: WalkSteps<'c>,
}

impl Part<'_> {
    pub(crate) fn is_logged(&self) -> bool {
        match self.steps.0 {}
    }

    pub(crate) fn go(&self, _: &mut Cursor, _: &mut Reader<'_>) {
        match self.steps.0 {}
    }
}
