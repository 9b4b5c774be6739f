//! The recording: a file of its own, versioned, described in docs/recording-format.md.

mod jit;
mod model;
mod read;
mod section;
mod symbols;
mod totals;
mod wire;
mod write;

pub use jit::{JitCode, JitNames, JitPlace, JitSource};
pub use model::{Name, Node, Object, Process, Sample, Settings, Thread};
pub use read::{Lost, Recording};
pub use symbols::{Inlined, Symbol, Symbols};
pub use totals::{Counters, End, EndCause};
pub use write::Writer;

/// Bytes of the file header, before the first section.
pub const HEADER_BYTES: usize = section::HEADER_BYTES;
