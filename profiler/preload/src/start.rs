//! The constructor of the preloaded object: decides whether this process is recorded, and begins the recording.

use crate::client::{Context, CLIENT};
use crate::process::{self, Path, Process};
use crate::session::{environment, map_facts, Session, Setting};
use crate::signals::{self, dispositions, faults};
use crate::{handler, real, slots, threads};
use core::ffi::{c_char, c_void, CStr};
use core::sync::atomic::Ordering;
use uunwind_core::library::{Library, BUILD, LIBRARY_SYMBOL};
use uunwind_core::objects::Object;
use uunwind_core::plugin::{negotiate, Entry, ENTRY_SYMBOL};
use uunwind_core::walk::PLUGIN_INDICES;
use uunwind_ring::facts::FactsView;
use uunwind_ring::layout::ThreadBlock;
use uunwind_ring::names::{self, NameEntry};
use uunwind_ring::tables::TablesView;
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
    crate::register_frame::started();
    // SAFETY: the calling thread's errno, which the program must find unchanged.
    unsafe { *libc::__errno_location() = errno };
}

fn errno() -> i32 {
    // SAFETY: the calling thread's errno.
    unsafe { *libc::__errno_location() }
}

/// Begins to record, or leaves the process unrecorded when something that it needs is missing.
fn record(session: &CStr) {
    let Some(setting) = Setting::parse(session.to_bytes()) else { return };
    // SAFETY: getppid always succeeds.
    let parent = unsafe { libc::getppid() } as u32;
    if setting.flags & FLAG_NO_CHILDREN != 0 && parent != setting.recorder || process::in_other_pid_namespace() {
        return;
    }
    let Some((session, (facts, tables))) = map_recording(&setting) else { return };
    let Some(names) = slots::map_private(core::mem::size_of::<NameEntry>() * names::ENTRIES, 0) else { return };
    let mut plugins = [[0u8; 16]; PLUGIN_INDICES];
    let library = environment(c"UU_SESSION_OBJECTS").and_then(|objects| open_all(objects.to_bytes(), &mut plugins));
    // SAFETY: a function of libuunwind's table.
    let Some(library) = library.filter(|library| unsafe { (library.ready)() }) else { return session.unmap() };
    // SAFETY: getauxval has no preconditions; it returns 0 when the kernel does not report this value (AT_MINSIGSTKSZ).
    let signal_frame = unsafe { libc::getauxval(51) }.max(2048);
    let exe = Path::of_program();
    let names = names.cast();
    let process = Process { session, facts, tables, names, plugins, setting, library, signal_frame, exe };
    if !process::begin(process) {
        return session.unmap();
    }
    let Some(process) = process::process() else { return };
    crate::clock::locate();
    crate::copy::locate_main_stack();
    signals::choose(setting.flags);
    if !take_signals() {
        crate::ending::end_at_once(process, false);
        return;
    }
    threads::create_end_key();
    // SAFETY: an async-signal-safe handler that lives as long as the process.
    unsafe { __register_atfork(None, None, Some(process::after_fork), core::ptr::null_mut()) };
    threads::begin(process, false, |block| report_objects(process, block));
}

/// Maps the session and the facts. `None` if that fails, or if the recording is over.
fn map_recording(setting: &Setting) -> Option<(Session, (FactsView, TablesView))> {
    let session = Session::map(setting)?;
    let published = map_facts(setting).filter(|(facts, _)| !facts.is_over());
    if published.is_none() {
        session.unmap();
    }
    Some((session, published?))
}

/// Stores the program's dispositions, which are the inherited ones at this time, then takes the signals over.
fn take_signals() -> bool {
    for signal in signals::virtual_signals() {
        // SAFETY: valid structures.
        unsafe {
            let mut action: libc::sigaction = core::mem::zeroed();
            if real::sigaction(signal, core::ptr::null(), &raw mut action) != 0 {
                return false;
            }
            dispositions::set(signal, dispositions::Disposition::from_c(&action));
        }
    }
    let taken = faults::SIGNALS.iter().all(|signal| faults::install(*signal)) && handler::install();
    signals::returned::learn_restorer();
    taken
}

/// Records all objects that are loaded now, so that the recorder analyses them before the first sample.
fn report_objects(process: &'static Process, block: *mut ThreadBlock) {
    let mut context = Context { process, block, time: crate::clock::monotonic_ns() };
    // SAFETY: not in a handler, and before the timer is armed; the callback gets `context`.
    unsafe { (process.library.add_initial_objects)((&raw mut context).cast(), object_loaded) };
}

unsafe extern "C" fn object_loaded(context: *mut c_void, object: *const Object) {
    // SAFETY: `report_objects` passed its context; libuunwind its object.
    unsafe {
        if (CLIENT.object_seen)(context, object) {
            (*object).reported_at.store((*context.cast::<Context>()).time, Ordering::Relaxed);
            (*object).reported.store(process::epoch(), Ordering::Relaxed);
        }
    }
}

/// Opens libuunwind (first in the list) and the plugins. `None` when libuunwind cannot be used; a plugin that cannot be
/// used is left out.
fn open_all(list: &[u8], plugins: &mut [[u8; 16]; PLUGIN_INDICES]) -> Option<&'static Library> {
    let mut paths = list.split(|b| *b == b':');
    let table = symbol(paths.next()?, LIBRARY_SYMBOL)?;
    // SAFETY: the symbol's name is versioned; size and build are checked before anything else is read.
    let mut library = unsafe { &*table.cast::<Library>() };
    let ours = |library: &Library| library.size as usize == core::mem::size_of::<Library>() && library.build == BUILD;
    if !ours(library) {
        return None;
    }
    // The program may have loaded another copy of libuunwind before. Then that copy has the process's registry of
    // windows. SAFETY: our own table; the function returns a table in an object that is never closed.
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
    // SAFETY: a NUL-terminated path; RTLD_NODELETE, so that the symbol stays valid.
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
