//! AArch64 has no plain frames so far, so there is no chain of them.

use crate::memory::Bare;
use crate::stop_reason::StopReason;
use core::convert::Infallible;
use core::marker::PhantomData;

mod asked;

pub use asked::{Rules, Surroundings, Top, EXACT_KEY};

/// A thread's last chain: there is none.
pub struct Chain;

impl Chain {
    /// There is none.
    #[allow(clippy::new_without_default, reason = "made once, as a static")]
    pub const fn new() -> Chain {
        Chain
    }

    /// That is for a walk to tell.
    ///
    /// # Safety
    /// As on x86-64.
    pub unsafe fn whole<const WORDS: usize>(
        &self,
        _: &Rules<'_, WORDS>,
        _: Top,
        _: Bare,
        _: &mut [u64],
    ) -> Option<(usize, StopReason)> {
        None
    }

    /// There is none.
    ///
    /// # Safety
    /// As on x86-64.
    pub unsafe fn begin(&self, _: u64) -> Option<Steps<'_>> {
        None
    }
}

/// The chain of a walk under way: there is none.
pub struct Steps<'c>(Infallible, PhantomData<&'c ()>);

impl Steps<'_> {
    /// The walk is over.
    pub fn finish(self) {
        match self.0 {}
    }
}
