//! The handler path alone: what runs for one sampling signal, from the sampler's handler to the walk and its fault and
//! watchdog hooks. The built object's undefined symbols are all that a handler can need; a rule allows memcpy, memmove,
//! memset, memcmp and bcmp.
#![no_std]

#[cfg(panic = "unwind")]
extern crate std;

/// The sampler's half.
///
/// # Safety
/// Never called.
#[no_mangle]
pub unsafe extern "C" fn uu_check_handler(origin: uunwind_preload::check::Origin, ucontext: *mut u8) {
    // SAFETY: passed on.
    unsafe { uunwind_preload::check::on_own_sample(origin, ucontext) }
}

/// The library's half.
///
/// # Safety
/// Never called.
#[no_mangle]
pub unsafe extern "C" fn uu_check_walk(request: *mut u8, ucontext: *mut u8) -> u32 {
    // SAFETY: passed on.
    unsafe {
        if uunwind_ffi::check::on_fault(ucontext, true) {
            return 0;
        }
        uunwind_ffi::check::on_tick(ucontext);
        uunwind_ffi::check::sample(request.cast())
    }
}
