//! What the recorder is woken for: objects that are about to be loaded, and what begins and ends here.

#[cfg(not(feature = "no-entry-points"))]
use crate::process;
use crate::process::Process;
use core::sync::atomic::Ordering;
use uunwind_core::syscall::{self, nr};
#[cfg(not(feature = "no-entry-points"))]
use uunwind_ring::openings::{Openings, PATH_BYTES};

/// Says that the object with this name, as dlopen(3) takes it, is about to be loaded, so that its rule table is there
/// when its code runs. A name without a slash is searched for by the loader, and by the recorder, as is what an object
/// needs: where that finds another file or none, the object comes with the first sample that meets it. `caller`: the
/// return address of the call, since the loader searches also where the object says that it lies in. Not for handlers.
///
/// # Safety
/// `file` must be 0 or the address of a NUL-terminated string.
#[cfg(not(feature = "no-entry-points"))]
pub unsafe fn announce(file: usize, caller: usize) {
    let (Some(process), Some(block)) = (process::process(), process::block()) else { return };
    if file == 0 || !process::is_own() || process.facts.is_over() {
        return;
    }
    let text = file as *const u8;
    // SAFETY: as the caller says; nothing is read after the NUL.
    let Some(len) = (0..=PATH_BYTES).find(|at| unsafe { text.add(*at).read() } == 0) else { return };
    // SAFETY: these bytes were just read.
    let path = unsafe { core::slice::from_raw_parts(text, len) };
    if len > 0 {
        // SAFETY: the session stays mapped.
        unsafe { Openings::at(process.session.first_page()) }.put(block.pid, caller as u64, path);
        ring(process);
    }
}

/// Wakes the recorder if it rests: a process or a thread has begun. Not for handlers.
pub fn begun(process: &Process) {
    // The block's state was stored before, and the recorder looks at it after it has said that it rests.
    core::sync::atomic::fence(Ordering::SeqCst);
    if process.session.header().resting.load(Ordering::SeqCst) != 0 {
        ring(process);
    }
}

/// Wakes the recorder. Not for handlers: a program may have forbidden itself system calls by then.
pub fn ring(process: &Process) {
    const FUTEX_WAKE: usize = 1;
    let bell = &process.session.header().bell;
    bell.fetch_add(1, Ordering::Release);
    // SAFETY: a word that stays mapped; the call writes nothing.
    unsafe { syscall::call(nr::FUTEX, [core::ptr::from_ref(bell) as usize, FUTEX_WAKE, 1, 0, 0, 0]) };
}
