//! `_PyInterpreterFrame`: one Python frame as the interpreter keeps it, as defined in `pycore_frame.h`
//! ([3.11](https://github.com/python/cpython/blob/v3.11.7/Include/internal/pycore_frame.h),
//! [3.12](https://github.com/python/cpython/blob/v3.12.1/Include/internal/pycore_frame.h),
//! [3.13](https://github.com/python/cpython/blob/v3.13.0/Include/internal/pycore_frame.h)), later in
//! `pycore_interpframe_structs.h`
//! ([3.14](https://github.com/python/cpython/blob/v3.14.0/Include/internal/pycore_interpframe_structs.h)).

use crate::facts::Facts;
use uunwind_core::memory::group::MEMBER_WORDS;
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

    /// Its marks.
    #[inline(always)]
    pub fn marks(&self) -> Marks {
        Marks { owner: self.owner, is_entry: self.is_entry }
    }
}

/// Which words of a frame of the usual kind are read without a [`PyFrame`], and what they mean.
#[derive(Clone, Copy)]
pub struct Words {
    /// Offsets of the words: [`PyFrame::previous`], the word that holds its marks, code object and instruction.
    pub offsets: [u32; MEMBER_WORDS],
    owner_shift: u32,
    entry: u64,
    /// The bits of the marks' word of which one is set in a frame that runs a copy of its instructions.
    pub copy: u64,
    /// The bits of the marks' word that are zero in a frame on the thread's data stack which is neither the first of
    /// its activation nor runs a copy of its instructions.
    special: u64,
    /// The bits of the code object's word that are its address.
    pub code_bits: u64,
}

impl Words {
    /// Which word is the code object's.
    pub const CODE: usize = 2;

    /// `None`: more words must be read.
    #[inline(always)]
    pub fn of(facts: &Facts) -> Option<Words> {
        let marks = facts.frame_owner & !7;
        let byte = |offset: u32| 0xff << ((offset & 7) * 8);
        let entry = if facts.frame_is_entry == 0 { 0 } else { byte(facts.frame_is_entry) };
        if entry != 0 && facts.frame_is_entry & !7 != marks {
            return None;
        }
        let copy = if facts.frame_copy == 0 || facts.code_copies == 0 { 0 } else { u64::from(u32::MAX) };
        Some(Words {
            offsets: [facts.frame_previous, marks, facts.frame_code, facts.frame_instruction],
            owner_shift: (facts.frame_owner & 7) * 8,
            entry,
            copy,
            special: byte(facts.frame_owner) | entry | copy,
            code_bits: !u64::from(facts.frame_tags),
        })
    }

    /// Links to the next frame, by the frame at this address: its link, and its marks' word. Nothing is logged. `None`:
    /// [`PyFrame::read`] decides.
    #[inline(always)]
    pub fn near(&self, near: &mut Near<'_>, address: u64) -> Option<(u64, u64)> {
        if address == 0 || !address.is_multiple_of(8) {
            return None;
        }
        let [previous, marks, ..] = self.offsets;
        let [previous, marks] = near.peek(address, [previous, marks])?;
        Some((previous, marks))
    }

    /// The owner, by the marks' word; or those of several frames, by their words, or-ed.
    #[inline(always)]
    pub fn owner(&self, marks: u64) -> u8 {
        (marks >> self.owner_shift) as u8
    }

    /// Whether the owner is a generator, by one frame's word.
    #[inline(always)]
    pub fn is_generator(&self, marks: u64) -> bool {
        marks & 0xff << self.owner_shift == u64::from(OWNER_GENERATOR) << self.owner_shift
    }

    /// Whether it is the first frame of its activation, likewise.
    #[inline(always)]
    pub fn is_entry(&self, marks: u64) -> bool {
        marks & self.entry != 0
    }

    /// Whether it is not simply one of the thread's frames, that runs its code object's own instructions, by one
    /// frame's word.
    #[inline(always)]
    pub fn is_special(&self, marks: u64) -> bool {
        const { assert!(OWNER_THREAD == 0) };
        marks & self.special != 0
    }

    /// Whether all that is special is that it is the first frame of its activation.
    #[inline(always)]
    pub fn is_first_of_activation(&self, marks: u64) -> bool {
        marks & self.special & !self.entry == 0
    }

    /// Owner and entry mark, by the marks' word.
    pub fn marks(&self, marks: u64) -> Marks {
        Marks { owner: self.owner(marks), is_entry: self.is_entry(marks) }
    }
}

/// What a frame says about itself; or several frames, or-ed.
#[derive(Clone, Copy, Default)]
pub struct Marks {
    /// As in [`PyFrame`].
    pub owner: u8,
    /// As in [`PyFrame`].
    pub is_entry: bool,
}

impl Marks {
    /// Whether the frame ends its activation: a generator's frame keeps its mark from an earlier one.
    #[inline(always)]
    pub fn end_activation(self) -> bool {
        self.is_entry && self.owner == OWNER_THREAD
    }

    /// Those of both.
    #[inline(always)]
    pub fn or(self, other: Marks) -> Marks {
        Marks { owner: self.owner | other.owner, is_entry: self.is_entry | other.is_entry }
    }
}

/// The byte at an offset, of the aligned word that holds it.
#[inline(always)]
fn byte(word: u64, offset: u32) -> u8 {
    (word >> ((offset & 7) * 8)) as u8
}
