//! Fuzzing on the stable compiler: one target for every parser of foreign bytes, a committed corpus, a mutator, and
//! what runs them. No instrumentation: what carries an input deep is that every seed is real and that every target repairs
//! what would only stop it at the door (checksums, pcs that no table covers).
//!
//! * [`targets`]: one file a parser, and the list of them;
//! * [`corpus`], [`mutate`], [`campaign`]: where inputs come from. The same seed number gives the same inputs;
//! * [`runner`]: runs one input and catches a panic, a hang, a fault, a read behind the end, memory without bound;
//! * [`alloc`], [`guarded`]: the means of the last two.

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
