//! The frame in hand.

use crate::regs::Regs;

/// The frame in hand: its registers (this machine's, unless others are named), and whether its pc was interrupted or called
/// from.
#[derive(Clone, Copy, Debug)]
pub struct Cursor<R = Regs> {
    /// pc, sp, fp and what else is known in this frame.
    pub regs: R,
    /// True at the leaf and below each signal frame: `pc` is the very instruction. Otherwise it is a return address,
    /// which may already lie behind the function (a call that does not return), so rules are looked up at `pc - 1`.
    pub exact: bool,
}

/// Registers of any CPU.
pub trait Registers {
    /// Its rules.
    type Rule;
    /// How a frame's caller is found by the frame pointer.
    const BY_FRAME_POINTER: Self::Rule;
    /// The pc.
    fn pc(&self) -> u64;
    /// The stack pointer.
    fn sp(&self) -> u64;
    /// The frame pointer, if it is known.
    fn fp(&self) -> Option<u64>;
}

impl<R: Registers> Cursor<R> {
    /// The address under which this frame's rule and owner are found.
    #[inline]
    pub fn lookup_pc(&self) -> u64 {
        if self.exact {
            self.regs.pc()
        } else {
            self.regs.pc().wrapping_sub(1)
        }
    }
}
