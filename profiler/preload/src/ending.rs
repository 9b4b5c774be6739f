//! The end of the recording in a process that continues to run: none of our code runs after it.
//!
//! A process is not notified. The first tick of any thread reads a word that only the recorder can write, and which
//! says that the recording is over (it was stopped, or the recorder is gone). From then on no walk begins. The timers
//! of all threads are deleted, except those of threads inside a walk: such a thread ends the recording itself, after
//! its walk. The thread that finds no other one inside a walk gives the signals and the session back.

use crate::injected;
use crate::process::{self, Process};
use crate::signals::{masks, returned};
use crate::slots::{self, Slot};
use crate::threads;
use core::sync::atomic::{AtomicU32, Ordering};

const RECORDING: u32 = 0;
/// No new walk may begin.
const ENDING: u32 = 1;
/// One thread is giving everything back.
const RETURNING: u32 = 2;
/// Dispositions, timers and shared memory have been given back.
const OVER: u32 = 3;

static STATE: AtomicU32 = AtomicU32::new(RECORDING);

/// Whether the recording of this process has begun to end. Async-signal-safe.
pub fn has_begun() -> bool {
    STATE.load(Ordering::SeqCst) != RECORDING
}

/// Marks the thread as inside a walk. Returns false, without the mark, when no walk may begin any more.
///
/// Both sides write their own word before they read the other's, sequentially consistent: either this thread sees the
/// end, or the thread that ends the recording sees the mark.
pub fn enter(slot: &Slot) -> bool {
    slot.busy.store(1, Ordering::SeqCst);
    let may = !has_begun();
    if !may {
        slot.busy.store(0, Ordering::SeqCst);
    }
    may
}

/// Ends the recording of this process, except for threads that are inside a walk. The calling thread must not be inside
/// one. Async-signal-safe.
pub fn end(process: &'static Process) {
    if !process::is_own() {
        return;
    }
    let _ = STATE.compare_exchange(RECORDING, ENDING, Ordering::SeqCst, Ordering::SeqCst);
    let mut walking = false;
    for slot in slots::all() {
        if slot.busy.load(Ordering::SeqCst) != 0 {
            // Its timer stays, because it may be the watchdog of that walk. If the program left the walk by a longjmp,
            // the next tick clears the mark.
            walking = true;
        } else {
            threads::disarm(slot);
        }
    }
    if !walking && STATE.compare_exchange(ENDING, RETURNING, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
        give_everything_back(process);
    }
}

/// Ends the recording in a process that has a single thread and no timer: the child of a fork, or before the first
/// thread has begun. `masked`: the program believes that this thread blocks the sampling signal.
pub fn end_at_once(process: &'static Process, masked: bool) {
    if masked {
        masks::block_now();
    }
    STATE.store(RETURNING, Ordering::SeqCst);
    give_everything_back(process);
}

/// In the child of a fork: completes what another thread of the parent was giving back at the time of the fork.
pub fn finish_in_child(process: &'static Process) {
    if STATE.load(Ordering::SeqCst) == RETURNING {
        give_everything_back(process);
    }
}

fn give_everything_back(process: &'static Process) {
    crate::events::end();
    process::stop();
    if injected::is_so() {
        injected::give_back();
    } else {
        returned::give_back();
    }
    process.session.release();
    STATE.store(OVER, Ordering::SeqCst);
}
