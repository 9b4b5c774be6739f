//! `libuunwind.so.0`: the home of a process's one registry, for C and for the sampler.
//!
//! The C interface only: what a call does lies in `uunwind-live`, which answers for the process as it is now, and in
//! `uunwind-core`.
//!
//! ```text
//! capture          uu_capture: native stacks
//! walk             uu_walk: whole stacks
//! threads          uu_walk_thread, uu_walk_all, uu_thread_signal: other threads' stacks
//! crashes          uu_report_crashes, uu_prepare_thread
//! deferred         uu_client_register, uu_trigger and the calls about cookies: stacks at the next safe point
//! steps            stacks in parts, for libuunwind-compat.so
//! describe         uu_describe, uu_names_lost
//! stack_id         uu_stack_id, uu_stack_frames, uu_stack_ids_lost
//! windows          uu_register_window and the other calls for windows
//! registered       the unwind data that JITs give to __register_frame, as windows
//! embedder         uu_intern, uu_publish_frames, uu_mark_interpreter
//! plugin_call      uu_plugin_call
//! faults           uu_handle_faults; own_faults: which faults are those of a uu_walk
//! setup            uu_setup, uu_setup_with
//! symbolize        uu_symbolize, uu_symbols_free
//! library          the sampler's table of functions
//! copy             copies of stacks for walks elsewhere
//! injected         the same table for a sampler that was put into a running process
//! home, exports    whether another copy of this library serves the process; the table that copies find each other by
//! init, initial    what runs when the library is loaded; the objects that are there from the start
//! ```
//!
//! A signal room, but for `init`, which runs when the object is loaded. Exports are `uu_*` only.
#![cfg_attr(not(test), no_std)]
#![cfg_attr(
    feature = "no-entry-points",
    allow(dead_code, reason = "what only the constructor and the interposers reach is not in the handler path")
)]

mod capture;
/// What may run in a handler, for the check objects.
#[cfg(feature = "no-entry-points")]
pub mod check {
    pub use crate::capture::{capture_for, uu_capture, uu_capture_abandoned};
    pub use crate::copy::copy;
    pub use crate::crashes::{uu_prepare_thread, uu_report_crashes, uu_report_crashes_to};
    pub use crate::deferred::{
        uu_client_register, uu_client_unregister, uu_cookie_is_pending, uu_trigger, uu_trigger_cancel, uu_triggers_lost,
    };
    pub use crate::describe::{uu_describe, uu_names_lost};
    pub use crate::embedder::uu_publish_frames;
    pub use crate::faults::uu_handle_faults;
    pub use crate::library::{on_fault, on_tick, sample};
    pub use crate::stack_id::{uu_stack_frames, uu_stack_id, uu_stack_ids_lost};
    pub use crate::steps::steps;
    pub use crate::steps::text::step_text;
    pub use crate::steps::whole::whole_steps;
    pub use crate::threads::{uu_thread_signal, uu_walk_all, uu_walk_thread};
    pub use crate::walk::uu_walk;
    pub use crate::windows::uu_ticket;
}
#[cfg_attr(target_arch = "aarch64", path = "copy/none.rs")]
mod copy;
mod crashes;
mod deferred;
mod describe;
#[cfg_attr(target_arch = "x86_64", path = "descriptor/x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "descriptor/aarch64.rs")]
mod descriptor;
mod embedder;
mod exports;
mod faults;
mod home;
mod init;
mod initial;
pub mod injected;
mod libc_calls;
mod library;
mod own_faults;
mod plugin_call;
mod recording;
mod registered;
mod setup;
mod stack_id;
mod steps;
mod symbolize;
mod threads;
mod walk;
mod windows;

#[cfg(all(panic = "unwind", not(test)))]
extern crate std;
