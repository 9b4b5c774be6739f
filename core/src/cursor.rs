//! The current frame of a walk.

use crate::regs::Regs;

/// The current frame: its registers (this machine's by default), and whether its pc is an interrupted instruction or a
/// return address.
#[derive(Clone, Copy, Debug)]
pub struct Cursor<R = Regs> {
    /// pc, sp, fp and the other registers whose values are known in this frame.
    pub regs: R,
    /// True for the leaf and for the caller of a signal frame: `pc` is the interrupted instruction. Otherwise it is a
    /// return address, which may lie after the function's end (a call that does not return), so rules are looked up at
    /// `pc - 1`.
    pub exact: bool,
}

/// The registers of a CPU: what a cursor of code for any CPU needs of them.
pub trait Registers {
    /// The rules of this CPU.
    type Rule;
    /// The rule that finds a frame's caller by the frame pointer.
    const BY_FRAME_POINTER: Self::Rule;
    /// The pc.
    fn pc(&self) -> u64;
    /// The stack pointer.
    fn sp(&self) -> u64;
    /// The frame pointer, if it is known.
    fn fp(&self) -> Option<u64>;
}

impl<R: Registers> Cursor<R> {
    /// The process address with which this frame's rule and owner are looked up.
    #[inline]
    pub fn lookup_pc(&self) -> u64 {
        if self.exact {
            self.regs.pc()
        } else {
            self.regs.pc().wrapping_sub(1)
        }
    }
}
