//! A cursor: a part of a stack in the memory of libunwind's.

use crate::library::{library, shows_languages};
use crate::part::Part;
use core::ffi::c_int;
use uunwind_core::regs::{Regs, COUNT, RSP};
use uunwind_core::steps::{Step, EXACT, IN_WORDS, UNSURE};
use uunwind_core::stop_reason::StopReason;

/// Words of `unw_cursor_t` (UNW_TDEP_CURSOR_LEN).
const WORDS: usize = 127;

/// `unw_error_t`, which functions return negated.
pub const ENOMEM: c_int = 2;
/// As above.
pub const EBADREG: c_int = 3;
/// As above.
pub const EREADONLYREG: c_int = 4;
/// As above.
pub const EBADFRAME: c_int = 7;
/// As above.
pub const EINVAL: c_int = 8;
/// As above.
pub const ENOINFO: c_int = 10;
/// As above.
const EUNSPEC: c_int = 1;
/// As above.
const EINVALIDIP: c_int = 6;

/// `x86_64_regnum_t`: the numbers below are DWARF's.
const RIP: c_int = 16;
/// As above: a name for the stack pointer.
const CFA: c_int = 17;

/// What a cursor of this object begins with; libunwind's begin with two addresses.
const MARK: [u64; 2] = [u64::from_le_bytes(*b"uu curso"), u64::from_le_bytes(*b"r: walks")];

/// `unw_cursor_t`. It may be copied.
#[repr(C)]
pub struct Cursor {
    mark: [u64; 2],
    part: Part,
}

const _: () = assert!(size_of::<Cursor>() <= 8 * WORDS && align_of::<Cursor>() <= 8);

impl Cursor {
    /// Makes a cursor at the frame with the registers of a context. `is_interrupted`: its pc is an interrupted
    /// instruction; otherwise that follows from the code before it.
    ///
    /// # Safety
    /// `cursor` must have room for libunwind's, `context` be a ucontext_t.
    pub unsafe fn init(cursor: *mut Cursor, context: *const u8, is_interrupted: bool) -> c_int {
        let Some(library) = library() else { return -EUNSPEC };
        // SAFETY: passed on.
        let regs = unsafe { Regs::from_ucontext(context) };
        let mut part = Part::new(&regs, if is_interrupted { EXACT } else { UNSURE });
        if shows_languages() {
            part = part.with_languages();
            // The first frame may be one of a language. Where there is none, the first step says so.
            let _ = part.begin(library);
        }
        // SAFETY: passed on; a cursor is no larger.
        unsafe { cursor.write(Cursor { mark: MARK, part }) };
        0
    }

    /// The cursor, if it is of this object.
    ///
    /// # Safety
    /// It must be null, or a cursor of libunwind's or of this object.
    pub unsafe fn ours<'c>(cursor: *mut Cursor) -> Option<&'c mut Cursor> {
        // SAFETY: passed on: the first two words of any cursor are readable.
        let is_ours = !cursor.is_null() && unsafe { (&raw const (*cursor).mark).read() } == MARK;
        // SAFETY: a cursor that `init` made, or a copy of one.
        is_ours.then(|| unsafe { &mut *cursor })
    }

    /// The current frame.
    pub fn here(&self) -> Step {
        self.part.here()
    }

    /// `unw_step`: 1, or 0 at the end of the stack, or an error.
    pub fn step(&mut self) -> c_int {
        let Some(library) = library() else { return -EUNSPEC };
        match self.part.step(library) {
            Ok(()) => 1,
            Err(stop) if stop.is_complete() || stop.is_plausible() => 0,
            Err(stop) => match stop {
                StopReason::NoOwner | StopReason::NotCode | StopReason::NullReturnAddress => -EINVALIDIP,
                StopReason::NoRule | StopReason::BadUnwindInfo | StopReason::UnreadableUnwindInfo => -ENOINFO,
                StopReason::BadCfa | StopReason::UnreadableStack => -EBADFRAME,
                _ => -EUNSPEC,
            },
        }
    }

    /// `unw_get_reg`. What a call may have destroyed is not known in its caller.
    pub fn register(&mut self, number: c_int) -> Option<u64> {
        match number {
            RIP => Some(self.here().pc),
            _ if number == CFA || number == c_int::from(RSP) => Some(self.sp()).filter(|sp| *sp != 0),
            _ => {
                let number = u8::try_from(number).ok().filter(|number| usize::from(*number) < COUNT)?;
                self.part.registers(library()?)?.get(number)
            }
        }
    }

    /// The stack pointer; 0: not known.
    fn sp(&mut self) -> u64 {
        match (self.here(), library()) {
            (here, _) if here.flags & IN_WORDS != 0 => 0,
            (Step { sp: 0, .. }, Some(library)) => self.part.sp(library),
            (here, _) => here.sp,
        }
    }

    /// `unw_is_signal_frame`: whether the frame was interrupted by a signal that is being handled.
    pub fn is_interrupted(&mut self) -> bool {
        library().is_some_and(|library| self.part.is_interrupted(library))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_cursors_are_recognised() {
        let mut words = [0u64; WORDS];
        let theirs = words.as_mut_ptr().cast::<Cursor>();
        // SAFETY: room for a cursor, with two words that are not ours.
        assert!(unsafe { Cursor::ours(theirs) }.is_none());
        // SAFETY: as above.
        assert!(unsafe { Cursor::ours(core::ptr::null_mut()) }.is_none());
        let regs = Regs::new(0x1234, 0x5678, 0);
        // SAFETY: as above.
        unsafe { theirs.write(Cursor { mark: MARK, part: Part::new(&regs, EXACT) }) };
        let mut copy = words;
        // SAFETY: a copy of a cursor.
        let cursor = unsafe { Cursor::ours(copy.as_mut_ptr().cast()) }.expect("ours");
        let known = [RIP, CFA, 7].map(|number| cursor.register(number));
        assert_eq!(known, [Some(0x1234), Some(0x5678), Some(0x5678)]);
        assert_eq!((cursor.register(-1), cursor.register(18)), (None, None));
        assert!(!cursor.is_interrupted());
    }
}
