//! Fuzzing with the stable compiler: one target for every parser of foreign bytes, a committed corpus, a mutator, and
//! a runner. There is no instrumentation: inputs get deep because every seed is real, and because every target repairs
//! what would only stop an input at the entrance (checksums, pcs that no table covers).
//!
//! * [`targets`]: one file a parser, and the list of them;
//! * [`corpus`], [`mutate`], [`campaign`]: where inputs come from. The same seed number gives the same inputs;
//! * [`runner`]: runs one input and catches a panic, a hang, a fault, a read beyond the end, memory beyond the limit;
//! * [`alloc`], [`guarded`]: how the last two are caught.

pub mod alloc;
pub mod campaign;
pub mod corpus;
pub mod guarded;
pub mod input;
pub mod mutate;
pub mod runner;
pub mod targets;

#[global_allocator]
static ALLOCATOR: alloc::Bounded = alloc::Bounded;
