//! On AArch64 no loop reads without a reader.

use super::Reader;

/// How words of a stack are loaded without a reader, which nothing does here.
pub trait StackWords: Copy {}

/// Proof that the reads of a walk may be guarded; it does not exist here.
#[derive(Clone, Copy, Debug)]
pub enum Bare {}

impl Bare {
    /// Always `None`.
    ///
    /// # Safety
    /// There is no requirement.
    pub unsafe fn new(_: bool) -> Option<Bare> {
        None
    }
}

impl Reader<'_> {
    /// Always `None`.
    #[inline(always)]
    pub fn bare(&self) -> Option<Bare> {
        None
    }
}
