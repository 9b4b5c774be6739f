//! The whole stack of a caller without a walk, if that can be.

use crate::chains;
use crate::salts::Salts;
use crate::state::{SHORT_RULES, SLOTS};
use uunwind_core::chain::{Rules, Top};
use uunwind_core::memory::Bare;
use uunwind_core::stop_reason::StopReason;

/// [`at_once`]: that is for a walk to tell.
pub(super) const NOT_TOLD: usize = usize::MAX;

/// The whole stack without a walk ([`uunwind_core::chain::Chain::whole`]), if that can be: it has plain frames only, faults are handled,
/// the loader's counters are known, and this call interrupted no other of its thread's. Needs nothing of the caller's registers but where its
/// return address lies, and rbp.
///
/// # Safety
/// As [`super::uu_capture`].
pub(super) unsafe extern "C" fn at_once(
    frames: *mut u64,
    capacity: usize,
    ucontext: *const u8,
    stop: *mut u16,
    returns: *const u64,
    fp: u64,
) -> usize {
    // SAFETY: passed on.
    match unsafe { whole(frames, capacity, ucontext, returns, fp) } {
        Some((words, reason)) => {
            if !stop.is_null() {
                // SAFETY: the C caller passes null or room for one number.
                unsafe { stop.write(reason.number()) };
            }
            words
        }
        None => NOT_TOLD,
    }
}

/// # Safety
/// As [`super::uu_capture`].
#[inline(always)]
unsafe fn whole(
    frames: *mut u64,
    capacity: usize,
    ucontext: *const u8,
    returns: *const u64,
    fp: u64,
) -> Option<(usize, StopReason)> {
    if frames.is_null() {
        return None;
    }
    // SAFETY: faults are handled where the program asked for it by uu_handle_faults, whose documentation asks for the signals to be
    // unblocked here.
    let bare = unsafe { Bare::new(crate::faults::handled()) }?;
    let slot = SLOTS.own()?;
    let chain = chains::known(slot)?;
    let salts = Salts::new(true);
    let stamp = salts.stamp()?;
    let sp = returns as u64 + 8;
    let alone = slot.occupy(sp)?;
    // SAFETY: the C caller passes `capacity` words.
    let words = unsafe { core::slice::from_raw_parts_mut(frames, capacity) };
    // SAFETY: the assembly passes its own stack.
    let pc = unsafe { returns.read() };
    if ucontext.is_null() {
        // SAFETY: the chain is this thread's, which is at work with no other.
        let told = unsafe { chain.known(stamp, (pc, sp, fp), bare, words) };
        if told.is_some() {
            alone.leave();
            return told;
        }
    }
    // SAFETY: the C caller passes null, or the ucontext that its signal handler got.
    let interrupted = (!ucontext.is_null()).then(|| unsafe { Top::interrupted(ucontext) });
    let top = interrupted.unwrap_or(Top { pc, exact: false, sp, fp });
    // SAFETY: as above.
    let told = unsafe { chain.whole(&Rules { table: &SHORT_RULES, salt: salts.salt(), stamp }, top, bare, words) };
    alone.leave();
    told
}
