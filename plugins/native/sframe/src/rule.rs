//! From rows to a CPU's rules.

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

/// A CPU that rows can be turned into rules for.
pub trait Cpu {
    /// The rule of a frame.
    type Rule: Copy + Eq + Debug;
    /// The machine that its tables name.
    const MACHINE: Machine;
    /// The rule of an outermost frame.
    const END: Self::Rule;

    /// The rule of `row`, or the reason why there is none.
    ///
    /// [`StopReason::NoRule`]: the row is one of those that producers write wrongly. [`StopReason::UnsupportedRule`]:
    /// no rule can express it.
    fn rule(row: &Row, table: &Table, function: &Function) -> Result<Self::Rule, StopReason>;
}

/// The rule of `row`, or the reason why there is none. As [`Cpu::rule`]; without a row, [`StopReason::NoRule`]: the
/// table does not describe this address.
pub fn to_rule<C: Cpu>(row: Option<&Row>, table: &Table, function: &Function) -> Result<C::Rule, StopReason> {
    let Some(row) = row else {
        let no_rows = function.rows == 0 && table.version == 3;
        // A signal frame without rows is one that SFrame cannot describe; any other function without rows is an
        // outermost frame.
        return if no_rows && !function.signal { Ok(C::END) } else { Err(StopReason::NoRule) };
    };
    C::rule(row, table, function)
}
