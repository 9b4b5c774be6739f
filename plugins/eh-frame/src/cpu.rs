//! What the interpreter must know of a CPU: which registers it keeps, and how rows become rules.

mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

pub use aarch64::AArch64;
#[cfg(target_arch = "x86_64")]
pub use x86_64::X86_64;

use crate::bytes::Input;
use crate::entry::Entry;
use crate::program::{Place, Row};
use core::fmt::Debug;
use uunwind_core::rule::{SAME, UNKNOWN};
use uunwind_core::stop_reason::StopReason;

/// The CPU that this is compiled for.
#[cfg(target_arch = "x86_64")]
pub type Native = X86_64;
/// The CPU that this is compiled for.
#[cfg(target_arch = "aarch64")]
pub type Native = AArch64;

/// A CPU, by its psABI's DWARF register numbers.
pub trait Cpu: Copy + Eq + Debug {
    /// The places of the registers that a row keeps: an array of [`Place`].
    type Places: Copy + Eq + Debug + AsRef<[Place]> + AsMut<[Place]>;
    /// Its rules.
    type Rule: Copy + Eq + Debug;
    /// Before any instruction.
    const UNSPECIFIED: Self::Places;
    /// The return address column, which every CIE must name.
    const RA: u8;
    /// The register by which expressions name the pc, if they can.
    const PC: Option<u8>;

    /// Where a register stands among the places, if rows keep it.
    fn column(register: u64) -> Option<usize>;

    /// DW_CFA_AARCH64_negate_ra_state, which other CPUs do not have.
    fn negate_ra_state(_row: &mut Row<Self>) -> Result<(), StopReason> {
        Err(StopReason::UnsupportedRule)
    }

    /// The rule that does what `row` says at `pc`, or why there is none.
    fn rule(row: &Row<Self>, entry: &Entry, pc: u64, input: &mut Input<'_, '_>) -> Result<Self::Rule, StopReason>;
}

/// A slot of a rule.
fn words(bytes: i64) -> Option<i16> {
    let words = i16::try_from(bytes / 8).ok()?;
    (bytes % 8 == 0 && words != SAME && words != UNKNOWN).then_some(words)
}
