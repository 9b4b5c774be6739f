//! The plugins, which are opened where the process has a use for them: most programs have none, and to open them costs
//! a short program a tenth of its life.
//!
//! A plugin's code runs only where one of its facts is, and objects come to a process in two ways: with the program,
//! which the constructor looks at, and by dlopen(3), which is interposed here. The entry *jumps* to the real function,
//! which takes its return address for the caller's: it decides where the object is searched.
//!
//! To open one allocates. A program that has an allocator of its own has them preloaded where the recorder has started
//! it; others of this kind, until they call dlopen or pthread_create, are recorded without.

use crate::process::{self, Process};
use crate::real::{symbol, symbol_of_loaded};
#[cfg(not(feature = "no-entry-points"))]
use crate::real::{DLMOPEN, DLOPEN};
use crate::{allocator, events};
use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use uunwind_core::library::Library;
use uunwind_core::plugin::{negotiate, trimmed, Entry, ENTRY_SYMBOL};
use uunwind_core::walk::PLUGIN_INDICES;

/// Nobody has opened them.
const CLOSED: u32 = 0;
/// A thread opens them.
const OPENING: u32 = 1;
/// All that can be opened are open.
const OPEN: u32 = 2;

static STATE: AtomicU32 = AtomicU32::new(CLOSED);
/// A walk met facts of a plugin that is not open: its object came in a way that is not interposed. Or they could not be
/// opened when they were wanted.
static MISSED: AtomicBool = AtomicBool::new(false);
/// Names of the open plugins by index, NUL-padded, in words of the machine's order.
static NAMES: [[AtomicU64; 2]; PLUGIN_INDICES] = [const { [AtomicU64::new(0), AtomicU64::new(0)] }; PLUGIN_INDICES];

/// Names of the open plugins by index, NUL-padded.
pub fn names() -> [[u8; 16]; PLUGIN_INDICES] {
    let mut names = [[0; 16]; PLUGIN_INDICES];
    for (name, words) in names.iter_mut().zip(&NAMES) {
        *name = name_of(words);
    }
    names
}

fn name_of(words: &[AtomicU64; 2]) -> [u8; 16] {
    let mut name = [0; 16];
    for (bytes, word) in name.chunks_exact_mut(8).zip(words) {
        bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
    }
    name
}

/// Whether all that can be opened are open. Async-signal-safe.
pub fn are_open() -> bool {
    STATE.load(Ordering::Acquire) == OPEN
}

/// Index of the plugin with this name; 0: it could not be opened; `None`: it is not open yet. Async-signal-safe.
pub fn index_of(name: &[u8; 16]) -> Option<u32> {
    let name = trimmed(name);
    // Before the names, the last of which is stored before it.
    let is_open = are_open();
    let found = (0u32..).zip(&NAMES).find(|(_, words)| trimmed(&name_of(words)) == name && !name.is_empty());
    match found {
        Some((index, _)) => Some(index),
        None if name.is_empty() || is_open => Some(0),
        None => {
            MISSED.store(true, Ordering::Relaxed);
            None
        }
    }
}

/// Opens the plugins of a list of objects, unless somebody has. One that cannot be used is left out. Not for handlers.
pub fn open(process: &Process, objects: &[u8]) {
    // The first object is libuunwind.
    let paths = objects.split(|b| *b == b':').skip(1);
    if !allocator::is_usable() && paths.clone().any(|path| symbol_of_loaded(path, ENTRY_SYMBOL).is_none()) {
        MISSED.store(true, Ordering::Relaxed);
        return;
    }
    if STATE.compare_exchange(CLOSED, OPENING, Ordering::Acquire, Ordering::Relaxed).is_err() {
        return;
    }
    for (index, path) in (1..PLUGIN_INDICES as u32).zip(paths) {
        if let Some(entry) = symbol(path, ENTRY_SYMBOL) {
            // SAFETY: a function of this type (see ENTRY_SYMBOL), in an object that is never closed.
            unsafe { add(process.library, index, core::mem::transmute::<*mut c_void, Entry>(entry)) };
        }
    }
    STATE.store(OPEN, Ordering::Release);
    process::name_plugins(&names());
}

/// Adds a plugin, if it can be used.
///
/// # Safety
/// The entry must be a plugin's, in an object that is never closed.
unsafe fn add(library: &Library, index: u32, entry: Entry) {
    // SAFETY: as the caller says.
    let (Ok(plugin), 0) = (unsafe { (negotiate(entry), (library.add_plugin)(index, entry)) }) else { return };
    let Some(words) = NAMES.get(index as usize) else { return };
    for (word, bytes) in words.iter().zip(plugin.name.chunks_exact(8)) {
        let mut copy = [0; 8];
        copy.copy_from_slice(bytes);
        word.store(u64::from_ne_bytes(copy), Ordering::Relaxed);
    }
}

/// Adds all the plugins that there will be, before the recording begins.
///
/// # Safety
/// As [`add`].
pub unsafe fn add_all(library: &Library, entries: &[(u32, Entry)]) {
    for (index, entry) in entries {
        // SAFETY: as the caller says.
        unsafe { add(library, *index, *entry) };
    }
    STATE.store(OPEN, Ordering::Release);
}

/// Opens the plugins if a walk has missed one. Not for handlers.
pub fn open_missed() {
    if MISSED.load(Ordering::Relaxed) && STATE.load(Ordering::Relaxed) == CLOSED {
        open_now();
    }
}

/// In the child of a fork: a thread that was opening them is not here.
pub fn after_fork() {
    let _ = STATE.compare_exchange(OPENING, CLOSED, Ordering::Relaxed, Ordering::Relaxed);
}

fn open_now() {
    let Some(process) = process::process() else { return };
    if process::block().is_some() && process::is_own() && !process.facts.is_over() {
        // SAFETY: the calling thread's errno, which the program must find unchanged.
        let place = unsafe { libc::__errno_location() };
        // SAFETY: as above.
        let errno = unsafe { *place };
        events::aside(|| open(process, process.objects.as_bytes()));
        // SAFETY: as above.
        unsafe { *place = errno };
    }
}

/// Called before an object is opened, with the three arguments and the return address. Returns the real function:
/// dlopen or, if `namespace` is 1, dlmopen.
#[cfg(not(feature = "no-entry-points"))]
extern "C" fn before(namespace: usize, arguments: &[usize; 4]) -> *mut c_void {
    let [file, mode] = if namespace == 0 { [arguments[0], arguments[1]] } else { [arguments[1], arguments[2]] };
    // Without a file, and with this flag, nothing is opened: a program may call it where it may open no file.
    let opens = file != 0 && mode as i32 & libc::RTLD_NOLOAD == 0;
    if opens {
        allocator::is_called();
    }
    if opens && STATE.load(Ordering::Relaxed) == CLOSED {
        open_now();
    }
    if opens {
        // SAFETY: the program passes a string.
        unsafe { crate::openings::announce(file, arguments[3]) };
    }
    let found = if namespace == 0 { DLOPEN.get() } else { DLMOPEN.get() };
    // Before glibc 2.34, a program without libdl has none.
    if found.is_null() {
        none as *const () as *mut c_void
    } else {
        found
    }
}

#[cfg(not(feature = "no-entry-points"))]
extern "C" fn none() -> *mut c_void {
    core::ptr::null_mut()
}

/// Declares an entry that keeps the arguments and the return address.
#[cfg(not(feature = "no-entry-points"))]
macro_rules! entry {
    ($name:ident, $number:literal) => {
        /// Interposed function of this name ([dlopen(3)](https://man7.org/linux/man-pages/man3/dlopen.3.html)).
        ///
        /// # Safety
        /// As the real one.
        #[unsafe(naked)]
        #[no_mangle]
        pub unsafe extern "C" fn $name() {
            crate::cpu::jump_after!($number, before)
        }
    };
}

#[cfg(not(feature = "no-entry-points"))]
entry!(dlopen, 0);
#[cfg(not(feature = "no-entry-points"))]
entry!(dlmopen, 1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plugin_that_is_not_open_yet_is_told_from_one_that_cannot_be() {
        let name = |text: &[u8]| {
            let mut name = [0; 16];
            name[..text.len()].copy_from_slice(text);
            name
        };
        assert_eq!((index_of(&name(b"")), index_of(&name(b"tongue"))), (Some(0), None));
        for (word, bytes) in NAMES[2].iter().zip(name(b"tongue").chunks_exact(8)) {
            word.store(u64::from_ne_bytes(bytes.try_into().expect("8 bytes")), Ordering::Relaxed);
        }
        assert_eq!((index_of(&name(b"tongue")), names()[2]), (Some(2), name(b"tongue")));
        STATE.store(OPEN, Ordering::Relaxed);
        assert_eq!(index_of(&name(b"other")), Some(0));
    }
}
