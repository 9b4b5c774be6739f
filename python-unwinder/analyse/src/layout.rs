//! Offsets of the structures, per minor version: x86-64, release build, with the GIL.
//!
//! Printed by `offsetof` against the headers of 3.11.2, 3.11.7, 3.12.1 and 3.13.0 (ASSUMPTIONS.md has links to them).
//! CPython freezes the thread state, the frame and the code object within a minor series; `_PyRuntime` may grow, which
//! `debug_offsets` and `tss` guard against.

use crate::version::Version;
use std::mem::size_of;
use uunwind_python::facts::{Facts, CHAIN_CFRAME, CHAIN_CFRAME_SHIM, CHAIN_SHIM, FACTS_VERSION};

/// The layout of a version, with all addresses 0. `None`: this version is not served.
pub fn of(version: Version) -> Option<Facts> {
    let mut facts = match version.minor() {
        (3, 11) => PYTHON_3_11,
        (3, 12) => PYTHON_3_12,
        (3, 13) => PYTHON_3_13,
        _ => return None,
    };
    facts.python = version.hex;
    Some(facts)
}

const PYTHON_3_11: Facts = Facts {
    size: size_of::<Facts>() as u32,
    version: FACTS_VERSION,
    python: 0,
    chain: CHAIN_CFRAME,
    runtime: 0,
    eval: 0,
    code_type: 0,
    runtime_finalizing: 24,
    runtime_current: 576,
    runtime_tss: 592,
    runtime_interpreters: 40,
    interpreter_next: 0,
    interpreter_threads: 16,
    tstate_next: 8,
    tstate_thread_id: 152,
    tstate_entry: 56,
    tstate_datastack: 296,
    tstate_root_cframe: 336,
    cframe_current: 8,
    cframe_previous: 16,
    frame_bytes: 80,
    frame_code: 32,
    frame_previous: 48,
    frame_instruction: 56,
    frame_owner: 69,
    frame_is_entry: 68,
    frame_generator_state: 5,
    code_filename: 112,
    code_qualname: 128,
    code_first_line: 72,
    code_line_table: 136,
    code_first_traceable: 168,
    code_instructions: 184,
    text_ascii: 48,
    text_compact: 72,
};

const PYTHON_3_12: Facts = Facts {
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
    text_ascii: 40,
    text_compact: 56,
    ..PYTHON_3_11
};

const PYTHON_3_13: Facts = Facts {
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
    ..PYTHON_3_12
};
