//! What is counted of a call that allocates or frees, whoever stands before it: the interposed functions, or the hooks
//! of a running process.

use crate::live::Live;
use core::ffi::c_void;
use core::sync::atomic::{AtomicU32, Ordering};
use uunwind_preload::events::{self, Allocation, Caller, Countdown, Subject};

/// The sampled allocations that live.
static LIVE: Live = Live::new();
/// Whether the table of them is mapped: 0 not yet, 1 a thread maps it, 2 yes, 3 there is no memory.
static MAPPED: AtomicU32 = AtomicU32::new(0);
const MAPPING: u32 = 1;
const IS_MAPPED: u32 = 2;
const NO_MEMORY: u32 = 3;

/// The table has a bucket for each sample of a heap of this size, in bytes; and the least and the largest number of
/// buckets.
const HEAP: u64 = 16 << 30;
const LEAST: u64 = 1 << 12;
const MOST: u64 = 1 << 20;

/// Counts what the real function has returned. `caller`: the frame that has called it; `None`: the calling function's.
#[inline(always)]
pub fn counted(block: *mut c_void, size: usize, caller: Option<&Caller>) -> *mut c_void {
    if events::is_on() && !block.is_null() && !events::is_inside_allocator() {
        match events::countdown() {
            // One of no bytes counts, too.
            Some(countdown) if countdown.passes(size.max(1) as u64) => {}
            countdown => due(countdown, block as u64, size, caller),
        }
    }
    block
}

/// Samples an allocation, if its turn has come.
#[cold]
#[inline(never)]
fn due(countdown: Option<&'static Countdown>, address: u64, size: usize, caller: Option<&Caller>) {
    let Some(interval) = events::interval() else { return };
    if !is_mapped(interval) || !LIVE.is_own() && !adopt() {
        return;
    }
    let countdown = events::keeping_errno(|| events::having_counted(countdown, size.max(1) as u64));
    let Some(countdown) = countdown else { return events::lost(size as u64) };
    if interval > 1 && !countdown.is_due(interval) {
        return;
    }
    // As the distances have no memory, leaving some out leaves the others as they would be.
    if events::is_paused() {
        return;
    }
    let id = events::next_id();
    countdown.remember(id);
    let inserted = LIVE.insert(address, id);
    if let Some(old) = inserted.before {
        events::replaced(old);
    }
    if !inserted.is_there {
        events::untracked();
    }
    let allocation = Allocation { id: if inserted.is_there { id } else { 0 }, size: size as u64 };
    if !events::sampled(Subject::Allocation(allocation), caller) && inserted.is_there {
        LIVE.remove(address);
    }
}

/// In the child of a fork: whether it is recorded by now. Before that, its slots and its block are its parent's.
#[cold]
fn adopt() -> bool {
    let is_recorded = events::is_own();
    if is_recorded {
        LIVE.adopt();
    }
    is_recorded
}

/// Maps the table, unless it is. False: there is no memory, or another thread is about to.
pub fn is_mapped(interval: u32) -> bool {
    match MAPPED.load(Ordering::Acquire) {
        IS_MAPPED => true,
        NO_MEMORY => false,
        _ => {
            if MAPPED.compare_exchange(0, MAPPING, Ordering::AcqRel, Ordering::Relaxed).is_err() {
                return false;
            }
            // A bucket has seven places.
            let buckets = (HEAP / u64::from(interval.max(1))).clamp(LEAST, MOST);
            let is_there = LIVE.map(buckets as usize);
            MAPPED.store(if is_there { IS_MAPPED } else { NO_MEMORY }, Ordering::Release);
            is_there
        }
    }
}

/// Takes what is about to be freed out of the table; returns its number if it was sampled.
#[inline(always)]
pub fn forgotten(block: *mut c_void) -> Option<u64> {
    if !events::is_on() || block.is_null() || !LIVE.may_have(block as u64) {
        return None;
    }
    LIVE.remove(block as u64)
}

/// Counts what has become of a block that was to change its size. `old`: what [`forgotten`] has returned for it before
/// the call, which has returned `new`.
#[inline(always)]
pub fn changed(old: Option<u64>, block: *mut c_void, new: *mut c_void, size: usize, caller: Option<&Caller>) {
    if let Some(id) = old {
        // With a size of 0, glibc frees the block and returns null.
        if new.is_null() && size != 0 {
            LIVE.insert(block as u64, id);
        } else {
            events::freed(id);
        }
    }
    counted(new, size, caller);
}
