//! Stacks of other threads of the process, and crash reports, for the program itself.
//!
//! ```text
//! threads   the stack of another thread, by a signal; all threads
//! report    crash reports: what is written, when, and what happens afterwards
//! signals   sigaction, siginfo, signal sets
//! system    the system calls that both use
//! ```
//! A signal room: everything may be used in a handler, unless it says otherwise. No memory is allocated but by mmap(2),
//! and none is given back: whoever was asked may still write.
#![cfg_attr(not(test), no_std)]

pub mod signals;
pub mod system;
pub mod threads;

/// What this room needs of the library around it.
#[derive(Debug)]
pub struct Host {
    /// Whether faults of guarded reads are handled in this process, so that walks may read without probing.
    pub handles_faults: fn() -> bool,
}
