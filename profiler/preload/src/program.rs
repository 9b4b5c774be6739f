//! What the program may ask of its recording (`uu_record_start()`, `uu_record_stop()`, `uu_label_set()`), by
//! libuunwind's functions, which pass it on.

use crate::process::{self, Process};
use crate::slots::{self, Slot};
use crate::{injected, labels, pause};
use core::ffi::c_int;
use uunwind_core::errno::ENOTCONN;
use uunwind_core::library::Recorder;

/// What libuunwind is given.
pub static RECORDER: Recorder = Recorder { switch, label };

/// The process, while it is recorded.
fn recorded() -> Option<&'static Process> {
    process::process().filter(|process| process::is_own() && process::block().is_some() && !process.facts.is_over())
}

extern "C" fn switch(paused: bool) -> c_int {
    let switched = recorded().ok_or(ENOTCONN.0).and_then(|process| pause::switch(process, paused));
    switched.map_or_else(|error| -error, |()| 0)
}

unsafe extern "C" fn label(key: *const u8, key_len: usize, value: *const u8, value_len: usize) -> c_int {
    // SAFETY: the caller passes a key of this length.
    let key = unsafe { core::slice::from_raw_parts(key, key_len) };
    // SAFETY: null, or a value of this length.
    let value = (!value.is_null()).then(|| unsafe { core::slice::from_raw_parts(value, value_len) });
    let own = |process| if injected::is_so() { injected::slot_of_thread(process) } else { slots::own() };
    let thread: Option<(&Process, &Slot)> = recorded().and_then(|process| Some((process, own(process)?)));
    let set = thread.ok_or(ENOTCONN.0).and_then(|(process, slot)| labels::set(process, slot, key, value));
    set.map_or_else(|error| -error, |()| 0)
}
