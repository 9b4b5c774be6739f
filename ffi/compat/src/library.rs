//! `libuunwind.so.0`, which walks: in the process already, or opened beside this object.

use crate::next::dl_iterate_phdr;
use core::ffi::{c_int, c_void, CStr};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use uunwind_core::library::{Library, BUILD, BY_ITSELF, LIBRARY_SYMBOL};
use uunwind_core::loaded::{self, PhdrInfo};
use uunwind_core::opening;

/// The library's table; null: there is none so far.
static LIBRARY: AtomicPtr<Library> = AtomicPtr::new(core::ptr::null_mut());
/// Whether cursors show the frames of languages.
static LANGUAGES: AtomicBool = AtomicBool::new(false);
/// Whether the library was looked for: 0 not yet, 1 a thread does, 2 it was.
static LOOKED: AtomicU32 = AtomicU32::new(0);

#[cfg(not(test))]
#[used]
#[link_section = ".init_array"]
static START: extern "C" fn() = start;

#[cfg_attr(test, allow(dead_code, reason = "tests of this crate preload nothing"))]
extern "C" fn start() {
    let _ = look();
}

/// The library; `None`: it cannot be had, or this object's constructor has not run, and calls go on to the next
/// definition. It is opened there only: an allocator that takes a stack while it is set up (jemalloc's profiler) would
/// be called by the loader.
#[inline]
pub fn library() -> Option<&'static Library> {
    // SAFETY: a table in an object that is never unloaded.
    unsafe { LIBRARY.load(Ordering::Acquire).as_ref() }
}

#[cold]
#[inline(never)]
fn look() -> Option<&'static Library> {
    // Opening the library may allocate, and so come back here: that call has no library.
    LOOKED.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed).ok()?;
    // SAFETY: the calling thread's errno, which the program finds as it was.
    let errno = unsafe { *libc::__errno_location() };
    let found = find();
    match found {
        Ok(library) => {
            LIBRARY.store(core::ptr::from_ref(library).cast_mut(), Ordering::Release);
            prepare_languages(library).unwrap_or_else(complain);
        }
        Err(why) => complain(why),
    }
    crate::backtrace::begin(found.is_ok());
    crate::unwind::begin(found.is_ok());
    LOOKED.store(2, Ordering::Release);
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
    found.ok()
}

fn find() -> Result<&'static Library, &'static CStr> {
    let mut table = loaded_table();
    if table.is_none() {
        // SAFETY: normal context, libc's function.
        if unsafe { loaded::program_allocates(dl_iterate_phdr) } {
            // Its allocator may be set up in `main`, and the loader would call it now.
            return Err(c"uu: the program has an allocator of its own: preload libuunwind.so.0 with libuunwind-compat.so, or stacks are taken as without it\n");
        }
        open().ok_or(c"uu: libuunwind.so.0 is not in the folder above libuunwind-compat.so, or cannot be opened: stacks are taken as without it\n")?;
        table = loaded_table();
    }
    let ours = |library: &&Library| library.size as usize == size_of::<Library>() && library.build == BUILD;
    // SAFETY: a table in an object that is never closed; its name is versioned, and size and build are checked before
    // anything else is read.
    let home = unsafe {
        let table = table.and_then(|table| table.as_ref()).filter(ours);
        table.and_then(|table| (table.home)().as_ref()).filter(ours).filter(|home| (home.ready)())
    };
    home.ok_or(c"uu: libuunwind.so.0 is of another build than libuunwind-compat.so, or does not serve this C library: stacks are taken as without it\n")
}

/// Whether the user asked for the frames of languages, and they can be had.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "for cursors"))]
pub fn shows_languages() -> bool {
    LANGUAGES.load(Ordering::Relaxed)
}

/// Has the library set up for the frames of languages, if `UU_LANGUAGE_FRAMES` asks for them.
fn prepare_languages(library: &Library) -> Result<(), &'static CStr> {
    // SAFETY: called by the constructor, when no other thread changes the environment; a value ends with a NUL.
    let asked = unsafe {
        let value = libc::getenv(c"UU_LANGUAGE_FRAMES".as_ptr());
        !value.is_null() && CStr::from_ptr(value) == c"1" && libc::getauxval(libc::AT_SECURE) == 0
    };
    if !asked {
        return Ok(());
    }
    // SAFETY: normal context, libc's function.
    if unsafe { loaded::program_allocates(dl_iterate_phdr) } {
        return Err(
            c"uu: no frames of languages: the program has an allocator of its own, which the set-up may not call yet\n",
        );
    }
    if (library.setup_with)(BY_ITSELF) < 0 {
        return Err(c"uu: no frames of languages: uu_setup_with() failed; is libuunwind-setup.so beside libuunwind-compat.so?\n");
    }
    LANGUAGES.store(true, Ordering::Relaxed);
    Ok(())
}

/// The table of a library that is loaded.
fn loaded_table() -> Option<*const Library> {
    // SAFETY: the loader's structure, during its iteration.
    let look = |object: &PhdrInfo| unsafe { object.dynamic().symbol(LIBRARY_SYMBOL) };
    // SAFETY: normal context, libc's function.
    unsafe { loaded::find(dl_iterate_phdr, look) }.map(|symbol| symbol.address as *const Library)
}

/// Opens the library beside this object.
fn open() -> Option<*mut c_void> {
    // SAFETY: normal context, libc's functions; the program's allocator is ready.
    unsafe { opening::open_library(open as *const () as u64, dl_iterate_phdr, libc::realpath) }
}

fn complain(why: &CStr) {
    // SAFETY: a string of ours.
    unsafe { libc::write(STDERR, why.as_ptr().cast(), why.to_bytes().len()) };
}

const STDERR: c_int = 2;
