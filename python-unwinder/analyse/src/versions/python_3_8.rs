//! CPython 3.8: one activation a Python function; frames are objects.

use super::{python_3_11, Minor, State, TRACE_REFS};
use crate::objects::{Instances, Modules, Objects};
use uunwind_python::facts::{Facts, CHAIN_FRAME_OBJECT, TABLE_PYTHON_38};
use uunwind_python::lock::LockFacts;

pub const MINOR: Minor =
    Minor { number: (3, 8), layout: LAYOUT, words: None, state: State::Key, objects: OBJECTS, refused: &[TRACE_REFS] };

/// What leads to the names of threads, as its headers have it.
const OBJECTS: Objects = Objects { modules: Modules::At(56), instances: Instances::Dict };

/// From the headers of 3.8.18.
pub const LAYOUT: Facts = Facts {
    chain: CHAIN_FRAME_OBJECT,
    table_kind: TABLE_PYTHON_38,
    runtime_finalizing: 16,
    runtime_current: 1368,
    runtime_tss: 1392,
    runtime_interpreters: 32,
    interpreter_next: 0,
    interpreter_threads: 8,
    tstate_next: 8,
    tstate_thread_id: 176,
    tstate_entry: 24,
    tstate_datastack: 0,
    tstate_root_cframe: 0,
    cframe_current: 0,
    cframe_previous: 0,
    frame_bytes: 120,
    frame_code: 32,
    frame_previous: 24,
    // `f_lasti`, a byte offset.
    frame_instruction: 104,
    frame_unit: 1,
    frame_generator: 96,
    // `f_executing`.
    frame_state: 116,
    frame_executing: 1,
    frame_owner: 0,
    frame_is_entry: 0,
    frame_generator_state: 0,
    code_filename: 104,
    // `co_name`: there are no qualified names.
    code_qualname: 112,
    code_first_line: 40,
    // `co_lnotab`.
    code_line_table: 120,
    code_bytes: 48,
    // Not used.
    code_first_traceable: 40,
    // All fields that are read lie before this.
    code_instructions: 128,
    lock: LockFacts { gil: 1152, ..python_3_11::LOCK },
    text_ascii: 48,
    text_compact: 72,
    ..python_3_11::LAYOUT
};
