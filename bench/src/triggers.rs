//! Deferred requests: `uunwind-bench triggers LIBRARY [ROUNDS]`.
//!
//! What uu_trigger takes while a cookie is pending; and when it sends the signal and the stack is delivered, beside the
//! same signal with a handler that does nothing, and a uu_walk of the same stack. All take turns inside each round.

use crate::peers::symbol;
use crate::table::median;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Calls in a row whose mean is one measurement.
const CALLS: u32 = 1000;
/// As above, of calls that take nanoseconds.
const MANY: u32 = 100_000;
/// A real-time signal that nothing else uses.
const SIGNAL: c_int = 40;

type Register = unsafe extern "C" fn(unsafe extern "C" fn(*mut c_void, *const c_void), *mut c_void) -> c_int;
type Trigger = unsafe extern "C" fn(c_int) -> u64;
type Call = unsafe extern "C" fn() -> c_int;
type Walk = unsafe extern "C" fn(*mut [u64; 9]) -> c_int;

static DELIVERED: AtomicU64 = AtomicU64::new(0);

unsafe extern "C" fn deliver(_: *mut c_void, _: *const c_void) {
    DELIVERED.fetch_add(1, Ordering::Relaxed);
}

extern "C" fn nothing(_: c_int) {}

/// Prints the table.
pub fn run(library: &str, rounds: usize) {
    // SAFETY: the types that uu.h gives these functions.
    let (client, trigger, walk) = unsafe {
        let handle_faults = std::mem::transmute::<*mut c_void, Call>(symbol(library, "uu_handle_faults"));
        assert_eq!(handle_faults(), 0, "uu_handle_faults");
        let register = std::mem::transmute::<*mut c_void, Register>(symbol(library, "uu_client_register"));
        let client = register(deliver, std::ptr::null_mut());
        assert!(client >= 0, "uu_client_register: {client}");
        let trigger = std::mem::transmute::<*mut c_void, Trigger>(symbol(library, "uu_trigger"));
        (client, trigger, std::mem::transmute::<*mut c_void, Walk>(symbol(library, "uu_walk")))
    };
    // SAFETY: a valid disposition of a signal of our own.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as *const () as usize;
        libc::sigfillset(&raw mut action.sa_mask);
        assert_eq!(libc::sigaction(SIGNAL, &raw const action, std::ptr::null_mut()), 0);
    }
    // SAFETY: the client's number; a request of 72 bytes, zero but for its size; a signal of our own.
    let (mut ask, mut take, mut send) = unsafe {
        (
            move || assert_ne!(trigger(client), 0, "refused"),
            move || assert_eq!(walk(&mut [72, 0, 0, 0, 0, 0, 0, 0, 0]), 0, "uu_walk"),
            || assert_eq!(libc::syscall(libc::SYS_tgkill, libc::getpid(), libc::gettid(), SIGNAL), 0),
        )
    };
    let (mut pending, mut whole, mut bare, mut alone) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        bare.push(time(CALLS, &mut send));
        whole.push(time(CALLS, &mut ask));
        alone.push(time(CALLS, &mut take));
        blocked(true);
        ask();
        pending.push(time(MANY, &mut ask));
        blocked(false);
    }
    let calls = rounds as u64 * (u64::from(CALLS) + 1);
    assert_eq!(DELIVERED.load(Ordering::Relaxed), calls, "each request has one stack");
    let more: Vec<f64> = whole.iter().zip(&bare).map(|(whole, bare)| whole - bare).collect();
    println!("\n### Deferred requests, ns\n\n| what | ns |\n|---|---|");
    println!("| uu_trigger, a cookie is pending | {:.1} |", median(pending));
    println!("| uu_trigger, signal and stack | {:.0} |", median(whole));
    println!("| a signal to the own thread alone | {:.0} |", median(bare));
    println!("| the difference of the two | {:.0} |", median(more));
    println!("| uu_walk of the same stack | {:.0} |", median(alone));
}

/// Nanoseconds of one call.
fn time(calls: u32, call: &mut dyn FnMut()) -> f64 {
    let begin = Instant::now();
    for _ in 0..calls {
        call();
    }
    begin.elapsed().as_nanos() as f64 / f64::from(calls)
}

/// Blocks all signals of this thread, or none.
fn blocked(all: bool) {
    // SAFETY: a valid set.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut set);
        let how = if all { libc::SIG_BLOCK } else { libc::SIG_UNBLOCK };
        libc::pthread_sigmask(how, &raw const set, std::ptr::null_mut());
    }
}
