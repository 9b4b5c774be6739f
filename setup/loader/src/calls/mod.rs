//! Calls of a plugin's signal half in a process of its own, where uu walks another process or a core file: what the
//! plugin does there (crash, loop, write anywhere, exit, answer nonsense) cannot harm uu.
//!
//! ```text
//! foreign    a plugin in uu's eyes: a table whose functions send calls
//! link       uu's end of the process: sends a call, serves what it asks for, within limits
//! message    the messages, those of the process are hostile; description: what names a code object, in them
//! serve      the process: opens the plugin and makes the calls
//! host       the functions that the plugin may call there, which ask uu
//! filter     the system calls that the process may make
//! ```
//!
//! One call is one message with the view of the frame. Until the answer comes, the process may ask uu for pages of
//! memory, names and native steps, which uu serves by the functions that the view has in uu: those of the walk. So the
//! process decides nothing that a plugin inside uu would not decide, and what it answers is checked as ever.

mod description;
mod filter;
mod foreign;
mod host;
mod link;
pub mod message;
mod serve;

pub use foreign::{Foreign, Starting};
pub(crate) use serve::serve;

/// The argument after the plugin's path by which [`crate::serve`] serves calls.
pub(crate) const CALLS: &str = "calls";
