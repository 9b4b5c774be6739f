//! CPython 3.11: an activation has a `_PyCFrame` on the C stack, and its outermost frame is marked.

use super::{Minor, State, TRACE_REFS};
use crate::objects::{Instances, Modules, Objects};
use std::mem::size_of;
use uunwind_python::awaiting::AsyncFacts;
use uunwind_python::facts::{Facts, CHAIN_CFRAME, FACTS_VERSION, OBJECT_HEADER, STATE_KEY, TABLE_PYTHON_311};
use uunwind_python::lock::{LockFacts, LOCK_RUNTIME, TAKING};

pub const MINOR: Minor =
    Minor { number: (3, 11), layout: LAYOUT, words: None, state: State::Key, objects: OBJECTS, refused: &[TRACE_REFS] };

/// What leads to the names of threads, as its headers have it.
const OBJECTS: Objects = Objects { modules: Modules::At(888), instances: Instances::Values { keys: 872 } };

/// Up to 3.11 the process has one GIL, and a word that says which thread state holds it
/// (<https://github.com/python/cpython/blob/v3.11.7/Include/internal/pycore_gil.h>, equal from 3.8 on).
pub const LOCK: LockFacts = LockFacts {
    kind: LOCK_RUNTIME,
    gil: 0,
    interpreter: 16,
    holds: 0,
    holds_mask: 0,
    waits: 0,
    wait_start: 32,
    wait_switch: 120,
    wait_end: 168,
    padding: 0,
    taking: [[0; 2]; TAKING],
};

/// From the headers of 3.11.2 and 3.11.7.
pub const LAYOUT: Facts = Facts {
    size: size_of::<Facts>() as u32,
    version: FACTS_VERSION,
    python: 0,
    chain: CHAIN_CFRAME,
    runtime: 0,
    eval: 0,
    code_type: 0,
    frame_type: 0,
    coroutine_type: 0,
    generator_type: 0,
    async_generator_type: 0,
    sending_type: 0,
    state_offset: 0,
    state_module: 0,
    state: STATE_KEY,
    table_kind: TABLE_PYTHON_311,
    runtime_finalizing: 24,
    runtime_current: 576,
    runtime_tss: 592,
    runtime_interpreters: 40,
    interpreter_next: 0,
    interpreter_threads: 16,
    tstate_next: 8,
    tstate_thread_id: 152,
    tstate_entry: 56,
    tstate_base_frame: 0,
    tstate_datastack: 296,
    tstate_root_cframe: 336,
    cframe_current: 8,
    cframe_previous: 16,
    frame_bytes: 80,
    frame_code: 32,
    frame_previous: 48,
    frame_instruction: 56,
    frame_unit: 0,
    frame_generator: 0,
    frame_state: 0,
    frame_executing: 0,
    frame_owner: 69,
    frame_tags: 0,
    frame_is_entry: 68,
    frame_generator_state: 5,
    code_filename: 112,
    code_qualname: 128,
    code_first_line: 72,
    code_line_table: 136,
    code_bytes: 0,
    code_first_traceable: 168,
    code_instructions: 184,
    text_ascii: 48,
    text_compact: 72,
    object_header: OBJECT_HEADER,
    frame_copy: 0,
    code_copies: 0,
    lock: LockFacts { gil: 360, ..LOCK },
    asyncio: AsyncFacts::NOT_DESCRIBED,
};
