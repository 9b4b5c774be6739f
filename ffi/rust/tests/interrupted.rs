//! A walk from a signal handler begins where the kernel says that the thread was interrupted.
#![cfg(target_arch = "x86_64")]

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};
use uunwind::{Stack, Step, StopReason, Walk};

/// Words of the frames, and the interrupted instruction as the kernel has it: written by the handler, and read when it
/// has returned.
struct Seen(UnsafeCell<([u64; 512], u64)>, AtomicUsize);

// SAFETY: the one thread that is interrupted uses it.
unsafe impl Sync for Seen {}

static SEEN: Seen = Seen(UnsafeCell::new(([0; 512], 0)), AtomicUsize::new(0));

extern "C" fn handler(_: i32, _: *mut libc::siginfo_t, ucontext: *mut c_void) {
    // SAFETY: as above; the third argument of a handler with SA_SIGINFO.
    let (seen, context) = unsafe { (&mut *SEEN.0.get(), &*ucontext.cast::<libc::ucontext_t>()) };
    seen.1 = context.uc_mcontext.gregs[libc::REG_RIP as usize] as u64;
    let mut count = 0;
    let keep = |frame: Step<'_>| {
        for word in frame.words() {
            let Some(place) = seen.0.get_mut(count) else { return ControlFlow::Break(()) };
            *place = *word;
            count += 1;
        }
        ControlFlow::Continue(())
    };
    // SAFETY: the kernel has entered this handler with it.
    let ended = unsafe { Walk::new().each_interrupted(ucontext, keep) };
    let is_whole = ended.is_ok_and(|ended| ended.stop.is_some_and(StopReason::is_complete));
    SEEN.1.store(if is_whole { count } else { 0 }, Ordering::Relaxed);
}

#[inline(never)]
fn interrupts_itself() {
    // SAFETY: a whole action, and a handler that is async-signal-safe.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()), 0);
        assert_eq!(libc::raise(libc::SIGUSR1), 0);
    }
}

#[test]
fn the_first_frame_is_the_interrupted_one() {
    uunwind::setup().expect("the set-up object");
    interrupts_itself();
    // SAFETY: the handler has returned.
    let (words, interrupted) = unsafe { &*SEEN.0.get() };
    let count = SEEN.1.load(Ordering::Relaxed);
    assert!(count > 0, "the walk is whole");
    let stack = Stack::from_words(&words[..count]).expect("frames");
    let first = stack.steps().next().expect("a frame");
    assert_eq!((first.address(), first.is_exact()), (Some(*interrupted), true));
    // The kernel interrupted raise(3), which this file's function called. The handler is no part of that stack.
    let functions: Vec<String> = stack.symbolize().expect("names").into_iter().map(|frame| frame.function).collect();
    let at = functions.iter().position(|name| name == "interrupted::interrupts_itself").expect("the caller");
    assert!(functions[at + 1].contains("the_first_frame_is_the_interrupted_one"), "{functions:#?}");
    assert!(!functions.iter().any(|name| name.contains("handler")), "{functions:#?}");
}
