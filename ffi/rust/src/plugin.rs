//! Requests to plugins.

use crate::{library, Error};
use std::ffi::{c_int, c_void, CStr};

/// A request to the plugin of this name (`uu_plugin_call()` of `uu.h`). What `what`, `argument` and `size` mean, and a
/// result that is no error, the plugin's own header says.
///
/// ```
/// uunwind::setup()?; // opens the plugins
/// const REGISTER: u32 = 1; // UU_LUA_REGISTER of uu_lua.h
/// // SAFETY: the plugin checks the memory at the address, here null, before it takes it for a state of Lua.
/// let answer = unsafe { uunwind::plugin_call(c"lua", REGISTER, std::ptr::null_mut(), 0) };
/// assert_eq!(answer, Err(uunwind::Error::Os { call: "uu_plugin_call", errno: libc::EINVAL }));
/// # Ok::<(), uunwind::Error>(())
/// ```
///
/// # Errors
/// Those of [`load`](crate::load); [`Error::Os`] with `ENOENT`: no such plugin is open; `ENOSYS`: it takes no
/// requests, or not this one; and the plugin's own.
///
/// # Safety
/// The three must be what the plugin's header asks for: it may read and write at `argument`, and keep the address.
pub unsafe fn plugin_call(plugin: &CStr, what: u32, argument: *mut c_void, size: usize) -> Result<c_int, Error> {
    let api = library::get()?;
    // SAFETY: a NUL-terminated name; the rest is the caller's.
    let answer = unsafe { (api.plugin_call)(plugin.as_ptr(), what, argument, size) };
    Error::check("uu_plugin_call", answer).map(|()| answer)
}
