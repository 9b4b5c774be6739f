//! `uu_register_window` and its kin: the registry, for C. `uu.h` documents them.

use crate::state::{REGISTRY, SLOTS};
use core::ffi::{c_int, c_void};
use uunwind_core::registry::snapshot::{Kind, Window};
use uunwind_core::registry::{Errno, EINVAL};

/// `struct uu_window`.
#[repr(C)]
pub struct CWindow {
    size: u32,
    kind: u32,
    text: *const c_void,
    text_len: usize,
    user: *mut c_void,
    reserved: [u64; 4],
}

fn result(result: Result<(), Errno>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(Errno(errno)) => -errno,
    }
}

/// How long `uu_unregister_window` waits: 1 s.
const UNREGISTER_NS: u64 = 1_000_000_000;

/// See `uu.h`.
///
/// # Safety
/// `window` must be null or point to a `struct uu_window` of the size that it says.
#[cfg_attr(not(feature = "no-entry-points"), no_mangle)]
pub unsafe extern "C" fn uu_register_window(window: *const CWindow) -> c_int {
    const ENOTSUP: c_int = 95;
    // SAFETY: the caller passes null or a structure that begins with its size.
    let known = !window.is_null() && unsafe { (*window).size } as usize == core::mem::size_of::<CWindow>();
    if !known {
        return result(Err(EINVAL));
    }
    // SAFETY: as above; the size is that of this structure.
    let window = unsafe { &*window };
    if window.reserved != [0; 4] {
        return result(Err(EINVAL));
    }
    let kind = match window.kind {
        1 => Kind::FramePointer,
        2 => Kind::Opaque,
        _ => return -ENOTSUP,
    };
    let start = window.text as u64;
    let Some(end) = start.checked_add(window.text_len as u64) else { return result(Err(EINVAL)) };
    result(REGISTRY.register(Window { start, end, kind, generation: 0, user: window.user as u64 }, &SLOTS))
}

/// See `uu.h`.
///
/// # Safety
/// `ticket` must be null or writable.
#[cfg_attr(not(feature = "no-entry-points"), no_mangle)]
pub unsafe extern "C" fn uu_unlink_window(text: *const c_void, ticket: *mut u64) -> c_int {
    if ticket.is_null() {
        return result(Err(EINVAL));
    }
    result(REGISTRY.unlink(text as u64, &SLOTS).map(|unlinked| {
        // SAFETY: the caller passes a writable place.
        unsafe { ticket.write(unlinked) };
    }))
}

/// See `uu.h`.
#[cfg_attr(not(feature = "no-entry-points"), no_mangle)]
pub extern "C" fn uu_synchronize(ticket: u64, timeout_ns: u64) -> c_int {
    result(REGISTRY.synchronize(ticket, timeout_ns, &SLOTS))
}

/// See `uu.h`.
#[cfg_attr(not(feature = "no-entry-points"), no_mangle)]
pub extern "C" fn uu_unregister_window(text: *const c_void) -> c_int {
    let unlinked = REGISTRY.unlink(text as u64, &SLOTS);
    result(unlinked.and_then(|ticket| REGISTRY.synchronize(ticket, UNREGISTER_NS, &SLOTS)))
}
