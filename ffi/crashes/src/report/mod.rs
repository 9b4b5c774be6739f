//! Crash reports: which signal, where, and what every thread was doing; written with system calls only.
//!
//! ```text
//! install      takes the signals over; what was there before
//! handler      one crash: who handles it, the report, what happens afterwards
//! init         the first process of a pid namespace, which signals do not end
//! stacks       alternate stacks, and the stack that reports are made on
//! destination  where a report goes, and how it is written
//! text         numbers, texts, JSON
//! crash        the first lines: signal, thread, registers
//! native       its native stack, where it cannot be walked
//! frames       a thread's frames, and the objects that they are in
//! symbols      names of native functions
//! write        the whole report
//! namer        a program of ours that adds names and lines to it
//! ```
//! The signals' handlers have to be ours when a crash comes. So that nothing is reported that is none, whoever handled
//! a signal before is asked first (`handler`).

mod crash;
mod destination;
mod frames;
mod handler;
mod init;
mod install;
pub mod namer;
mod native;
mod stacks;
pub mod symbols;
mod text;
mod write;

pub use install::{report, report_to};
pub use stacks::prepare_thread;

/// `flags` of the C interface.
pub mod flags {
    /// JSON lines instead of text.
    pub const JSON: u32 = 1;
    /// Reports before earlier handlers are called.
    pub const FIRST: u32 = 2;
    /// The crashed thread only.
    pub const ONE_THREAD: u32 = 4;
    /// All of these.
    pub const DEFINED: u32 = JSON | FIRST | ONE_THREAD;
}
