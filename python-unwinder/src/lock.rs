//! The GIL: does the walked thread hold it, or wait for it?
//!
//! Who holds it is one word in every version. Who waits for it is one since 3.15 only. Before, a thread that waits is
//! one in `take_gil` ([ceval_gil.c](https://github.com/python/cpython/blob/v3.13.0/Python/ceval_gil.c)), the one
//! function that waits for it: its code is among the sample's innermost frames, or the thread is in futex(2) with an
//! address inside the GIL's condition variables. Any other thread has left the GIL, and does not ask for it back.
//!
//! Where the code of `take_gil` was not found, a thread that may be in it outside of futex(2), where it spends some
//! microseconds every few milliseconds, is unknown.

use crate::cpu::ARGUMENTS;
use crate::facts::{Facts, STATE_KEY};
use crate::thread_state;
use uunwind_core::plugin::guest::Guest;
use uunwind_core::plugin::{LOCK_HELD, LOCK_NONE, LOCK_UNKNOWN, LOCK_WAITING, STACK_CUT};

/// [`LockFacts::kind`]: nothing is known about the GIL.
pub const LOCK_NOT_DESCRIBED: u32 = 0;
/// [`LockFacts::kind`]: the GIL is in `_PyRuntime` (up to 3.11), and `gilstate.tstate_current` is its holder.
pub const LOCK_RUNTIME: u32 = 1;
/// [`LockFacts::kind`]: the interpreter's state points to it, and each thread state has a word that says whether it
/// holds it (from 3.12 on).
pub const LOCK_THREAD: u32 = 2;
/// [`LockFacts::kind`]: the build has no GIL.
pub const LOCK_ABSENT: u32 = 3;
/// [`LockFacts::kind`]: as [`LOCK_THREAD`], but the GIL is in use only while its first 32 bits, `enabled`, are not 0
/// (free-threaded builds).
pub const LOCK_OPTIONAL: u32 = 4;

/// Number of ranges of code in [`LockFacts::taking`].
pub const TAKING: usize = 4;

uunwind_core::plain! {
    /// Where the GIL is, and how its holder and those that wait for it are recognised. Offsets are in bytes.
    #[derive(PartialEq, Eq, Debug)]
    pub struct LockFacts {
        /// One of the `LOCK_*` numbers above.
        pub kind: u32,
        /// [`LOCK_RUNTIME`]: `_PyRuntimeState.ceval.gil`. Else: `PyInterpreterState.ceval.gil`, a pointer.
        pub gil: u32,
        /// `PyThreadState.interp`.
        pub interpreter: u32,
        /// Not for [`LOCK_RUNTIME`]: 32 bits of `PyThreadState`: `_status` (3.12, 3.13) or `holds_gil`.
        pub holds: u32,
        /// The bits of it of which one is set while the thread holds the GIL.
        pub holds_mask: u32,
        /// `PyThreadState.gil_requested` (32 bits, 3.15); 0: there is none.
        pub waits: u32,
        /// `_gil_runtime_state.cond`, a condition variable that is followed by its mutex.
        pub wait_start: u32,
        /// `_gil_runtime_state.switch_cond`, another one.
        pub wait_switch: u32,
        /// The end of `switch_cond`, where its mutex begins.
        pub wait_end: u32,
        /// Makes the size a multiple of the alignment; 0.
        pub padding: u32,
        /// The code of `take_gil`: file addresses of the first byte and the end of its parts; two zeros: no more. Not
        /// where `waits` is.
        pub taking: [[u64; 2]; TAKING],
    }
}

/// Size of a `pthread_cond_t`
/// ([struct_mutex.h and its neighbours](https://sourceware.org/git/?p=glibc.git;a=blob;f=sysdeps/nptl/bits/thread-shared-types.h;hb=refs/tags/glibc-2.39)).
const COND: u64 = 48;
/// Size of `pthread_mutex_t`, which ends `_gil_runtime_state`.
const MUTEX: u64 = 40;
/// Number of frames of the runtime in a row of which one may be `take_gil`'s: itself and, without optimization, what it
/// calls. A debug build's reads the clock six calls deep (3.14: `PyCOND_TIMEDWAIT`, `_PyThread_cond_after`,
/// `PyTime_MonotonicRaw`, `py_get_monotonic_clock`, `pytime_fromtimespec`, `pytime_add`).
const RUN: usize = 7;
/// Number of words of the stack that are searched for an address inside the GIL. A thread in `take_gil`, or in what
/// that calls, has one there or in a register.
const STACK_WORDS: u64 = 96;

/// [`uunwind_core::plugin::Plugin::lock`] of this plugin.
pub fn state(guest: &Guest<'_>) -> u32 {
    let Some(facts) = Facts::read(guest.facts()) else { return LOCK_UNKNOWN };
    match facts.lock.kind {
        LOCK_RUNTIME | LOCK_THREAD | LOCK_OPTIONAL => {}
        LOCK_ABSENT => return LOCK_NONE,
        _ => return LOCK_UNKNOWN,
    }
    let Some(tstate) = thread_state::current(guest, facts) else {
        // No thread state, or none that can be found.
        let hidden = facts.state == STATE_KEY && guest.view().tsd_offset == 0;
        return if hidden { LOCK_UNKNOWN } else { LOCK_NONE };
    };
    stands(guest, facts, tstate).unwrap_or(LOCK_UNKNOWN)
}

/// `None`: something cannot be read.
fn stands(guest: &Guest<'_>, facts: &Facts, tstate: u64) -> Option<u32> {
    let gil = gil(guest, facts, tstate)?;
    if facts.lock.kind == LOCK_OPTIONAL && guest.half(gil)? == 0 {
        return Some(LOCK_NONE);
    }
    if holds(guest, facts, tstate)? {
        return Some(LOCK_HELD);
    }
    waits(guest, facts, tstate, gil)
}

/// The address of the thread's GIL, a `_gil_runtime_state`.
fn gil(guest: &Guest<'_>, facts: &Facts, tstate: u64) -> Option<u64> {
    let lock = &facts.lock;
    if lock.kind == LOCK_RUNTIME {
        return Some(runtime(guest, facts).wrapping_add(u64::from(lock.gil)));
    }
    let interpreter = guest.word(tstate.wrapping_add(u64::from(lock.interpreter)))?;
    guest.word(interpreter.wrapping_add(u64::from(lock.gil)))
}

fn runtime(guest: &Guest<'_>, facts: &Facts) -> u64 {
    guest.view().bias.wrapping_add(facts.runtime)
}

fn holds(guest: &Guest<'_>, facts: &Facts, tstate: u64) -> Option<bool> {
    if facts.lock.kind == LOCK_RUNTIME {
        let holder = runtime(guest, facts).wrapping_add(u64::from(facts.runtime_current));
        return Some(guest.word(holder)? == tstate);
    }
    let bits = guest.half(tstate.wrapping_add(u64::from(facts.lock.holds)))?;
    Some(bits & facts.lock.holds_mask != 0)
}

/// How a thread that does not hold the GIL stands to it. `None`: something cannot be read.
fn waits(guest: &Guest<'_>, facts: &Facts, tstate: u64, gil: u64) -> Option<u32> {
    let lock = &facts.lock;
    if lock.waits != 0 {
        let requested = guest.half(tstate.wrapping_add(u64::from(lock.waits)))? != 0;
        return Some(if requested { LOCK_WAITING } else { LOCK_NONE });
    }
    let in_call = is_at_system_call(guest);
    if in_call && waits_in_call(guest, lock, gil) {
        return Some(LOCK_WAITING);
    }
    if lock.taking[0] != [0; 2] {
        return Some(
            is_taking(guest, lock).map_or(LOCK_UNKNOWN, |taking| if taking { LOCK_WAITING } else { LOCK_NONE }),
        );
    }
    let is_inside = |word: u64| word.wrapping_sub(gil) < size(lock);
    if in_call {
        let elsewhere = guest.register(ARGUMENTS[0]).is_some_and(|address| !is_inside(address));
        return Some(if elsewhere { LOCK_NONE } else { LOCK_UNKNOWN });
    }
    let view = guest.view();
    let in_runtime = view.range_start <= view.pc && view.pc < view.range_end;
    let in_register = (0..16).filter_map(|number| guest.register(number)).any(is_inside);
    let on_stack = || (0..STACK_WORDS).map_while(|n| guest.word((view.sp & !7).wrapping_add(8 * n))).any(is_inside);
    Some(if in_runtime || in_register || on_stack() { LOCK_UNKNOWN } else { LOCK_NONE })
}

/// Size of the `_gil_runtime_state` in bytes: a mutex follows the second condition variable.
fn size(lock: &LockFacts) -> u64 {
    u64::from(lock.wait_end).wrapping_add(MUTEX)
}

/// Whether the thread is in `take_gil`, which calls little of the runtime: one of the innermost frames in the runtime
/// lies in its code. `None`: the walk has not come that far.
fn is_taking(guest: &Guest<'_>, lock: &LockFacts) -> Option<bool> {
    let view = guest.view();
    let mut run = 0;
    for address in guest.stack() {
        if (view.range_start..view.range_end).contains(address) {
            let file = address.wrapping_sub(view.bias);
            if lock.taking.iter().any(|[start, end]| (*start..*end).contains(&file)) {
                return Some(true);
            }
            run += 1;
        } else if run > 0 {
            return Some(false);
        }
        if run == RUN {
            return Some(false);
        }
    }
    (view.flags & STACK_CUT == 0).then_some(false)
}

/// The thread was interrupted in a system call, or right before or after one. A call that a signal ended is repeated:
/// the pc is at the instruction again, with all arguments.
fn is_at_system_call(guest: &Guest<'_>) -> bool {
    const SYSCALL: [u8; 2] = [0x0f, 0x05];
    let pc = guest.view().pc;
    let mut code = [0; 2];
    [pc, pc.wrapping_sub(2)].into_iter().any(|at| guest.bytes(at, &mut code) && code == SYSCALL)
}

/// Whether a thread at a system call waits at one of the condition variables. The kernel leaves the arguments of a
/// system call as they are.
fn waits_in_call(guest: &Guest<'_>, lock: &LockFacts, gil: u64) -> bool {
    /// `FUTEX_CMD_MASK`, `FUTEX_WAIT`, `FUTEX_WAIT_BITSET`
    /// (<https://github.com/torvalds/linux/blob/v6.12/include/uapi/linux/futex.h>).
    const COMMAND: u64 = 0x7f;
    const WAIT: u64 = 0;
    const WAIT_BITSET: u64 = 9;
    let (Some(address), Some(operation)) = (guest.register(ARGUMENTS[0]), guest.register(ARGUMENTS[1])) else {
        return false;
    };
    let at = address.wrapping_sub(gil);
    let (first, second) = (u64::from(lock.wait_start), u64::from(lock.wait_switch));
    let conditions = [first..first.wrapping_add(COND), second..u64::from(lock.wait_end)];
    matches!(operation & COMMAND, WAIT | WAIT_BITSET) && conditions.iter().any(|condition| condition.contains(&at))
}
