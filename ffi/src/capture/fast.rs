//! The stack of a caller without a walk, where that is possible, or as far as it is.

use super::ByShortRules;
use uunwind_core::cache::steps::{Rules, StepCache, Top, Unwound};
use uunwind_core::caller::Caller;
use uunwind_core::memory::{Bare, OwnStack, StackWords};
use uunwind_core::slots::{Held, Slot, Stake};
use uunwind_live::own_stack;
use uunwind_live::short_rule_keys::{Salts, SharedEpoch};
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
        let top = if ucontext.is_null() {
            // SAFETY: the assembly passes its own stack.
            Top { pc: unsafe { returns.read() }, exact: false, sp: returns as u64 + 8, fp }
        } else {
            // SAFETY: the C caller passes null, or the ucontext that its signal handler got.
            unsafe { Top::interrupted(ucontext) }
        };
        // SAFETY: the program called uu_handle_faults, whose documentation asks for the signals to be unblocked here.
        let replayed = match unsafe { Bare::new(crate::faults::handled()) } {
            Some(bare) => steps.replay(top, bare, words),
            None => {
                // SAFETY: the stack pointer of the caller, or of the interrupted code.
                let stack = unsafe { own_stack::asked_before(slot, top.sp)? };
                steps.replay_in_order(top, Salts::new(true).stamp()?, stack, words)
            }
        };
        replayed.filter(|_| look.was_clear())
    };
    let Some((count, reason)) = capture() else { return NOT_CAPTURED };
    if !stop.is_null() {
        // SAFETY: the C caller passes null or room for one number, at any alignment.
        unsafe { stop.write_unaligned(reason.number()) };
    }
    count
}

/// The stack by short rules ([`uunwind_core::cache::steps::StepCache::unwind`]). That is possible where faults are
/// handled or the stack is the thread's own, the loader's counters are found, and this call interrupted no other
/// capture of its thread. `stack`: what may be read of the thread's own stack, where faults are not handled.
///
/// # Safety
/// As [`super::uu_capture`].
#[inline(always)]
pub(super) unsafe fn unwind_short<'s>(
    words: &mut [u64],
    ucontext: *const u8,
    caller: &Caller,
    stack: OwnStack,
    (slot, stake): (&'s Slot, &'s Stake),
    salts: &Salts,
) -> ByShortRules<'s> {
    // SAFETY: faults are handled where the program asked for it by uu_handle_faults, whose documentation asks for
    // the signals to be unblocked here.
    let bare = unsafe { Bare::new(crate::faults::handled()) };
    let (Some(steps), Some(stamp), true) = (step_caches::get(slot), salts.stamp(), bare.is_some() || stack.is_some())
    else {
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
    unsafe {
        match bare {
            Some(bare) => unwind(steps, &rules, top, bare, words, held),
            None => unwind(steps, &rules, top, stack, words, held),
        }
    }
}

/// # Safety
/// The steps must be held.
#[inline(always)]
unsafe fn unwind<'s, const WORDS: usize>(
    steps: &'static StepCache,
    rules: &Rules<'_, WORDS>,
    top: Top,
    stack: impl StackWords,
    words: &mut [u64],
    held: Held<'s>,
) -> ByShortRules<'s> {
    // SAFETY: passed on.
    match unsafe { steps.unwind(rules, top, stack, words) } {
        Unwound::Whole(count, reason) => {
            held.leave();
            ByShortRules::Whole(count, reason)
        }
        Unwound::Part(part) => ByShortRules::Part(held, part),
        Unwound::Nothing => ByShortRules::Nothing(Some(held)),
    }
}
