//! The exported functions. Each first looks whether the cursor is of this object; others' go on.
//!
//! `unw_get_fpreg` and `unw_set_fpreg` are not among them: on x86-64, libunwind's refuse every cursor without a look at
//! it.

use super::cursor::{Cursor, EINVAL, EREADONLYREG};
use super::functions::{register, save_location, Original};
use crate::library::library;
use crate::next::Next;
use core::ffi::{c_char, c_int, c_void, CStr};
use core::sync::atomic::AtomicPtr;
use uunwind_core::caller::Caller;
use uunwind_core::entry_with_caller;

/// UNW_INIT_SIGNAL_FRAME.
const SIGNAL_FRAME: c_int = 1;

/// A name that ends with a NUL.
const fn name(with_nul: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(with_nul.as_bytes()) {
        Ok(name) => name,
        Err(_) => c"",
    }
}

/// A function that goes on to the next definition unless `$ours` has an answer, an `Option`.
macro_rules! function {
    ($next:ident $name:literal $function:ident($($argument:ident: $type:ty),*) = $ours:expr) => {
        static $next: Next = Next::of(name(concat!($name, "\0")));

        /// See libunwind's documentation.
        ///
        /// # Safety
        /// As there.
        #[cfg_attr(not(test), export_name = $name)]
        pub unsafe extern "C" fn $function(cursor: *mut Cursor $(, $argument: $type)*) -> c_int {
            let ours: fn(*mut Cursor $(, $type)*) -> Option<c_int> = $ours;
            if let Some(answer) = ours(cursor $(, $argument)*) {
                return answer;
            }
            let Some(next) = $next.get() else { return -EINVAL };
            // SAFETY: libunwind's function of this type, with the caller's arguments.
            unsafe {
                let next = core::mem::transmute::<
                    *mut c_void, unsafe extern "C" fn(*mut Cursor $(, $type)*) -> c_int>(next);
                next(cursor $(, $argument)*)
            }
        }
    };
}

/// The cursor of a caller, if it is of this object.
fn ours<'c>(cursor: *mut Cursor) -> Option<&'c mut Cursor> {
    // SAFETY: the C caller passes a cursor.
    unsafe { Cursor::ours(cursor) }
}

/// `unw_init_local2`: a new cursor of this object, if there is a library, and libunwind itself is not the caller. Its
/// own functions, and the exceptions of programs that it unwinds, look into the cursor.
///
/// # Safety
/// `cursor` must have room for one, `context` be a ucontext_t, `caller` the entry's registers.
unsafe fn begin(cursor: *mut Cursor, context: *const u8, flags: c_int, next: &Next, caller: *const Caller) -> c_int {
    // SAFETY: the entry's registers.
    let from = unsafe { &*caller }.regs().pc;
    if library().is_some() && !next.is_of_object(from.wrapping_sub(1)) {
        // SAFETY: passed on.
        return unsafe { Cursor::init(cursor, context, flags == SIGNAL_FRAME) };
    }
    let Some(next) = next.get() else { return -EINVAL };
    // SAFETY: libunwind's function of either type: the first takes no flags, which are in a register then.
    unsafe {
        let next =
            core::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut Cursor, *const u8, c_int) -> c_int>(next);
        next(cursor, context, flags)
    }
}

/// Calls never go on without a look at their caller.
static NOWHERE: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// The functions that make cursors, under one set of names.
macro_rules! beginnings {
    ($init:ident $init_text:literal $inner:ident $next:ident, $init2:ident $init2_text:literal $inner2:ident $next2:ident) => {
        static $next: Next = Next::of(name(concat!($init_text, "\0")));
        static $next2: Next = Next::of(name(concat!($init2_text, "\0")));

        entry_with_caller! {
            /// See libunwind's documentation.
            ///
            /// # Safety
            /// As there.
            #[cfg_attr(not(test), no_mangle)]
            #[allow(non_snake_case, reason = "a C symbol")]
            $init(cursor: *mut Cursor, context: *const u8) -> c_int = $inner, NOWHERE
        }

        unsafe extern "C" fn $inner(cursor: *mut Cursor, context: *const u8, caller: *const Caller) -> c_int {
            // SAFETY: the C caller's, and the entry's registers.
            unsafe { begin(cursor, context, 0, &$next, caller) }
        }

        entry_with_caller! {
            /// See libunwind's documentation.
            ///
            /// # Safety
            /// As there.
            #[cfg_attr(not(test), no_mangle)]
            #[allow(non_snake_case, reason = "a C symbol")]
            $init2(cursor: *mut Cursor, context: *const u8, flags: c_int) -> c_int = $inner2, NOWHERE
        }

        unsafe extern "C" fn $inner2(
            cursor: *mut Cursor,
            context: *const u8,
            flags: c_int,
            caller: *const Caller,
        ) -> c_int {
            // SAFETY: the C caller's, and the entry's registers.
            unsafe { begin(cursor, context, flags, &$next2, caller) }
        }
    };
}

beginnings! { _ULx86_64_init_local "_ULx86_64_init_local" init_local NEXT_INIT,
_ULx86_64_init_local2 "_ULx86_64_init_local2" init_local2 NEXT_INIT2 }
beginnings! { _Ux86_64_init_local "_Ux86_64_init_local" init_generic NEXT_GENERIC_INIT,
_Ux86_64_init_local2 "_Ux86_64_init_local2" init_generic2 NEXT_GENERIC_INIT2 }

/// All functions under one set of names, in a module of its own.
macro_rules! functions {
    ($module:ident $init2:ident: $step:literal $reg:literal $set:literal $save:literal $signal:literal
        $info:literal $name:literal $resume:literal $iterate:literal $apply:literal) => {
        /// The functions under these names.
        pub mod $module {
            use super::*;

            static ORIGINAL: Original = Original { init: &$init2, info: &INFO, name: &NAME };

            function! { STEP $step step() = |cursor| ours(cursor).map(Cursor::step) }
            function! { REG $reg get_reg(number: c_int, value: *mut u64) = |cursor, number, value| {
                // SAFETY: the C caller's.
                ours(cursor).map(|cursor| unsafe { register(cursor, number, value) })
            } }
            function! { SET $set set_reg(number: c_int, value: u64) = |cursor, _, _| {
                ours(cursor).map(|_| -EREADONLYREG)
            } }
            function! { SAVE $save get_save_loc(number: c_int, location: *mut u32) = |cursor, _, location| {
                // SAFETY: the C caller's.
                ours(cursor).map(|_| unsafe { save_location(location) })
            } }
            function! { SIGNAL $signal is_signal_frame() = |cursor| {
                ours(cursor).map(|cursor| cursor.is_interrupted().into())
            } }
            function! { INFO $info get_proc_info(info: *mut c_void) = |cursor, info| {
                // SAFETY: the C caller's.
                ours(cursor).map(|cursor| unsafe { ORIGINAL.proc_info(cursor.here(), info) })
            } }
            function! { NAME $name get_proc_name(text: *mut c_char, size: usize, offset: *mut u64)
                = |cursor, text, size, offset| {
                // SAFETY: the C caller's.
                ours(cursor).map(|cursor| unsafe { ORIGINAL.proc_name(cursor.here(), text, size, offset) })
            } }
            function! { RESUME $resume resume() = |cursor| ours(cursor).map(|_| -EINVAL) }
            function! { ITERATE $iterate reg_states_iterate(callback: *mut c_void, token: *mut c_void)
            = |cursor, _, _| ours(cursor).map(|_| -EINVAL) }
            function! { APPLY $apply apply_reg_state(data: *mut c_void) = |cursor, _| ours(cursor).map(|_| -EINVAL) }
        }
    };
}

functions! { local NEXT_INIT2: "_ULx86_64_step" "_ULx86_64_get_reg"
"_ULx86_64_set_reg" "_ULx86_64_get_save_loc" "_ULx86_64_is_signal_frame" "_ULx86_64_get_proc_info"
"_ULx86_64_get_proc_name" "_ULx86_64_resume" "_ULx86_64_reg_states_iterate" "_ULx86_64_apply_reg_state" }

functions! { generic NEXT_GENERIC_INIT2: "_Ux86_64_step" "_Ux86_64_get_reg"
"_Ux86_64_set_reg" "_Ux86_64_get_save_loc" "_Ux86_64_is_signal_frame" "_Ux86_64_get_proc_info"
"_Ux86_64_get_proc_name" "_Ux86_64_resume" "_Ux86_64_reg_states_iterate" "_Ux86_64_apply_reg_state" }
