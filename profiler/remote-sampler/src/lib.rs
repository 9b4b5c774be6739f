//! Samples of a running process, taken from outside by short stops of one thread at a time (report room).
//!
//! ```text
//! record      a recording of a process and its children
//! sampler     samples of threads: its looks, its accounts of time, the names of threads
//! target      a process that is sampled
//! followed    its children, and what each has used
//! prepared    what is determined of each before it is sampled
//! open_files  how many files are kept open
//! ```

pub mod followed;
pub mod open_files;
pub mod prepared;
pub mod record;
mod sampler;
mod target;

pub use record::{record, Attach, AttachError};
