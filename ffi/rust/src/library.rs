//! Finds the process's libuunwind, once.

use crate::sys::{Api, ABI};
use crate::Error;
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use std::ffi::OsString;
use std::sync::atomic::{AtomicPtr, Ordering};

const NAME: &str = "libuunwind.so.0";
const VARIABLE: &str = "UUNWIND_LIBRARY";

/// The library's functions, for ever; null: not found so far. Two threads may look for it at the same time, and find
/// the same: no lock, which the child of a fork could find held.
static API: AtomicPtr<Api> = AtomicPtr::new(std::ptr::null_mut());

/// The functions, if the library has been found. Async-signal-safe.
pub fn found() -> Option<&'static Api> {
    // SAFETY: null, or what `get` leaked.
    unsafe { API.load(Ordering::Acquire).as_ref() }
}

/// Other functions in its place, which must live for ever.
#[cfg(test)]
pub fn set(api: *const Api) {
    API.store(api.cast_mut(), Ordering::Release);
}

/// The functions; the library is looked for at the first call.
pub fn get() -> Result<&'static Api, Error> {
    if let Some(api) = found() {
        return Ok(api);
    }
    let library = open()?;
    let api: &'static Api = Box::leak(Box::new(functions(&library)?));
    // A build of the library that the loader would unload stays, too.
    std::mem::forget(library);
    API.store(std::ptr::from_ref(api).cast_mut(), Ordering::Release);
    Ok(api)
}

fn open() -> Result<Library, Error> {
    let no_library = |e: libloading::Error| {
        let why = std::error::Error::source(&e).map_or_else(|| e.to_string(), ToString::to_string);
        Error::NoLibrary(why)
    };
    // SAFETY: the library's constructor makes its tables, and needs nothing; libuunwind.so.0 is never unloaded.
    unsafe {
        if let Ok(there) = Library::open(Some(NAME), RTLD_NOW | libc::RTLD_NOLOAD) {
            return Ok(there);
        }
        let path = variable().unwrap_or_else(|| NAME.into());
        Library::open(Some(path), RTLD_NOW | RTLD_LOCAL).map_err(no_library)
    }
}

/// The variable's value, unless the program runs with more rights than its caller.
fn variable() -> Option<OsString> {
    // SAFETY: getauxval has no preconditions.
    let trusted = unsafe { libc::getauxval(libc::AT_SECURE) } == 0;
    std::env::var_os(VARIABLE).filter(|value| trusted && !value.is_empty())
}

fn functions(library: &Library) -> Result<Api, Error> {
    macro_rules! find {
        ($($field:ident = $name:literal),*) => {
            Api { $($field: {
                // SAFETY: `uu.h` declares the function of this name with this type.
                let found = unsafe { library.get($name.as_bytes()) };
                *found.map_err(|_| Error::Missing($name))?
            }),* }
        };
    }
    // SAFETY: as below.
    let abi = unsafe { library.get::<unsafe extern "C" fn() -> u32>(b"uu_abi") };
    // SAFETY: the function has no preconditions.
    let abi = unsafe { abi.map_err(|_| Error::Missing("uu_abi"))?() };
    if abi != ABI {
        return Err(Error::Version(abi));
    }
    Ok(find!(
        capture = "uu_capture",
        capture_abandoned = "uu_capture_abandoned",
        walk = "uu_walk",
        thread_signal = "uu_thread_signal",
        walk_thread = "uu_walk_thread",
        walk_all = "uu_walk_all",
        client_register = "uu_client_register",
        client_unregister = "uu_client_unregister",
        trigger = "uu_trigger",
        trigger_cancel = "uu_trigger_cancel",
        cookie_is_pending = "uu_cookie_is_pending",
        triggers_lost = "uu_triggers_lost",
        prepare_thread = "uu_prepare_thread",
        describe = "uu_describe",
        symbolize = "uu_symbolize",
        names_lost = "uu_names_lost",
        symbols_free = "uu_symbols_free",
        stack_id = "uu_stack_id",
        stack_frames = "uu_stack_frames",
        stack_ids_lost = "uu_stack_ids_lost",
        handle_faults = "uu_handle_faults",
        report_crashes = "uu_report_crashes",
        report_crashes_to = "uu_report_crashes_to",
        setup = "uu_setup",
        setup_with = "uu_setup_with",
        register_window = "uu_register_window",
        unlink_window = "uu_unlink_window",
        replace_windows = "uu_replace_windows",
        seal_window = "uu_seal_window",
        ticket = "uu_ticket",
        synchronize = "uu_synchronize",
        intern = "uu_intern",
        publish_frames = "uu_publish_frames",
        mark_interpreter = "uu_mark_interpreter",
        unmark_interpreter = "uu_unmark_interpreter",
        record_start = "uu_record_start",
        record_stop = "uu_record_stop",
        label_set = "uu_label_set",
        plugin_call = "uu_plugin_call"
    ))
}
