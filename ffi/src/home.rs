//! One process, one registry: a second copy of this library (another path, the same name) passes every call to the
//! first.
//!
//! [`elsewhere`] is the question that every entry asks. [`crate::exports`] has the table of entries, and answers the
//! question when the library is loaded.

use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};
use uunwind_core::library::Library;
use uunwind_core::registry::c_window::CWindow;
use uunwind_crashes::threads::all::CThread;
use uunwind_deferred::Deliver;
use uunwind_stacks::describe::FrameInfo;
use uunwind_stacks::request::Request;
use uunwind_stacks::symbol::Symbol;

/// What a copy offers to others. The symbol's name has this structure's version, which never changes.
#[repr(C)]
pub struct Home {
    pub size: u32,
    pub version: u32,
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
    pub capture_abandoned: extern "C" fn(),
    pub describe: unsafe extern "C" fn(*const u64, *mut FrameInfo) -> c_int,
    pub stack_id: unsafe extern "C" fn(*const u64, usize) -> u32,
    pub stack_frames: unsafe extern "C" fn(u32, *mut u64, usize) -> usize,
    pub stack_ids_lost: extern "C" fn() -> u64,
    pub walk: unsafe extern "C" fn(*mut Request) -> c_int,
    pub thread_signal: extern "C" fn(c_int) -> c_int,
    pub walk_thread: unsafe extern "C" fn(u32, *mut Request, u64) -> c_int,
    pub report_crashes: extern "C" fn(c_int, u32) -> c_int,
    pub report_crashes_to: unsafe extern "C" fn(*const c_char, u32) -> c_int,
    pub prepare_thread: extern "C" fn() -> c_int,
    pub walk_all: unsafe extern "C" fn(*mut Request, *mut CThread, usize, u64) -> c_int,
    pub symbolize: unsafe extern "C" fn(*const u64, usize, *mut *const Symbol) -> c_int,
    pub symbols_free: unsafe extern "C" fn(*const Symbol),
    pub names_lost: extern "C" fn() -> u64,
    pub setup_with: extern "C" fn(u32) -> c_int,
    pub client_register: unsafe extern "C" fn(Option<Deliver>, *mut c_void) -> c_int,
    pub client_unregister: extern "C" fn(c_int) -> c_int,
    pub trigger: unsafe extern "C" fn(c_int) -> u64,
    pub trigger_cancel: extern "C" fn() -> c_int,
    pub cookie_is_pending: extern "C" fn(u64) -> c_int,
    pub triggers_lost: extern "C" fn() -> u64,
    pub record_start: extern "C" fn() -> c_int,
    pub record_stop: extern "C" fn() -> c_int,
    pub label_set: unsafe extern "C" fn(*const c_char, *const c_char) -> c_int,
}

static ELSEWHERE: AtomicPtr<Home> = AtomicPtr::new(core::ptr::null_mut());
/// The other copy's `uu_capture`, for our own, which may touch no register; 0: there is none.
pub static CAPTURE: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
/// As [`CAPTURE`], for `uu_walk`.
pub static WALK: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
/// As [`CAPTURE`], for `uu_walk_thread`.
pub static WALK_THREAD: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
/// As [`CAPTURE`], for `uu_walk_all`.
pub static WALK_ALL: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
/// As [`CAPTURE`], for `uu_trigger`.
pub static TRIGGER: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// The copy that all calls go to; `None`: this one. Async-signal-safe.
#[inline(always)]
pub fn elsewhere() -> Option<&'static Home> {
    // SAFETY: a table in an object that is never unloaded (`-z nodelete`).
    unsafe { ELSEWHERE.load(Ordering::Acquire).as_ref() }
}

/// From now on every call goes to another copy.
///
/// # Safety
/// The table must lie in an object that is never unloaded.
pub unsafe fn settle(home: *const Home) {
    // SAFETY: passed on.
    let found = unsafe { &*home };
    CAPTURE.store(found.capture as *mut c_void, Ordering::Release);
    WALK.store(found.walk as *mut c_void, Ordering::Release);
    WALK_THREAD.store(found.walk_thread as *mut c_void, Ordering::Release);
    WALK_ALL.store(found.walk_all as *mut c_void, Ordering::Release);
    TRIGGER.store(found.trigger as *mut c_void, Ordering::Release);
    ELSEWHERE.store(home.cast_mut(), Ordering::Release);
}
