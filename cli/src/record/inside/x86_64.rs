//! x86-64.

pub use uunwind_injector::record::{record, Refusal};
pub use uunwind_injector::Declined;

/// Why stacks are not copied on this CPU, for people.
pub const NO_COPIES: Option<&str> = None;
