//! The current thread's `PyThreadState`, read from plain words: no call into the runtime, which could lock or allocate.
//!
//! What counts is the *gilstate* thread state (what `PyGILState_GetThisThreadState` returns), because the "current" one
//! is null while the GIL is released. 3.11 keeps the thread's *first* state there even while a subinterpreter runs, so
//! there the current one goes first, if it is this thread's.

use crate::facts::Facts;
use crate::walk::Walk;

/// glibc's layout of pthread-specific data: entries per block, and the number of keys.
const BLOCK_KEYS: u64 = 32;
const KEYS: u64 = 1024;
/// Bytes of one entry, `{ uintptr_t seq; void *data; }`.
const ENTRY: u64 = 16;

/// The thread state of the walked thread. `None`: the thread has none, or the runtime is being finalized by another
/// thread and the states may be freed.
pub fn current(walk: &Walk<'_>, facts: &Facts) -> Option<u64> {
    let runtime = walk.view().bias.wrapping_add(facts.runtime);
    let tstate = held(walk, facts, runtime).or_else(|| gilstate(walk, facts, runtime))?;
    if tstate == 0 || !tstate.is_multiple_of(8) {
        return None;
    }
    let finalizing = walk.word(runtime.wrapping_add(u64::from(facts.runtime_finalizing)))?;
    (finalizing == 0 || finalizing == tstate).then_some(tstate)
}

/// 3.11: the holder of the GIL, if it is this thread.
fn held(walk: &Walk<'_>, facts: &Facts, runtime: u64) -> Option<u64> {
    if facts.runtime_current == 0 {
        return None;
    }
    let tstate = walk.word(runtime.wrapping_add(u64::from(facts.runtime_current)))?;
    if tstate == 0 {
        return None;
    }
    // `thread_id` is pthread_self(), which is the thread pointer on x86-64.
    let owner = walk.word(tstate.wrapping_add(u64::from(facts.tstate_thread_id)))?;
    (owner == walk.view().thread_pointer).then_some(tstate)
}

/// The value of the pthread key `_PyRuntime...autoTSSkey`, read as `pthread_getspecific` does. The key is read anew
/// each time: `Py_Finalize` deletes it, `Py_Initialize` makes another.
fn gilstate(walk: &Walk<'_>, facts: &Facts, runtime: u64) -> Option<u64> {
    let view = walk.view();
    let tss = walk.word(runtime.wrapping_add(u64::from(facts.runtime_tss)))?;
    let (initialized, key) = (tss as u32, tss >> 32);
    if initialized == 0 || key >= KEYS || view.tsd_offset == 0 {
        return None;
    }
    let first = view.thread_pointer.wrapping_add(view.tsd_offset);
    let block = if key < BLOCK_KEYS {
        first
    } else {
        // `specific[key / 32]`: the array of pointers to blocks follows the first block.
        walk.word(first.wrapping_add(BLOCK_KEYS * ENTRY).wrapping_add(key / BLOCK_KEYS * 8))?
    };
    if block == 0 {
        return None;
    }
    walk.word(block.wrapping_add(key % BLOCK_KEYS * ENTRY).wrapping_add(8))
}
