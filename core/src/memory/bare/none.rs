//! AArch64 has no loops so far that cannot wait for a reader.

use super::Reader;

/// Shows that reads of a walk may be guarded, for those that cannot wait: nobody has it.
#[derive(Clone, Copy, Debug)]
pub enum Bare {}

impl Bare {
    /// Leave to read so: never given.
    ///
    /// # Safety
    /// None is needed.
    pub unsafe fn new(_: bool) -> Option<Bare> {
        None
    }
}

impl Reader<'_> {
    /// Leave to read without this reader: never given.
    #[inline(always)]
    pub fn bare(&self) -> Option<Bare> {
        None
    }
}
