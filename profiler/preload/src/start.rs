//! The constructor of the preloaded object: decides whether this process is recorded, and begins the recording.

use crate::client::{Context, CLIENT};
use crate::elsewhere::{Files, Socket};
use crate::process::{self, Outer, Path, Process};
use crate::real::{of_loaded, symbol, Real};
use crate::session::{environment, Published, Session, Setting};
use crate::signals::{self, dispositions, faults};
use crate::{events, handler, plugins, real, slots, threads};
use core::ffi::{c_void, CStr};
use core::sync::atomic::Ordering;
use uunwind_core::library::{Library, BUILD, LIBRARY_SYMBOL};
use uunwind_core::loaded::{PhdrInfo, DT_NEEDED};
use uunwind_core::objects::Object;
use uunwind_core::syscall::{self, nr};
use uunwind_ring::layout::ThreadBlock;
use uunwind_ring::names::{self, NameEntry};
use uunwind_ring::FLAG_NO_CHILDREN;

#[cfg(not(feature = "no-entry-points"))]
#[used]
#[link_section = ".init_array"]
static START: extern "C" fn() = start;

/// `__register_atfork(prepare, parent, child, dso)` of glibc (`posix/register-atfork.c`).
type RegisterAtfork =
    unsafe extern "C" fn(Option<extern "C" fn()>, Option<extern "C" fn()>, Option<extern "C" fn()>, *mut c_void) -> i32;
/// It is no import: musl lacks it, and its loader would not start a program for which it cannot find a function.
static REGISTER_ATFORK: Real = Real::new(c"__register_atfork");
/// [pthread_atfork(3)](https://man7.org/linux/man-pages/man3/pthread_atfork.3.html), which is no function of glibc's
/// shared library.
type PthreadAtfork =
    unsafe extern "C" fn(Option<extern "C" fn()>, Option<extern "C" fn()>, Option<extern "C" fn()>) -> i32;
static PTHREAD_ATFORK: Real = Real::new(c"pthread_atfork");

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
    if REGISTER_ATFORK.get().is_null() && PTHREAD_ATFORK.get().is_null() {
        // A libc that is not known.
        return;
    }
    let Some(setting) = Setting::parse(session.to_bytes()) else { return };
    // SAFETY: takes nothing, always succeeds.
    let parent = unsafe { syscall::call(nr::GETPPID, [0; 6]) } as u32;
    if setting.flags & FLAG_NO_CHILDREN != 0 && parent != setting.recorder {
        return;
    }
    let socket = environment(c"UU_SESSION_SOCKET").and_then(|socket| Socket::parse(socket.to_bytes()));
    let Some((session, published, outer)) = find_recording(&setting, socket.as_ref()) else { return };
    let Published { facts, tables, code_rules, .. } = published;
    let Some((starts, names)) =
        slots::map_first(threads::STARTS_BYTES, core::mem::size_of::<NameEntry>() * names::ENTRIES)
    else {
        return session.unmap();
    };
    // SAFETY: zeroed memory of that size, which stays mapped.
    unsafe { threads::keep_starts(starts) };
    slots::touch();
    #[cfg(not(feature = "no-libc"))]
    crate::allocator::look();
    let list = environment(c"UU_SESSION_OBJECTS").map_or(&b""[..], CStr::to_bytes);
    let library = open_library(list);
    // SAFETY: a function of libuunwind's table.
    let library = library.filter(|(library, _)| unsafe { (library.ready)() });
    let Some((library, has_own)) = library else { return session.unmap() };
    // SAFETY: getauxval has no preconditions; it returns 0 when the kernel does not report this value (AT_MINSIGSTKSZ).
    let signal_frame = unsafe { libc::getauxval(51) }.max(2048);
    let exe = Path::of_program();
    let names = names.cast();
    let objects = Path::copy(list);
    // The program's own library, too, passes calls on to plugins.
    let at_once = has_own || objects.as_bytes() != list;
    let process = Process {
        session,
        facts,
        tables,
        code_rules,
        names,
        objects,
        setting,
        socket,
        library,
        signal_frame,
        exe,
        outer,
    };
    if !process::begin(process) {
        return session.unmap();
    }
    let Some(process) = process::process() else { return };
    crate::pause::begin(process);
    crate::clock::locate();
    crate::copy::locate_main_stack();
    signals::choose(setting.flags);
    #[cfg(not(feature = "no-libc"))]
    signals::altstack::look_for_runtimes();
    if !take_signals() {
        crate::ending::end_at_once(process, false);
        return;
    }
    threads::create_end_key();
    watch_forks();
    threads::begin(process, false, |block| {
        if report_objects(process, block) || at_once {
            plugins::open(process, list);
        }
    });
    (process.library.set_recorder)(&crate::program::RECORDER);
    events::begin(process);
}

/// Has libc call what is to be done in the child of a fork.
fn watch_forks() {
    let register = REGISTER_ATFORK.get();
    // SAFETY: the functions have these types; an async-signal-safe handler that lives as long as the process.
    unsafe {
        if !register.is_null() {
            let register = core::mem::transmute::<*mut c_void, RegisterAtfork>(register);
            register(None, None, Some(process::after_fork), core::ptr::null_mut());
            return;
        }
        let register = PTHREAD_ATFORK.get();
        if !register.is_null() {
            let register = core::mem::transmute::<*mut c_void, PthreadAtfork>(register);
            register(None, None, Some(process::after_fork));
        }
    }
}

/// Maps the recorder's files, which are in `/proc`, or which it gives a process that lives elsewhere. Besides, that
/// process as the recorder sees it.
fn find_recording(setting: &Setting, socket: Option<&Socket>) -> Option<(Session, Published, Option<Outer>)> {
    if !process::in_other_pid_namespace() {
        if let Some((session, published)) = map_recording(setting, None) {
            return Some((session, published, None));
        }
    }
    let (outer, files) = socket?.ask_for_files()?;
    let mapped = map_recording(setting, Some(&files));
    files.close();
    let (session, published) = mapped?;
    if setting.flags & FLAG_NO_CHILDREN != 0 && outer.parent != setting.recorder {
        // Its parent's id was the recorder's by chance.
        session.unmap();
        published.unmap();
        return None;
    }
    Some((session, published, Some(outer)))
}

/// Maps the facts and the session. `None` if that fails, or if the recording is over.
fn map_recording(setting: &Setting, files: Option<&Files>) -> Option<(Session, Published)> {
    let published = Published::map(setting, files);
    let session = Session::map(setting, files, published.is_some());
    let is_on = published.as_ref().is_some_and(|published| !published.facts.is_over());
    match (session, published) {
        (Some(session), Some(published)) if is_on => Some((session, published)),
        (session, published) => {
            session.into_iter().for_each(Session::unmap);
            published.into_iter().for_each(Published::unmap);
            None
        }
    }
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

/// What the objects of the program are reported to.
#[repr(C)]
struct Initial {
    context: Context,
    /// An object is a plugin's, or may be: it was not analysed yet.
    has_use: bool,
}

/// Records all objects that are loaded now, so that the recorder analyses them before the first sample. Returns whether
/// the process has a use for plugins.
fn report_objects(process: &'static Process, block: *mut ThreadBlock) -> bool {
    let context = Context { process, block, time: crate::clock::monotonic_ns() };
    let mut initial = Initial { context, has_use: false };
    // SAFETY: not in a handler, and before the timer is armed; the callback gets `initial`.
    unsafe { (process.library.add_initial_objects)((&raw mut initial).cast(), object_loaded) };
    initial.has_use
}

unsafe extern "C" fn object_loaded(initial: *mut c_void, object: *const Object) {
    // SAFETY: `report_objects` passed an `Initial`, which begins with its context; libuunwind its object.
    unsafe {
        let seen = (CLIENT.object_seen)(initial, object);
        let (initial, object) = (&mut *initial.cast::<Initial>(), &*object);
        if seen {
            object.reported_at.store(initial.context.time, Ordering::Relaxed);
            object.reported.store(process::epoch(), Ordering::Relaxed);
        }
        let facts = initial.context.process.facts.find(object.facts_key);
        initial.has_use |= facts.is_none_or(|found| !found.bytes.is_empty());
    }
}

/// Finds libuunwind, which is preloaded beside this object, so that the loader maps it without the program's allocator;
/// or opens it, the first object in the list. `None` when it cannot be used. Besides, whether the program uses it, too.
fn open_library(list: &[u8]) -> Option<(&'static Library, bool)> {
    let ours = |library: &&Library| library.size as usize == core::mem::size_of::<Library>() && library.build == BUILD;
    // SAFETY: the loader's structure, during its iteration. Objects with such a table are never closed; its name is
    // versioned; size and build are checked before anything else is read.
    let table = |object: &PhdrInfo| unsafe {
        (object.dynamic().symbol(LIBRARY_SYMBOL)?.address as *const Library).as_ref().filter(ours)
    };
    let library = of_loaded(table).or_else(|| {
        let table = symbol(list.split(|b| *b == b':').next()?, LIBRARY_SYMBOL)?;
        // SAFETY: as above.
        unsafe { table.cast::<Library>().as_ref() }.filter(ours)
    })?;
    // The program may have loaded another copy of libuunwind before. Then that copy has the process's registry of
    // windows. SAFETY: our own table; the second function returns a table in an object that is never closed.
    let home = unsafe { (library.ready)().then(|| &*(library.home)())? };
    let has_own = ours(&home) && !core::ptr::eq(home, library);
    let needs = |object: &PhdrInfo| {
        // SAFETY: as above.
        unsafe { object.dynamic() }.strings(DT_NEEDED).any(|name| name == c"libuunwind.so.0").then_some(())
    };
    Some((if has_own { home } else { library }, has_own || of_loaded(needs).is_some()))
}
