//! From a row to a CPU's rule.

mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

pub use aarch64::AArch64;
#[cfg(target_arch = "x86_64")]
pub use x86_64::X86_64;

use crate::function::Function;
use crate::row::Row;
use crate::table::{Machine, Table};
use core::fmt::Debug;
use uunwind_core::stop_reason::StopReason;

/// The CPU that this is compiled for.
#[cfg(target_arch = "x86_64")]
pub type Native = X86_64;
/// The CPU that this is compiled for.
#[cfg(target_arch = "aarch64")]
pub type Native = AArch64;

/// A CPU that rules are made for.
pub trait Cpu {
    /// Its rules.
    type Rule: Copy + Eq + Debug;
    /// What its tables say that they are for.
    const MACHINE: Machine;
    /// The rule of an outermost frame.
    const END: Self::Rule;

    /// The rule that does what `row` says, or why there is none.
    ///
    /// [`StopReason::NoRule`]: what is told is known to be wrong. [`StopReason::UnsupportedRule`]: a rule cannot say it.
    fn rule(row: &Row, table: &Table, function: &Function) -> Result<Self::Rule, StopReason>;
}

/// The rule that does what `row` says, or why there is none. As [`Cpu::rule`]; without a row, [`StopReason::NoRule`]: nothing is
/// told for this address.
pub fn to_rule<C: Cpu>(row: Option<&Row>, table: &Table, function: &Function) -> Result<C::Rule, StopReason> {
    let Some(row) = row else {
        let no_rows = function.rows == 0 && table.version == 3;
        // A signal frame without rows is one that SFrame could not describe; any other is an outermost frame.
        return if no_rows && !function.signal { Ok(C::END) } else { Err(StopReason::NoRule) };
    };
    C::rule(row, table, function)
}
