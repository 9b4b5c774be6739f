//! The stack of a caller without a walk, where that is possible, or as far as it is.

use super::ByShortRules;
use crate::caller::Caller;
use uunwind_core::cache::steps::{Rules, Top, Unwound};
use uunwind_core::memory::Bare;
use uunwind_core::slots::{Slot, Stake};
use uunwind_live::salts::{Salts, SharedEpoch};
use uunwind_live::state::{SHORT_RULES, SLOTS};
use uunwind_live::step_caches;

/// Returned when another way must capture the stack.
pub(super) const NOT_CAPTURED: usize = usize::MAX;

/// The whole stack if all of it is cached and verified ([`uunwind_core::cache::steps::StepCache::replay`]), and this
/// call has interrupted no other capture of its thread. It changes nothing, so it need not hold the steps, which is
/// an atomic operation that waits for all stores before it; if another capture has held them meanwhile, the stack is
/// captured by another way. The cached steps may be those of a thread that has ended, since each is compared with
/// memory. Of the caller's registers only rbp and the place of its return address are needed.
///
/// # Safety
/// As [`super::uu_capture`].
pub(super) unsafe extern "C" fn replay(
    frames: *mut u64,
    capacity: usize,
    ucontext: *const u8,
    stop: *mut u16,
    returns: *const u64,
    fp: u64,
) -> usize {
    if frames.is_null() || !super::are_aligned(frames, ucontext) {
        return NOT_CAPTURED;
    }
    // SAFETY: the C caller passes `capacity` words.
    let words = unsafe { core::slice::from_raw_parts_mut(frames, capacity) };
    let mut capture = || {
        let slot = SLOTS.current_near()?;
        let steps = step_caches::get(slot)?;
        let look = slot.is_idle().then(|| slot.step_cache_holder.look())??;
        // SAFETY: steps are cached only where faults are handled, and they stay handled.
        let bare = unsafe { Bare::new(true)? };
        let top = if ucontext.is_null() {
            // SAFETY: the assembly passes its own stack.
            Top { pc: unsafe { returns.read() }, exact: false, sp: returns as u64 + 8, fp }
        } else {
            // SAFETY: the C caller passes null, or the ucontext that its signal handler got.
            unsafe { Top::interrupted(ucontext) }
        };
        steps.replay(top, bare, words).filter(|_| look.was_clear())
    };
    let Some((count, reason)) = capture() else { return NOT_CAPTURED };
    if !stop.is_null() {
        // SAFETY: the C caller passes null or room for one number, at any alignment.
        unsafe { stop.write_unaligned(reason.number()) };
    }
    count
}

/// The stack by short rules ([`uunwind_core::cache::steps::StepCache::unwind`]). That is possible where faults are
/// handled, the loader's counters are found, and this call interrupted no other capture of its thread.
///
/// # Safety
/// As [`super::uu_capture`].
#[inline(always)]
pub(super) unsafe fn unwind_short<'s>(
    words: &mut [u64],
    ucontext: *const u8,
    caller: &Caller,
    (slot, stake): (&'s Slot, &'s Stake),
    salts: &Salts,
) -> ByShortRules<'s> {
    // SAFETY: faults are handled where the program asked for it by uu_handle_faults, whose documentation asks for
    // the signals to be unblocked here.
    let bare = unsafe { Bare::new(crate::faults::handled()) };
    let (Some(bare), Some(steps), Some(stamp)) = (bare, step_caches::get(slot), salts.stamp()) else {
        return ByShortRules::Nothing(None);
    };
    let Some(held) = slot.is_idle().then(|| slot.step_cache_holder.hold(stake)).flatten() else {
        return ByShortRules::Nothing(None);
    };
    let rules = Rules { table: &SHORT_RULES, salt: salts.salt(), stamp, validity: &SharedEpoch };
    let top = if ucontext.is_null() {
        Top { pc: caller.pc, exact: false, sp: caller.sp, fp: caller.rbp }
    } else {
        // SAFETY: the C caller passes null, or the ucontext that its signal handler got.
        unsafe { Top::interrupted(ucontext) }
    };
    // SAFETY: the steps are held.
    match unsafe { steps.unwind(&rules, top, bare, words) } {
        Unwound::Whole(count, reason) => {
            held.leave();
            ByShortRules::Whole(count, reason)
        }
        Unwound::Part(part) => ByShortRules::Part(held, part),
        Unwound::Nothing => ByShortRules::Nothing(Some(held)),
    }
}
