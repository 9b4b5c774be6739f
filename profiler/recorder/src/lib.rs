//! The recorder: creates the session, starts the program, drains the rings of every recorded process, analyses the
//! objects that they load and publishes facts for them, and writes the recording.
//!
//! * [`session`], [`facts`]: the recorder's side of the two memfds;
//! * [`ring_reader`], [`records`]: turn bytes of a ring into records. Targets may write anything: every length is
//!   checked, and bytes are copied before they are examined;
//! * [`block_owners`]: which block belongs to which process and thread, and when it may be used again;
//! * [`drain`]: one pass over all blocks;
//! * [`jit`]: names of code generated at run time;
//! * [`kernel`]: the kernel's own samples of a thread;
//! * [`objects`], `analyst`, `plugin_assignment`: the files of loaded objects; the thread that makes their rule
//!   tables; the plugin to which each belongs;
//! * `code_maps`: says where a process's executable memory is, for copies of stacks;
//! * `free_reader`, `mappings`: what processes free, and which of their mappings lies where;
//! * [`survey`]: processes that are not recorded, and why;
//! * [`spawn`], [`inherited`], [`child`], [`safe_path`]: the program's environment, start and end;
//! * `traceme`: threads that uu traces without having asked for it;
//! * [`naming`]: names of functions, found by a separate process; `lines`: lines of interpreted functions, decoded by
//!   their plugins; [`found_names`]: both, as they are appended;
//! * [`kept_names`]: names of functions that several recordings in this process need; they ask together
//!   (`naming_rounds`);
//! * `elsewhere`, `thread_ids`: processes in other namespaces, and their threads' ids;
//! * `thread_names`: what languages call their threads;
//! * `startup_time`: what short lives use before they are sampled;
//! * [`switch`]: pauses that others ask for;
//! * [`watch`]: samples of threads that wait, which others take;
//! * [`snapshot`]: what the recording has so far, as a file of its own;
//! * [`recorder`](mod@recorder): the recording from beginning to end.
//!
//! The entry point for fuzzing is [`records::records`], which accepts any bytes.

mod analyst;
pub mod block_owners;
pub mod child;
pub mod code_maps;
pub mod code_rules;
pub mod config;
pub mod drain;
mod elsewhere;
mod ended;
pub mod facts;
pub mod found_names;
mod free_reader;
pub mod inherited;
pub mod jit;
pub mod kept_names;
pub mod kernel;
pub mod lines;
pub mod listener;
pub mod machine;
mod map_files;
mod mappings;
pub mod naming;
mod naming_rounds;
pub mod objects;
pub mod output;
mod plugin_assignment;
pub mod recorder;
pub mod records;
pub mod reservation;
pub mod rest;
pub mod ring_reader;
pub mod safe_path;
pub mod samples;
pub mod session;
pub mod snapshot;
pub mod spawn;
pub mod stacks;
mod startup_time;
pub mod survey;
pub mod switch;
pub mod tables;
mod thread_ids;
pub mod thread_names;
mod traceme;
pub mod watch;

pub use config::{Config, Outcome, RecordError, Walk};
pub use recorder::{record, record_with, Event, Running};
