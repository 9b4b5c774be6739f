//! The table of this copy's entries, and the search for a copy of the library that was there before, when this one is
//! loaded.
//!
//! Which copy is the first: the loader's order of objects decides, so two copies that are loaded together agree.

use crate::capture::{uu_capture, uu_capture_abandoned};
use crate::crashes::{uu_prepare_thread, uu_report_crashes, uu_report_crashes_to};
use crate::deferred::{
    uu_client_register, uu_client_unregister, uu_cookie_is_pending, uu_trigger, uu_trigger_cancel, uu_triggers_lost,
};
use crate::describe::{uu_describe, uu_names_lost};
use crate::embedder::{uu_intern, uu_mark_interpreter, uu_publish_frames, uu_unmark_interpreter};
use crate::faults::uu_handle_faults;
use crate::home::{settle, Home};
use crate::init::dl_iterate_phdr;
use crate::library::uu_private_library_0;
use crate::plugin_call::uu_plugin_call;
use crate::recording::{uu_label_set, uu_record_start, uu_record_stop};
use crate::setup::{uu_setup, uu_setup_with};
use crate::stack_id::{uu_stack_frames, uu_stack_id, uu_stack_ids_lost};
use crate::symbolize::{uu_symbolize, uu_symbols_free};
use crate::threads::{uu_thread_signal, uu_walk_all, uu_walk_thread};
use crate::walk::uu_walk;
use crate::windows::{
    uu_register_window, uu_replace_windows, uu_seal_window, uu_synchronize, uu_ticket, uu_unlink_window,
    uu_unregister_window,
};
use core::ffi::CStr;
use uunwind_core::loaded::{self, PhdrInfo};

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
    capture_abandoned: uu_capture_abandoned,
    describe: uu_describe,
    stack_id: uu_stack_id,
    stack_frames: uu_stack_frames,
    stack_ids_lost: uu_stack_ids_lost,
    walk: uu_walk,
    thread_signal: uu_thread_signal,
    walk_thread: uu_walk_thread,
    report_crashes: uu_report_crashes,
    report_crashes_to: uu_report_crashes_to,
    prepare_thread: uu_prepare_thread,
    walk_all: uu_walk_all,
    symbolize: uu_symbolize,
    symbols_free: uu_symbols_free,
    names_lost: uu_names_lost,
    setup_with: uu_setup_with,
    client_register: uu_client_register,
    client_unregister: uu_client_unregister,
    trigger: uu_trigger,
    trigger_cancel: uu_trigger_cancel,
    cookie_is_pending: uu_cookie_is_pending,
    triggers_lost: uu_triggers_lost,
    record_start: uu_record_start,
    record_stop: uu_record_stop,
    label_set: uu_label_set,
};

/// Looks for a copy that was there first. In normal context, when this one is loaded.
pub fn find() {
    let own = &raw const uu_private_home_1;
    let serves = |found: &&Home| found.version == 1 && found.size >= uu_private_home_1.size;
    // The result's inner value: the copy; none: this copy comes first.
    let copy = |object: &PhdrInfo| {
        // SAFETY: the loader's structure, during its iteration. Both kinds of copies are never unloaded, so that the
        // table stays where it is; its symbol's name has its version.
        unsafe {
            if object.covers(own as u64) {
                return Some(None);
            }
            let path = object.path();
            let base = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
            if !base.starts_with(b"libuunwind.so") {
                return None;
            }
            let home = object.dynamic().symbol(SYMBOL)?.address as *const Home;
            home.as_ref().filter(serves).map(|_| Some(home))
        }
    };
    // SAFETY: normal context, libc's function; then a table in an object that is never unloaded.
    unsafe {
        if let Some(Some(home)) = loaded::find(dl_iterate_phdr, copy) {
            settle(home);
        }
    }
}
