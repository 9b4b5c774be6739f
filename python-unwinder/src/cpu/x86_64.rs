//! x86-64.

use uunwind_core::plugin::View;

/// DWARF numbers of the first two arguments of a system call: rdi, rsi.
pub const ARGUMENTS: [u8; 2] = [5, 4];

/// What pthread_self() is in the walked thread: glibc's thread pointer.
pub fn thread_id(view: &View) -> u64 {
    view.thread_pointer
}
