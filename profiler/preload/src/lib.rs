//! `libuunwind-preload.so`: the sampler in the target. Interposers, virtual signals, timers, the sampling handler.
//!
//! Without a session in the environment it does nothing: the constructor reads one variable, and the interposers pass
//! every call through. With one, it maps the session, finds `libuunwind.so.0`, opens the plugins, takes over the
//! sampling signal and the fault signals, and arms a CPU timer for each thread. It creates no thread, allocates
//! nothing, and keeps no fd open.
//!
//! ```text
//! start           the constructor: session, objects, signals, first thread
//! session         the two mappings and the claiming of blocks
//! version         the message for a recorder of another version
//! slots           the state of each thread, and the buffers of its walks
//! injected        the same sampler in a process that runs already, into which uu has put it
//! ending          the end of the recording in a process that continues to run
//! process         the state of a recorded process; the child of a fork
//! plugins         when they are opened; dlopen
//! events          samples of allocations and of waits, for the objects that count them
//! chance          which of them are sampled
//! allocator       whether what allocates may be called
//! threads         pthread_create, a timer for each thread, its end
//! handler         one sampling signal, one sample
//! sample          what is counted of a sample, and its record
//! first_tick      threads that are shorter than the kernel's tick
//! copy            samples as copies of stacks
//! late            why a tick stands for many periods
//! budget          the limit on what walks of deep stacks cost a thread
//! pause           whether the process is recorded now
//! labels          the threads' labels
//! address_space   limits of address space, without what uu has reserved
//! locked_memory   memory that the program locks, without uu's
//! elsewhere       a recorder in another pid or user namespace
//! program         what the program may ask of its recording
//! clock           the time, without a system call
//! cpu             what differs between CPUs: entries in assembly, signal frames
//! register_frame  __register_frame and related functions, for code generated at run time
//! client          the sampler's functions that a walk calls: objects, facts, names
//! signals/        virtual sigaction, faults, alternate stacks, signal sets, signals deferred by a walk
//! real            the real functions that the interposers call
//! ```
#![cfg_attr(not(test), no_std)]
#![cfg_attr(
    feature = "no-entry-points",
    allow(dead_code, reason = "what only the constructor and the interposers reach is not in the handler path")
)]

/// The handler path, for the check object.
#[cfg(feature = "no-entry-points")]
pub mod check {
    pub use crate::handler::{on_own_sample, Origin};
}

mod address_space;
mod allocator;
mod budget;
mod chance;
mod client;
mod clock;
mod copy;
#[cfg_attr(target_arch = "x86_64", path = "cpu/x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "cpu/aarch64.rs")]
mod cpu;
mod elsewhere;
mod ending;
pub mod events;
mod first_tick;
mod handler;
pub mod injected;
mod labels;
mod late;
pub mod locked_memory;
mod openings;
mod pause;
mod plugins;
mod process;
mod program;
mod real;
#[cfg(not(feature = "no-entry-points"))]
mod register_frame;
mod sample;
mod session;
mod signals;
mod slots;
mod start;
mod threads;
mod version;

#[cfg(all(panic = "unwind", not(test)))]
extern crate std;
