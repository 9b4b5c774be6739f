//! CPython 3.9: as 3.8.

use super::{python_3_8, Minor, State, TRACE_REFS};
use crate::objects::{Instances, Modules, Objects};
use uunwind_python::facts::Facts;
use uunwind_python::lock::LockFacts;

pub const MINOR: Minor =
    Minor { number: (3, 9), layout: LAYOUT, words: None, state: State::Key, objects: OBJECTS, refused: &[TRACE_REFS] };

/// What leads to the names of threads, as its headers have it.
const OBJECTS: Objects = Objects { modules: Modules::At(856), instances: Instances::Dict };

/// From the headers of 3.9.18.
pub const LAYOUT: Facts = Facts {
    runtime_current: 568,
    runtime_tss: 584,
    lock: LockFacts { gil: 352, ..python_3_8::LAYOUT.lock },
    ..python_3_8::LAYOUT
};
