//! What cursors of this object are asked, beyond stepping and registers.

use super::cursor::{Cursor, ENOINFO, ENOMEM};
use crate::library::library;
use crate::next::Next;
use core::ffi::{c_char, c_int, c_void};
use core::mem::MaybeUninit;
use uunwind_core::regs::{ucontext_offset, RA, SP};
use uunwind_core::steps::{Step, EXACT, IN_WORDS, WINDOW};

/// `sizeof(ucontext_t)`, rounded up.
const CONTEXT: usize = 1024;
/// UNW_INIT_SIGNAL_FRAME.
const SIGNAL_FRAME: c_int = 1;

type InitLocal = unsafe extern "C" fn(*mut Theirs, *mut Context, c_int) -> c_int;
type ProcInfo = unsafe extern "C" fn(*mut Theirs, *mut c_void) -> c_int;
type ProcName = unsafe extern "C" fn(*mut Theirs, *mut c_char, usize, *mut u64) -> c_int;

/// A cursor of libunwind's. Later versions may need more than 127 words.
#[repr(C, align(16))]
struct Theirs(MaybeUninit<[u64; 256]>);

#[repr(C, align(16))]
struct Context([u8; CONTEXT]);

/// libunwind's own functions, of one set of names.
pub struct Original {
    /// `unw_init_local2`.
    pub init: &'static Next,
    /// `unw_get_proc_info`.
    pub info: &'static Next,
    /// `unw_get_proc_name`.
    pub name: &'static Next,
}

impl Original {
    /// A cursor of libunwind's at a frame's address, for a question about that address.
    fn at(&self, here: Step) -> Option<Theirs> {
        let init = self.init.get().filter(|_| here.flags & (WINDOW | IN_WORDS) == 0)?;
        let mut context = Context([0; CONTEXT]);
        for (register, value) in [(RA, here.pc), (SP, here.sp)] {
            let from = ucontext_offset(register) as usize;
            let place = context.0.get_mut(from..)?.first_chunk_mut()?;
            *place = value.to_le_bytes();
        }
        let mut theirs = Theirs(MaybeUninit::zeroed());
        let flags = if here.flags & EXACT != 0 { SIGNAL_FRAME } else { 0 };
        // SAFETY: libunwind's function, with room for its cursor; the context has what it reads of one.
        let made =
            unsafe { core::mem::transmute::<*mut c_void, InitLocal>(init)(&raw mut theirs, &raw mut context, flags) };
        (made == 0).then_some(theirs)
    }

    /// `unw_get_proc_info`: of libunwind's own.
    ///
    /// # Safety
    /// `info` must have room for its result.
    pub unsafe fn proc_info(&self, here: Step, info: *mut c_void) -> c_int {
        let (Some(mut theirs), Some(function)) = (self.at(here), self.info.get()) else { return -ENOINFO };
        // SAFETY: libunwind's function and cursor; the caller's result.
        unsafe { core::mem::transmute::<*mut c_void, ProcInfo>(function)(&raw mut theirs, info) }
    }

    /// `unw_get_proc_name`: of libunwind's own, or what a frame is that is no machine frame.
    ///
    /// # Safety
    /// `text` must have room for `size` characters; `offset` be null or writable.
    pub unsafe fn proc_name(&self, here: Step, text: *mut c_char, size: usize, offset: *mut u64) -> c_int {
        if here.flags & IN_WORDS != 0 {
            // SAFETY: the caller's.
            return unsafe { step_name(here, text, size, offset) };
        }
        let (Some(mut theirs), Some(function)) = (self.at(here), self.name.get()) else { return -ENOINFO };
        // SAFETY: libunwind's function and cursor; the caller's result.
        unsafe { core::mem::transmute::<*mut c_void, ProcName>(function)(&raw mut theirs, text, size, offset) }
    }
}

/// `unw_get_proc_name` of a frame that is no machine frame.
///
/// # Safety
/// As [`Original::proc_name`].
unsafe fn step_name(here: Step, text: *mut c_char, size: usize, offset: *mut u64) -> c_int {
    let (Some(library), Some(room)) = (library(), size.checked_sub(1)) else { return -ENOMEM };
    // SAFETY: room for this number of bytes, and a NUL.
    let len = unsafe {
        let len = (library.step_text)(&raw const here, text.cast(), room);
        text.add(len.min(room)).write(0);
        if !offset.is_null() {
            offset.write(0);
        }
        len
    };
    if len > room {
        -ENOMEM
    } else {
        0
    }
}

/// `unw_get_save_loc`: where registers are stored is not kept. UNW_SLT_NONE.
///
/// # Safety
/// `location` must be writable.
pub unsafe fn save_location(location: *mut u32) -> c_int {
    // SAFETY: the caller's `unw_save_loc_t`, which begins with its type.
    unsafe { location.write(0) };
    0
}

/// `unw_get_reg`.
///
/// # Safety
/// `value` must be writable.
pub unsafe fn register(cursor: &mut Cursor, number: c_int, value: *mut u64) -> c_int {
    match cursor.register(number) {
        Some(known) => {
            // SAFETY: the caller's.
            unsafe { value.write(known) };
            0
        }
        None => -super::cursor::EBADREG,
    }
}
