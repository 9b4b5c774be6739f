//! The native stack of a crash inside a walk of the same thread, in a function that the walk calls: of a window, of a
//! request, of a client.

use super::handler::Crash;
use core::cell::UnsafeCell;
use core::ffi::c_void;
use uunwind_core::recovery::{self, Call, Recovery};
use uunwind_core::stop_reason::StopReason;

/// Words of frames.
const WORDS: usize = 4096;

struct Frames(UnsafeCell<[u64; WORDS]>);
// SAFETY: only the one who writes a report is here.
unsafe impl Sync for Frames {}
static FRAMES: Frames = Frames(UnsafeCell::new([0; WORDS]));

/// Where the report goes on after a fault in the capture: the window's function that faulted may be called again.
pub static RECOVERY: Recovery = Recovery::new();

/// What the protected part gets, and leaves.
struct Work {
    ucontext: *const u8,
    capture: unsafe extern "C" fn(*mut u64, usize, *const u8, *mut u16) -> usize,
    stop: u16,
}

/// Captures it. `None`: there is no frame. To be called by the one who writes a report.
pub fn capture(crash: &Crash) -> Option<(&'static [u64], StopReason)> {
    let capture = crate::host()?.capture;
    // SAFETY: the caller alone is here; nobody refers to the frames of an earlier report.
    unsafe { (*FRAMES.0.get()).fill(0) };
    let mut work = Work { ucontext: crash.ucontext, capture, stop: StopReason::Fault.number() };
    RECOVERY.disarm();
    // SAFETY: a capture locks and allocates nothing, so it may be left: the process is about to end, or its thread's
    // place on the stack counts as left. Only the caller uses the recovery point.
    let ended =
        unsafe { recovery::call(&RECOVERY, &Call::new(protected as *const () as usize, [(&raw mut work) as u64])) };
    let stop = if ended.is_ok() { StopReason::from_number(work.stop) } else { None };
    // SAFETY: as above. No word of a frame is 0, but the second one of a frame in a window may be.
    let frames = unsafe { &*FRAMES.0.get() };
    let words = frames.iter().rposition(|word| *word != 0)? + 1;
    Some((frames.get(..words)?, stop.unwrap_or(StopReason::Fault)))
}

unsafe extern "C" fn protected(work: *mut c_void) {
    // SAFETY: `capture` passes its work.
    let work = unsafe { &mut *work.cast::<Work>() };
    // SAFETY: the static buffer, and the context of the crash, in this thread.
    unsafe { (work.capture)(FRAMES.0.get().cast(), WORDS, work.ucontext, &raw mut work.stop) };
}
