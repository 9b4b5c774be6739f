//! CPython 3.12: an activation has a `_PyCFrame` on the C stack, and a shim frame there ends its chain.

use super::{python_3_11, Minor, State, TRACE_REFS};
use crate::objects::{Instances, Modules, Objects};
use uunwind_python::facts::{Facts, CHAIN_CFRAME_SHIM};
use uunwind_python::lock::{LockFacts, LOCK_THREAD};

pub const MINOR: Minor =
    Minor { number: (3, 12), layout: LAYOUT, words: None, state: State::Key, objects: OBJECTS, refused: &[TRACE_REFS] };

/// What leads to the names of threads, as its headers have it.
const OBJECTS: Objects = Objects { modules: Modules::At(944), instances: Instances::Tagged { keys: 880 } };

/// From the headers of 3.12.1.
pub const LAYOUT: Facts = Facts {
    chain: CHAIN_CFRAME_SHIM,
    runtime_current: 0,
    runtime_tss: 1544,
    interpreter_threads: 72,
    tstate_thread_id: 136,
    tstate_datastack: 232,
    tstate_root_cframe: 272,
    cframe_current: 0,
    cframe_previous: 8,
    frame_code: 0,
    frame_previous: 8,
    frame_owner: 70,
    frame_is_entry: 0,
    code_first_line: 68,
    code_first_traceable: 176,
    code_instructions: 192,
    // `_status.active`: in use, and a state that is in use holds the GIL.
    lock: LockFacts { kind: LOCK_THREAD, gil: 384, holds: 24, holds_mask: 1 << 4, ..python_3_11::LOCK },
    text_ascii: 40,
    text_compact: 56,
    ..python_3_11::LAYOUT
};
