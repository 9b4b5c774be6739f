//! The signals of crashes are taken over, once for a process; where reports go may change.

use super::{destination, flags, handler, stacks};
use crate::signals::{self, Action};
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
/// Signals that have an entry in `BEFORE`.
static INSTALLED: AtomicU64 = AtomicU64::new(0);
/// Signals whose entry was a handler for one time (SA_RESETHAND) that was called.
static SPENT: AtomicU64 = AtomicU64::new(0);

struct Before(UnsafeCell<[Action; signals::LAST]>);
// SAFETY: an entry is written once, by the holder of INSTALLING, before its bit in INSTALLED is set; then only read.
unsafe impl Sync for Before {}
static BEFORE: Before = Before(UnsafeCell::new([Action::DEFAULT; signals::LAST]));

/// The flags of the last call.
pub fn flags() -> u32 {
    FLAGS.load(Ordering::Acquire)
}

/// Reports crashes to a file descriptor; -1: no more. Errors: `EINVAL`: unknown flags; `EBADF`: no open file, or one
/// that cannot be written; `EBUSY`: another thread is in this call; `ENOMEM`; `EIO`: a handler cannot be installed. Not
/// for handlers.
pub fn report(fd: c_int, flags: u32) -> Result<(), Errno> {
    begin(flags, || destination::set_fd(fd))
}

/// As [`report`], to the file with this path, which is opened when a crash comes.
pub fn report_to(path: &CStr, flags: u32) -> Result<(), Errno> {
    begin(flags, || destination::set_path(path))
}

fn begin(flags: u32, set: impl FnOnce() -> Result<(), Errno>) -> Result<(), Errno> {
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
        SIGNALS.into_iter().try_for_each(install)
    });
    INSTALLING.store(0, Ordering::Release);
    done
}

fn install(signal: c_int) -> Result<(), Errno> {
    let was = signals::action(signal).ok_or(EIO)?;
    // A handler that the program installed after ours may call ours: it stays.
    if handler::is_ours(&was) || INSTALLED.load(Ordering::Acquire) & signals::bit(signal) != 0 {
        return Ok(());
    }
    // SAFETY: the holder of INSTALLING; the entry is not yet marked as written.
    if let Some(entry) = unsafe { (*BEFORE.0.get()).get_mut(signal as usize) } {
        *entry = was;
    }
    INSTALLED.fetch_or(signals::bit(signal), Ordering::Release);
    if signals::set_action(signal, &handler::action()) {
        Ok(())
    } else {
        Err(EIO)
    }
}

/// Who handled the signal before.
pub fn before(signal: c_int) -> Action {
    let bit = signals::bit(signal);
    if INSTALLED.load(Ordering::Acquire) & bit == 0 || SPENT.load(Ordering::Acquire) & bit != 0 {
        return Action::DEFAULT;
    }
    // SAFETY: written before its bit was set.
    unsafe { (*BEFORE.0.get()).get(signal as usize) }.copied().unwrap_or(Action::DEFAULT)
}

/// The handler from before was for one time.
pub fn spend(signal: c_int) {
    SPENT.fetch_or(signals::bit(signal), Ordering::AcqRel);
}
