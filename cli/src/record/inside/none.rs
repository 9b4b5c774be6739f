//! A CPU on which uu puts no sampler into running processes so far, and does not copy stacks.

use std::path::Path;
use uunwind_loader::Analysers;
use uunwind_recorder::Outcome;
use uunwind_recording::Recording;
use uunwind_remote_sampler::record::Event;
use uunwind_remote_sampler::{Attach, AttachError};

/// Why stacks are not copied on this CPU, for people.
pub const NO_COPIES: Option<&str> = Some("uu copies stacks on x86-64 only so far: leave --unwind out");

/// Why a process is not recorded by a sampler in it.
pub enum Refusal {
    /// The process cannot be recorded in any way.
    #[allow(dead_code, reason = "as on x86-64")]
    Never(AttachError),
    /// It can be recorded from outside.
    Declined(Declined),
}

/// Why no sampler was put into a process: it can still be recorded from outside.
pub struct Declined {
    /// What decides, for people.
    pub why: String,
}

impl Declined {
    /// For this reason.
    pub fn new(why: impl Into<String>) -> Declined {
        Declined { why: why.into() }
    }
}

/// Declines: no sampler is put into processes of this CPU.
pub fn record(
    _: &Attach,
    _: &Path,
    _: Analysers,
    _: impl FnMut(Event<'_>),
) -> Result<(Outcome, Option<Recording>), Refusal> {
    Err(Refusal::Declined(Declined::new("uu does that on x86-64 only so far")))
}
