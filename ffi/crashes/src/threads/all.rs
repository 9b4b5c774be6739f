//! The stacks of all threads of the process.

use super::{ask, Deadline, List, Manner, Pending, Refused};
use uunwind_core::errno::{Errno, EIO};
use uunwind_core::syscall;
use uunwind_live::state::DUE;
use uunwind_stacks::walk::Whole;

/// Threads that are asked at once: half of the places, so that two callers do not hinder each other.
const BATCH: usize = super::asks::ROOM / 2;

/// A thread, and what it answered.
#[derive(Debug)]
pub struct Thread<'a> {
    /// Thread id, as gettid(2) has it there.
    pub tid: u32,
    /// Its stack, or why there is none.
    pub stack: Result<Whole<'a>, Refused>,
}

/// Asks all threads but the calling one and the library's own, which blocks all signals, a batch at a time, and passes
/// each to `then`. Until the deadline at the latest. Returns how many other threads there are. `EIO`: there is no list
/// of threads (/proc). Async-signal-safe.
pub fn others(manner: Manner, deadline: Deadline, then: &mut dyn FnMut(Thread<'_>)) -> Result<usize, Errno> {
    let (own, helper) = (syscall::gettid(), DUE.thread());
    let (mut count, mut total) = (0usize, 0usize);
    // How many there are, for shares of the time.
    let mut list = List::open().ok_or(EIO)?;
    while list.next(&mut |tid| total += usize::from(tid != own && tid != helper)) {}
    let mut list = List::open().ok_or(EIO)?;
    let mut batch = Batch { asked: [const { None }; BATCH], len: 0 };
    loop {
        let more = list.next(&mut |tid| {
            if tid == own || tid == helper {
                return;
            }
            count += 1;
            batch.add(tid, manner);
            if batch.len == BATCH {
                batch.collect(share(deadline, total.saturating_sub(count)), then);
            }
        });
        if !more {
            break;
        }
    }
    batch.collect(deadline, then);
    Ok(count)
}

/// The part of the time that a batch may use when this number of threads comes after it.
fn share(deadline: Deadline, after: usize) -> Deadline {
    Deadline::after(deadline.left() / (1 + after.div_ceil(BATCH)) as u64)
}

/// Threads that were asked.
struct Batch {
    asked: [Option<(u32, Result<Pending, Errno>)>; BATCH],
    len: usize,
}

impl Batch {
    fn add(&mut self, tid: u32, manner: Manner) {
        if let Some(place) = self.asked.get_mut(self.len) {
            *place = Some((tid, ask(tid, manner)));
            self.len += 1;
        }
    }

    /// Takes their answers, and is empty.
    fn collect(&mut self, deadline: Deadline, then: &mut dyn FnMut(Thread<'_>)) {
        for place in self.asked.iter_mut().take(self.len) {
            let Some((tid, asked)) = place.take() else { continue };
            let answer = match asked {
                Ok(pending) => pending.take(deadline, &mut |whole| then(Thread { tid, stack: Ok(whole) })),
                Err(error) => Err(error.into()),
            };
            if let Err(refused) = answer {
                then(Thread { tid, stack: Err(refused) });
            }
        }
        self.len = 0;
    }
}

/// `struct uu_thread` of `uu.h`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CThread {
    /// The thread's id.
    pub tid: u32,
    /// 0, or a negative errno.
    pub error: i32,
    /// Its name, with a NUL after it.
    pub name: [u8; 16],
    /// Index of its first word in the request's frames.
    pub first: usize,
    /// Number of its words there.
    pub words: usize,
    /// Number of frames that the words stand for.
    pub count: u32,
    /// Why its stack ended, or is missing.
    pub stop: u16,
    /// What is missing or uncertain.
    pub doubt: u16,
}
