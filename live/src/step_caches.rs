//! Memory for the threads' step caches ([`uunwind_core::cache::steps`]).
//!
//! A cache is assigned to a slot at the first capture of a thread that holds the slot, and stays with it. There are
//! fewer caches than slots, because each takes 45 KiB once it is used. A thread without one walks its whole stack at
//! each capture, and so does every thread where no steps are cached, as on AArch64.

use core::sync::atomic::{AtomicU32, Ordering};
use uunwind_core::cache::steps::StepCache;
use uunwind_core::slots::Slot;

/// Number of step caches; none where one holds nothing.
const CACHES: usize = if size_of::<StepCache>() == 0 { 0 } else { 128 };

static ALL: [StepCache; CACHES] = [const { StepCache::new() }; CACHES];
/// Number of caches that are assigned.
static ASSIGNED: AtomicU32 = AtomicU32::new(0);

/// The slot's step cache, if it has one. Async-signal-safe.
#[inline]
pub fn get(slot: &Slot) -> Option<&'static StepCache> {
    // SAFETY: null, or a pointer to an element of `ALL`.
    unsafe { slot.step_cache.load(Ordering::Relaxed).as_ref() }
}

/// The slot's step cache; a new one if it had none and one is left. Async-signal-safe. To be called on the slot's
/// thread, inside a walk that has interrupted no other walk of this thread.
pub fn get_or_claim(slot: &Slot) -> Option<&'static StepCache> {
    get(slot).or_else(|| claim(slot))
}

#[cold]
fn claim(slot: &Slot) -> Option<&'static StepCache> {
    // The count does not go on when all are assigned, so that it cannot wrap around.
    if ASSIGNED.load(Ordering::Relaxed) as usize >= CACHES {
        return None;
    }
    let cache = ALL.get(ASSIGNED.fetch_add(1, Ordering::Relaxed) as usize)?;
    slot.step_cache.store(core::ptr::from_ref(cache).cast_mut(), Ordering::Relaxed);
    Some(cache)
}
