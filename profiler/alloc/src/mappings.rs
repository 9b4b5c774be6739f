//! The functions of [mmap(2)](https://man7.org/linux/man-pages/man2/mmap.2.html) that map and unmap anonymous memory,
//! which stand in front of the real ones. What the allocator maps for itself is counted as what it returns, and libc's
//! own calls do not come here.

use crate::ranges::{mapped, pages, remapped, replaced, Leaving, Remap, FAILED};
use crate::real::real;
use core::ffi::{c_int, c_void};
use uunwind_preload::events;

real!(
    real_mmap,
    c"mmap",
    fn(at: *mut c_void, bytes: usize, protection: c_int, flags: c_int, file: c_int, offset: i64) -> *mut c_void,
    FAILED
);
real!(real_munmap, c"munmap", fn(at: *mut c_void, bytes: usize) -> c_int, -1);
real!(
    real_mremap,
    c"mremap",
    fn(old: *mut c_void, bytes: usize, new_bytes: usize, flags: c_int, new: *mut c_void) -> *mut c_void,
    FAILED
);

/// Interposed [mmap(2)](https://man7.org/linux/man-pages/man2/mmap.2.html).
///
/// # Safety
/// As mmap.
#[cfg_attr(panic = "abort", no_mangle)]
pub unsafe extern "C" fn mmap(
    at: *mut c_void,
    bytes: usize,
    protection: c_int,
    flags: c_int,
    file: c_int,
    offset: i64,
) -> *mut c_void {
    if !events::is_mapping() {
        // SAFETY: the program's own arguments.
        return unsafe { real_mmap(at, bytes, protection, flags, file, offset) };
    }
    let leaving = replaced(at as u64, bytes as u64, flags);
    // SAFETY: the program's own arguments.
    let there = unsafe { real_mmap(at, bytes, protection, flags, file, offset) };
    mapped(there, bytes, (protection, flags), leaving, None);
    there
}

/// Interposed mmap64, which is mmap with the same arguments.
///
/// # Safety
/// As mmap.
#[cfg_attr(panic = "abort", no_mangle)]
pub unsafe extern "C" fn mmap64(
    at: *mut c_void,
    bytes: usize,
    protection: c_int,
    flags: c_int,
    file: c_int,
    offset: i64,
) -> *mut c_void {
    // SAFETY: the program's own arguments.
    unsafe { mmap(at, bytes, protection, flags, file, offset) }
}

/// Interposed [munmap(2)](https://man7.org/linux/man-pages/man2/mmap.2.html).
///
/// # Safety
/// As munmap.
#[cfg_attr(panic = "abort", no_mangle)]
pub unsafe extern "C" fn munmap(at: *mut c_void, bytes: usize) -> c_int {
    let span = if events::is_mapping() { pages(at as u64, bytes as u64) } else { None };
    let leaving = Leaving::of(span);
    // SAFETY: the program's own arguments.
    let result = unsafe { real_munmap(at, bytes) };
    if result != 0 {
        leaving.stays();
    }
    result
}

/// Interposed [mremap(2)](https://man7.org/linux/man-pages/man2/mremap.2.html). A caller that gives four arguments
/// leaves anything in the place of the fifth, and the real one does not look at it.
///
/// # Safety
/// As mremap.
#[cfg_attr(panic = "abort", no_mangle)]
pub unsafe extern "C" fn mremap(
    old: *mut c_void,
    bytes: usize,
    new_bytes: usize,
    flags: c_int,
    new: *mut c_void,
) -> *mut c_void {
    if !events::is_mapping() {
        // SAFETY: the program's own arguments.
        return unsafe { real_mremap(old, bytes, new_bytes, flags, new) };
    }
    let remap = Remap::of(old as u64, bytes as u64, new_bytes as u64, flags, new as u64);
    let replacing = Leaving::of(remap.replaces);
    let leaving = Leaving::of(remap.leaves);
    // SAFETY: the program's own arguments.
    let there = unsafe { real_mremap(old, bytes, new_bytes, flags, new) };
    remapped(&remap, there, new_bytes, (leaving, replacing), None);
    there
}
