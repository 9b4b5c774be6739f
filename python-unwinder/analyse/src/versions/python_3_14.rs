//! CPython 3.14: as 3.13, with tagged pointers in frames.

use super::{python_3_13, Minor, State};
use crate::debug_offsets::Words;
use crate::objects::{Instances, Modules, Objects};
use uunwind_python::awaiting::{AsyncFacts, ASYNC_AWAITED_BY};
use uunwind_python::facts::Facts;
use uunwind_python::lock::LockFacts;

pub const MINOR: Minor =
    Minor { number: (3, 14), layout: LAYOUT, words: Some(&WORDS), state: State::Key, objects: OBJECTS, refused: &[] };

/// What leads to the names of threads, as its headers have it.
const OBJECTS: Objects = Objects { modules: Modules::Word(12), instances: Instances::Inline { keys: 880 } };

/// From the headers of 3.14.8, and from the tables of 3.14.8 and 3.14.10.
pub const LAYOUT: Facts = Facts {
    runtime_finalizing: 784,
    runtime_tss: 2336,
    runtime_interpreters: 808,
    interpreter_next: 7272,
    frame_bytes: 88,
    frame_owner: 74,
    // `Py_TAG_BITS`: <https://github.com/python/cpython/blob/v3.14.0/Include/internal/pycore_stackref.h>.
    frame_tags: 3,
    code_first_traceable: 192,
    code_instructions: 208,
    // `holds_gil`.
    lock: LockFacts { holds: 36, holds_mask: u32::MAX, ..python_3_13::LAYOUT.lock },
    // From section `.AsyncioDebug` of 3.14.8's and 3.14.10's module `_asyncio`, which is a file of its own; the rest
    // from the headers of 3.14.8. -2 and -1: `FRAME_SUSPENDED`, `FRAME_SUSPENDED_YIELD_FROM`.
    asyncio: AsyncFacts {
        kind: ASYNC_AWAITED_BY,
        running_task: 872,
        awaited_by: 96,
        awaited_by_is_set: 109,
        is_task: 108,
        coroutine: 128,
        frame: 72,
        state: 67,
        suspended: 0xfe,
        delegating: 0xff,
        delegating_last: 0xff,
        stack: 64,
        awaited: 8,
        set_used: 24,
        set_mask: 32,
        set_table: 40,
    },
    ..python_3_13::LAYOUT
};

/// <https://github.com/python/cpython/blob/v3.14.0/Include/internal/pycore_debug_offsets.h>.
const WORDS: Words = Words {
    count: 95,
    thread: 22,
    next_thread: 24,
    current_frame: 26,
    base_frame: None,
    thread_id: 27,
    datastack: 29,
    frame: 31,
    code: 39,
    instructions: 48,
    copies: Some((38, 49)),
    generators_and_sets: Some((83, 62)),
    object: 50,
    bytes: 74,
    text: 77,
};
