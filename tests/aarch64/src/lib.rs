//! Shared by the tests of AArch64: recorded stacks, and the sources of rules for a walk.

pub mod recording;
pub mod sources;
