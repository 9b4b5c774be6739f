//! Functions of libc that are in other libraries before glibc 2.34, where a program may not have them: keys of threads
//! in libpthread, dlopen(3) in libdl. The shared object looks them up among what the process has; the static library
//! is linked with them, since a static program has no symbols to ask for.
//!
//! Not for handlers.

#[cfg(feature = "static")]
use core::ffi::c_char;
use core::ffi::{c_int, c_uint, c_void, CStr};
#[cfg(not(feature = "static"))]
use uunwind_core::{loaded, opening::Opening};

/// The functions of keys of threads (pthread_key_create(3p) and related).
pub struct Keys {
    /// Makes a key, with a destructor or null.
    pub create: unsafe extern "C" fn(*mut c_uint, *mut c_void) -> c_int,
    /// Gives it back.
    pub delete: unsafe extern "C" fn(c_uint) -> c_int,
    /// Sets the calling thread's value.
    pub set: unsafe extern "C" fn(c_uint, *const c_void) -> c_int,
}

#[cfg(feature = "static")]
extern "C" {
    fn pthread_key_create(key: *mut c_uint, destructor: *mut c_void) -> c_int;
    fn pthread_key_delete(key: c_uint) -> c_int;
    fn pthread_setspecific(key: c_uint, value: *const c_void) -> c_int;
    fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
    fn dladdr(address: *const c_void, info: *mut DlInfo) -> c_int;
}

/// `Dl_info` (dlfcn.h).
#[cfg(feature = "static")]
#[repr(C)]
struct DlInfo {
    name: *const c_char,
    base: *mut c_void,
    symbol: *const c_char,
    address: *mut c_void,
}

/// The functions, if the process has them.
#[cfg(feature = "static")]
pub fn keys() -> Option<Keys> {
    Some(Keys { create: pthread_key_create, delete: pthread_key_delete, set: pthread_setspecific })
}

/// The functions, if the process has them.
#[cfg(not(feature = "static"))]
pub fn keys() -> Option<Keys> {
    type Create = unsafe extern "C" fn(*mut c_uint, *mut c_void) -> c_int;
    type Delete = unsafe extern "C" fn(c_uint) -> c_int;
    type Set = unsafe extern "C" fn(c_uint, *const c_void) -> c_int;
    // SAFETY: normal context, libc's function.
    let find = |name: &CStr| unsafe { loaded::symbol(crate::init::dl_iterate_phdr, name) };
    let (create, delete, set) =
        (find(c"pthread_key_create")?, find(c"pthread_key_delete")?, find(c"pthread_setspecific")?);
    // SAFETY: these are the functions' types (pthread.h).
    unsafe {
        Some(Keys {
            create: core::mem::transmute::<usize, Create>(create.address as usize),
            delete: core::mem::transmute::<usize, Delete>(delete.address as usize),
            set: core::mem::transmute::<usize, Set>(set.address as usize),
        })
    }
}

/// A function of an object, which is opened with this mode, and stays; null: the object or the function cannot be had.
///
/// # Safety
/// As dlopen(3): it runs the object's constructors, and allocates.
#[cfg(feature = "static")]
pub unsafe fn function(path: &CStr, mode: c_int, name: &CStr) -> *mut c_void {
    // SAFETY: passed on.
    unsafe {
        let handle = dlopen(path.as_ptr(), mode);
        if handle.is_null() {
            return handle;
        }
        dlsym(handle, name.as_ptr())
    }
}

/// A function of an object, which is opened with this mode, and stays; null: the object or the function cannot be had.
///
/// # Safety
/// As dlopen(3): it runs the object's constructors, and allocates.
#[cfg(not(feature = "static"))]
pub unsafe fn function(path: &CStr, mode: c_int, name: &CStr) -> *mut c_void {
    // SAFETY: libc's function; passed on.
    unsafe {
        let opening = Opening::find(|name| loaded::symbol(crate::init::dl_iterate_phdr, name));
        let Some(opening) = opening else { return core::ptr::null_mut() };
        let handle = opening.open(path, mode);
        if handle.is_null() {
            return handle;
        }
        opening.symbol(handle, name)
    }
}

/// The path of the file from which code of ours at this address was loaded. `None`: it is not available.
#[cfg(feature = "static")]
pub fn own_path<'a>(address: *const c_void) -> Option<&'a CStr> {
    let null = core::ptr::null;
    let mut info = DlInfo { name: null(), base: core::ptr::null_mut(), symbol: null(), address: core::ptr::null_mut() };
    // SAFETY: an address of this program, and a place for the answer, which has the loader's string.
    unsafe { (dladdr(address, &raw mut info) != 0 && !info.name.is_null()).then(|| CStr::from_ptr(info.name)) }
}

/// The path of the file from which code of ours at this address was loaded. `None`: it is not available.
#[cfg(not(feature = "static"))]
pub fn own_path<'a>(address: *const c_void) -> Option<&'a CStr> {
    // SAFETY: normal context, libc's function.
    unsafe { loaded::path_of(crate::init::dl_iterate_phdr, address as u64) }.filter(|path| !path.is_empty())
}
