//! What may run in a signal handler, linked alone, in two objects: the sampler's path with a program's own captures and
//! walks; and, with the feature `crashes`, other threads' stacks and crash reports. An object's undefined symbols are
//! all that its functions can need. A rule (tests/tests/rules.rs) allows memcpy, memmove, memset, memcmp and bcmp;
//! crash reports also ask sigaction(3), which is async-signal-safe, so that a program's own interposer of it is
//! respected.
#![no_std]

#[cfg(panic = "unwind")]
extern crate std;

#[cfg(not(feature = "crashes"))]
mod walks {
    use uunwind_ffi::check;

    /// The sampler's half.
    ///
    /// # Safety
    /// Never called.
    #[no_mangle]
    pub unsafe extern "C" fn uu_check_handler(origin: *const u8, ucontext: *mut u8) {
        // SAFETY: passed on.
        unsafe {
            uunwind_preload::check::on_own_sample(origin.cast::<uunwind_preload::check::Origin>().read(), ucontext)
        }
    }

    /// The library's half.
    ///
    /// # Safety
    /// Never called.
    #[no_mangle]
    pub unsafe extern "C" fn uu_check_walk(request: *mut u8, ucontext: *mut u8) -> u32 {
        // SAFETY: passed on.
        unsafe {
            if check::on_fault(ucontext, true) {
                return 0;
            }
            check::on_tick(ucontext);
            check::copy(request.cast());
            check::sample(request.cast())
        }
    }

    /// The calls of `uu.h` about the calling thread's stack that are async-signal-safe, and what the drop-in object
    /// asks: linked, because this array is.
    #[no_mangle]
    pub static UU_CHECK_OWN_WALKS: crate::Functions<14> = crate::Functions([
        check::uu_capture as *const (),
        check::capture_for as *const (),
        check::steps as *const (),
        check::step_text as *const (),
        check::whole_steps as *const (),
        check::uu_capture_abandoned as *const (),
        check::uu_walk as *const (),
        check::uu_describe as *const (),
        check::uu_names_lost as *const (),
        check::uu_stack_id as *const (),
        check::uu_stack_frames as *const (),
        check::uu_stack_ids_lost as *const (),
        check::uu_publish_frames as *const (),
        check::uu_ticket as *const (),
    ]);
}

#[cfg(feature = "crashes")]
mod crashes {
    use uunwind_ffi::check;

    /// What installs handlers, which brings these and all that they reach; and the calls about other threads.
    #[no_mangle]
    pub static UU_CHECK_CRASHES: crate::Functions<12> = crate::Functions([
        check::uu_report_crashes as *const (),
        check::uu_report_crashes_to as *const (),
        check::uu_prepare_thread as *const (),
        check::uu_handle_faults as *const (),
        check::uu_thread_signal as *const (),
        check::uu_walk_thread as *const (),
        check::uu_walk_all as *const (),
        check::uu_client_register as *const (),
        check::uu_trigger as *const (),
        check::uu_trigger_cancel as *const (),
        check::uu_cookie_is_pending as *const (),
        check::uu_triggers_lost as *const (),
    ]);
}

/// Functions that an object consists of.
pub struct Functions<const N: usize>(pub [*const (); N]);
// SAFETY: addresses of functions.
unsafe impl<const N: usize> Sync for Functions<N> {}
