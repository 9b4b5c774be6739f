//! Whether the process is recorded now, or paused: by the recorder (`uu pause`), or by the program itself
//! (`uu_record_stop()`). The last of both decides.
//!
//! Timers go on while it is paused, and each tick asks here: a thread is not stopped for it, and nothing is armed anew.

use crate::process::{self, Process};
use crate::slots::Slot;
use core::sync::atomic::{AtomicU64, Ordering};
use uunwind_core::errno::ENOTSUP;
use uunwind_ring::FLAG_EVENTS;

/// Bit 0: it is paused. The bits above it: the recorder's switches that were seen. The child of a fork goes on with its
/// parent's.
static STATE: AtomicU64 = AtomicU64::new(0);

fn state(switches: u32, paused: bool) -> u64 {
    u64::from(switches) << 1 | u64::from(paused)
}

/// Whether nothing is to be sampled. Async-signal-safe.
pub fn is_paused(process: &Process) -> bool {
    let (before, switches) = (STATE.load(Ordering::Relaxed), process.facts.switches());
    if before >> 1 == u64::from(switches) {
        return before & 1 != 0;
    }
    // The recorder has decided since.
    let paused = switches & 1 != 0;
    match STATE.compare_exchange(before, state(switches, paused), Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => {
            show(state(switches, paused));
            paused
        }
        Err(now) => now & 1 != 0,
    }
}

/// The program pauses its recording, or resumes it. Async-signal-safe. Error: a positive errno.
pub fn switch(process: &Process, paused: bool) -> Result<(), i32> {
    // The recorder's events time the samples, and it does not ask here.
    if process.setting.flags & FLAG_EVENTS != 0 {
        return Err(ENOTSUP.0);
    }
    let state = state(process.facts.switches(), paused);
    STATE.store(state, Ordering::Relaxed);
    show(state);
    Ok(())
}

/// Says so to the recorder, which samples threads that wait.
fn show(state: u64) {
    if let Some(block) = process::block() {
        block.pause.store(state, Ordering::Relaxed);
    }
}

/// The block of a process is a new one.
pub fn begin(process: &Process) {
    is_paused(process);
    show(STATE.load(Ordering::Relaxed));
}

/// Counts the periods that a tick of this weight stands for, of which there is no sample.
pub fn skip(process: &Process, slot: &Slot, weight: u32) {
    // A first tick stands for more than its weight, and what held it back is over.
    let weight = slot.first.weight(weight, process.setting.period());
    slot.held.store(0, Ordering::Relaxed);
    if let Some(block) = process::block() {
        block.paused_periods.fetch_add(u64::from(weight), Ordering::Relaxed);
    }
}
