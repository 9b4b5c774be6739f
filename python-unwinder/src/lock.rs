//! The GIL: does the walked thread hold it, or wait for it?
//!
//! Who holds it is one word in every version. Who waits for it is one since 3.15 only. Before, a thread that waits is
//! recognised by its system call: futex(2), with an address inside the GIL's condition variables
//! (`take_gil` in <https://github.com/python/cpython/blob/v3.13.0/Python/ceval_gil.c>). A thread that waits wakes up
//! every few milliseconds, so it may also be interrupted outside of that call, in `take_gil` itself or in the C
//! library's functions that it calls. There the answer is unknown: not that the thread has nothing to do with the lock.

use crate::facts::{Facts, STATE_KEY};
use crate::thread_state;
use uunwind_core::plugin::guest::Guest;
use uunwind_core::plugin::{LOCK_HELD, LOCK_NONE, LOCK_UNKNOWN, LOCK_WAITING};

/// [`LockFacts::kind`]: nothing is known about the GIL.
pub const LOCK_NOT_DESCRIBED: u32 = 0;
/// [`LockFacts::kind`]: the GIL is in `_PyRuntime` (up to 3.11), and `gilstate.tstate_current` is its holder.
pub const LOCK_RUNTIME: u32 = 1;
/// [`LockFacts::kind`]: the interpreter's state points to it, and each thread state has a word that says whether it
/// holds it (from 3.12 on).
pub const LOCK_THREAD: u32 = 2;
/// [`LockFacts::kind`]: the build has no GIL.
pub const LOCK_ABSENT: u32 = 3;

uunwind_core::plain! {
    /// Where the GIL is, and how its holder and those that wait for it are recognised. Offsets are in bytes.
    #[derive(PartialEq, Eq, Debug)]
    pub struct LockFacts {
        /// One of the `LOCK_*` numbers above.
        pub kind: u32,
        /// [`LOCK_RUNTIME`]: `_PyRuntimeState.ceval.gil`. [`LOCK_THREAD`]: `PyInterpreterState.ceval.gil`, a pointer.
        pub gil: u32,
        /// `PyThreadState.interp`.
        pub interpreter: u32,
        /// [`LOCK_THREAD`]: 32 bits of `PyThreadState`: `_status` (3.12, 3.13) or `holds_gil`.
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
    }
}

/// Size of a `pthread_cond_t`
/// ([struct_mutex.h and its neighbours](https://sourceware.org/git/?p=glibc.git;a=blob;f=sysdeps/nptl/bits/thread-shared-types.h;hb=refs/tags/glibc-2.39)).
const COND: u64 = 48;
/// Size of `_gil_runtime_state` in all versions.
const GIL: u64 = 208;
/// Number of words of the stack that are searched for an address inside the GIL. A thread in `take_gil`, or in what
/// that calls, has one there or in a register.
const STACK_WORDS: u64 = 96;

/// DWARF numbers of the first two arguments of a system call.
const RSI: u8 = 4;
const RDI: u8 = 5;

/// [`uunwind_core::plugin::Plugin::lock`] of this plugin.
pub fn state(guest: &Guest<'_>) -> u32 {
    let Some(facts) = Facts::read(guest.facts()) else { return LOCK_UNKNOWN };
    match facts.lock.kind {
        LOCK_RUNTIME | LOCK_THREAD => {}
        LOCK_ABSENT => return LOCK_NONE,
        _ => return LOCK_UNKNOWN,
    }
    let Some(tstate) = thread_state::current(guest, facts) else {
        // No thread state, or none that can be found.
        let hidden = facts.state == STATE_KEY && guest.view().tsd_offset == 0;
        return if hidden { LOCK_UNKNOWN } else { LOCK_NONE };
    };
    match holds(guest, facts, tstate) {
        Some(true) => LOCK_HELD,
        Some(false) => waits(guest, facts, tstate).unwrap_or(LOCK_UNKNOWN),
        None => LOCK_UNKNOWN,
    }
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
fn waits(guest: &Guest<'_>, facts: &Facts, tstate: u64) -> Option<u32> {
    let lock = &facts.lock;
    if lock.waits != 0 {
        let requested = guest.half(tstate.wrapping_add(u64::from(lock.waits)))? != 0;
        return Some(if requested { LOCK_WAITING } else { LOCK_NONE });
    }
    let gil = if lock.kind == LOCK_RUNTIME {
        runtime(guest, facts).wrapping_add(u64::from(lock.gil))
    } else {
        let interpreter = guest.word(tstate.wrapping_add(u64::from(lock.interpreter)))?;
        guest.word(interpreter.wrapping_add(u64::from(lock.gil)))?
    };
    if is_at_system_call(guest) {
        return Some(by_system_call(guest, lock, gil));
    }
    let view = guest.view();
    let is_inside = |word: u64| word.wrapping_sub(gil) < GIL;
    let in_runtime = view.range_start <= view.pc && view.pc < view.range_end;
    let in_register = (0..16).filter_map(|number| guest.register(number)).any(is_inside);
    let on_stack = || (0..STACK_WORDS).map_while(|n| guest.word((view.sp & !7).wrapping_add(8 * n))).any(is_inside);
    Some(if in_runtime || in_register || on_stack() { LOCK_UNKNOWN } else { LOCK_NONE })
}

/// The thread was interrupted in a system call, or right before or after one. A call that a signal ended is repeated:
/// the pc is at the instruction again, with all arguments.
fn is_at_system_call(guest: &Guest<'_>) -> bool {
    const SYSCALL: [u8; 2] = [0x0f, 0x05];
    let pc = guest.view().pc;
    let mut code = [0; 2];
    [pc, pc.wrapping_sub(2)].into_iter().any(|at| guest.bytes(at, &mut code) && code == SYSCALL)
}

/// The kernel leaves the arguments of a system call as they are.
fn by_system_call(guest: &Guest<'_>, lock: &LockFacts, gil: u64) -> u32 {
    /// `FUTEX_CMD_MASK`, `FUTEX_WAIT`, `FUTEX_WAIT_BITSET`
    /// (<https://github.com/torvalds/linux/blob/v6.12/include/uapi/linux/futex.h>).
    const COMMAND: u64 = 0x7f;
    const WAIT: u64 = 0;
    const WAIT_BITSET: u64 = 9;
    let (Some(address), Some(operation)) = (guest.register(RDI), guest.register(RSI)) else { return LOCK_UNKNOWN };
    let at = address.wrapping_sub(gil);
    if at >= GIL {
        return LOCK_NONE;
    }
    let waits = matches!(operation & COMMAND, WAIT | WAIT_BITSET);
    let (first, second) = (u64::from(lock.wait_start), u64::from(lock.wait_switch));
    if waits && ((first..first.wrapping_add(COND)).contains(&at) || (second..u64::from(lock.wait_end)).contains(&at)) {
        return LOCK_WAITING;
    }
    // One of the mutexes, which are also taken in order to give the GIL up. Or the thread wakes others, as it gives
    // the GIL up, or lets a mutex go before it waits.
    LOCK_UNKNOWN
}
