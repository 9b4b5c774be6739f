//! `uu_plugin_call`: a request of the program to one of the plugins, for C. `uu.h` documents it.

use core::ffi::{c_char, c_int, c_void};
use uunwind_core::errno::{EINVAL, ENOENT, ENOSYS};
use uunwind_core::plugin::trimmed;
use uunwind_live::state::PLUGINS;

/// See `uu.h`.
///
/// # Safety
/// `plugin` must be null or NUL-terminated; `argument` and `size` as the plugin says of this `what`.
#[cfg_attr(not(feature = "no-entry-points"), no_mangle)]
pub unsafe extern "C" fn uu_plugin_call(plugin: *const c_char, what: u32, argument: *mut c_void, size: usize) -> c_int {
    if let Some(home) = crate::home::elsewhere() {
        // SAFETY: passed on.
        return unsafe { (home.plugin_call)(plugin, what, argument, size) };
    }
    if plugin.is_null() {
        return -EINVAL;
    }
    let found = PLUGINS.from(1).filter_map(|index| PLUGINS.get_any(index)).find(|table| {
        // SAFETY: a NUL-terminated string, which is read up to its first difference.
        unsafe { is_called(plugin.cast(), trimmed(&table.name)) }
    });
    match found.map(|table| table.call) {
        None => -ENOENT,
        Some(None) => -ENOSYS,
        Some(Some(call)) => {
            // SAFETY: the plugin's function; the caller vouches for the argument.
            let answer = unsafe { call(what, argument, size) };
            // The call may make the plugin answer walks in another way.
            uunwind_live::replay_dependencies::changed();
            answer
        }
    }
}

/// # Safety
/// `text` must be NUL-terminated.
unsafe fn is_called(text: *const u8, name: &[u8]) -> bool {
    // SAFETY: bytes are looked at one after the other, up to the first that differs; the name holds no NUL.
    let same = |(at, byte): (usize, &u8)| unsafe { text.add(at).read() } == *byte;
    // SAFETY: the bytes before were not NUL.
    name.iter().enumerate().all(same) && unsafe { text.add(name.len()).read() } == 0
}
