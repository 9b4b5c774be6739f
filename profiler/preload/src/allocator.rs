//! Whether the program's allocator may be called: dlopen(3), and some other functions of libc, call it.
//!
//! A program that defines malloc itself may set it up in `main`, as those do that were dumped from memory with their
//! heap (GNU Common Lisp, Emacs before 27). So nothing of ours that allocates is called there before the program has
//! called such a function itself. An allocator in a library is ready as soon as the library is loaded: constructors of
//! other libraries call it.

use core::sync::atomic::{AtomicBool, Ordering};

/// The program defines malloc, and has called nothing yet that allocates.
static WAITS: AtomicBool = AtomicBool::new(false);

/// Looks at the program. For the constructor.
#[cfg(not(feature = "no-libc"))]
pub fn look() {
    // SAFETY: in normal context, libc's function.
    WAITS.store(unsafe { uunwind_core::loaded::program_allocates(crate::real::dl_iterate_phdr) }, Ordering::Relaxed);
}

/// Whether functions that allocate may be called.
pub fn is_usable() -> bool {
    !WAITS.load(Ordering::Relaxed)
}

/// The program calls a function that allocates.
pub fn is_called() {
    if WAITS.load(Ordering::Relaxed) {
        WAITS.store(false, Ordering::Relaxed);
    }
}
