//! The constructor: finds the library, and asks it for crash reports.

use crate::threads;
use core::ffi::{c_char, c_int, c_void, CStr};
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use uunwind_core::library::{Library, BUILD, LIBRARY_SYMBOL};
use uunwind_core::loaded::{self, Callback, PhdrInfo};
use uunwind_core::opening;

/// UU_CRASH_JSON of `uu.h`.
const JSON: u32 = 1;

type Setup = extern "C" fn() -> c_int;
type Report = extern "C" fn(c_int, u32) -> c_int;
type ReportTo = unsafe extern "C" fn(*const c_char, u32) -> c_int;

#[cfg(not(test))]
#[used]
#[link_section = ".init_array"]
static START: extern "C" fn() = start;

#[cfg_attr(test, allow(dead_code, reason = "tests of this crate report no crashes"))]
extern "C" fn start() {
    // SAFETY: the calling thread's errno, which the program finds as it was.
    let errno = unsafe { *libc::__errno_location() };
    // SAFETY: getauxval has no preconditions.
    if unsafe { libc::getauxval(libc::AT_SECURE) } == 0 {
        if let Some(to) = variable(c"UU_REPORT_CRASHES").filter(|to| !to.is_empty()) {
            if let Err(why) = report(to) {
                complain(why);
            }
        }
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

/// Whether the program has called a function that allocates, or has libc's allocator. If it defines malloc itself, it
/// may set that up in `main`, and nothing of ours may call it before.
static ALLOCATES: AtomicBool = AtomicBool::new(true);
/// `uu_setup`, which could not be called so far, because it allocates; null: it was called.
static SETUP: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

fn report(to: &CStr) -> Result<(), &'static CStr> {
    // SAFETY: normal context, libc's function.
    ALLOCATES.store(!unsafe { loaded::program_allocates(dl_iterate_phdr) }, Ordering::Relaxed);
    if symbol(c"uu_report_crashes").is_none() && open().is_none() {
        return Err(c"uu: no crash reports: libuunwind.so.0 is not preloaded, and cannot be opened\n");
    }
    let missing = c"uu: no crash reports: libuunwind.so.0 is of another version\n";
    let find = |name: &CStr| symbol(name).ok_or(missing);
    let (prepare, setup) = (find(c"uu_prepare_thread")?, find(c"uu_setup")?);
    let (report, report_to) = (find(c"uu_report_crashes")?, find(c"uu_report_crashes_to")?);
    // SAFETY: functions of uu.h, in a library that is never unloaded.
    let (report, report_to) = unsafe {
        (core::mem::transmute::<*mut c_void, Report>(report), core::mem::transmute::<*mut c_void, ReportTo>(report_to))
    };
    SETUP.store(setup, Ordering::Release);
    if ALLOCATES.load(Ordering::Relaxed) {
        set_up();
    }
    let json = variable(c"UU_REPORT_CRASHES_FORMAT").is_some_and(|format| format.to_bytes() == b"json");
    let flags = if json { JSON } else { 0 };
    let done = match number(to.to_bytes()) {
        Some(fd) => report(fd, flags),
        // SAFETY: a string.
        None => unsafe { report_to(to.as_ptr(), flags) },
    };
    if done != 0 {
        return Err(c"uu: no crash reports: UU_REPORT_CRASHES is no open file descriptor and no path, or signals cannot be handled\n");
    }
    if let Some(namer) = variable(c"UU_REPORT_CRASHES_NAMER").filter(|path| path.to_bytes().starts_with(b"/")) {
        // Without it, reports have the names that are in memory.
        if let Some(library) = library() {
            let path = namer.to_bytes();
            // SAFETY: bytes of this length, and a function of the library, which is never unloaded.
            unsafe { (library.name_crashes)(path.as_ptr(), path.len()) };
        }
    }
    threads::begin(prepare);
    Ok(())
}

/// The table of the copy of the library that is this process's; `None`: it is of another build.
fn library() -> Option<&'static Library> {
    let ours = |library: &&Library| library.size as usize == core::mem::size_of::<Library>() && library.build == BUILD;
    let table = symbol(LIBRARY_SYMBOL)?.cast::<Library>();
    // SAFETY: a table in an object that is never closed; its name is versioned, and size and build are checked before
    // anything else is read.
    unsafe { table.as_ref().filter(ours).and_then(|table| (table.home)().as_ref()).filter(ours) }
}

/// Calls `uu_setup`, unless that is done. Without it, native frames remain.
pub fn set_up() {
    if SETUP.load(Ordering::Relaxed).is_null() {
        return;
    }
    let setup = SETUP.swap(core::ptr::null_mut(), Ordering::AcqRel);
    if !setup.is_null() {
        // SAFETY: a function of uu.h, in a library that is never unloaded. It keeps errno.
        unsafe { core::mem::transmute::<*mut c_void, Setup>(setup)() };
    }
}

/// A symbol of libuunwind, if that is loaded.
fn symbol(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the loader's structure, during its iteration. Only libuunwind has the first symbol.
    let look = |object: &PhdrInfo| unsafe {
        let dynamic = object.dynamic();
        dynamic.symbol(LIBRARY_SYMBOL).and_then(|_| dynamic.symbol(name))
    };
    // SAFETY: normal context, libc's function.
    unsafe { loaded::find(dl_iterate_phdr, look) }.map(|symbol| symbol.address as *mut c_void)
}

extern "C" {
    /// [dl_iterate_phdr(3)](https://man7.org/linux/man-pages/man3/dl_iterate_phdr.3.html).
    pub fn dl_iterate_phdr(callback: Callback, data: *mut c_void) -> c_int;
}

/// Opens the library beside this object, where somebody has preloaded this object alone.
fn open() -> Option<*mut c_void> {
    if !ALLOCATES.load(Ordering::Relaxed) {
        return None;
    }
    // SAFETY: normal context, libc's functions; the program's allocator is ready.
    unsafe { opening::open_library(open as *const () as u64, dl_iterate_phdr, libc::realpath) }
}

fn variable(name: &CStr) -> Option<&'static CStr> {
    // SAFETY: called by the constructor, when no other thread changes the environment; a value ends with a NUL.
    unsafe {
        let value = libc::getenv(name.as_ptr());
        (!value.is_null()).then(|| CStr::from_ptr(value))
    }
}

/// A file descriptor; `None`: not only digits.
fn number(text: &[u8]) -> Option<c_int> {
    core::str::from_utf8(text).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))?.parse().ok()
}

fn complain(why: &CStr) {
    // SAFETY: a string of ours.
    unsafe { libc::write(2, why.as_ptr().cast(), why.to_bytes().len()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_descriptors_and_the_rest_are_paths() {
        assert_eq!(number(b"2"), Some(2));
        for path in [&b""[..], b"+2", b"-1", b"2x", b"99999999999", b"/tmp/2"] {
            assert_eq!(number(path), None, "{}", String::from_utf8_lossy(path));
        }
    }
}
