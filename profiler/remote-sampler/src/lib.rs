//! Samples of a running process, taken from outside by short stops of one thread at a time (report room).
//!
//! ```text
//! record      a recording of a process and its children, from beginning to end
//! running     while it goes on: what happens between samples
//! sampler     samples of threads: its looks, its accounts of time, the names of threads
//! target      a process that is sampled
//! followed    its children, and what each has used
//! prepared    what is determined of each before it is sampled
//! files       the files of their objects
//! open_files  how many files are kept open
//! notes       what the recording says of itself
//! ```

mod files;
pub mod followed;
pub mod notes;
pub mod open_files;
pub mod prepared;
pub mod record;
mod running;
mod sampler;
mod target;

pub use record::{record, Attach, AttachError};
