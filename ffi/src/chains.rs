//! Memory for threads' last chains of plain frames ([`uunwind_core::chain`]).
//!
//! A chain belongs to a slot, from the first capture of a thread that has it on. There are fewer than slots: each takes 46 KiB as soon as
//! it is used. A thread that gets none walks its whole stack each time.

use core::sync::atomic::{AtomicU32, Ordering};
use uunwind_core::chain::Chain;
use uunwind_core::slots::Slot;

/// Most chains.
const CHAINS: usize = 128;

static ALL: [Chain; CHAINS] = [const { Chain::new() }; CHAINS];
static GIVEN: AtomicU32 = AtomicU32::new(0);

/// The slot's chain, if it has one. Async-signal-safe.
#[inline]
pub fn known(slot: &Slot) -> Option<&'static Chain> {
    ALL.get((slot.chain.load(Ordering::Relaxed) as usize).checked_sub(1)?)
}

/// The slot's chain; a new one if it had none. Async-signal-safe; on the slot's thread, inside a walk of its that has interrupted no other.
pub fn of(slot: &Slot) -> Option<&'static Chain> {
    if slot.chain.load(Ordering::Relaxed) == 0 {
        claim(slot);
    }
    known(slot)
}

#[cold]
fn claim(slot: &Slot) {
    // Not counted on when all are given away, lest the count run round.
    if GIVEN.load(Ordering::Relaxed) as usize >= CHAINS {
        return;
    }
    slot.chain.store(GIVEN.fetch_add(1, Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
}
