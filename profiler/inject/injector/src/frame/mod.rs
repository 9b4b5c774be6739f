//! What differs between CPUs when a thread is borrowed: the signal frame by which it restores itself, and the registers
//! with which it makes a call. Each CPU has a file here, with the same names.

#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "x86_64")]
pub use x86_64::{at_call, at_function, at_restore, is_extended_state, resumed, Frame, EXTENDED_STATE, XSTATE};
