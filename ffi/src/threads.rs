//! `uu_walk_thread`, `uu_walk_all` and `uu_thread_signal`: the stacks of other threads, for C.

use crate::walk::walked;
use core::ffi::c_int;
use uunwind_core::caller::Caller;
use uunwind_core::entry_with_caller;
use uunwind_core::errno::EINVAL;
use uunwind_core::syscall;
use uunwind_crashes::threads::all::{others, CThread, Thread};
use uunwind_crashes::threads::{self, status, Deadline, Manner, Refused};
use uunwind_crashes::Host;
use uunwind_stacks::request::Request;
use uunwind_stacks::walk::Whole;

/// What the threads' handler asks.
pub static HOST: Host = Host {
    handles_faults: crate::faults::handled,
    mend,
    chained: crate::faults::chained,
    capture: crate::capture::uu_capture,
};

unsafe fn mend(ucontext: *mut u8) -> bool {
    // SAFETY: the caller passes a fault handler's context.
    unsafe { crate::library::on_fault(ucontext, false) }
}

/// See `uu.h`.
#[cfg_attr(not(feature = "no-entry-points"), no_mangle)]
pub extern "C" fn uu_thread_signal(signal: c_int) -> c_int {
    if let Some(home) = crate::home::elsewhere() {
        return (home.thread_signal)(signal);
    }
    uunwind_crashes::set_host(&HOST);
    threads::chosen(signal)
}

entry_with_caller! {
    /// See `uu.h`.
    ///
    /// # Safety
    /// `request` must be null, unaligned, or a valid `uu_request`.
    #[cfg_attr(not(feature = "no-entry-points"), no_mangle)]
    uu_walk_thread(tid: u32, request: *mut Request, timeout_ns: u64) -> c_int
        = walk_thread, crate::home::WALK_THREAD
}

entry_with_caller! {
    /// See `uu.h`.
    ///
    /// # Safety
    /// `request` must be null, unaligned, or a valid `uu_request`, `threads` null or have room for `capacity`
    /// structures.
    #[cfg_attr(not(feature = "no-entry-points"), no_mangle)]
    uu_walk_all(request: *mut Request, threads: *mut CThread, capacity: usize, timeout_ns: u64) -> c_int
        = walk_all, crate::home::WALK_ALL
}

fn manner(request: &Request) -> Manner {
    Manner { probed: request.is_probed(), trusting: request.trusts_plugins(), impatient: false }
}

/// # Safety
/// As `uu_walk_thread`; `caller` must be the entry's registers.
unsafe extern "C" fn walk_thread(tid: u32, request: *mut Request, timeout_ns: u64, caller: *const Caller) -> c_int {
    // SAFETY: the C caller's.
    let Some((valid, cfas)) = (unsafe { Request::of_c(request) }) else { return -EINVAL };
    if !valid.is_valid() || !valid.ucontext.is_null() {
        return -EINVAL;
    }
    if tid == syscall::gettid() {
        // SAFETY: passed on.
        return unsafe { walked(request, caller) };
    }
    if !cfas.is_null() {
        return -EINVAL;
    }
    uunwind_crashes::set_host(&HOST);
    valid.begin();
    let deadline = Deadline::after(timeout_ns);
    // SAFETY: the C caller's buffer and callback.
    match threads::walk(tid, manner(valid), deadline, &mut |whole| unsafe { valid.take(whole) }) {
        Ok(()) => 0,
        Err(Refused { error, stop }) => {
            valid.stop = stop.map_or(0, |stop| stop.number());
            -error
        }
    }
}

/// # Safety
/// As `uu_walk_all`; `caller` must be the entry's registers.
unsafe extern "C" fn walk_all(
    request: *mut Request,
    threads: *mut CThread,
    capacity: usize,
    timeout_ns: u64,
    caller: *const Caller,
) -> c_int {
    // SAFETY: the C caller's.
    let Some((request, cfas)) = (unsafe { Request::of_c(request) }) else { return -EINVAL };
    let fits = capacity == 0 || !threads.is_null() && threads.addr().is_multiple_of(8);
    if !request.is_valid() || !request.ucontext.is_null() || request.frame.is_some() || !cfas.is_null() || !fits {
        return -EINVAL;
    }
    uunwind_crashes::set_host(&HOST);
    request.begin();
    let deadline = Deadline::after(timeout_ns);
    let manner = manner(request);
    let mut table = Table { request, threads, capacity, used: 0 };
    // SAFETY: the entry's registers.
    unsafe { table.add_own(caller) };
    match others(manner, deadline, &mut |thread| table.add(thread)) {
        Ok(others) => c_int::try_from(others.saturating_add(1)).unwrap_or(c_int::MAX),
        Err(error) => -error,
    }
}

/// What `uu_walk_all` fills.
struct Table<'r> {
    request: &'r mut Request,
    threads: *mut CThread,
    capacity: usize,
    used: usize,
}

impl Table<'_> {
    /// A request for the rest of the frames' buffer.
    fn rest(&self) -> Request {
        let mut rest = Request { size: Request::FIRST_SIZE, ..*self.request };
        let used = self.request.words;
        if !rest.frames.is_null() {
            // SAFETY: at most at the buffer's end.
            rest.frames = unsafe { rest.frames.add(used) };
            rest.capacity -= used;
        }
        rest.begin();
        rest
    }

    /// The calling thread.
    ///
    /// # Safety
    /// `caller` must be the entry's registers.
    unsafe fn add_own(&mut self, caller: *const Caller) {
        let mut rest = self.rest();
        // SAFETY: a valid request, and the entry's registers.
        let error = unsafe { walked(&raw mut rest, caller) };
        self.push(syscall::gettid(), error, &rest);
    }

    fn add(&mut self, thread: Thread<'_>) {
        let mut rest = self.rest();
        let error = match thread.stack {
            Ok(whole) => {
                self.take(&mut rest, whole);
                0
            }
            Err(Refused { error, stop }) => {
                rest.stop = stop.map_or(0, |stop| stop.number());
                -error
            }
        };
        self.push(thread.tid, error, &rest);
    }

    fn take(&self, rest: &mut Request, whole: Whole<'_>) {
        // Threads beyond the table take no frames.
        if self.used < self.capacity {
            // SAFETY: the C caller's buffer; there is no callback.
            unsafe { rest.take(whole) };
        }
    }

    fn push(&mut self, tid: u32, error: c_int, stack: &Request) {
        if self.used >= self.capacity {
            return;
        }
        let first = self.request.words;
        let thread = CThread {
            tid,
            error,
            name: status::name(tid),
            first,
            words: stack.words,
            count: stack.count,
            stop: stack.stop,
            doubt: stack.doubt,
        };
        // SAFETY: below the capacity.
        unsafe { self.threads.add(self.used).write(thread) };
        self.used += 1;
        self.request.words += stack.words;
        self.request.count = self.request.count.saturating_add(stack.count);
        self.request.doubt |= stack.doubt;
    }
}
