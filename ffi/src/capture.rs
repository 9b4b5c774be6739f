//! `uu_capture`: the stack of the calling thread, for C.

use uunwind_core::cache::steps::Part;
use uunwind_core::caller::Caller;
use uunwind_core::cursor::Cursor;
use uunwind_core::memory::{Mode, OwnStack, Reader};
use uunwind_core::regs::Regs;
use uunwind_core::slots::{Held, Slot, Stake};
use uunwind_core::stop_reason::StopReason;
use uunwind_core::syscall;
use uunwind_core::walk::{walk_rest, walk_with_steps, Setting};
#[cfg(target_arch = "x86_64")]
use uunwind_core::{call, drop_caller, jump_elsewhere, store_caller, unless_elsewhere};
use uunwind_live::env::Live;
use uunwind_live::own_stack;
use uunwind_live::short_rule_keys::Salts;
use uunwind_live::state::SLOTS;
use uunwind_live::step_caches;

#[cfg(target_arch = "x86_64")]
mod fast;
#[cfg(target_arch = "aarch64")]
#[path = "capture/none.rs"]
mod fast;

#[cfg(target_arch = "aarch64")]
uunwind_core::entry_with_caller! {
    /// The C entry: stores the caller's registers and calls `capture_anew`. `uu.h` documents it.
    ///
    /// # Safety
    /// As on x86-64.
    #[cfg_attr(not(feature = "no-entry-points"), no_mangle)]
    uu_capture(frames: *mut u64, capacity: usize, ucontext: *const u8, stop: *mut u16) -> usize
        = capture_anew, crate::home::CAPTURE
}

/// The C entry: calls `fast::replay`; if that does not capture the stack, stores the caller's registers and calls
/// `capture_anew`. `uu.h` documents it.
///
/// # Safety
/// `frames` must have room for `capacity` words; `ucontext` must be null or a signal handler's; `stop` null or
/// writable.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[cfg_attr(not(feature = "no-entry-points"), no_mangle)]
pub unsafe extern "C" fn uu_capture(frames: *mut u64, capacity: usize, ucontext: *const u8, stop: *mut u16) -> usize {
    // Without a ucontext, the current frame is the caller's, as it is when this call returns.
    core::arch::naked_asm!(
        ".cfi_startproc",
        unless_elsewhere!(),
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        "push rsi",
        ".cfi_adjust_cfa_offset 8",
        "push rdx",
        ".cfi_adjust_cfa_offset 8",
        "push rcx",
        ".cfi_adjust_cfa_offset 8",
        "lea r8, [rsp + 32]",
        "mov r9, rbp",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "call {replay}",
        "cmp rax, {not_captured}",
        "je 3f",
        "add rsp, 40",
        ".cfi_adjust_cfa_offset -40",
        "ret",
        "3:",
        ".cfi_adjust_cfa_offset 40",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "pop rcx",
        ".cfi_adjust_cfa_offset -8",
        "pop rdx",
        ".cfi_adjust_cfa_offset -8",
        "pop rsi",
        ".cfi_adjust_cfa_offset -8",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        store_caller!("r8"),
        call!("{capture_anew}"),
        drop_caller!(),
        "ret",
        jump_elsewhere!(),
        ".cfi_endproc",
        replay = sym fast::replay,
        not_captured = const fast::NOT_CAPTURED as isize,
        capture_anew = sym capture_anew,
        elsewhere = sym crate::home::CAPTURE,
    )
}

/// See [`uunwind_core::library::Library::capture_for`].
///
/// # Safety
/// As [`uu_capture`]; `caller` must be the registers that an active entry has stored.
pub unsafe extern "C" fn capture_for(
    frames: *mut u64,
    capacity: usize,
    stop: *mut u16,
    caller: *const Caller,
) -> usize {
    let none = core::ptr::null();
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: the entry's registers; its return address lies below the caller's stack pointer.
        let replayed = unsafe {
            let Caller { sp, rbp, .. } = *caller;
            fast::replay(frames, capacity, none, stop, sp.wrapping_sub(8) as *const u64, rbp)
        };
        if replayed != fast::NOT_CAPTURED {
            return replayed;
        }
    }
    // SAFETY: passed on.
    unsafe { capture_anew(frames, capacity, none, stop, caller) }
}

/// What [`fast::unwind_short`] has captured.
#[cfg_attr(target_arch = "aarch64", allow(dead_code, reason = "there are no short rules so far"))]
#[allow(clippy::large_enum_variant, reason = "there is one of them, on the stack")]
enum ByShortRules<'s> {
    /// The whole stack: the number of words, and the reason why they end.
    Whole(usize, StopReason),
    /// The inner frames; the step cache is held, with their steps.
    Part(Held<'s>, Part<'static>),
    /// No frame. The step cache may be held.
    Nothing(Option<Held<'s>>),
}

/// Whether the caller's buffer and ucontext lie at multiples of 8, as the structures do that C makes.
#[inline(always)]
fn are_aligned(frames: *const u64, ucontext: *const u8) -> bool {
    (frames.addr() | ucontext.addr()).is_multiple_of(align_of::<u64>())
}

/// The stack by short rules, as far as these lead, and by a walk from there.
///
/// # Safety
/// As [`uu_capture`].
unsafe extern "C" fn capture_anew(
    frames: *mut u64,
    capacity: usize,
    ucontext: *const u8,
    stop: *mut u16,
    caller: *const Caller,
) -> usize {
    let stake = Stake::new();
    // SAFETY: passed on; the assembly passes its own stack.
    let (words, reason) = unsafe { unwind_and_walk(frames, capacity, ucontext, &*caller, &stake) };
    if !stop.is_null() {
        // SAFETY: the C caller passes null or room for one number, at any alignment.
        unsafe { stop.write_unaligned(reason.number()) };
    }
    words
}

/// # Safety
/// As [`uu_capture`].
#[inline(always)]
unsafe fn unwind_and_walk(
    frames: *mut u64,
    capacity: usize,
    ucontext: *const u8,
    caller: &Caller,
    stake: &Stake,
) -> (usize, StopReason) {
    if frames.is_null() || capacity == 0 {
        return (0, StopReason::BufferFull);
    }
    if !are_aligned(frames, ucontext) {
        return (0, StopReason::UnalignedArgument);
    }
    // SAFETY: the C caller passes `capacity` words.
    let frames = unsafe { core::slice::from_raw_parts_mut(frames, capacity) };
    let Some(slot) = SLOTS.current_or_claim() else { return (0, StopReason::TooManyThreads) };
    let salts = Salts::new(true);
    let stack = if crate::faults::handled() {
        OwnStack::NONE
    } else {
        // SAFETY: the C caller passes null, or the ucontext that its signal handler got.
        let sp = if ucontext.is_null() { caller.sp } else { unsafe { Regs::from_ucontext(ucontext) }.sp() };
        // SAFETY: the stack pointer of the caller, or of the interrupted code.
        unsafe { own_stack::believed(slot, sp) }
    };
    // SAFETY: passed on.
    let captured = unsafe { fast::unwind_short(frames, ucontext, caller, stack, (slot, stake), &salts) };
    let (held, part) = match captured {
        ByShortRules::Whole(count, reason) => return (count, reason),
        ByShortRules::Part(held, part) => (Some(held), Some(part)),
        ByShortRules::Nothing(held) => (held, None),
    };
    // SAFETY: passed on.
    unsafe { walk_remainder(frames, ucontext, caller, stack, (slot, stake), salts, (held, part)) }
}

/// The stack by a walk, or what the `part` that was unwound lacks. `held`: the step cache, if it is held. `stack`: what
/// need not be probed.
///
/// # Safety
/// As [`uu_capture`].
#[cold]
#[inline(never)]
unsafe fn walk_remainder<'s>(
    frames: &mut [u64],
    ucontext: *const u8,
    caller: &Caller,
    stack: OwnStack,
    (slot, stake): (&'s Slot, &'s Stake),
    salts: Salts,
    (held, part): (Option<Held<'s>>, Option<Part<'static>>),
) -> (usize, StopReason) {
    let mode = if crate::faults::handled() { Mode::Guarded } else { Mode::Probed };
    // SAFETY: probed mode has no precondition; for the other one the program called uu_handle_faults, whose
    // documentation asks for the signals to be unblocked here.
    let mut reader = unsafe { Reader::new(mode) };
    reader.believe(stack);
    let is_bare = reader.bare().is_some() || stack.is_some();
    // Who holds the step cache has found the slot idle.
    if held.is_none() && !slot.admits(caller.sp) {
        return (0, StopReason::Fault);
    }
    let cursor = if ucontext.is_null() {
        // SAFETY: the C entry has just stored words there, on x86-64 its return address.
        unsafe { reader.has_touched(caller.sp.wrapping_sub(8)) };
        Cursor { regs: caller.regs(), exact: false }
    } else {
        // SAFETY: the C caller passes the ucontext that its signal handler got.
        Cursor { regs: unsafe { Regs::from_ucontext(ucontext) }, exact: true }
    };
    let mut env = Live::capture(salts);
    env.marks_itself(slot, caller.sp);
    let setting = Setting { thread_pointer: syscall::thread_pointer(), ucontext, ..Setting::EMPTY };
    let stamp = salts.stamp().filter(|_| is_bare);
    let held = held.or_else(|| stamp.and_then(|_| slot.step_cache_holder.hold(stake)));
    let outcome = if let Some(mut part) = part {
        // SAFETY: no scratch, so no plugin is called.
        let outcome = unsafe { walk_rest(&mut part, cursor, &mut env, &mut reader, frames, &setting) };
        part.steps.finish();
        outcome
    } else {
        let mut steps = match (stamp, &held) {
            // SAFETY: the slot is held, and with it its step cache.
            (Some(stamp), Some(_)) => step_caches::get_or_claim(slot).and_then(|cache| unsafe { cache.begin(stamp) }),
            _ => None,
        };
        // SAFETY: no scratch, so no plugin is called.
        let outcome = unsafe { walk_with_steps(steps.as_mut(), cursor, &mut env, &mut reader, frames, &setting) };
        if let Some(steps) = steps {
            steps.finish();
        }
        outcome
    };
    if let Some(held) = held {
        held.leave();
    }
    env.leave();
    (outcome.words, outcome.stop)
}

/// See `uu.h`.
#[cfg_attr(not(feature = "no-entry-points"), no_mangle)]
pub extern "C" fn uu_capture_abandoned() {
    match crate::home::elsewhere() {
        Some(home) => (home.capture_abandoned)(),
        None => {
            SLOTS.abandon();
            uunwind_deferred::abandoned();
        }
    }
}

/// See `uu.h`.
#[cfg_attr(not(feature = "no-entry-points"), no_mangle)]
pub extern "C" fn uu_abi() -> u32 {
    uunwind_core::plugin::ABI
}
