//! The surroundings of a copy's walk, and its memory: the copy, and files where nobody could write.

use super::copy::{Copy, Word};
use super::files::{Files, Found};
use std::cell::Cell;
use std::ffi::c_void;
use std::rc::Rc;
use uunwind_core::cursor::Cursor;
use uunwind_core::memory::{Mode, Reader};
use uunwind_core::regs::SP;
use uunwind_core::rule::{Packed, Rule, BY_FRAME_POINTER};
use uunwind_core::span::Span;
use uunwind_core::stop_reason::StopReason;
use uunwind_core::walk::{Delivery, Env, Names, Replay};
use uunwind_live::env::by_frame_pointer;
use uunwind_live::skipped::{Place, Surroundings};
use uunwind_remote::env::{in_object, place_in};
use uunwind_ring::copy::CALLED;

/// What a walk reads.
pub struct Space<'s> {
    copy: &'s Copy,
    files: &'s Files<'s>,
    process: u32,
    time: u64,
    /// It was not known where all code was when the copy was made.
    lacks_calls: bool,
    /// Why the last word of a stack that was wanted is not known.
    missed: Cell<Option<StopReason>>,
}

impl<'s> Space<'s> {
    /// The memory of a process at this time, as far as the copy and its objects' files have it.
    /// `lacks_calls`: return addresses in code that was new then may have been left out.
    pub fn new(copy: &'s Copy, files: &'s Files<'s>, (process, time): (u32, u64), lacks_calls: bool) -> Space<'s> {
        Space { copy, files, process, time, lacks_calls, missed: Cell::new(None) }
    }

    /// A reader over it.
    pub fn reader(&self) -> Reader<'_> {
        let context = std::ptr::from_ref(self).cast_mut().cast::<c_void>();
        // SAFETY: `read` takes a space, which lives as long as the reader.
        unsafe { Reader::new(Mode::Hosted(read, context)) }
    }

    /// The reason for which a walk ended, where it could not read a word of the stack.
    pub fn reason(&self, stop: StopReason) -> StopReason {
        match (stop, self.missed.get()) {
            (StopReason::UnreadableStack | StopReason::UnknownRegister, Some(missed)) => missed,
            _ => stop,
        }
    }

    /// Fills `out`. False: not all of it is known.
    fn fill(&self, address: u64, out: &mut [u8]) -> bool {
        let word = self.copy.word(address & !7);
        if word == Word::Elsewhere {
            return self.files.read(self.process, self.time, address, out);
        }
        let Word::Kept(value) = word else {
            let why = if word == Word::Cut { StopReason::StackCut } else { StopReason::WordLeftOut };
            self.missed.set(Some(why));
            return false;
        };
        // Words are kept whole, and walks read whole words.
        match value.to_le_bytes().get(address as usize & 7..).and_then(|bytes| bytes.get(..out.len())) {
            Some(bytes) => {
                out.copy_from_slice(bytes);
                true
            }
            None => false,
        }
    }
}

/// [`uunwind_core::memory::HostRead`] over a [`Space`].
unsafe extern "C" fn read(space: *mut c_void, address: u64, out: *mut u8, len: usize) -> bool {
    // SAFETY: `Space::reader` passes itself; the reader passes `len` writable bytes.
    let (space, out) = unsafe { (&*space.cast::<Space<'_>>(), std::slice::from_raw_parts_mut(out, len)) };
    space.fill(address, out)
}

/// The surroundings of a walk.
pub struct Offline<'s> {
    /// Where it walks.
    pub space: &'s Space<'s>,
}

impl Offline<'_> {
    /// The rule of a frame that no object covers. A return address there was kept because it follows a call, or because
    /// a window covered it.
    fn unowned(&self, cursor: &Cursor, reader: &mut Reader<'_>) -> Packed {
        let head = &self.space.copy.head;
        let is_leaf = cursor.exact && cursor.regs.pc == head.pc && cursor.regs.sp() == head.registers[usize::from(SP)];
        if is_leaf && head.flags & CALLED != 0 {
            return Rule { flags: BY_FRAME_POINTER, ..Rule::simple(SP, 8) }.pack();
        }
        by_frame_pointer(cursor, StopReason::NoOwner, &mut InCopy(self.space), reader)
    }
}

/// What lies where, by the objects' files.
struct InCopy<'s>(&'s Space<'s>);

impl Surroundings for InCopy<'_> {
    fn place(&mut self, address: u64, reader: &mut Reader<'_>) -> Place {
        match self.0.files.find(self.0.process, self.0.time, address) {
            Found::Mapped(object) => place_in(&object, address, reader),
            Found::Missing | Found::Nothing => Place::Called,
        }
    }

    fn is_copy(&self) -> bool {
        true
    }

    fn may_lack_calls(&self) -> bool {
        self.0.lacks_calls
    }
}

impl Env for Offline<'_> {
    fn rule(&mut self, cursor: &Cursor, reader: &mut Reader<'_>) -> Packed {
        let space = self.space;
        // Words that were looked for and not found there are no reason for what comes later.
        let missed = space.missed.get();
        let rule = match space.files.find(space.process, space.time, cursor.lookup_pc()) {
            Found::Mapped(object) => in_object(&Rc::clone(&object), cursor, &mut InCopy(space), reader, |_| None),
            Found::Missing => Packed::failed(StopReason::ObjectMissing),
            Found::Nothing => self.unowned(cursor, reader),
        };
        space.missed.set(missed);
        rule
    }

    fn function_at(&mut self, address: u64, reader: &mut Reader<'_>) -> Option<Span> {
        match self.space.files.find(self.space.process, self.space.time, address) {
            Found::Mapped(object) => object.function_at(address, reader),
            Found::Missing | Found::Nothing => None,
        }
    }

    fn deliver(&mut self, to: Delivery, cursor: &mut Cursor, reader: &mut Reader<'_>) -> bool {
        let missed = self.space.missed.get();
        let found = uunwind_sources::deliver(to, cursor, reader);
        self.space.missed.set(missed);
        found
    }
}

impl Names for Offline<'_> {}
impl Replay for Offline<'_> {}
