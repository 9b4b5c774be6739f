//! CPython 3.15: as 3.14, but the thread's state is a thread-local variable, and the chain ends with a frame inside the
//! thread's state.

use super::{python_3_14, Minor, State};
use crate::debug_offsets::Words;
use crate::objects::{Instances, Modules, Objects};
use uunwind_python::awaiting::AsyncFacts;
use uunwind_python::facts::Facts;
use uunwind_python::lock::LockFacts;

pub const MINOR: Minor = Minor {
    number: (3, 15),
    layout: LAYOUT,
    words: Some(&WORDS),
    state: State::ThreadLocal,
    objects: OBJECTS,
    refused: &[],
};

/// What leads to the names of threads, as its headers have it.
const OBJECTS: Objects = Objects { modules: Modules::Word(12), instances: Instances::Inline { keys: 888 } };

/// From the headers of 3.15.0, and from the tables of 3.15.0 and 3.15.2.
pub const LAYOUT: Facts = Facts {
    runtime_finalizing: 912,
    runtime_tss: 0,
    runtime_interpreters: 936,
    interpreter_next: 7264,
    interpreter_threads: 7336,
    tstate_thread_id: 176,
    tstate_base_frame: 80,
    tstate_datastack: 256,
    // `gil_requested`.
    lock: LockFacts { waits: 40, ..python_3_14::LAYOUT.lock },
    // As 3.14's, from 3.15.0's and 3.15.2's own files; 1, and 2 and 3: the states of suspended ones.
    asyncio: AsyncFacts {
        running_task: 1032,
        suspended: 1,
        delegating: 2,
        delegating_last: 3,
        awaited: 16,
        ..python_3_14::LAYOUT.asyncio
    },
    ..python_3_14::LAYOUT
};

/// <https://github.com/python/cpython/blob/v3.15.0/Include/internal/pycore_debug_offsets.h>.
const WORDS: Words = Words {
    count: 111,
    thread: 22,
    next_thread: 24,
    current_frame: 26,
    base_frame: Some(27),
    thread_id: 30,
    datastack: 32,
    frame: 39,
    code: 47,
    instructions: 56,
    copies: Some((46, 57)),
    generators_and_sets: Some((99, 74)),
    object: 58,
    bytes: 86,
    text: 89,
};
