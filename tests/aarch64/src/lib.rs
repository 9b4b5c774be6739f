//! What the tests of AArch64 share.

pub mod recording;
pub mod sources;
