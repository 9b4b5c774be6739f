//! `libuunwind-lock.so`: the preloaded sampler, with functions that stand in front of those by which threads wait for
//! each other: mutexes, reader-writer locks, condition variables, semaphores, barriers, the ends of threads, futex(2).
//!
//! `uu record --mode lock` preloads it in place of `libuunwind-preload.so`, all of which it has: so no other program
//! that is recorded meets anything of this. Each function calls the real one, which is the next one that the loader
//! finds, and then counts how long that has waited; a lock that is free is asked for by the function that does not
//! wait, so that it costs no look at a clock.
//!
//! No thread-locals, no locks of its own, nothing that allocates. A thread may be cancelled in a real function: then
//! the frames here go with all others, and there is nothing that they would have to put back.
//!
//! ```text
//! interpose  the functions of threads
//! futex      syscall(2), by which other locks wait
//! cpu        its entry, in assembly
//! layout     where who has a lock stands, and which operations of futex(2) wait
//! hooks      the same in a running process, where calls are led through a gate
//! ```
#![cfg_attr(not(test), no_std)]

#[cfg(not(feature = "no-entry-points"))]
#[cfg_attr(target_arch = "x86_64", path = "cpu/x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "cpu/aarch64.rs")]
mod cpu;
#[cfg(not(feature = "no-entry-points"))]
pub mod futex;
#[cfg(feature = "no-entry-points")]
pub mod hooks;
#[cfg(not(feature = "no-entry-points"))]
pub mod interpose;
mod layout;

/// The shortest wait of a function that does not say whether it has waited, in ns.
const LEAST: u64 = 1_000;

#[cfg(all(panic = "unwind", not(test)))]
extern crate std;
