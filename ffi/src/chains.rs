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
pub fn given(slot: &Slot) -> Option<&'static Chain> {
    // SAFETY: null, or one of ours.
    unsafe { slot.chain.load(Ordering::Relaxed).as_ref() }
}

/// The slot's chain; a new one if it had none. Async-signal-safe; on the slot's thread, inside a walk of its that has interrupted no other.
pub fn of(slot: &Slot) -> Option<&'static Chain> {
    given(slot).or_else(|| claim(slot))
}

#[cold]
fn claim(slot: &Slot) -> Option<&'static Chain> {
    // Not counted on when all are given away, lest the count run round.
    if GIVEN.load(Ordering::Relaxed) as usize >= CHAINS {
        return None;
    }
    let chain = ALL.get(GIVEN.fetch_add(1, Ordering::Relaxed) as usize)?;
    slot.chain.store(core::ptr::from_ref(chain).cast_mut(), Ordering::Relaxed);
    Some(chain)
}
