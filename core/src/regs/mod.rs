//! The registers of one CPU at one moment, numbered as DWARF numbers them.

mod x86_64;
pub use x86_64::*;
