//! `libuu.so.0`: the home of a process's one registry, for C and for the sampler.
//!
//! A signal room, but for [`init`], which runs when the object is loaded. Exports are `uu_*` only.
#![cfg_attr(not(test), no_std)]
#![cfg_attr(
    feature = "no-entry-points",
    allow(dead_code, reason = "what only the constructor and the interposers reach is not in the handler path")
)]

mod at_return;
mod capture;
mod chains;
/// The handler path, for the check object.
#[cfg(feature = "no-entry-points")]
pub mod check {
    pub use crate::library::{on_fault, on_tick, sample};
}
mod current;
mod embedder;
mod env;
mod faults;
mod foreign_rule;
mod home;
mod in_window;
mod init;
mod initial;
mod library;
mod met;
mod plugin_call;
mod registered;
mod salts;
mod setup;
mod state;
mod strays;
mod tables;
mod window_functions;
mod window_rule;
mod windows;

#[cfg(all(panic = "unwind", not(test)))]
extern crate std;
