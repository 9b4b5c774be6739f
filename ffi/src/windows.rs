//! `uu_register_window` and the related calls: the registry, for C. `uu.h` documents them.

use crate::home;
use core::ffi::{c_int, c_void};
use uunwind_core::errno::{Errno, EINVAL};
use uunwind_core::registry::c_window::CWindow;
use uunwind_core::registry::outside::Outside;
use uunwind_core::registry::window::Window;
use uunwind_live::replay_dependencies::changed;
use uunwind_live::state::{OBJECTS, REGISTRY, SLOTS};

fn result(result: Result<(), Errno>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(Errno(errno)) => -errno,
    }
}

/// Where the windows are, for readers of the process's memory.
#[cfg_attr(not(feature = "no-entry-points"), no_mangle)]
#[allow(non_upper_case_globals, reason = "a C symbol")]
pub static uu_private_windows_1: Outside = REGISTRY.outside();

/// How long `uu_unregister_window` waits: 1 s.
const UNREGISTER_NS: u64 = 1_000_000_000;
/// The window that a C caller describes.
///
/// # Safety
/// `window` must be null, unaligned, or point to a `struct uu_window` of the size that it says.
unsafe fn window(window: *const CWindow) -> Result<Window, Errno> {
    // SAFETY: else the caller passes a structure that begins with its size.
    if window.is_null() || !window.is_aligned() || unsafe { (*window).size } as usize != size_of::<CWindow>() {
        return Err(EINVAL);
    }
    // SAFETY: as above; the size is that of this structure.
    unsafe { (*window).to_window() }
}

/// To be called before a window is registered. Where an object was that could be unloaded, rules cached by pc may still
/// be of its code: the loader's counters show the unload a little later than the place is free.
pub(crate) fn takes_a_place(window: &Window) {
    if OBJECTS.may_have_been_at(window.start, window.end) {
        changed();
    }
}

/// See `uu.h`.
///
/// # Safety
/// `window` must be null or point to a `struct uu_window` of the size that it says.
#[cfg_attr(not(feature = "no-entry-points"), no_mangle)]
pub unsafe extern "C" fn uu_register_window(described: *const CWindow) -> c_int {
    if let Some(home) = home::elsewhere() {
        // SAFETY: passed on.
        return unsafe { (home.register_window)(described) };
    }
    // SAFETY: passed on.
    result(unsafe { window(described) }.and_then(|window| {
        takes_a_place(&window);
        REGISTRY.register(window, &SLOTS).map(|_| ())
    }))
}

/// See `uu.h`.
///
/// # Safety
/// `ticket` must be null or writable.
#[cfg_attr(not(feature = "no-entry-points"), no_mangle)]
pub unsafe extern "C" fn uu_unlink_window(text: *const c_void, ticket: *mut u64) -> c_int {
    if let Some(home) = home::elsewhere() {
        // SAFETY: passed on.
        return unsafe { (home.unlink_window)(text, ticket) };
    }
    if ticket.is_null() {
        return result(Err(EINVAL));
    }
    result(REGISTRY.unlink(text as u64, &SLOTS).map(|unlinked| {
        // SAFETY: the caller passes a writable place.
        unsafe { ticket.write(unlinked) };
    }))
}

/// Windows that one call may take or give.
const MANY: usize = 1 << 20;

/// See `uu.h`.
///
/// # Safety
/// `old` must have `old_count` addresses, `new` `new_count` windows; `ticket` must be null or writable.
#[cfg_attr(not(feature = "no-entry-points"), no_mangle)]
pub unsafe extern "C" fn uu_replace_windows(
    old: *const *const c_void,
    old_count: usize,
    new: *const CWindow,
    new_count: usize,
    ticket: *mut u64,
) -> c_int {
    if let Some(home) = home::elsewhere() {
        // SAFETY: passed on.
        return unsafe { (home.replace_windows)(old, old_count, new, new_count, ticket) };
    }
    let given = (!old.is_null() || old_count == 0) && (!new.is_null() || new_count == 0);
    if ticket.is_null() || !given || old_count > MANY || new_count > MANY {
        return result(Err(EINVAL));
    }
    let old: &[u64] = match old_count {
        0 => &[],
        // SAFETY: the caller passes that number of addresses, which are words.
        _ => unsafe { core::slice::from_raw_parts(old.cast(), old_count) },
    };
    // SAFETY: the caller passes that number of windows.
    let described = (0..new_count).map(|i| unsafe { window(new.add(i)) });
    if let Some(Err(error)) = described.clone().find(Result::is_err) {
        return result(Err(error));
    }
    described.clone().filter_map(Result::ok).for_each(|window| takes_a_place(&window));
    result(REGISTRY.replace(old, described.filter_map(Result::ok), &SLOTS).map(|given| {
        // SAFETY: the caller passes a writable place.
        unsafe { ticket.write(given) };
    }))
}

/// See `uu.h`.
#[cfg_attr(not(feature = "no-entry-points"), no_mangle)]
pub extern "C" fn uu_seal_window(text: *const c_void) -> c_int {
    if let Some(home) = home::elsewhere() {
        return (home.seal_window)(text);
    }
    result(REGISTRY.seal(text as u64, &SLOTS))
}

/// See `uu.h`.
#[cfg_attr(not(feature = "no-entry-points"), no_mangle)]
pub extern "C" fn uu_ticket() -> u64 {
    home::elsewhere().map_or_else(|| REGISTRY.ticket(), |home| (home.ticket)())
}

/// See `uu.h`.
#[cfg_attr(not(feature = "no-entry-points"), no_mangle)]
pub extern "C" fn uu_synchronize(ticket: u64, timeout_ns: u64) -> c_int {
    if let Some(home) = home::elsewhere() {
        return (home.synchronize)(ticket, timeout_ns);
    }
    result(REGISTRY.synchronize(ticket, timeout_ns, &SLOTS))
}

/// See `uu.h`.
#[cfg_attr(not(feature = "no-entry-points"), no_mangle)]
pub extern "C" fn uu_unregister_window(text: *const c_void) -> c_int {
    if let Some(home) = home::elsewhere() {
        return (home.unregister_window)(text);
    }
    let unlinked = REGISTRY.unlink(text as u64, &SLOTS);
    result(unlinked.and_then(|ticket| REGISTRY.synchronize(ticket, UNREGISTER_NS, &SLOTS)))
}
