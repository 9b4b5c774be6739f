//! The recording: a versioned file, described in docs/recording-format.md. The recorder appends sections. Reading
//! trusts no byte of them, so any bytes may be passed to [`Recording::parse`].
//!
//! * `model`, `jit`, `second_mappings`, `symbols`, `totals`: what the sections hold; `wire`, `section`: how they are
//!   encoded;
//! * `value`: what samples stand for;
//! * `allocations`: what was allocated, and when it was freed; `held`: what was held when;
//! * `lock_waits`: which locks were waited for, and for how long;
//! * `labels`: what threads say that they work on;
//! * `copies`: samples whose stacks are walked later;
//! * `read` and `write`: whole files; `growing`: one that is still being written; `merge`: several as one;
//! * [`languages`]: what the recording has of interpreted languages, and what it lacks;
//! * [`objects`]: which object covered an address at a time; `signals`: what signals are called.
#![forbid(unsafe_code)]

mod allocations;
mod complete_maps;
mod copies;
pub mod error;
mod growing;
mod held;
mod jit;
mod labels;
pub mod languages;
mod lock_waits;
mod merge;
mod model;
pub mod objects;
mod read;
mod second_mappings;
mod section;
mod signals;
mod symbols;
mod tap;
mod totals;
mod value;
pub mod wire;
mod write;

pub use allocations::{Allocation, Free, Unmap};
pub use complete_maps::{CompleteMap, CompleteTimes};
pub use copies::{Of, StackCopy};
pub use error::ReadError;
pub use growing::Growing;
pub use held::{Amount, Held, Memory};
pub use jit::{JitCode, JitNames, JitPlace, JitSource};
pub use labels::Labels;
pub use languages::CodeLine;
pub use lock_waits::LockWait;
pub use model::{Lock, Name, Node, Object, Process, Sample, Settings, Start, Thread, Wait};
pub use read::{LeftOut, Lost, Recording};
pub use second_mappings::SecondMapping;
pub use signals::signal_name;
pub use symbols::{Call, Inlined, Symbol, Symbols};
pub use tap::{Tap, TapHolder};
pub use totals::{Counters, End, EndCause};
pub use value::{Unit, Value};
pub use write::Writer;

/// At most this number of frames of the kernel stand on a stack: perf gives 127, if kernel.perf_event_max_stack is not
/// changed.
pub const KERNEL_FRAMES: usize = 512;
/// The beginning of notes about processes of the program that were not recorded.
pub const NOT_RECORDED: &str = "not recorded: ";
/// The beginning of the note about processes that signals ended.
pub const ENDED_BY: &str = "ended by a signal: ";
/// The beginning of the note about processes that the program has left running.
pub const LEFT_RUNNING: &str = "the program ended and left processes running";

/// The note of a recording whose functions are named when it is shown (`uu record --names later`).
pub const NAMED_LATER: &str =
    "functions have no names in this recording (--names later): they are named from the files of \
                               the program and its libraries, as they are where it is shown";

/// The note about pauses begins with this.
pub const PAUSED: &str = "the recording was paused ";
/// A note of a recording that was made from outside, by stopping threads, begins with this.
pub const FROM_OUTSIDE: &str = "from outside: ";
/// The same of one that was made by a sampler that was put into the process.
pub const FROM_INSIDE: &str = "from inside: ";
/// A note that an interpreter was told to keep nothing in arenas of its own has this after the name of its plugin.
pub const FROM_MALLOC: &str = " was to take its objects from malloc";

/// Plugin of the frames of functions of the kernel, which no process has: they stand nearer the leaf than all others.
pub const KERNEL: u8 = 255;

/// Bytes of the file header, before the first section.
pub const HEADER_BYTES: usize = section::HEADER_BYTES;
