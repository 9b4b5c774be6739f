//! Sends profiles of a recording that goes on to a store of profiles: `uu record --push URL`.
//!
//! ```text
//! target   where profiles go, and under which name: checked before the program starts
//! window   the part of a recording that was not sent yet, as pprof
//! spool    profiles that wait, in files, at most so many bytes
//! sender   a thread that sends them, again where that may help, and counts what became of them
//! http     one request of HTTP/1.1, whose answer may be anything
//! ```
//!
//! A report room: nothing of it is in the program, which never talks to a network.

mod http;
mod sender;
mod spool;
mod target;
mod window;

pub use sender::{Counts, Sender};
pub use target::{Credentials, Target, TargetError};
pub use window::{Profile, Windows};
