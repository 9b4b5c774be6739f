//! A capture in a signal handler that interrupts the leaf of a chain. The signal is sent by the leaf itself; only the
//! capture is timed.

use super::{overhead, ticks, Leaf};
use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, Ordering};

static LEAF: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// Handles SIGUSR1.
pub fn install() {
    // SAFETY: a valid structure, and a function of that form.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_signal as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut());
    }
}

/// The leaf: it interrupts itself.
pub extern "C-unwind" fn interrupt(leaf: *mut c_void) {
    LEAF.store(leaf, Ordering::Relaxed);
    // SAFETY: a system call, so that no function of the C library stands on the stack, which has no frame pointer.
    unsafe {
        std::arch::asm!("syscall", inout("rax") libc::SYS_tgkill => _, in("rdi") libc::getpid(), in("rsi") libc::gettid(),
            in("rdx") libc::SIGUSR1, out("rcx") _, out("r11") _);
    }
    LEAF.store(std::ptr::null_mut(), Ordering::Relaxed);
}

/// Another leaf, which calls that one.
pub extern "C-unwind" fn interrupt_further_in(leaf: *mut c_void) {
    std::hint::black_box(interrupt as extern "C-unwind" fn(*mut c_void))(leaf);
    // Lest the call be a jump.
    std::hint::black_box(());
}

extern "C" fn on_signal(_: i32, _: *mut libc::siginfo_t, ucontext: *mut c_void) {
    // SAFETY: `interrupt` has set it to its leaf, and waits.
    let Some(leaf) = (unsafe { LEAF.load(Ordering::Relaxed).cast::<Leaf<'_>>().as_mut() }) else { return };
    let begin = ticks();
    leaf.peer.capture_interrupted(&mut leaf.frames, ucontext.cast());
    let end = ticks();
    leaf.ticks += (end - begin).saturating_sub(overhead());
    leaf.captures += 1;
}
