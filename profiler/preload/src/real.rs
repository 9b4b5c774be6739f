//! The real functions that our interposers call, found among the loaded objects on first use, as
//! [`dlsym(RTLD_NEXT)`](https://man7.org/linux/man-pages/man3/dlsym.3.html) finds them: an interposer may be called
//! before our own constructor, for example by a library's constructor that starts a thread. dlsym itself is missing
//! where glibc is older than 2.34 and the program has no libdl.

use crate::allocator;
use core::ffi::{c_int, c_uint, c_void, CStr};
use core::sync::atomic::{AtomicPtr, Ordering};
use uunwind_core::loaded::PhdrInfo;
#[cfg(not(feature = "no-libc"))]
use uunwind_core::loaded::{self, Callback, Symbol};
use uunwind_core::opening::Opening;

/// A function of the next object in the search order.
pub struct Real {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
}

impl Real {
    /// The function with this name.
    pub const fn new(name: &'static CStr) -> Real {
        Real { name, found: AtomicPtr::new(core::ptr::null_mut()) }
    }

    /// Its address; null when libc has no such function.
    pub fn get(&self) -> *mut c_void {
        let found = self.found.load(Ordering::Relaxed);
        if !found.is_null() {
            return found;
        }
        let found = address_of_next(self.name);
        self.found.store(found, Ordering::Relaxed);
        found
    }
}

/// The symbol of this name after this object.
#[cfg(not(feature = "no-libc"))]
fn next(name: &CStr) -> Option<Symbol> {
    // SAFETY: not a handler; libc's function.
    unsafe { loaded::next(dl_iterate_phdr, core::ptr::from_ref(&DLOPEN) as u64, name) }
}

/// The address of the symbol of this name after this object; null: there is none. Not for handlers.
pub fn address_of_next(name: &CStr) -> *mut c_void {
    // Where there is no libc, nothing that an interposer reaches is ever called.
    #[cfg(feature = "no-libc")]
    return Some(name).map_or(core::ptr::null_mut(), |_| core::ptr::null_mut());
    #[cfg(not(feature = "no-libc"))]
    return next(name).map_or(core::ptr::null_mut(), |symbol| symbol.address as *mut c_void);
}

/// libc's functions that open objects. They allocate.
pub fn opening() -> Option<Opening> {
    #[cfg(feature = "no-libc")]
    return None;
    // SAFETY: functions of libc.
    #[cfg(not(feature = "no-libc"))]
    unsafe {
        Opening::find(next)
    }
}

/// [dlopen(3)](https://man7.org/linux/man-pages/man3/dlopen.3.html).
pub static DLOPEN: Real = Real::new(c"dlopen");
/// dlmopen, of the same page.
pub static DLMOPEN: Real = Real::new(c"dlmopen");

#[cfg(not(feature = "no-libc"))]
extern "C" {
    /// [dl_iterate_phdr(3)](https://man7.org/linux/man-pages/man3/dl_iterate_phdr.3.html). It locks: not for handlers.
    pub fn dl_iterate_phdr(callback: Callback, data: *mut c_void) -> c_int;
}

/// What `look` finds first, of the loaded objects in the loader's order. Not for handlers.
pub fn of_loaded<T>(look: impl FnMut(&PhdrInfo) -> Option<T>) -> Option<T> {
    // Where there is no libc, nothing that the constructor or an interposer reaches is ever called.
    #[cfg(feature = "no-libc")]
    return Some(look).and(None);
    // SAFETY: in normal context, libc's function.
    #[cfg(not(feature = "no-libc"))]
    unsafe {
        loaded::find(dl_iterate_phdr, look)
    }
}

/// The path of the object that covers an address, which must stay: empty for the program. Not for handlers.
pub fn path_of<'a>(address: u64) -> Option<&'a CStr> {
    #[cfg(feature = "no-libc")]
    return Some(address).and(None);
    // SAFETY: in normal context, libc's function.
    #[cfg(not(feature = "no-libc"))]
    unsafe {
        loaded::path_of(dl_iterate_phdr, address)
    }
}

/// A symbol of a loaded object of this path.
pub fn symbol_of_loaded(path: &[u8], name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the loader's structure, during its iteration.
    let look = |object: &PhdrInfo| unsafe { (object.path() == path).then(|| object.dynamic().symbol(name)) };
    of_loaded(look)?.map(|symbol| symbol.address as *mut c_void)
}

/// A symbol of an object, which is opened if it is not loaded: that allocates.
pub fn symbol(path: &[u8], name: &CStr) -> Option<*mut c_void> {
    symbol_of_loaded(path, name).or_else(|| open(path, name))
}

/// Opens an object by path and finds a symbol in it.
fn open(path: &[u8], name: &CStr) -> Option<*mut c_void> {
    let mut copy = [0u8; 1024];
    for (to, from) in copy.iter_mut().zip(path) {
        *to = *from;
    }
    if path.is_empty() || path.len() >= copy.len() || !allocator::is_usable() {
        return None;
    }
    let (opening, path) = (opening()?, CStr::from_bytes_until_nul(&copy).ok()?);
    // SAFETY: not a handler, and the allocator may be called; RTLD_NODELETE, so that the symbol stays valid.
    unsafe {
        let handle = opening.open(path, libc::RTLD_NOW | libc::RTLD_LOCAL | libc::RTLD_NODELETE);
        if handle.is_null() {
            opening.forget_error();
            return None;
        }
        let found = opening.symbol(handle, name);
        (!found.is_null()).then_some(found)
    }
}

/// Declares a function that calls the real function of an interposer, or returns `$missing` if libc lacks it.
macro_rules! real {
    ($name:ident, $symbol:literal, fn($($arg:ident: $type:ty),*) -> $result:ty, $missing:expr) => {
        /// Calls libc's function of this name.
        pub unsafe fn $name($($arg: $type),*) -> $result {
            static REAL: Real = Real::new($symbol);
            let real = REAL.get();
            if real.is_null() {
                return $missing;
            }
            // SAFETY: libc's function of this name has this type; the caller vouches for the arguments.
            unsafe { core::mem::transmute::<*mut c_void, unsafe extern "C" fn($($type),*) -> $result>(real)($($arg),*) }
        }
    };
}

/// Start function of a thread, as pthread_create takes it.
pub type Start = unsafe extern "C" fn(*mut c_void) -> *mut c_void;

real!(sigaction, c"sigaction", fn(sig: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int, -1);
real!(sigaltstack, c"sigaltstack", fn(new: *const libc::stack_t, old: *mut libc::stack_t) -> c_int, -1);
real!(sigprocmask, c"sigprocmask", fn(how: c_int, set: *const libc::sigset_t, old: *mut libc::sigset_t) -> c_int, -1);
real!(
    pthread_sigmask,
    c"pthread_sigmask",
    fn(how: c_int, set: *const libc::sigset_t, old: *mut libc::sigset_t) -> c_int,
    libc::ENOSYS
);
real!(signal, c"signal", fn(sig: c_int, handler: usize) -> usize, libc::SIG_ERR);
real!(sysv_signal, c"sysv_signal", fn(sig: c_int, handler: usize) -> usize, libc::SIG_ERR);
real!(sigset, c"sigset", fn(sig: c_int, handler: usize) -> usize, libc::SIG_ERR);
real!(sigignore, c"sigignore", fn(sig: c_int) -> c_int, -1);
real!(siginterrupt, c"siginterrupt", fn(sig: c_int, flag: c_int) -> c_int, -1);
real!(sigwait, c"sigwait", fn(set: *const libc::sigset_t, sig: *mut c_int) -> c_int, libc::ENOSYS);
real!(sigwaitinfo, c"sigwaitinfo", fn(set: *const libc::sigset_t, info: *mut libc::siginfo_t) -> c_int, -1);
real!(
    sigtimedwait,
    c"sigtimedwait",
    fn(set: *const libc::sigset_t, info: *mut libc::siginfo_t, time: *const libc::timespec) -> c_int,
    -1
);
real!(signalfd, c"signalfd", fn(fd: c_int, set: *const libc::sigset_t, flags: c_int) -> c_int, -1);
real!(sigpending, c"sigpending", fn(set: *mut libc::sigset_t) -> c_int, -1);
real!(
    pthread_create,
    c"pthread_create",
    fn(thread: *mut libc::pthread_t, attr: *const libc::pthread_attr_t, start: Start, arg: *mut c_void) -> c_int,
    libc::EAGAIN
);
real!(thrd_create, c"thrd_create", fn(thread: *mut c_void, start: Start, arg: *mut c_void) -> c_int, 2);
/// Destructor of a key of threads.
pub type AtEnd = unsafe extern "C" fn(*mut c_void);
real!(pthread_key_create, c"pthread_key_create", fn(key: *mut c_uint, end: Option<AtEnd>) -> c_int, libc::EAGAIN);
real!(pthread_key_delete, c"pthread_key_delete", fn(key: c_uint) -> c_int, libc::EINVAL);
real!(pthread_setspecific, c"pthread_setspecific", fn(key: c_uint, value: *const c_void) -> c_int, libc::EINVAL);
