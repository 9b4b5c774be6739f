//! The `PyThreadState` of the walked thread, found by reading memory: a call into the runtime could lock or allocate.
//!
//! Wanted is the *gilstate* thread state (what `PyGILState_GetThisThreadState` returns), because the "current" one
//! is null while the GIL is released. 3.11 keeps the thread's *first* state there even while a subinterpreter runs, so
//! in 3.11 the current one is preferred if it belongs to this thread. See
//! <https://github.com/python/cpython/blob/v3.13.0/Python/pystate.c>.

use crate::facts::Facts;
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
    let tstate = held(guest, facts, runtime).or_else(|| gilstate(guest, facts, runtime))?;
    if tstate == 0 || !tstate.is_multiple_of(8) {
        return None;
    }
    let finalizing = guest.word(runtime.wrapping_add(u64::from(facts.runtime_finalizing)))?;
    (finalizing == 0 || finalizing == tstate).then_some(tstate)
}

/// 3.11: the state that holds the GIL, if it belongs to this thread.
fn held(guest: &Guest<'_>, facts: &Facts, runtime: u64) -> Option<u64> {
    if facts.runtime_current == 0 {
        return None;
    }
    let tstate = guest.word(runtime.wrapping_add(u64::from(facts.runtime_current)))?;
    if tstate == 0 {
        return None;
    }
    // `thread_id` is pthread_self(), which is the thread pointer on x86-64.
    let owner = guest.word(tstate.wrapping_add(u64::from(facts.tstate_thread_id)))?;
    (owner == guest.view().thread_pointer).then_some(tstate)
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
