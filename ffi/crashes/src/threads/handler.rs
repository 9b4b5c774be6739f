//! The signal by which a thread is asked for its stack.
//!
//! One real-time signal, which the program chooses, or which is the highest one without a handler. What arrives there
//! and was not sent by this library goes to the handler that was there before, or has its default action.

use super::asks;
use super::Manner;
use crate::signals::{self, Action, SigInfo, DEFAULT, IGNORE, LAST, SA_ONSTACK, SA_RESETHAND, SA_RESTART};
use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use uunwind_core::cursor::Cursor;
use uunwind_core::errno::{Errno, EBUSY, EINVAL, EIO};
use uunwind_core::regs::{Regs, UCONTEXT_SIGMASK};
use uunwind_core::slots::stack_pointer;
use uunwind_core::stop_reason::StopReason;
use uunwind_stacks::walk::{whole, How, Refused, Whole};

/// The first real-time signal that glibc leaves to programs (`__SIGRTMIN` + 2).
const FIRST: c_int = 34;
/// `si_code` of our signal: a negative number that neither kernel nor glibc uses (`asm-generic/siginfo.h`).
const CODE: c_int = -0x7575;
/// The signal in use; 0: none yet.
static SIGNAL: AtomicI32 = AtomicI32::new(0);
/// Thread id of whoever installs a handler; 0: none.
static INSTALLING: AtomicU32 = AtomicU32::new(0);
/// Signals that have our handler and an entry in `BEFORE`.
static INSTALLED: AtomicU64 = AtomicU64::new(0);
/// Of these, the ones whose earlier handler was for one time (SA_RESETHAND) and was called.
static SPENT: AtomicU64 = AtomicU64::new(0);
/// Number of signals that were sent and not handled.
static UNHANDLED: AtomicI32 = AtomicI32::new(0);
/// A [`Hook`]; null: none.
static HOOK: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// What else is done on a thread that got the signal, with the handler's ucontext, after it has answered. `purpose`:
/// what the signal was sent for ([`send_by`]).
pub type Hook = unsafe fn(ucontext: *const u8, purpose: u64);
/// Purpose of a signal by which a thread is asked for its stack by another one.
pub const ASK: u64 = 0;

/// Sets what else is done when the signal comes. Async-signal-safe.
pub fn set_hook(hook: Hook) {
    HOOK.store(hook as *mut c_void, Ordering::Release);
}

struct Before(UnsafeCell<[MaybeUninit<Action>; LAST]>);
// SAFETY: an entry is written once, by the holder of INSTALLING, before its bit in INSTALLED is set; then only read.
unsafe impl Sync for Before {}
static BEFORE: Before = Before(UnsafeCell::new([MaybeUninit::uninit(); LAST]));

/// The signal in use, which is chosen and taken if there is none. `EBUSY` also: the program has replaced our handler.
/// Async-signal-safe.
pub fn prepare() -> Result<c_int, Errno> {
    match current() {
        None => choose(0),
        Some(signal) if is_installed(signal) => Ok(signal),
        Some(_) => Err(EBUSY),
    }
}

/// The signal in use, if one is.
pub fn current() -> Option<c_int> {
    Some(SIGNAL.load(Ordering::Acquire)).filter(|signal| *signal != 0)
}

/// Takes a signal; 0: the one in use, else the highest real-time signal that has its default action. Errors: `EINVAL`:
/// no real-time signal; `EBUSY`: none is free, the program has replaced our
/// handler, or another thread is in this call; `EIO`: the kernel refuses.
/// Async-signal-safe.
pub fn choose(signal: c_int) -> Result<c_int, Errno> {
    if signal != 0 && !(FIRST..=LAST as c_int).contains(&signal) {
        return Err(EINVAL);
    }
    let own = uunwind_core::syscall::gettid();
    if let Err(other) = INSTALLING.compare_exchange(0, own, Ordering::Acquire, Ordering::Relaxed) {
        // In the child of a fork its owner may not exist.
        let is_left = other != own && !signals::exists(other);
        if !is_left || INSTALLING.compare_exchange(other, own, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return Err(EBUSY);
        }
    }
    let chosen = take(signal);
    INSTALLING.store(0, Ordering::Release);
    chosen
}

fn take(wanted: c_int) -> Result<c_int, Errno> {
    let before = SIGNAL.load(Ordering::Acquire);
    if wanted == 0 && before != 0 {
        return if is_installed(before) { Ok(before) } else { Err(EBUSY) };
    }
    let is_free = |signal: &c_int| signals::action(*signal).is_some_and(|action| action.handler == DEFAULT);
    // The last one is left to debuggers and valgrind, which use it.
    let signal = if wanted != 0 { wanted } else { (FIRST..LAST as c_int).rev().find(is_free).ok_or(EBUSY)? };
    install(signal)?;
    SIGNAL.store(signal, Ordering::Release);
    Ok(signal)
}

fn install(signal: c_int) -> Result<(), Errno> {
    let was = signals::action(signal).ok_or(EIO)?;
    if is_ours(&was) {
        return Ok(());
    }
    if INSTALLED.load(Ordering::Acquire) & signals::bit(signal) != 0 {
        // The program has replaced our handler. It may have chained to it, so it is not installed twice.
        return Err(EBUSY);
    }
    // SAFETY: the holder of INSTALLING; the entry is not yet marked as written.
    if let Some(entry) = unsafe { (*BEFORE.0.get()).get_mut(signal as usize - 1) } {
        entry.write(was);
    }
    INSTALLED.fetch_or(signals::bit(signal), Ordering::Release);
    // A program that handles the signal on alternate stacks, or whose other handlers must (Go), gets it there.
    const SIGURG: c_int = 23;
    let of_go = signals::action(SIGURG).is_some_and(|urgent| urgent.handler > IGNORE && urgent.flags & SA_ONSTACK != 0);
    let on_stack = if of_go { SA_ONSTACK } else { was.flags & SA_ONSTACK };
    // Ours stays; a handler for one time is called once by `pass_on`.
    let kept = if was.handler > IGNORE { was.flags & !SA_RESETHAND } else { 0 };
    let flags = SA_RESTART | kept | on_stack;
    if signals::set_action(signal, &Action::new(handler, !signals::FAULTS, flags)) {
        Ok(())
    } else {
        Err(EIO)
    }
}

fn is_ours(action: &Action) -> bool {
    action.handler == handler as *const () as usize
}

/// Whether our handler is the one that the kernel calls.
pub fn is_installed(signal: c_int) -> bool {
    signals::action(signal).is_some_and(|action| is_ours(&action))
}

/// Whether a signal of ours may be waiting for a thread that blocks it.
pub fn may_be_pending() -> bool {
    UNHANDLED.load(Ordering::Acquire) > 0
}

/// Sends our signal. 0, or a negative errno.
pub fn send(signal: c_int, tid: u32) -> isize {
    send_by(signal, ASK, |info| signals::send(tid, info))
}

/// Sends our signal by a function that gets its siginfo and returns 0 or a negative errno, as this one does. `purpose`
/// is passed to the hook.
#[inline(always)]
pub fn send_by(signal: c_int, purpose: u64, send: impl FnOnce(&SigInfo) -> isize) -> isize {
    UNHANDLED.fetch_add(1, Ordering::AcqRel);
    let mut info = SigInfo::own(signal, CODE);
    info.value = purpose;
    let sent = send(&info);
    if sent != 0 {
        UNHANDLED.fetch_sub(1, Ordering::AcqRel);
    }
    sent
}

unsafe extern "C" fn handler(signal: c_int, info: *mut SigInfo, ucontext: *mut c_void) {
    // SAFETY: the kernel's.
    let received = unsafe { &*info };
    if !is_own(received) {
        // SAFETY: passed on.
        unsafe { pass_on(signal, info, ucontext) };
        return;
    }
    let purpose = received.value;
    UNHANDLED.fetch_sub(1, Ordering::AcqRel);
    asks::answer_all(&mut |manner, then| {
        // SAFETY: the kernel's context of the calling thread.
        unsafe { walk_interrupted(ucontext.cast(), None, manner, then) }
    });
    let hook = HOOK.load(Ordering::Acquire);
    if !hook.is_null() {
        // SAFETY: `set_hook` stored a function of this type; the context is the kernel's.
        unsafe { core::mem::transmute::<*mut c_void, Hook>(hook)(ucontext.cast(), purpose) };
    }
}

/// Whether a signal with this siginfo was sent by [`send`].
pub fn is_own(info: &SigInfo) -> bool {
    info.code == CODE && info.first as u32 == uunwind_core::syscall::getpid()
}

/// To be called where a signal of [`send`] to the calling thread was taken without its handler. Threads that found it
/// pending have sent none of their own: where such a thread waits for an answer, it is sent again.
pub fn was_taken(signal: c_int, tid: u32) {
    UNHANDLED.fetch_sub(1, Ordering::AcqRel);
    if asks::are_open(tid) {
        send(signal, tid);
    }
}

/// Walks the interrupted stack; or from `from` on, a frame of it with its pc exact or not.
///
/// # Safety
/// `ucontext` must be the one that the handler got, `from` a frame that is active until it returns.
pub unsafe fn walk_interrupted(
    ucontext: *const u8,
    from: Option<Cursor>,
    manner: Manner,
    then: &mut dyn FnMut(Whole<'_>),
) -> Result<(), StopReason> {
    let handled = crate::host().is_some_and(|host| (host.handles_faults)());
    // SAFETY: the kernel's context.
    let mask = unsafe { ucontext.add(UCONTEXT_SIGMASK as usize).cast::<u64>().read() };
    // A guarded read that faults while its signal is blocked ends the process.
    let guarded =
        handled && !manner.probed && mask & (signals::bit(signals::SIGSEGV) | signals::bit(signals::SIGBUS)) == 0;
    // SAFETY: as above.
    let cursor = from.unwrap_or_else(|| Cursor { regs: unsafe { Regs::from_ucontext(ucontext) }, exact: true });
    let how = How { guarded, believing: !manner.probed, trusting: manner.trusting, with_cfas: false, ucontext };
    // SAFETY: the interrupted frames exist until the handler returns; the caller of `walk` sees the stack only.
    unsafe { whole(cursor, stack_pointer(), how, then) }.map_err(Refused::stop)
}

/// A signal that is not ours: to whom it would have gone.
///
/// # Safety
/// The arguments must be the handler's.
unsafe fn pass_on(signal: c_int, info: *mut SigInfo, ucontext: *mut c_void) {
    if INSTALLED.load(Ordering::Acquire) & signals::bit(signal) == 0 {
        return;
    }
    // SAFETY: written before its bit was set.
    let Some(before) = (unsafe { (*BEFORE.0.get()).get((signal as usize).wrapping_sub(1)) }) else { return };
    // SAFETY: as above.
    let before = unsafe { before.assume_init_ref() };
    let bit = signals::bit(signal);
    let is_spent = before.flags & SA_RESETHAND != 0 && SPENT.fetch_or(bit, Ordering::AcqRel) & bit != 0;
    match if is_spent { DEFAULT } else { before.handler } {
        IGNORE => {}
        DEFAULT => {
            // It ends the process, when this handler returns.
            signals::set_action(signal, &Action::DEFAULT);
            // SAFETY: the kernel's siginfo.
            signals::send(uunwind_core::syscall::gettid(), unsafe { &*info });
        }
        _ => {
            let mask = signals::set_mask(before.blocks(signal, interrupted_mask(ucontext)));
            // SAFETY: the program's handler, with the kernel's arguments.
            unsafe { before.call(signal, info, ucontext) };
            signals::set_mask(mask);
        }
    }
}

/// The mask that was interrupted.
fn interrupted_mask(ucontext: *mut c_void) -> u64 {
    // SAFETY: only the handler passes its ucontext here.
    unsafe { ucontext.cast::<u8>().add(UCONTEXT_SIGMASK as usize).cast::<u64>().read() }
}
