//! dlopen(3) and dlsym(3), which no object of ours is linked with: before glibc 2.34 they are in libdl, which a program
//! may not have. There libc has two functions for itself that do the same
//! ([elf/dl-libc.c](https://github.com/bminor/glibc/blob/glibc-2.28/elf/dl-libc.c)).
//!
//! Not for handlers.

use crate::loaded::{self, Iterate, Symbol};
use core::ffi::{c_char, c_int, c_void, CStr};

type Open = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;
type Lookup = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
type Error = unsafe extern "C" fn() -> *const c_char;

/// `__RTLD_DLOPEN` (include/dlfcn.h), which dlopen adds to its mode.
const BY_DLOPEN: c_int = 1 << 31;

/// How objects are opened in this process.
#[derive(Clone, Copy)]
pub struct Opening {
    open: Open,
    /// What is added to the mode.
    mode: c_int,
    lookup: Lookup,
    /// dlerror(3), which takes the message of a failure away. libc's own functions leave none.
    error: Option<Error>,
}

impl Opening {
    /// `find` looks for a function of the process: by [`symbol`](crate::loaded::symbol), or by
    /// [`next`](crate::loaded::next) for whoever defines them itself.
    ///
    /// # Safety
    /// `find` must find functions of the C library.
    pub unsafe fn find(find: impl Fn(&CStr) -> Option<Symbol>) -> Option<Opening> {
        let pair = |open, lookup| Some((find(open)?.address, find(lookup)?.address));
        let (found, mode, error) = match pair(c"dlopen", c"dlsym") {
            Some(found) => (found, 0, find(c"dlerror")),
            None => (pair(c"__libc_dlopen_mode", c"__libc_dlsym")?, BY_DLOPEN, None),
        };
        // SAFETY: these are the functions' types (dlfcn.h; include/dlfcn.h).
        unsafe {
            Some(Opening {
                open: core::mem::transmute::<usize, Open>(found.0 as usize),
                mode,
                lookup: core::mem::transmute::<usize, Lookup>(found.1 as usize),
                error: error.map(|error| core::mem::transmute::<usize, Error>(error.address as usize)),
            })
        }
    }

    /// A handle of an object, by its path; null: it cannot be opened. `mode` is as dlopen(3) has it.
    ///
    /// # Safety
    /// As dlopen(3): it runs the object's constructors. Where the program's allocator may be called.
    pub unsafe fn open(&self, path: &CStr, mode: c_int) -> *mut c_void {
        // SAFETY: passed on.
        unsafe { (self.open)(path.as_ptr(), mode | self.mode) }
    }

    /// A symbol of an object and of what it needs; null: there is none.
    ///
    /// # Safety
    /// `handle` must be of [`Opening::open`], and not null.
    pub unsafe fn symbol(&self, handle: *mut c_void, name: &CStr) -> *mut c_void {
        // SAFETY: passed on.
        unsafe { (self.lookup)(handle, name.as_ptr()) }
    }

    /// What dlsym(3) finds for RTLD_NEXT, called by this object; null: nothing. `None`: the process has no dlsym, and
    /// so no object that was opened with a scope of its own by dlopen.
    ///
    /// # Safety
    /// In normal context. It must be inlined into the object that asks: dlsym looks at its return address.
    #[inline(always)]
    pub unsafe fn next(&self, name: &CStr) -> Option<*mut c_void> {
        const RTLD_NEXT: *mut c_void = usize::MAX as *mut c_void;
        // SAFETY: a handle that dlsym takes, and a NUL-terminated name.
        (self.mode & BY_DLOPEN == 0).then(|| unsafe { (self.lookup)(RTLD_NEXT, name.as_ptr()) })
    }

    /// Takes the message of a failure away, which the program must not see.
    ///
    /// # Safety
    /// In normal context.
    pub unsafe fn forget_error(&self) {
        if let Some(error) = self.error {
            // SAFETY: dlerror has no arguments; what it returns is not used.
            unsafe { error() };
        }
    }
}

/// realpath(3).
pub type RealPath = unsafe extern "C" fn(*const c_char, *mut c_char) -> *mut c_char;

/// Opens `../libuunwind.so.0`, seen from the object that has the address `own` in it, which may be loaded through a
/// link. It stays open. Returns its handle; `None`: it is not there, or cannot be opened.
///
/// # Safety
/// In normal context, where the program's allocator may be called. The functions are libc's.
pub unsafe fn open_library(own: u64, iterate: Iterate, realpath: RealPath) -> Option<*mut c_void> {
    const PATH_MAX: usize = 4096;
    const NAME: &[u8] = b"../libuunwind.so.0\0";
    /// `RTLD_NOW | RTLD_NODELETE`.
    const MODE: c_int = 2 | 0x1000;
    let mut path = [0u8; PATH_MAX];
    // SAFETY: the caller's promise; the loader's string, which lives as long as the object; realpath has its room.
    unsafe {
        let own = loaded::path_of(iterate, own)?;
        if realpath(own.as_ptr(), path.as_mut_ptr().cast()).is_null() {
            return None;
        }
    }
    let length = path.iter().position(|byte| *byte == 0)?;
    let folder = path.get(..length)?.iter().rposition(|byte| *byte == b'/')?;
    let name = path.get_mut(folder + 1..)?.get_mut(..NAME.len())?;
    name.iter_mut().zip(NAME).for_each(|(to, from)| *to = *from);
    let path = CStr::from_bytes_until_nul(&path).ok()?;
    // SAFETY: as above.
    let library = unsafe { Opening::find(|name| loaded::symbol(iterate, name))?.open(path, MODE) };
    (!library.is_null()).then_some(library)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loaded::Callback;

    extern "C" {
        fn dl_iterate_phdr(callback: Callback, data: *mut c_void) -> c_int;
        fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
    }

    const RTLD_NOW: c_int = 2;

    /// The loader is the oracle: the same function as RTLD_DEFAULT finds, of a library that is loaded already.
    #[test]
    fn objects_are_opened_and_searched() {
        // SAFETY: libc's functions; a library that is never unloaded.
        unsafe {
            let opening = Opening::find(|name| loaded::symbol(dl_iterate_phdr, name)).expect("libc has them");
            let libc = opening.open(c"libc.so.6", RTLD_NOW);
            assert!(!libc.is_null());
            let expected = dlsym(core::ptr::null_mut(), c"qsort".as_ptr());
            assert_eq!(opening.symbol(libc, c"qsort"), expected);
            assert_eq!(opening.next(c"qsort"), Some(expected), "the program has none of its own");
            assert!(opening.symbol(libc, c"no_such_function_of_ours").is_null());
            assert!(opening.open(c"/no/such/library.so", RTLD_NOW).is_null());
            opening.forget_error();
        }
    }

    /// As before glibc 2.34, in a program without libdl: functions of these names are asked for, with the flag.
    #[test]
    fn without_dlopen_libcs_own_functions_are_used() {
        unsafe extern "C" fn open(_: *const c_char, mode: c_int) -> *mut c_void {
            mode as u32 as usize as *mut c_void
        }
        unsafe extern "C" fn lookup(handle: *mut c_void, _: *const c_char) -> *mut c_void {
            handle.wrapping_byte_add(1)
        }
        let symbol = |address: usize| Some(Symbol { address: address as u64, size: 0 });
        let find = |name: &CStr| match name.to_bytes() {
            b"__libc_dlopen_mode" => symbol(open as *const () as usize),
            b"__libc_dlsym" => symbol(lookup as *const () as usize),
            _ => None,
        };
        // SAFETY: functions of these types.
        unsafe {
            let opening = Opening::find(find).expect("both");
            assert_eq!(opening.open(c"x", RTLD_NOW) as usize, 0x8000_0002);
            assert_eq!(opening.symbol(4096 as *mut c_void, c"x") as usize, 4097);
            assert_eq!(opening.next(c"x"), None);
            opening.forget_error();
            assert!(Opening::find(|name| find(name).filter(|_| name != c"__libc_dlsym")).is_none());
        }
    }
}
