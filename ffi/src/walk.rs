//! `uu_walk`: the whole stack of the calling thread, for C.

use core::ffi::c_int;
use uunwind_core::caller::Caller;
use uunwind_core::cursor::Cursor;
use uunwind_core::entry_with_caller;
use uunwind_core::errno::{EINVAL, ENOMEM};
use uunwind_core::regs::Regs;
use uunwind_stacks::request::Request;
use uunwind_stacks::walk::{whole, How, Refused};

entry_with_caller! {
    /// The C entry: stores the caller's registers and calls `walked`. `uu.h` documents it.
    ///
    /// # Safety
    /// `request` must be null, unaligned, or a valid `uu_request`.
    #[cfg_attr(not(feature = "no-entry-points"), no_mangle)]
    uu_walk(request: *mut Request) -> c_int = walked, crate::home::WALK
}

/// The walk, from the C entry.
///
/// # Safety
/// `request` must be null, unaligned, or a valid `uu_request`, `caller` the entry's registers.
pub(crate) unsafe extern "C" fn walked(request: *mut Request, caller: *const Caller) -> c_int {
    // SAFETY: the C caller's.
    let Some((request, cfas)) = (unsafe { Request::of_c(request) }) else { return -EINVAL };
    if !request.is_valid() || !cfas.addr().is_multiple_of(8) || !cfas.is_null() && request.frames.is_null() {
        return -EINVAL;
    }
    request.begin();
    // SAFETY: the entry's registers.
    let caller = unsafe { &*caller };
    let cursor = if request.ucontext.is_null() {
        Cursor { regs: caller.regs(), exact: false }
    } else {
        // SAFETY: the C caller passes the ucontext that its signal handler got.
        Cursor { regs: unsafe { Regs::from_ucontext(request.ucontext) }, exact: true }
    };
    let guarded = !request.is_probed() && crate::faults::handled();
    let (trusting, with_cfas, ucontext) = (request.trusts_plugins(), !cfas.is_null(), request.ucontext);
    let how = How { guarded, believing: !request.is_probed(), trusting, with_cfas, ucontext };
    // SAFETY: the registers of the caller, or of the interrupted code, whose frames exist until this call returns.
    // The request's buffer and callback are the C caller's.
    let walked = unsafe { whole(cursor, caller.sp, how, &mut |walked| request.take_with_cfas(walked, cfas)) };
    let Err(refused) = walked else { return 0 };
    request.stop = refused.stop().number();
    if refused == Refused::NoMemory {
        return -ENOMEM;
    }
    0
}
