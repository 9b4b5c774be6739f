//! AArch64.

use uunwind_core::span::Span;
use uunwind_core::syscall;

extern "C" {
    fn pthread_self() -> usize;
}

/// Where the calling thread's descriptor lies (glibc's struct pthread): it ends at the thread pointer.
pub fn own() -> Span {
    // SAFETY: there are no conditions.
    Span::new(unsafe { pthread_self() } as u64, syscall::thread_pointer())
}
