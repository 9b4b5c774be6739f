//! `_PyInterpreterFrame`: one Python frame as the interpreter keeps it, as defined in `pycore_frame.h`
//! ([3.11](https://github.com/python/cpython/blob/v3.11.7/Include/internal/pycore_frame.h),
//! [3.12](https://github.com/python/cpython/blob/v3.12.1/Include/internal/pycore_frame.h),
//! [3.13](https://github.com/python/cpython/blob/v3.13.0/Include/internal/pycore_frame.h)), later in
//! `pycore_interpframe_structs.h`
//! ([3.14](https://github.com/python/cpython/blob/v3.14.0/Include/internal/pycore_interpframe_structs.h)).

use crate::facts::Facts;
use uunwind_core::memory::near::Near;
use uunwind_core::plugin::guest::Guest;

/// `FRAME_OWNED_BY_THREAD`: the frame lies on the thread's data stack.
pub const OWNER_THREAD: u8 = 0;
/// `FRAME_OWNED_BY_GENERATOR`: the frame is part of a generator or coroutine object.
pub const OWNER_GENERATOR: u8 = 1;
/// `FRAME_OWNED_BY_CSTACK`: a shim on the C stack, the boundary of an activation. From 3.14 on the number is called
/// `FRAME_OWNED_BY_INTERPRETER`.
pub const OWNER_CSTACK: u8 = 3;

/// A copy of the fields that the plugin uses.
pub struct PyFrame {
    /// Address of the frame.
    pub address: u64,
    /// Address of the caller's frame, or of the shim that ends the activation; 0 at the end of the chain.
    pub previous: u64,
    /// Address of the code object (from 3.13 on it may be an object of another type).
    pub code: u64,
    /// Address of a code unit: the one before the next (3.11, 3.12), or the current one (from 3.13 on).
    pub instruction: u64,
    /// Who owns the frame's memory: one of the `OWNER_*` numbers, or one that this plugin does not handle.
    pub owner: u8,
    /// Which copy of the code object's instructions it runs (free-threaded builds from 3.14 on); 0: the object's own.
    pub copy: u32,
    /// 3.11: this is the first frame of its activation.
    pub is_entry: bool,
}

impl PyFrame {
    /// Copies the frame at `address`. `None` if the address is not aligned, or the frame unreadable.
    // Not inlined, so that the copy's words are off the stack before anything is emitted.
    #[inline(never)]
    pub fn read(guest: &Guest<'_>, facts: &Facts, address: u64) -> Option<PyFrame> {
        if address == 0 || !address.is_multiple_of(8) {
            return None;
        }
        // The two bytes, in the words that hold them.
        let (owner_word, entry_word) = (facts.frame_owner & !7, facts.frame_is_entry & !7);
        let offsets = [facts.frame_previous, facts.frame_code, facts.frame_instruction, owner_word, entry_word];
        let mut words = [0; 5];
        guest.words(address, offsets, &mut words)?;
        let [previous, code, instruction, owner, entry] = words;
        Some(PyFrame {
            address,
            previous,
            code: code & !u64::from(facts.frame_tags),
            instruction,
            owner: byte(owner, facts.frame_owner),
            copy: if facts.frame_copy == 0 { 0 } else { owner as u32 },
            is_entry: facts.frame_is_entry != 0 && byte(entry, facts.frame_is_entry) != 0,
        })
    }

    /// As [`PyFrame::read`], by the walk's reader itself.
    #[inline(always)]
    pub fn near(near: &mut Near<'_>, facts: &Facts, address: u64) -> Option<PyFrame> {
        if !is_possible(facts, address) {
            return None;
        }
        let offsets = [facts.frame_previous, facts.frame_owner & !7, facts.frame_code, facts.frame_instruction];
        let [previous, owner, code, instruction] = near.words(address, offsets)?;
        let link = Link::of(facts, previous, owner);
        Some(PyFrame {
            address,
            previous,
            code: code & !u64::from(facts.frame_tags),
            instruction,
            owner: link.owner,
            copy: if facts.frame_copy == 0 { 0 } else { owner as u32 },
            is_entry: link.is_entry,
        })
    }
}

/// The fields of a [`PyFrame`] by which the chain is followed.
pub struct Link {
    /// As in [`PyFrame`].
    pub previous: u64,
    /// As in [`PyFrame`].
    pub owner: u8,
    /// As in [`PyFrame`].
    pub is_entry: bool,
}

impl Link {
    /// Copies these fields of the frame at `address`. `None`: [`PyFrame::read`] decides.
    #[inline(always)]
    pub fn near(near: &mut Near<'_>, facts: &Facts, address: u64) -> Option<Link> {
        if !is_possible(facts, address) {
            return None;
        }
        let [previous, owner] = near.words(address, [facts.frame_previous, facts.frame_owner & !7])?;
        Some(Link::of(facts, previous, owner))
    }

    /// `word`: the one that holds the owner and the mark of entries.
    #[inline(always)]
    fn of(facts: &Facts, previous: u64, word: u64) -> Link {
        let is_entry = facts.frame_is_entry != 0 && byte(word, facts.frame_is_entry) != 0;
        Link { previous, owner: byte(word, facts.frame_owner), is_entry }
    }
}

/// The byte at an offset, of the aligned word that holds it.
#[inline(always)]
fn byte(word: u64, offset: u32) -> u8 {
    (word >> ((offset & 7) * 8)) as u8
}

/// Whether a frame may lie here, and one word holds both its owner and the mark of entries.
#[inline(always)]
fn is_possible(facts: &Facts, address: u64) -> bool {
    let together = facts.frame_is_entry == 0 || facts.frame_is_entry & !7 == facts.frame_owner & !7;
    address != 0 && address.is_multiple_of(8) && together
}
