//! AArch64 has no plain frames so far, so there is no chain of them.

use crate::memory::Bare;
use crate::short_rule::{Salt, ShortRules};
use crate::stop_reason::StopReason;
use core::convert::Infallible;
use core::marker::PhantomData;

/// As on x86-64.
pub const EXACT_KEY: u64 = 1 << 63;

/// As on x86-64.
pub struct Top {
    /// As on x86-64.
    pub pc: u64,
    /// As on x86-64.
    pub exact: bool,
    /// As on x86-64.
    pub sp: u64,
    /// As on x86-64.
    pub fp: u64,
}

impl Top {
    /// Of no use here.
    ///
    /// # Safety
    /// None is needed.
    pub unsafe fn interrupted(_: *const u8) -> Top {
        Top { pc: 0, exact: true, sp: 0, fp: 0 }
    }
}

/// As on x86-64.
pub struct Rules<'t, const BUCKETS: usize> {
    /// As on x86-64.
    pub table: &'t ShortRules<BUCKETS>,
    /// As on x86-64.
    pub salt: Salt,
    /// As on x86-64.
    pub stamp: u64,
}

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
    pub unsafe fn whole<const BUCKETS: usize>(
        &self,
        _: &Rules<'_, BUCKETS>,
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
