//! The registers of a stopped thread: what differs between CPUs. Each CPU has a file here, with the same names.

#[cfg_attr(target_arch = "x86_64", path = "x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "aarch64.rs")]
mod cpu;

pub use cpu::*;
