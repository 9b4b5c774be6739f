//! The whole stack of a caller without a walk, if that can be.

use crate::chains;
use crate::salts::{Salts, Shared};
use crate::state::{SHORT_RULES, SLOTS};
use uunwind_core::chain::{Rules, Top};
use uunwind_core::memory::Bare;
use uunwind_core::stop_reason::StopReason;

/// That is for another to tell.
pub(super) const NOT_TOLD: usize = usize::MAX;

/// The whole stack if all of it is known ([`uunwind_core::chain::Chain::known`]), and this call has interrupted no other of its thread's. What is known may
/// be from a thread that is gone: it is held against memory. The slot must be this one's, or what interrupts this call would take it for that thread's and clear its
/// mark. Needs nothing of the caller's registers but where its return address lies, and rbp.
///
/// # Safety
/// As [`super::uu_capture`].
pub(super) unsafe extern "C" fn known(
    frames: *mut u64,
    capacity: usize,
    ucontext: *const u8,
    stop: *mut u16,
    returns: *const u64,
    fp: u64,
) -> usize {
    let told = |words: &mut [u64], top| {
        let slot = SLOTS.owned()?;
        let chain = chains::given(slot)?;
        let alone = slot.occupy(returns as u64 + 8)?;
        // SAFETY: the chain is this thread's, which is at work with no other. Where something is known, faults were handled, and that does not end.
        let told = unsafe { Bare::new(true).and_then(|bare| chain.known(top, bare, words)) };
        alone.leave();
        told
    };
    // SAFETY: passed on.
    unsafe { answer(frames, capacity, ucontext, stop, returns, fp, told) }
}

/// The whole stack without a walk ([`uunwind_core::chain::Chain::whole`]), if that can be: it has plain frames only, faults are handled, the loader's counters are known,
/// and this call interrupted no other of its thread's.
///
/// # Safety
/// As [`super::uu_capture`].
pub(super) unsafe extern "C" fn by_rules(
    frames: *mut u64,
    capacity: usize,
    ucontext: *const u8,
    stop: *mut u16,
    returns: *const u64,
    fp: u64,
) -> usize {
    let told = |words: &mut [u64], top| {
        // SAFETY: faults are handled where the program asked for it by uu_handle_faults, whose documentation asks for the signals to be
        // unblocked here.
        let bare = unsafe { Bare::new(crate::faults::handled()) }?;
        let slot = SLOTS.own()?;
        let chain = chains::given(slot)?;
        let salts = Salts::new(true);
        let rules = Rules { table: &SHORT_RULES, salt: salts.salt(), stamp: salts.stamp()?, surroundings: &Shared };
        let alone = slot.occupy(returns as u64 + 8)?;
        // SAFETY: the chain is this thread's, which is at work with no other.
        let told = unsafe { chain.whole(&rules, top, bare, words) };
        alone.leave();
        told
    };
    // SAFETY: passed on.
    unsafe { answer(frames, capacity, ucontext, stop, returns, fp, told) }
}

/// The C caller's answer: what is `told` of the frame to begin with, given the room for it.
///
/// # Safety
/// As [`super::uu_capture`].
#[inline(always)]
unsafe fn answer(
    frames: *mut u64,
    capacity: usize,
    ucontext: *const u8,
    stop: *mut u16,
    returns: *const u64,
    fp: u64,
    told: impl FnOnce(&mut [u64], Top) -> Option<(usize, StopReason)>,
) -> usize {
    if frames.is_null() {
        return NOT_TOLD;
    }
    // SAFETY: the C caller passes `capacity` words.
    let words = unsafe { core::slice::from_raw_parts_mut(frames, capacity) };
    let top = if ucontext.is_null() {
        // SAFETY: the assembly passes its own stack.
        Top { pc: unsafe { returns.read() }, exact: false, sp: returns as u64 + 8, fp }
    } else {
        // SAFETY: the C caller passes null, or the ucontext that its signal handler got.
        unsafe { Top::interrupted(ucontext) }
    };
    let Some((count, reason)) = told(words, top) else { return NOT_TOLD };
    if !stop.is_null() {
        // SAFETY: the C caller passes null or room for one number.
        unsafe { stop.write(reason.number()) };
    }
    count
}
