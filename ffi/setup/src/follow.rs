//! The thread that runs the set-up again when a walk has met an object that is new (`UU_SETUP_BY_ITSELF` of `uu.h`).
//!
//! It blocks all signals, so that it takes none of the program's, and sleeps until it is woken. It ends when the
//! process does. The child of a fork has none until the next set-up with the flag.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use uunwind_clock::Instant;
use uunwind_core::errno::{Errno, EAGAIN};
use uunwind_core::library::Library;
use uunwind_core::setup_wakeup::Due;

/// Where the thread is.
static STATE: AtomicU32 = AtomicU32::new(NONE);
const NONE: u32 = 0;
/// It waits, or runs the set-up.
const THERE: u32 = 1;
/// The process ends, and so is the thread to do.
const ENDING: u32 = 2;

/// The library's part; null: no thread was ever asked for.
static DUE: std::sync::atomic::AtomicPtr<Due> = std::sync::atomic::AtomicPtr::new(std::ptr::null_mut());

/// Starts the thread, unless it is there.
///
/// # Errors
/// `EAGAIN`: the kernel gives no thread.
pub fn begin(library: &'static Library) -> Result<(), Errno> {
    if STATE.compare_exchange(NONE, THERE, Ordering::AcqRel, Ordering::Acquire).is_err() {
        return Ok(());
    }
    // SAFETY: the library's, which is never unloaded.
    let due: &'static Due = unsafe { &*library.due };
    DUE.store(std::ptr::from_ref(due).cast_mut(), Ordering::Release);
    let before = mask(libc::SIG_SETMASK, &all());
    let thread = std::thread::Builder::new().name("uu-setup".to_owned()).spawn(move || run(library, due));
    mask(libc::SIG_SETMASK, &before);
    if thread.is_err() {
        STATE.store(NONE, Ordering::Release);
        return Err(EAGAIN);
    }
    Ok(())
}

/// Every signal that a program may block.
fn all() -> libc::sigset_t {
    // SAFETY: a set of its own, which the call fills.
    unsafe {
        let mut all = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        all
    }
}

/// Changes the calling thread's signal mask, and returns the one before.
fn mask(how: i32, set: &libc::sigset_t) -> libc::sigset_t {
    // SAFETY: two sets.
    unsafe {
        let mut before = std::mem::zeroed();
        libc::pthread_sigmask(how, set, &raw mut before);
        before
    }
}

fn run(library: &Library, due: &Due) {
    /// However the thread ends.
    struct There<'d>(&'d Due);
    impl Drop for There<'_> {
        fn drop(&mut self) {
            self.0.set_thread(0);
            STATE.store(NONE, Ordering::Release);
        }
    }
    due.set_thread(uunwind_core::syscall::gettid());
    let _there = There(due);
    // What was loaded before the first walk could wake this thread.
    while STATE.load(Ordering::Acquire) == THERE {
        let begun = Instant::now();
        crate::prepare(library);
        rest(begun.elapsed());
        due.wait();
    }
}

/// Sleeps after a set-up that took this long, so that a program whose loader never comes to rest keeps four fifths of
/// the processor at least.
fn rest(busy: Duration) {
    const SLICE: Duration = Duration::from_millis(5);
    let until = Instant::now() + (busy * 4).min(Duration::from_secs(1));
    while STATE.load(Ordering::Acquire) == THERE {
        let left = until - Instant::now();
        if left.is_zero() {
            return;
        }
        uunwind_clock::sleep(left.min(SLICE));
    }
}

/// Run by the loader when the process ends: a set-up that is under way ends first, at most a second later.
#[used]
#[link_section = ".fini_array"]
static END: extern "C" fn() = end;

extern "C" fn end() {
    if STATE.compare_exchange(THERE, ENDING, Ordering::AcqRel, Ordering::Acquire).is_err() {
        return;
    }
    // SAFETY: null, or the library's, which is never unloaded.
    let Some(due) = (unsafe { DUE.load(Ordering::Acquire).as_ref() }) else { return };
    let limit = Instant::now() + Duration::from_secs(1);
    while STATE.load(Ordering::Acquire) == ENDING && Instant::now() < limit {
        due.wake();
        uunwind_clock::sleep(Duration::from_micros(100));
    }
}

/// In the child of a fork: the thread is the parent's.
pub fn forked() {
    STATE.store(NONE, Ordering::Release);
    // SAFETY: as in `end`.
    if let Some(due) = unsafe { DUE.load(Ordering::Acquire).as_ref() } {
        due.set_thread(0);
    }
}
