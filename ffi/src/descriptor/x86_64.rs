//! x86-64.

use uunwind_core::span::Span;
use uunwind_core::syscall;

/// Where the calling thread's descriptor lies (glibc's struct pthread): it begins at the thread pointer, and is larger
/// than this.
pub fn own() -> Span {
    Span::sized(syscall::thread_pointer(), 2048)
}
