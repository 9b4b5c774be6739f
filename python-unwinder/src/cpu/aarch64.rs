//! AArch64.

use uunwind_core::plugin::View;

/// DWARF numbers of the first two arguments of a system call: x0, x1.
pub const ARGUMENTS: [u8; 2] = [0, 1];

/// What pthread_self() is in the walked thread: the address of glibc's struct pthread, which ends at the thread pointer
/// and whose size differs from version to version. By the place of its `specific_1stblock`
/// (<https://sourceware.org/git/?p=glibc.git;a=blob;f=nptl/descr.h;hb=refs/tags/glibc-2.36>): 0x50 bytes after the
/// header, which has 24 words where the thread pointer leads to the DTV. No thread's where that is not known.
pub fn thread_id(view: &View) -> u64 {
    const SPECIFIC: u64 = 24 * 8 + 0x50;
    if view.tsd_offset == 0 {
        return u64::MAX;
    }
    view.thread_pointer.wrapping_add(view.tsd_offset).wrapping_sub(SPECIFIC)
}
