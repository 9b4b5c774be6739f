//! CPython 3.13: a shim frame on the C stack ends an activation; the file has a table of offsets. Debug builds have the
//! same structures as others; free-threaded ones have other offsets, which the table has.

use super::{python_3_12, Minor, State};
use crate::debug_offsets::Words;
use crate::objects::{Instances, Modules, Objects};
use uunwind_python::facts::{Facts, CHAIN_SHIM};
use uunwind_python::lock::LockFacts;

pub const MINOR: Minor =
    Minor { number: (3, 13), layout: LAYOUT, words: Some(&WORDS), state: State::Key, objects: OBJECTS, refused: &[] };

/// What leads to the names of threads, as its headers have it.
const OBJECTS: Objects = Objects { modules: Modules::Word(11), instances: Instances::Inline { keys: 880 } };

/// From the headers of 3.13.0.
pub const LAYOUT: Facts = Facts {
    chain: CHAIN_SHIM,
    runtime_finalizing: 608,
    runtime_tss: 2160,
    runtime_interpreters: 632,
    interpreter_next: 7264,
    interpreter_threads: 7344,
    tstate_thread_id: 152,
    tstate_entry: 72,
    tstate_root_cframe: 0,
    cframe_current: 0,
    cframe_previous: 0,
    frame_generator_state: 0,
    code_first_traceable: 184,
    code_instructions: 200,
    // `_status.holds_gil`.
    lock: LockFacts { gil: 16, holds: 32, holds_mask: 1 << 5, ..python_3_12::LAYOUT.lock },
    ..python_3_12::LAYOUT
};

/// <https://github.com/python/cpython/blob/v3.13.0/Include/internal/pycore_runtime.h>.
const WORDS: Words = Words {
    count: 73,
    thread: 19,
    next_thread: 21,
    current_frame: 23,
    base_frame: None,
    thread_id: 24,
    datastack: 26,
    frame: 28,
    code: 34,
    instructions: 43,
    copies: None,
    generators_and_sets: None,
    object: 44,
    bytes: 64,
    text: 67,
};
