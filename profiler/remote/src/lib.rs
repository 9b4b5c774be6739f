//! The walk of another process's threads, from outside (report room).
//!
//! The loop, the rules and the plugins are those of a walk inside the process; its memory and its surroundings are
//! parameters. So a program that hangs, is stopped, is static, or may not be changed shows the same stacks. Rooms that
//! build on it: `profiler/core-files`, `profiler/offline` (copies of stacks), `profiler/waits`,
//! `profiler/remote-sampler`, `profiler/inject/injector`.
//!
//! ```text
//! threads        stops all threads, reads their registers, lets them go
//! registers      the registers of a stopped thread, by CPU
//! doing          what a thread is doing, and the repair of system calls that a stop interrupts
//! memory         the process's memory, read page by page; pages: their copies
//! objects        the files that it has mapped, with rule tables and facts
//! plugins        the plugins that are called, in this process
//! env            the surroundings of the walk
//! registered     code that the process has registered at run time: windows, GDB's list, libgcc's
//! names          the names of code objects that plugins met
//! language_names what languages call the threads
//! holders        which thread has what another one waits for
//! walks          the walks of threads that stand still
//! stop_and_walk  the stacks of all threads at one moment
//! dump           the same as a recording
//! refusal        why a process cannot be looked at
//! clocks         the CPU time of threads
//! ```
//!
//! A dump's process stands still while it is walked, because interpreters change what a walk reads. So everything that
//! can be prepared is prepared before: objects are opened, rule tables built, plugins opened and asked for facts.

pub mod clocks;
pub mod doing;
pub mod dump;
pub mod env;
pub mod holders;
pub mod language_names;
pub mod memory;
pub mod names;
pub mod objects;
mod pages;
pub mod plugins;
pub mod refusal;
pub mod registered;
pub mod registers;
mod stop_and_walk;
pub mod threads;
pub mod trial;
pub mod walks;

pub use dump::{dump, Dump, ThreadState};
pub use plugins::Plugins;
pub use refusal::{process_of, DumpError};
pub use threads::children;
