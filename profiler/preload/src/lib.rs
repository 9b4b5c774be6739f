//! `libuu-preload.so`: the sampler in the target. Interposers, fault model, timers and the sampling handler.
//!
//! Without a session in the environment it does nothing: the constructor looks for one variable, and the interposers
//! pass every call through. With one, it maps the session, opens `libuu.so.0` and the plugins, takes over the sampling
//! signal and the fault signals, and arms a CPU timer for each thread. No thread of ours, no allocation, no fd kept.
//!
//! ```text
//! start      the constructor: session, objects, signals, first thread
//! session    the two mappings and the claiming of blocks
//! process    what a process keeps while it records; the child of a fork
//! threads    pthread_create, a timer for each thread, its end
//! handler    one sampling signal, one record
//! clock      the time, without a system call
//! frames     __register_frame and its kin, for code made at run time
//! client     what the walk asks of us: objects, facts, names
//! signals/   virtual sigaction, faults, alternate stacks, signal sets
//! real       the functions behind our interposers
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

mod client;
mod clock;
#[cfg(not(feature = "no-entry-points"))]
mod frames;
mod handler;
mod process;
mod real;
mod session;
mod signals;
mod start;
mod threads;

#[cfg(all(panic = "unwind", not(test)))]
extern crate std;
