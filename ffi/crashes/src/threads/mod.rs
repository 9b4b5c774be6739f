//! The stack of another thread of the process.
//!
//! The thread is interrupted by a signal and walks itself, since only it may use its slot and its memory. The result
//! goes to an `asks::Asked`, which belongs to this library and is never freed: whoever gives up waiting leaves it to
//! the thread, which may be late.
//!
//! ```text
//! asks     what is asked of which thread, and the answer
//! handler  the signal: which one, and what its handler does
//! status   what the kernel says of a thread
//! list     the threads of the process
//! all      all of them
//! ```

pub mod all;
mod asks;
pub mod handler;
pub mod list;
pub mod status;

pub use asks::after_fork;
use asks::Asked;
use core::ffi::c_int;
pub use handler::{choose, prepare};
pub use list::List;
use uunwind_core::errno::{Errno, EAGAIN, EBUSY, ESRCH, ETIMEDOUT};
use uunwind_core::stop_reason::StopReason;
use uunwind_core::syscall;
use uunwind_stacks::walk::Whole;

/// How another thread is to walk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Manner {
    /// Memory is probed although faults are handled.
    pub probed: bool,
    /// Plugins are called whose faults would be the program's.
    pub trusting: bool,
    /// A thread that the kernel says cannot answer is not waited for.
    pub impatient: bool,
}

/// Why there is no stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// What the C interface returns, negated.
    pub error: Errno,
    /// With `ETIMEDOUT`: the reason, as far as the kernel reports one.
    pub stop: Option<StopReason>,
}

impl From<Errno> for Refused {
    fn from(error: Errno) -> Refused {
        Refused { error, stop: None }
    }
}

/// A moment, in nanoseconds of CLOCK_MONOTONIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline(u64);

impl Deadline {
    /// This number of nanoseconds from now.
    pub fn after(ns: u64) -> Deadline {
        Deadline(syscall::monotonic_ns().saturating_add(ns))
    }

    /// Nanoseconds until then.
    pub fn left(self) -> u64 {
        self.0.saturating_sub(syscall::monotonic_ns())
    }
}

/// A thread that was asked for its stack.
#[derive(Debug)]
pub struct Pending {
    asked: Asked,
    tid: u32,
    impatient: bool,
}

/// Asks a thread for its stack. Errors: `ESRCH`: it is no thread of this process; `EBUSY`: the program has replaced our
/// handler of the signal, or all places are taken; `EAGAIN`: the kernel queues no more signals. Async-signal-safe.
pub fn ask(tid: u32, manner: Manner) -> Result<Pending, Errno> {
    let signal = prepare()?;
    if tid == 0 || tid > i32::MAX as u32 {
        return Err(ESRCH);
    }
    let asked = asks::begin(tid, manner).ok_or(EBUSY)?;
    // The order counts: a signal that is found pending here is delivered after the ask was made, and serves it.
    if handler::may_be_pending() && status::Status::of(tid).is_some_and(|status| status.is_pending(signal)) {
        return Ok(Pending { asked, tid, impatient: manner.impatient });
    }
    match handler::send(signal, tid) {
        0 => Ok(Pending { asked, tid, impatient: manner.impatient }),
        error => {
            asked.give_up();
            Err(if error == -ESRCH as isize || !crate::signals::exists(tid) { ESRCH } else { EAGAIN })
        }
    }
}

impl Pending {
    /// Waits for the answer, and passes it to `then`.
    pub fn take(self, deadline: Deadline, then: &mut dyn FnMut(Whole<'_>)) -> Result<(), Refused> {
        /// The end of a thread wakes nothing: it is looked for after this time.
        const SLICE: u64 = 20_000_000;
        let mut waited = false;
        loop {
            match self.asked.answer() {
                Some(Ok(whole)) => {
                    then(whole);
                    self.asked.finish();
                    return Ok(());
                }
                Some(Err(stop)) => {
                    self.asked.finish();
                    then(Whole { frames: &[], stop, desync: false, result: 0, cfas: None });
                    return Ok(());
                }
                None => {}
            }
            let left = deadline.left();
            if !crate::signals::exists(self.tid) {
                self.asked.give_up();
                return Err(ESRCH.into());
            }
            let hopeless = left != 0 && waited && self.impatient && self.why().stop != Some(StopReason::NoAnswer);
            if left == 0 || hopeless {
                // What arrived at the last moment counts.
                if self.asked.answer().is_some() {
                    continue;
                }
                let refused = self.why();
                self.asked.give_up();
                return Err(refused);
            }
            self.asked.wait(left.min(SLICE));
            waited = true;
        }
    }

    /// Why there was no answer.
    fn why(&self) -> Refused {
        let Some(status) = status::Status::of(self.tid) else {
            return Refused { error: ETIMEDOUT, stop: Some(StopReason::NoAnswer) };
        };
        let stop = match status.state {
            // A zombie: the first thread, which has ended before others.
            b'Z' | b'X' => return ESRCH.into(),
            b'D' | b'T' | b't' => StopReason::ThreadAsleep,
            _ if handler::current().is_some_and(|signal| status.holds_back(signal)) => StopReason::SignalBlocked,
            _ => StopReason::NoAnswer,
        };
        Refused { error: ETIMEDOUT, stop: Some(stop) }
    }
}

/// Asks a thread for its stack, waits at most until the deadline, and passes the stack to `then`. Async-signal-safe.
pub fn walk(tid: u32, manner: Manner, deadline: Deadline, then: &mut dyn FnMut(Whole<'_>)) -> Result<(), Refused> {
    ask(tid, manner)?.take(deadline, then)
}

/// The signal, as `uu_thread_signal` answers.
pub fn chosen(signal: c_int) -> c_int {
    choose(signal).unwrap_or_else(|error| -error)
}
