//! What the interpreter needs to know about a CPU: which registers rows keep, and how rows become rules.

mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

pub use aarch64::AArch64;
#[cfg(target_arch = "x86_64")]
pub use x86_64::X86_64;

use crate::bytes::Input;
use crate::entry::Entry;
use crate::row::{Location, Row};
use core::fmt::Debug;
use uunwind_core::cache::short::Short;
use uunwind_core::stop_reason::StopReason;

/// The CPU that this is compiled for.
#[cfg(target_arch = "x86_64")]
pub type Native = X86_64;
/// The CPU that this is compiled for.
#[cfg(target_arch = "aarch64")]
pub type Native = AArch64;

/// A CPU, by its psABI's DWARF register numbers.
pub trait Cpu: Copy + Eq + Debug {
    /// The locations of the registers that a row keeps: an array of [`Location`].
    type Locations: Copy + Eq + Debug + AsRef<[Location]> + AsMut<[Location]>;
    /// The rule of a frame.
    type Rule: Copy + Eq + Debug;
    /// The locations before any instruction.
    const UNSPECIFIED: Self::Locations;
    /// DWARF number of the return address column, which every CIE must name.
    const RA: u8;
    /// DWARF number by which expressions name the pc, if they can.
    const PC: Option<u8>;

    /// Index of a register among the locations; of one that rows do not keep, an index that is beyond them.
    fn column(register: u64) -> usize;

    /// DW_CFA_AARCH64_negate_ra_state, which other CPUs do not have.
    fn negate_ra_state(_row: &mut Row<Self>) -> Result<(), StopReason> {
        Err(StopReason::UnsupportedRule)
    }

    /// Whether the function's instructions from `lookup` on overwrite what it saved of its caller, so that its rows
    /// describe no frame. `initial`: its CIE's row.
    fn replaces_its_caller(
        _row: &Row<Self>,
        _initial: &Row<Self>,
        _entry: &Entry,
        _lookup: u64,
        _input: &mut Input<'_, '_>,
    ) -> bool {
        false
    }

    /// The rule of `row` in one word; `None`: it does not fit, or is none that most frames have.
    #[inline(always)]
    fn short(_row: &Row<Self>, _entry: &Entry) -> Option<Short> {
        None
    }

    /// The rule of `row` at `pc`, or the reason why there is none.
    fn rule(row: &Row<Self>, entry: &Entry, pc: u64, input: &mut Input<'_, '_>) -> Result<Self::Rule, StopReason>;
}

/// Limit of a slot's distance from the CFA, in words: larger numbers have other meanings in rules.
const MOST_WORDS: u16 = 0x7f00;

/// A distance in bytes as the words of a rule's slot; `None` if it does not fit.
fn words(bytes: i64) -> Option<i16> {
    let words = i16::try_from(bytes / 8).ok()?;
    (bytes % 8 == 0 && words.unsigned_abs() < MOST_WORDS).then_some(words)
}
