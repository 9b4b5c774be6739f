//! What a program is, what it needs, and what may keep a preloaded object out of it.
//!
//! Every byte of a file is taken as hostile: each range is checked, each loop is bounded, and only the needed parts are
//! read. An object that cannot be used gives an error or a note that a person can act on.
//!
//! - [`needed_closure`], [`Search`]: the objects that the loader will map for a program, or for one that it opens;
//! - [`resolve_program`]: which ELF file a command will really run, and what may keep a preloaded object out of it;
//! - [`allocators`]: what it allocates by, besides the C library's functions.

#![forbid(unsafe_code)]

mod allocators;
mod asan;
mod library_path;
mod needed;
mod program;
mod script;

pub use allocators::{allocators, Allocators};
pub use needed::{needed_closure, Search};
pub use program::{resolve_program, traits, Problem, Resolved, Traits};
