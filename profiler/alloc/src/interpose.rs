//! The functions of [malloc(3)](https://man7.org/linux/man-pages/man3/malloc.3.html) and its relatives, which stand in
//! front of the real ones.
//!
//! What is allocated is sampled when the real function has returned, and before the program has the address. What is
//! freed leaves the table of live allocations before the real function frees it: afterwards, another thread may be
//! given the address.

use crate::counted::{changed, counted, forgotten};
use crate::real::real;
use core::ffi::{c_int, c_void};
use uunwind_preload::events;

/// What free returns.
const NOTHING: () = ();
const NULL: *mut c_void = core::ptr::null_mut();

real!(real_malloc, c"malloc", fn(size: usize) -> *mut c_void, NULL);
real!(real_calloc, c"calloc", fn(count: usize, size: usize) -> *mut c_void, NULL);
real!(real_realloc, c"realloc", fn(block: *mut c_void, size: usize) -> *mut c_void, NULL);
real!(real_aligned_alloc, c"aligned_alloc", fn(alignment: usize, size: usize) -> *mut c_void, NULL);
real!(
    real_posix_memalign,
    c"posix_memalign",
    fn(block: *mut *mut c_void, alignment: usize, size: usize) -> c_int,
    libc::ENOMEM
);
real!(real_memalign, c"memalign", fn(alignment: usize, size: usize) -> *mut c_void, NULL);
real!(real_valloc, c"valloc", fn(size: usize) -> *mut c_void, NULL);
real!(real_pvalloc, c"pvalloc", fn(size: usize) -> *mut c_void, NULL);
real!(real_free, c"free", fn(block: *mut c_void) -> (), NOTHING);

/// Declares a function that allocates, and returns what it has allocated.
macro_rules! allocates {
    ($name:ident, $real:ident, $($arg:ident),* => $size:expr) => {
        /// The interposed function of this name ([malloc(3)](https://man7.org/linux/man-pages/man3/malloc.3.html),
        /// [posix_memalign(3)](https://man7.org/linux/man-pages/man3/posix_memalign.3.html)).
        ///
        /// # Safety
        /// As the real one.
        #[cfg_attr(panic = "abort", no_mangle)]
        pub unsafe extern "C" fn $name($($arg: usize),*) -> *mut c_void {
            // SAFETY: the program's own arguments.
            counted(events::allocating(|| unsafe { $real($($arg),*) }), $size, None)
        }
    };
}

allocates!(malloc, real_malloc, size => size);
allocates!(calloc, real_calloc, count, size => count.wrapping_mul(size));
allocates!(aligned_alloc, real_aligned_alloc, alignment, size => size);
allocates!(memalign, real_memalign, alignment, size => size);
allocates!(valloc, real_valloc, size => size);
allocates!(pvalloc, real_pvalloc, size => size);

/// Interposed [posix_memalign(3)](https://man7.org/linux/man-pages/man3/posix_memalign.3.html).
///
/// # Safety
/// As posix_memalign.
#[cfg_attr(panic = "abort", no_mangle)]
pub unsafe extern "C" fn posix_memalign(block: *mut *mut c_void, alignment: usize, size: usize) -> c_int {
    // SAFETY: the program's own arguments.
    let result = events::allocating(|| unsafe { real_posix_memalign(block, alignment, size) });
    if result == 0 {
        // SAFETY: the real function has just written there.
        counted(unsafe { *block }, size, None);
    }
    result
}

/// Interposed [free(3)](https://man7.org/linux/man-pages/man3/malloc.3.html).
///
/// # Safety
/// As free.
#[cfg_attr(panic = "abort", no_mangle)]
pub unsafe extern "C" fn free(block: *mut c_void) {
    if let Some(id) = forgotten(block) {
        events::freed(id);
    }
    // SAFETY: the program's own argument.
    unsafe { real_free(block) };
}

/// Interposed [realloc(3)](https://man7.org/linux/man-pages/man3/malloc.3.html). What has grown or shrunk counts as freed,
/// and as allocated anew.
///
/// # Safety
/// As realloc.
#[cfg_attr(panic = "abort", no_mangle)]
pub unsafe extern "C" fn realloc(block: *mut c_void, size: usize) -> *mut c_void {
    let old = forgotten(block);
    // SAFETY: the program's own arguments.
    let new = events::allocating(|| unsafe { real_realloc(block, size) });
    changed(old, block, new, size, None);
    new
}

/// Interposed [reallocarray(3)](https://man7.org/linux/man-pages/man3/malloc.3.html). glibc's calls realloc by its name,
/// which would be counted, too: so does this.
///
/// # Safety
/// As reallocarray.
#[cfg_attr(panic = "abort", no_mangle)]
pub unsafe extern "C" fn reallocarray(block: *mut c_void, count: usize, size: usize) -> *mut c_void {
    let Some(size) = count.checked_mul(size) else {
        // SAFETY: the calling thread's errno.
        unsafe { *libc::__errno_location() = libc::ENOMEM };
        return NULL;
    };
    // SAFETY: the program's own arguments.
    unsafe { realloc(block, size) }
}
