//! The registers of one CPU at one moment, numbered as in DWARF.
//!
//! Items without a CPU in their path are this machine's. AArch64's are available on other machines too, for stacks
//! recorded elsewhere.

pub mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
pub use aarch64::*;
#[cfg(target_arch = "x86_64")]
pub use x86_64::*;
