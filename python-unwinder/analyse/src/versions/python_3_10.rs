//! CPython 3.10: as 3.9, with a state in frames and another line table.

use super::{python_3_9, Minor, State, TRACE_REFS};
use crate::objects::{Instances, Modules, Objects};
use uunwind_python::facts::{Facts, TABLE_PYTHON_310};

pub const MINOR: Minor =
    Minor { number: (3, 10), layout: LAYOUT, words: None, state: State::Key, objects: OBJECTS, refused: &[TRACE_REFS] };

/// What leads to the names of threads, as its headers have it.
const OBJECTS: Objects = Objects { modules: Modules::At(856), instances: Instances::Dict };

/// From the headers of 3.10.13.
pub const LAYOUT: Facts = Facts {
    table_kind: TABLE_PYTHON_310,
    // `f_lasti`, a number of code units.
    frame_instruction: 96,
    frame_unit: 2,
    frame_generator: 88,
    // `f_state`: `FRAME_EXECUTING`.
    frame_state: 108,
    frame_executing: 0,
    ..python_3_9::LAYOUT
};
