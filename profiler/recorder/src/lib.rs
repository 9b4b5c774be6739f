//! The recorder: makes the session, starts the program, drains the rings of every recorded process, analyses the objects
//! they meet and publishes facts for them, and writes the recording.
//!
//! * [`session`], [`facts`]: the two memfds, the recorder's side;
//! * [`ring_reader`], [`records`]: bytes of a ring to records. Targets may write anything: every length is checked, and
//!   bytes are copied before they are looked at;
//! * [`blocks`]: which block belongs to which process and thread, and when it may be used again;
//! * [`drain`]: one pass over all blocks;
//! * [`jit`]: names of code made at run time;
//! * [`objects`], [`analyst`], [`claims`]: files of the objects seen; the thread that analyses them; whose plugin's they are;
//! * [`spawn`], [`child`], [`safe_path`]: the program, its environment, its end;
//! * [`recorder`]: the loop.
//!
//! A fuzzer begins at [`records::records`], which takes any bytes.

mod analyst;
pub mod blocks;
pub mod child;
mod claims;
pub mod config;
pub mod drain;
pub mod facts;
pub mod host;
pub mod jit;
pub mod objects;
pub mod output;
pub mod recorder;
pub mod records;
pub mod ring_reader;
pub mod safe_path;
pub mod session;
pub mod spawn;
mod stacks;
mod strays;
pub mod tables;

pub use config::{Config, Outcome, RecordError};
pub use recorder::{record, Event, Running};
