//! The constructor.

use crate::client::{Context, CLIENT};
use crate::process::{self, Path, Process};
use crate::session::{environment, map_facts, Session, Setting};
use crate::signals::{faults, host, VIRTUAL};
use crate::{handler, real, threads};
use core::ffi::{c_char, c_void, CStr};
use core::sync::atomic::Ordering;
use uunwind_core::library::{Library, BUILD, LIBRARY_SYMBOL};
use uunwind_core::objects::Object;
use uunwind_core::plugin::{negotiate, Entry, ENTRY_SYMBOL};
use uunwind_ring::layout::ThreadBlock;
use uunwind_ring::FLAG_NO_CHILDREN;

#[cfg(not(feature = "no-entry-points"))]
#[used]
#[link_section = ".init_array"]
static START: extern "C" fn() = start;

extern "C" {
    fn __register_atfork(
        prepare: Option<extern "C" fn()>,
        parent: Option<extern "C" fn()>,
        child: Option<extern "C" fn()>,
        dso: *mut c_void,
    ) -> i32;
}

extern "C" fn start() {
    let errno = errno();
    if let Some(session) = environment(c"UU_SESSION") {
        record(session);
    }
    #[cfg(not(feature = "no-entry-points"))]
    crate::frames::started();
    // SAFETY: the calling thread's errno; the program finds it as it was.
    unsafe { *libc::__errno_location() = errno };
}

fn errno() -> i32 {
    // SAFETY: the calling thread's errno.
    unsafe { *libc::__errno_location() }
}

/// Begins to record, or leaves the process alone.
fn record(session: &CStr) {
    let Some(setting) = Setting::parse(session.to_bytes()) else { return };
    // SAFETY: getppid always succeeds.
    let parent = unsafe { libc::getppid() } as u32;
    if setting.flags & FLAG_NO_CHILDREN != 0 && parent != setting.recorder || process::in_other_pid_namespace() {
        return;
    }
    let Some(mapped) = Session::map(&setting) else { return };
    if mapped.header().stopped.load(Ordering::Relaxed) != 0 {
        return;
    }
    let Some(objects) = environment(c"UU_SESSION_OBJECTS") else { return };
    let mut plugins = [[0u8; 16]; 8];
    let Some(library) = open_all(objects.to_bytes(), &mut plugins) else { return };
    // SAFETY: libuu's function.
    if !unsafe { (library.ready)() } {
        return;
    }
    // SAFETY: getauxval always succeeds; 0 when the kernel does not tell.
    let signal_frame = unsafe { libc::getauxval(51) }.max(2048);
    let published = map_facts(&setting);
    let process = Process {
        session: mapped,
        facts: published.map(|(facts, _)| facts),
        tables: published.map(|(_, tables)| tables),
        setting,
        library,
        signal_frame,
        exe: Path::of_program(),
    };
    if !process::begin(process, &plugins) {
        return;
    }
    let Some(process) = process::process() else { return };
    crate::clock::locate();
    if !take_signals() {
        process::stop();
        return;
    }
    threads::create_end_key();
    // SAFETY: an async-signal-safe handler that lives as long as the process.
    unsafe { __register_atfork(None, None, Some(process::after_fork), core::ptr::null_mut()) };
    threads::begin(process, false, |block| report_objects(process, block));
}

/// Remembers the program's dispositions (inherited ones so far), then takes the signals over.
fn take_signals() -> bool {
    for signal in VIRTUAL {
        // SAFETY: valid structures.
        unsafe {
            let mut action: libc::sigaction = core::mem::zeroed();
            if real::sigaction(signal, core::ptr::null(), &raw mut action) != 0 {
                return false;
            }
            host::set(signal, host::Disposition::from_c(&action));
        }
    }
    faults::SIGNALS.iter().all(|signal| faults::install(*signal)) && handler::install()
}

/// Tells the recorder of all objects that are loaded now, so that their facts are asked for before the first sample.
fn report_objects(process: &'static Process, block: *mut ThreadBlock) {
    let mut context = Context { process, block, time: crate::clock::monotonic_ns() };
    // SAFETY: normal context, before the timer is armed; the callback gets `context`.
    unsafe { (process.library.add_initial_objects)((&raw mut context).cast(), object_loaded) };
}

unsafe extern "C" fn object_loaded(context: *mut c_void, object: *const Object) {
    // SAFETY: `report_objects` passed its context; libuu its object.
    unsafe {
        if (CLIENT.object_seen)(context, object) {
            (*object).reported_at.store((*context.cast::<Context>()).time, Ordering::Relaxed);
            (*object).reported.store(process::epoch(), Ordering::Relaxed);
        }
    }
}

/// Opens libuu (first in the list) and the plugins. None when libuu cannot be used; a plugin that cannot be is left out.
fn open_all(list: &[u8], plugins: &mut [[u8; 16]; 8]) -> Option<&'static Library> {
    let mut paths = list.split(|b| *b == b':');
    let table = symbol(paths.next()?, LIBRARY_SYMBOL)?;
    // SAFETY: the symbol's name is versioned; size and build are checked before anything else is read.
    let mut library = unsafe { &*table.cast::<Library>() };
    let ours = |library: &Library| library.size as usize == core::mem::size_of::<Library>() && library.build == BUILD;
    if !ours(library) {
        return None;
    }
    // The program may have brought a copy of its own, which was there first: its windows are there.
    // SAFETY: a table of ours; what it names is a table in an object that is never closed.
    let home = unsafe { &*(library.home)() };
    if ours(home) {
        library = home;
    }
    for (index, path) in (1u32..).zip(paths) {
        let Some(name) = plugins.get_mut(index as usize) else { break };
        let Some(entry) = symbol(path, ENTRY_SYMBOL) else { continue };
        // SAFETY: a function of this type (see ENTRY_SYMBOL), in an object that is never closed.
        unsafe {
            let entry = core::mem::transmute::<*mut c_void, Entry>(entry);
            if let (Ok(plugin), 0) = (negotiate(entry), (library.add_plugin)(index, entry)) {
                *name = plugin.name;
            }
        }
    }
    Some(library)
}

/// Opens an object by path and finds a symbol in it.
fn symbol(path: &[u8], name: &CStr) -> Option<*mut c_void> {
    let mut copy = [0u8; 1024];
    for (to, from) in copy.iter_mut().zip(path) {
        *to = *from;
    }
    if path.is_empty() || path.len() >= copy.len() {
        return None;
    }
    // SAFETY: a NUL-terminated path; RTLD_NODELETE, so that what is found stays.
    unsafe {
        let handle =
            libc::dlopen(copy.as_ptr().cast::<c_char>(), libc::RTLD_NOW | libc::RTLD_LOCAL | libc::RTLD_NODELETE);
        if handle.is_null() {
            libc::dlerror();
            return None;
        }
        let found = libc::dlsym(handle, name.as_ptr());
        (!found.is_null()).then_some(found)
    }
}
