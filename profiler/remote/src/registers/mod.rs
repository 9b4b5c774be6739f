//! The registers of a stopped thread: what differs between CPUs. Each CPU has a file here, with the same names.

#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "x86_64")]
pub use x86_64::{
    arguments, call_number, pc, regs, result, set_result, sp, thread_pointer, Registers, ARGUMENTS, TSD_OFFSET,
};
