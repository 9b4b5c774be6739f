//! What becomes of one attempt to send a profile.

use std::time::Duration;

/// What became of it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// The store has it.
    Sent,
    /// The store has it, and says something.
    SentBut(String),
    /// It never will.
    Refused(String),
    /// Perhaps later: as soon as the store asks for it, if it does.
    Later(String, Option<Duration>),
}
