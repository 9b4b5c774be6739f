//! One process, one registry. A second copy of this library (another path, the same name) finds the first one when it is
//! loaded, and from then on passes every call to it.
//!
//! Which is the first: the loader's order of objects decides, so two copies that are loaded together agree.

use crate::capture::uu_capture;
use crate::embedder::{uu_intern, uu_mark_interpreter, uu_publish_frames, uu_unmark_interpreter};
use crate::faults::uu_handle_faults;
use crate::init::{dl_iterate_phdr, segments, DlPhdrInfo};
use crate::library::uu_private_library_0;
use crate::plugin_call::uu_plugin_call;
use crate::setup::uu_setup;
use crate::windows::{
    uu_register_window, uu_replace_windows, uu_seal_window, uu_synchronize, uu_ticket, uu_unlink_window,
    uu_unregister_window,
};
use core::ffi::{c_char, c_int, c_void, CStr};
use core::sync::atomic::{AtomicPtr, Ordering};
use uunwind_core::library::Library;
use uunwind_core::registry::c_window::CWindow;

/// What a copy offers to others. The symbol's name tells this structure's version, which never changes.
#[repr(C)]
pub struct Home {
    size: u32,
    version: u32,
    pub register_window: unsafe extern "C" fn(*const CWindow) -> c_int,
    pub unlink_window: unsafe extern "C" fn(*const c_void, *mut u64) -> c_int,
    pub replace_windows: unsafe extern "C" fn(*const *const c_void, usize, *const CWindow, usize, *mut u64) -> c_int,
    pub seal_window: extern "C" fn(*const c_void) -> c_int,
    pub ticket: extern "C" fn() -> u64,
    pub synchronize: extern "C" fn(u64, u64) -> c_int,
    pub unregister_window: extern "C" fn(*const c_void) -> c_int,
    pub capture: unsafe extern "C" fn(*mut u64, usize, *const u8, *mut u16) -> usize,
    pub handle_faults: extern "C" fn() -> c_int,
    pub plugin_call: unsafe extern "C" fn(*const c_char, u32, *mut c_void, usize) -> c_int,
    pub intern: unsafe extern "C" fn(*const c_char, *const c_char, u32) -> u32,
    pub publish_frames: unsafe extern "C" fn(*const *mut c_void) -> c_int,
    pub mark_interpreter: extern "C" fn(*const c_void, usize) -> c_int,
    pub unmark_interpreter: extern "C" fn(*const c_void) -> c_int,
    /// The sampler's table, which is of one build only.
    pub library: &'static Library,
    pub setup: extern "C" fn() -> c_int,
}

const SYMBOL: &CStr = c"uu_private_home_1";

/// This copy's functions.
#[cfg_attr(not(feature = "no-entry-points"), no_mangle)]
#[allow(non_upper_case_globals, reason = "a C symbol")]
pub static uu_private_home_1: Home = Home {
    size: size_of::<Home>() as u32,
    version: 1,
    register_window: uu_register_window,
    unlink_window: uu_unlink_window,
    replace_windows: uu_replace_windows,
    seal_window: uu_seal_window,
    ticket: uu_ticket,
    synchronize: uu_synchronize,
    unregister_window: uu_unregister_window,
    capture: uu_capture,
    handle_faults: uu_handle_faults,
    plugin_call: uu_plugin_call,
    intern: uu_intern,
    publish_frames: uu_publish_frames,
    mark_interpreter: uu_mark_interpreter,
    unmark_interpreter: uu_unmark_interpreter,
    library: &uu_private_library_0,
    setup: uu_setup,
};

static ELSEWHERE: AtomicPtr<Home> = AtomicPtr::new(core::ptr::null_mut());
/// The other copy's `uu_capture`, for our own, which may touch no register; 0: there is none.
pub static CAPTURE: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// The copy that all calls go to; `None`: this one. Async-signal-safe.
#[inline(always)]
pub fn elsewhere() -> Option<&'static Home> {
    // SAFETY: a table in an object that is never unloaded (`-z nodelete`).
    unsafe { ELSEWHERE.load(Ordering::Acquire).as_ref() }
}

extern "C" {
    fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void;
    fn dlclose(handle: *mut c_void) -> c_int;
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
}

const ROOM: usize = 16;

/// Copies of the library, in the loader's order.
struct Copies {
    names: [*const c_char; ROOM],
    len: usize,
    own: Option<usize>,
}

/// Looks for a copy that was there first. In normal context, when this one is loaded.
pub fn find() {
    let mut copies = Copies { names: [core::ptr::null(); ROOM], len: 0, own: None };
    // SAFETY: normal context; the callback gets `copies`.
    unsafe { dl_iterate_phdr(note, (&raw mut copies).cast()) };
    let before_us = copies.names.get(..copies.own.unwrap_or(0)).unwrap_or(&[]);
    for name in before_us {
        const RTLD_LAZY: c_int = 1;
        const RTLD_NOLOAD: c_int = 4;
        // SAFETY: a loaded object's name, which stays as long as it is loaded; both kinds of copies are never unloaded, so
        // giving the handle back at once leaves the symbol where it is.
        unsafe {
            let handle = dlopen(*name, RTLD_LAZY | RTLD_NOLOAD);
            if handle.is_null() {
                continue;
            }
            let home = dlsym(handle, SYMBOL.as_ptr()).cast::<Home>();
            dlclose(handle);
            let Some(found) = home.as_ref().filter(|found| found.version == 1 && found.size >= uu_private_home_1.size)
            else {
                continue;
            };
            if !core::ptr::eq(found, &uu_private_home_1) {
                CAPTURE.store(found.capture as *mut c_void, Ordering::Release);
                ELSEWHERE.store(home, Ordering::Release);
                return;
            }
        }
    }
}

unsafe extern "C" fn note(info: *mut DlPhdrInfo, _size: usize, copies: *mut c_void) -> c_int {
    // SAFETY: the loader passes its structure, `find` its list.
    let (info, copies) = unsafe { (&*info, &mut *copies.cast::<Copies>()) };
    let own = &raw const uu_private_home_1 as u64;
    // SAFETY: the loader's own structure.
    if unsafe { segments(info) }.any(|segment| (segment.start..segment.end).contains(&own)) {
        copies.own = Some(copies.len);
        return 1;
    }
    if info.name.is_null() {
        return 0;
    }
    // SAFETY: a NUL-terminated path.
    let path = unsafe { CStr::from_ptr(info.name.cast()) }.to_bytes();
    let base = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    if base.starts_with(b"libuu.so") {
        if let Some(place) = copies.names.get_mut(copies.len) {
            *place = info.name.cast();
            copies.len += 1;
        }
    }
    0
}
