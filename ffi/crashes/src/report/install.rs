//! The signals of crashes are taken over, again where the program has taken them since; where reports go may change.

use super::{destination, flags, handler, stacks};
use crate::signals::{self, Action, IGNORE};
use crate::threads;
use core::cell::UnsafeCell;
use core::ffi::{c_int, CStr};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use uunwind_core::errno::{Errno, EBUSY, EINVAL, EIO};
use uunwind_core::syscall;

/// The signals, in no order.
const SIGNALS: [c_int; 7] = [
    signals::SIGSEGV,
    signals::SIGBUS,
    signals::SIGFPE,
    signals::SIGILL,
    signals::SIGABRT,
    signals::SIGTRAP,
    signals::SIGSYS,
];

/// Thread id of whoever installs; 0: none.
static INSTALLING: AtomicU32 = AtomicU32::new(0);
/// A sum of `flags::*`.
static FLAGS: AtomicU32 = AtomicU32::new(0);
/// How often a signal can be taken: each time that the program had put a handler before ours takes one. At most the
/// bits of `SigInfo::marks`.
pub const LEVELS: usize = 8;
/// Signals that have an entry in `BEFORE`, for each level.
static INSTALLED: [AtomicU64; LEVELS] = [const { AtomicU64::new(0) }; LEVELS];
/// Signals whose entry was a handler for one time (SA_RESETHAND) that was called.
static SPENT: [AtomicU64; LEVELS] = [const { AtomicU64::new(0) }; LEVELS];

struct Before(UnsafeCell<[[Action; SIGNALS.len()]; LEVELS]>);
// SAFETY: an entry is written once, by the holder of INSTALLING, before its bit in INSTALLED is set; then only read.
unsafe impl Sync for Before {}
static BEFORE: Before = Before(UnsafeCell::new([[Action::DEFAULT; SIGNALS.len()]; LEVELS]));

/// The flags of the last call.
pub fn flags() -> u32 {
    FLAGS.load(Ordering::Acquire)
}

/// Reports crashes to a file descriptor; -1: no more. Errors: `EINVAL`: unknown flags; `EBADF`: no open file, or one
/// that cannot be written; `EBUSY`: another thread is in this call, or the program has put handlers before ours
/// `LEVELS` times; `ENOMEM`; `EIO`: a handler cannot be installed. Not for handlers.
pub fn report(fd: c_int, flags: u32) -> Result<(), Errno> {
    begin(flags, fd != -1, || destination::set_fd(fd))
}

/// As [`report`], to the file with this path, which is opened when a crash comes. `EINVAL` also: it is empty.
pub fn report_to(path: &CStr, flags: u32) -> Result<(), Errno> {
    if path.is_empty() {
        return Err(EINVAL);
    }
    begin(flags, true, || destination::set_path(path))
}

fn begin(flags: u32, on: bool, set: impl FnOnce() -> Result<(), Errno>) -> Result<(), Errno> {
    if flags & !flags::DEFINED != 0 {
        return Err(EINVAL);
    }
    let own = syscall::gettid();
    if let Err(other) = INSTALLING.compare_exchange(0, own, Ordering::Acquire, Ordering::Relaxed) {
        let is_left = other != own && !signals::exists(other);
        if !is_left || INSTALLING.compare_exchange(other, own, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return Err(EBUSY);
        }
    }
    let done = stacks::prepare_report().and_then(|()| set()).and_then(|()| {
        FLAGS.store(flags, Ordering::Release);
        // Where there is no free signal, the report has the crashed thread only, and says so.
        let _ = threads::prepare();
        let _ = stacks::prepare_thread();
        if on {
            SIGNALS.into_iter().try_for_each(install)?;
        }
        Ok(())
    });
    INSTALLING.store(0, Ordering::Release);
    done
}

/// Takes a signal, unless a handler of ours has it.
fn install(signal: c_int) -> Result<(), Errno> {
    let was = signals::action(signal).ok_or(EIO)?;
    // The library's handler of guarded reads passes on what is not its own.
    let called = crate::host().and_then(|host| (host.chained)(signal, was.handler)).unwrap_or(was.handler);
    if handler::level_of(called).is_some() {
        return Ok(());
    }
    let bit = signals::bit(signal);
    let is_free = |level: &usize| is_in(&INSTALLED, *level, bit).is_some_and(|used| !used);
    // SIG_DFL and SIG_IGN call no handler: so the chain of an entry that replaced one of them cannot lead back to it.
    let leads_there = |level: &usize| {
        was.handler <= IGNORE && !is_free(level) && entry(signal, *level).is_some_and(|it| it.handler == was.handler)
    };
    let level = (0..LEVELS).find(|level| leads_there(level)).or_else(|| (0..LEVELS).find(is_free)).ok_or(EBUSY)?;
    if is_free(&level) {
        // SAFETY: the holder of INSTALLING; the entry is not yet marked as written.
        unsafe { place(signal, level).ok_or(EIO)?.write(was) };
        INSTALLED.get(level).ok_or(EIO)?.fetch_or(bit, Ordering::Release);
    }
    let ours = handler::action(level).ok_or(EIO)?;
    if signals::set_action(signal, &ours) {
        Ok(())
    } else {
        Err(EIO)
    }
}

fn is_in(sets: &[AtomicU64; LEVELS], level: usize, bit: u64) -> Option<bool> {
    sets.get(level).map(|set| set.load(Ordering::Acquire) & bit != 0)
}

/// Where what was there before our handler of this level is kept.
fn place(signal: c_int, level: usize) -> Option<*mut Action> {
    let index = SIGNALS.into_iter().position(|of| of == signal)?;
    let table = BEFORE.0.get().cast::<Action>();
    // SAFETY: an entry of the table.
    (level < LEVELS).then(|| unsafe { table.add(level * SIGNALS.len() + index) })
}

/// What was there, if there is such a handler.
fn entry(signal: c_int, level: usize) -> Option<Action> {
    let is_written = is_in(&INSTALLED, level, signals::bit(signal))?;
    // SAFETY: written before its bit was set.
    place(signal, level).filter(|_| is_written).map(|place| unsafe { place.read() })
}

/// Who handled the signal before our handler of this level.
pub fn before(signal: c_int, level: usize) -> Action {
    if is_in(&SPENT, level, signals::bit(signal)) == Some(true) {
        return Action::DEFAULT;
    }
    entry(signal, level).unwrap_or(Action::DEFAULT)
}

/// The handler from before was for one time.
pub fn spend(signal: c_int, level: usize) {
    if let Some(spent) = SPENT.get(level) {
        spent.fetch_or(signals::bit(signal), Ordering::AcqRel);
    }
}
