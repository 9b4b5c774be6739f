//! The walk of another process's threads, from outside (report room).
//!
//! The loop, the rules and the plugins are those of a walk inside the process; its memory and its surroundings are
//! parameters. So a program that hangs, is stopped, is static, or may not be changed shows the same stacks.
//!
//! ```text
//! threads    stops all threads, reads their registers, lets them go
//! waits      what a thread is waiting for, and the repair of system calls that a stop interrupts
//! waiting    what a thread waits in, and its stack, found at most once a wait
//! memory     the process's memory, read page by page; pages: their copies
//! objects    the files that it has mapped, with rule tables and facts
//! plugins    the plugins that are called, in this process
//! env        the surroundings of the walk
//! registered code that the process has registered at run time: windows, GDB's list, libgcc's
//! names      the names of code objects that plugins met
//! language_names what languages call the threads
//! walks      the walks of threads that stand still
//! core_file  the same of a core file: its memory, threads and files
//! refusal    why a process cannot be looked at
//! clocks     the CPU time of threads
//! sampler    samples of threads, by short stops of one at a time: its looks, its accounts of time, the names of threads;
//!            target: a process that is sampled; stops: what stops cost
//! single     when each wait of a thread began and ended
//! watcher    samples of the waiting threads of a recording whose running threads sample themselves
//! record     a recording of a running process, made of these; followed: its children, and what each has used;
//!            prepared: what is known of each before it is sampled; open_files: how many are kept open
//! offline    the walks of stacks that were copied (uu record --unwind offline)
//! inject     a sampler that is put into a running process, and a recording by it
//! holders    which thread has what another one waits for
//! dump       all of it together: the stacks of all threads, as a recording; take: of a process, at one moment
//! ```
//!
//! A dump's process stands still while it is walked, because interpreters change what a walk reads. So everything that
//! can be prepared is prepared before: objects are opened, rule tables built, plugins opened and asked for facts.

mod clocks;
pub mod core_file;
pub mod dump;
mod env;
mod followed;
pub mod holders;
pub mod inject;
mod language_names;
mod memory;
mod names;
mod objects;
pub mod offline;
mod open_files;
mod pages;
mod plugins;
mod prepared;
pub mod record;
mod refusal;
pub mod registered;
mod sampler;
mod single;
mod stops;
mod take;
mod target;
mod threads;
mod waiting;
pub mod waits;
mod walks;
mod watcher;

pub use core_file::search::Search;
pub use core_file::CoreFile;
pub use dump::{dump, dump_core, Dump, ThreadState};
pub use plugins::Plugins;
pub use record::{record, Attach, AttachError};
pub use refusal::{process_of, DumpError};
pub use threads::children;
pub use watcher::Watcher;
