//! The `PyThreadState` of the walked thread, found by reading memory: a call into the runtime could lock or allocate.
//!
//! Wanted is the *gilstate* thread state (what `PyGILState_GetThisThreadState` returns), because the "current" one
//! is null while the GIL is released. 3.11 keeps the thread's *first* state there even while a subinterpreter runs, so
//! up to 3.11 the current one is preferred if it belongs to this thread. See
//! <https://github.com/python/cpython/blob/v3.13.0/Python/pystate.c>.
//!
//! Up to 3.14 the state is the value of a pthread key; in 3.15 it is a thread-local variable (`_Py_tss_gilstate` in
//! <https://github.com/python/cpython/blob/v3.15.0/Python/pystate.c>), whose place the analyser found in the code that
//! reads it.

use crate::cpu::thread_id;
use crate::facts::{Facts, STATE_TLS, STATE_TLS_BLOCK};
use uunwind_core::plugin::guest::Guest;

/// glibc's pthread-specific data, `struct pthread` in
/// <https://sourceware.org/git/?p=glibc.git;a=blob;f=nptl/descr.h;hb=refs/tags/glibc-2.39>: entries per block, and the
/// number of keys.
const BLOCK_KEYS: u64 = 32;
const KEYS: u64 = 1024;
/// Bytes of one entry (`struct pthread_key_data { uintptr_t seq; void *data; }`).
const ENTRY: u64 = 16;

/// Address of the walked thread's state. `None` if the thread has none, or if another thread is finalizing the runtime,
/// which frees the states.
pub fn current(guest: &Guest<'_>, facts: &Facts) -> Option<u64> {
    let runtime = guest.view().bias.wrapping_add(facts.runtime);
    let tstate = held(guest, facts, runtime).or_else(|| match facts.state {
        STATE_TLS => {
            let variable = guest.view().thread_pointer.wrapping_add(facts.state_offset);
            guest.word(variable).filter(|tstate| is_bound(guest, facts, runtime, *tstate))
        }
        STATE_TLS_BLOCK => in_block(guest, facts).filter(|tstate| is_bound(guest, facts, runtime, *tstate)),
        _ => gilstate(guest, facts, runtime),
    })?;
    if tstate == 0 || !tstate.is_multiple_of(8) {
        return None;
    }
    let finalizing = guest.word(runtime.wrapping_add(u64::from(facts.runtime_finalizing)))?;
    (finalizing == 0 || finalizing == tstate).then_some(tstate)
}

/// Up to 3.11: the state that holds the GIL, if it belongs to this thread.
fn held(guest: &Guest<'_>, facts: &Facts, runtime: u64) -> Option<u64> {
    if facts.runtime_current == 0 {
        return None;
    }
    let tstate = guest.word(runtime.wrapping_add(u64::from(facts.runtime_current)))?;
    if tstate == 0 {
        return None;
    }
    let owner = guest.word(tstate.wrapping_add(u64::from(facts.tstate_thread_id)))?;
    (owner == thread_id(guest.view())).then_some(tstate)
}

/// The value of the pthread key in `_PyRuntime.autoTSSkey`, read as `pthread_getspecific` reads it. The key is read
/// each time: `Py_Finalize` deletes it, and `Py_Initialize` creates another.
fn gilstate(guest: &Guest<'_>, facts: &Facts, runtime: u64) -> Option<u64> {
    let view = guest.view();
    let tss = guest.word(runtime.wrapping_add(u64::from(facts.runtime_tss)))?;
    let (initialized, key) = (tss as u32, tss >> 32);
    if initialized == 0 || key >= KEYS || view.tsd_offset == 0 {
        return None;
    }
    let first = view.thread_pointer.wrapping_add(view.tsd_offset);
    let block = if key < BLOCK_KEYS {
        first
    } else {
        // `specific[key / 32]`: the array of pointers to further blocks follows the first block.
        guest.word(first.wrapping_add(BLOCK_KEYS * ENTRY).wrapping_add(key / BLOCK_KEYS * 8))?
    };
    if block == 0 {
        return None;
    }
    guest.word(block.wrapping_add(key % BLOCK_KEYS * ENTRY).wrapping_add(8))
}

/// The variable in the object's block of thread-local storage, found as `__tls_get_addr` finds it, but nothing is
/// allocated: a thread without a block has never run Python. `dtv_t` in
/// <https://sourceware.org/git/?p=glibc.git;a=blob;f=sysdeps/generic/dl-dtv.h;hb=refs/tags/glibc-2.39>: entries of 16
/// bytes, indexed by module id; the one before the first holds their number.
fn in_block(guest: &Guest<'_>, facts: &Facts) -> Option<u64> {
    /// `TLS_DTV_UNALLOCATED`.
    const UNALLOCATED: u64 = u64::MAX;
    const DTV: u64 = 8;
    let view = guest.view();
    let module = guest.word(view.bias.wrapping_add(facts.state_module))?;
    // `dtv` is the second word of `tcbhead_t`.
    let dtv = guest.word(view.thread_pointer.wrapping_add(DTV))?;
    let count = guest.word(dtv.wrapping_sub(ENTRY))?;
    if module == 0 || module > count {
        return None;
    }
    let block = guest.word(dtv.wrapping_add(module.wrapping_mul(ENTRY)))?;
    if block == 0 || block == UNALLOCATED {
        return None;
    }
    guest.word(block.wrapping_add(facts.state_offset))
}

/// Does the state in a thread-local variable still exist? No thread but its own clears the variable: a thread that
/// outlives the runtime keeps an address of freed memory.
fn is_bound(guest: &Guest<'_>, facts: &Facts, runtime: u64, tstate: u64) -> bool {
    let field = |structure: u64, offset: u32| guest.word(structure.wrapping_add(u64::from(offset)));
    tstate != 0
        && field(runtime, facts.runtime_interpreters).is_some_and(|head| head != 0)
        && field(tstate, facts.tstate_thread_id) == Some(thread_id(guest.view()))
}
