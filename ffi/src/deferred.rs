//! `uu_client_register`, `uu_client_unregister`, `uu_trigger` and the calls about cookies: deferred requests, for C.

use crate::threads::HOST;
use core::ffi::{c_int, c_void};
use uunwind_core::caller::Caller;
use uunwind_core::entry_with_caller;
use uunwind_core::errno::EINVAL;
use uunwind_deferred::Deliver;

/// See `uu.h`.
///
/// # Safety
/// `deliver` must be null or a client's function, async-signal-safe, which `user` is for.
#[cfg_attr(not(feature = "no-entry-points"), no_mangle)]
pub unsafe extern "C" fn uu_client_register(deliver: Option<Deliver>, user: *mut c_void) -> c_int {
    if let Some(home) = crate::home::elsewhere() {
        // SAFETY: passed on.
        return unsafe { (home.client_register)(deliver, user) };
    }
    let Some(deliver) = deliver else { return -EINVAL };
    uunwind_crashes::set_host(&HOST);
    uunwind_deferred::register(deliver, user).map_or_else(|error| -error, |number| number as c_int)
}

/// See `uu.h`.
#[cfg_attr(not(feature = "no-entry-points"), no_mangle)]
pub extern "C" fn uu_client_unregister(client: c_int) -> c_int {
    match crate::home::elsewhere() {
        Some(home) => (home.client_unregister)(client),
        None => uunwind_deferred::unregister(client).map_or_else(|error| -error, |()| 0),
    }
}

entry_with_caller! {
    /// See `uu.h`.
    ///
    /// # Safety
    /// None: unsafe as all of these entries are.
    #[cfg_attr(not(feature = "no-entry-points"), no_mangle)]
    uu_trigger(client: c_int) -> u64 = trigger, crate::home::TRIGGER
}

/// # Safety
/// `caller` must be the entry's registers.
unsafe extern "C" fn trigger(client: c_int, caller: *const Caller) -> u64 {
    // SAFETY: the entry's registers, which are there until it returns.
    uunwind_deferred::trigger(client, || unsafe { (*caller).regs() })
}

/// See `uu.h`.
#[cfg_attr(not(feature = "no-entry-points"), no_mangle)]
pub extern "C" fn uu_trigger_cancel() -> c_int {
    match crate::home::elsewhere() {
        Some(home) => (home.trigger_cancel)(),
        None => c_int::from(uunwind_deferred::cancel()),
    }
}

/// See `uu.h`.
#[cfg_attr(not(feature = "no-entry-points"), no_mangle)]
pub extern "C" fn uu_cookie_is_pending(cookie: u64) -> c_int {
    match crate::home::elsewhere() {
        Some(home) => (home.cookie_is_pending)(cookie),
        None => uunwind_deferred::is_pending(cookie).map_or_else(|error| -error, c_int::from),
    }
}

/// See `uu.h`.
#[cfg_attr(not(feature = "no-entry-points"), no_mangle)]
pub extern "C" fn uu_triggers_lost() -> u64 {
    match crate::home::elsewhere() {
        Some(home) => (home.triggers_lost)(),
        None => uunwind_deferred::lost(),
    }
}
