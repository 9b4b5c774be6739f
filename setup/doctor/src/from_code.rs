//! What the machine code says of functions that nothing describes, as pieces.

#[cfg_attr(target_arch = "x86_64", path = "from_code/x86_64.rs")]
#[cfg_attr(not(target_arch = "x86_64"), path = "from_code/none.rs")]
mod cpu;

use super::binary::Binary;
use super::unwind_row::Piece;
use uunwind_core::span::Span;
use uunwind_from_code::{analyse, Budget, Code};

/// Instructions that are carried out for one file: this number, and this number for each byte of it.
const STEPS: u64 = 100_000;
const STEPS_PER_BYTE: u64 = 20;
/// Never more than this: a minute's work.
const MOST_STEPS: u64 = 200_000_000;

/// The rows of what `described` leaves out, by address.
pub fn read(binary: &Binary, described: &[Piece]) -> Vec<Piece> {
    let spans: Vec<Span> = described.iter().map(|piece| Span::new(piece.start, piece.end)).collect();
    let steps = STEPS.saturating_add(STEPS_PER_BYTE.saturating_mul(binary.bytes.len() as u64)).min(MOST_STEPS);
    let found = analyse(&Code::of_file(&binary.bytes, &spans), Budget { steps });
    let piece =
        |(function, Span { start, end }, rule)| Piece { start, end, function, signal: false, rule: cpu::words(&rule) };
    found.rows_of_functions().into_iter().map(piece).collect()
}
