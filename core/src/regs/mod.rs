//! The registers of one CPU at one moment, numbered as DWARF numbers them.
//!
//! What stands here by its bare name is this machine's. AArch64's is there on other machines too, for stacks recorded elsewhere.

pub mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
pub use aarch64::*;
#[cfg(target_arch = "x86_64")]
pub use x86_64::*;
