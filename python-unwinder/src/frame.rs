//! `_PyInterpreterFrame`: one Python frame as the interpreter keeps it.

use crate::facts::{Facts, FRAME_BYTES};
use crate::walk::Walk;

/// `owner`: the frame lies on the thread's data stack.
pub const OWNER_THREAD: u8 = 0;
/// `owner`: the frame is part of a generator or coroutine object.
pub const OWNER_GENERATOR: u8 = 1;
/// `owner`: a shim on the C stack, the boundary of an activation (3.12 and 3.13).
pub const OWNER_CSTACK: u8 = 3;

/// A frame, copied.
pub struct PyFrame {
    /// Its address.
    pub address: u64,
    /// The frame that called it, or the boundary.
    pub previous: u64,
    /// The code object (3.13: may be another object).
    pub code: u64,
    /// Address of a code unit: the one before the next (3.11, 3.12), or the one in hand (3.13).
    pub instruction: u64,
    /// Who owns the frame's memory.
    pub owner: u8,
    /// 3.11: the first frame of its activation.
    pub is_entry: bool,
}

impl PyFrame {
    /// Copies the frame at `address`. `None`: not aligned, or unreadable.
    // Not inlined: the copy is off the stack before anything is told.
    #[inline(never)]
    pub fn read(walk: &Walk<'_>, facts: &Facts, address: u64) -> Option<PyFrame> {
        if address == 0 || !address.is_multiple_of(8) {
            return None;
        }
        let mut bytes = [0u8; FRAME_BYTES];
        let head = bytes.get_mut(..facts.frame_bytes as usize)?;
        if !walk.bytes(address, head) {
            return None;
        }
        Some(PyFrame {
            address,
            previous: word(head, facts.frame_previous)?,
            code: word(head, facts.frame_code)?,
            instruction: word(head, facts.frame_instruction)?,
            owner: *head.get(facts.frame_owner as usize)?,
            is_entry: facts.frame_is_entry != 0 && *head.get(facts.frame_is_entry as usize)? != 0,
        })
    }
}

/// The 64-bit word at `offset`.
pub fn word(bytes: &[u8], offset: u32) -> Option<u64> {
    let start = offset as usize;
    let eight = bytes.get(start..start.checked_add(8)?)?;
    Some(u64::from_le_bytes(eight.try_into().ok()?))
}
