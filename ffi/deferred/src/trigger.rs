//! The request for a stack, and its cookie.
//!
//! A cookie is the count of the thread's request, and the number of the thread's slot, plus one so that no cookie is 0.
//! A slot's count grows for ever, whoever owns it, so no two requests of a process have the same one (but for 2^45
//! requests of one slot).

use crate::{clients, send};
use core::cell::Cell;
use core::sync::atomic::{AtomicU64, Ordering};
use uunwind_core::errno::{Errno, EINVAL};
use uunwind_core::regs::Regs;
use uunwind_core::slots::Slot;
use uunwind_core::syscall::{self, nr};
use uunwind_crashes::signals::{self, SigInfo};
use uunwind_crashes::threads::handler;
use uunwind_live::state::SLOTS;

/// Bits of a slot's number.
const SLOT_BITS: u32 = 18;
const _: () = assert!(uunwind_core::slots::SLOTS < 1 << SLOT_BITS);
const COUNT_BITS: u32 = u64::BITS - SLOT_BITS;

/// Requests that got no cookie.
static REFUSED: AtomicU64 = AtomicU64::new(0);

/// The cookie of a slot's request with this count.
pub(crate) fn cookie(slot: &Slot, count: u64) -> Option<u64> {
    Some(count << SLOT_BITS | (SLOTS.index_of(slot)? + 1))
}

/// Asks for the stack of the calling thread, for a client; the cookie, or 0: the request was refused, and counted.
/// `from` gives the registers of the frame that asks, which is active until this returns. Async-signal-safe.
#[inline(always)]
pub fn trigger(client: i32, from: impl FnOnce() -> Regs) -> u64 {
    match ask(client, from) {
        Some(cookie) => cookie,
        None => refuse(),
    }
}

#[cold]
#[inline(never)]
fn refuse() -> u64 {
    REFUSED.fetch_add(1, Ordering::Relaxed);
    0
}

#[inline(always)]
fn ask(client: i32, from: impl FnOnce() -> Regs) -> Option<u64> {
    if !clients::exists(client) {
        return None;
    }
    // In the child of a fork that ran no handlers, this makes its parent's requests void.
    let pid = SLOTS.pid();
    let slot = SLOTS.current_or_claim()?;
    let asked = slot.deferred.ask(client as u32)?;
    if asked.is_first {
        if !is_sent(pid, &from()) {
            slot.withdraw(asked.count, client as u32);
            return None;
        }
        slot.deferred.sent(asked.count);
    }
    cookie(slot, asked.count)
}

/// Sends the signal, by which the request is answered.
#[cold]
#[inline(never)]
fn is_sent(pid: u32, from: &Regs) -> bool {
    let tid = syscall::gettid();
    let signal = handler::current().filter(|signal| is_slots_thread(pid, tid) && handler::is_installed(*signal));
    signal
        .is_some_and(|signal| handler::send_by(signal, send::PURPOSE, |info| send::to_self(pid, tid, info, from)) == 0)
}

/// Whether the calling thread is the one that its slot belongs to. The child of vfork(2), and of clone(2) with
/// CLONE_VM, has its parent's slot, and another process's signals. In the child of a fork by a raw system call, the TCB
/// has the parent's thread id.
fn is_slots_thread(pid: u32, tid: u32) -> bool {
    pid == syscall::getpid() && (pid == tid || SLOTS.tid(syscall::thread_pointer()) == tid)
}

/// Whether a cookie's stack is still to come, or being delivered. Where its thread has ended, it becomes void. Error:
/// `EINVAL`: no such cookie was given. Async-signal-safe.
pub fn is_pending(cookie: u64) -> Result<bool, Errno> {
    let index = (cookie & ((1 << SLOT_BITS) - 1)).checked_sub(1).ok_or(EINVAL)?;
    let slot = SLOTS.by_index(index).ok_or(EINVAL)?;
    Ok(SLOTS.is_waiting(slot, cookie >> SLOT_BITS & ((1 << COUNT_BITS) - 1)))
}

/// Number of requests that were refused, and of cookies that became void. Async-signal-safe.
pub fn lost() -> u64 {
    SLOTS.void_requests().saturating_add(REFUSED.load(Ordering::Relaxed))
}

/// Makes the calling thread's request void, and takes its signal back. False: there is none. Async-signal-safe.
pub fn cancel() -> bool {
    if !is_slots_thread(SLOTS.pid(), syscall::gettid()) {
        return false;
    }
    let is_void = Cell::new(false);
    SLOTS.each_current(&|slot| {
        if slot.deferred.pending().is_some_and(|count| slot.void(count)) {
            is_void.set(true);
            if let Some(signal) = handler::current() {
                take_back(signal);
            }
        }
    });
    is_void.get()
}

/// Makes the calling thread's request void if it was left, by siglongjmp(3), before its signal was sent: nothing would
/// answer it. Async-signal-safe.
pub fn abandoned() {
    SLOTS.each_current(&|slot| {
        if let Some(count) = slot.deferred.unsent().filter(|_| is_slots_thread(SLOTS.pid(), syscall::gettid())) {
            slot.void(count);
        }
    });
}

/// Takes our signals that wait for this thread, and leaves others of the same number to it.
fn take_back(signal: i32) {
    /// Signals that are looked at: more than a few are the program's own.
    const MOST: usize = 64;
    let mask = signals::block(signals::bit(signal));
    let set = signals::bit(signal);
    let none = [0i64; 2];
    for _ in 0..MOST {
        let mut info = SigInfo::own(0, 0);
        let arguments =
            [(&raw const set) as usize, (&raw mut info) as usize, none.as_ptr() as usize, size_of_val(&set), 0, 0];
        // SAFETY: a valid set, room for a siginfo, a timespec of zero.
        if unsafe { syscall::call(nr::RT_SIGTIMEDWAIT, arguments) } <= 0 {
            break;
        }
        if handler::is_own(&info) {
            handler::was_taken(signal, syscall::gettid());
            if info.value == send::PURPOSE {
                break;
            }
            continue;
        }
        signals::send(syscall::gettid(), &info);
    }
    signals::set_mask(mask);
}
