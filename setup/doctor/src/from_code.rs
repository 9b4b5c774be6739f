//! What the machine code says of functions that nothing describes, as pieces.

use super::binary::Binary;
use super::unwind_row::{normal, Piece, FP};
use uunwind_core::rule::{Rule, RuleKind, SAME, UNKNOWN};
use uunwind_core::span::Span;
use uunwind_from_code::{analyse, Budget, Code};
use uunwind_sframe::row::{Base, Location, Unwind};

/// Instructions that are carried out for one file: this number, and this number for each byte of it.
const STEPS: u64 = 100_000;
const STEPS_PER_BYTE: u64 = 20;
/// Never more than this: a minute's work.
const MOST_STEPS: u64 = 200_000_000;
/// Index of rbp among a rule's slots.
const RBP_SLOT: usize = 1;

/// The rows of what `described` leaves out, by address.
pub fn read(binary: &Binary, described: &[Piece]) -> Vec<Piece> {
    let spans: Vec<Span> = described.iter().map(|piece| Span::new(piece.start, piece.end)).collect();
    let steps = STEPS.saturating_add(STEPS_PER_BYTE.saturating_mul(binary.bytes.len() as u64)).min(MOST_STEPS);
    let found = analyse(&Code::of_file(&binary.bytes, &spans), Budget { steps });
    let piece =
        |(function, Span { start, end }, rule)| Piece { start, end, function, signal: false, rule: words(&rule) };
    found.rows_of_functions().into_iter().map(piece).collect()
}

/// A rule in SFrame's terms.
fn words(rule: &Rule) -> Result<Unwind, &'static str> {
    let deref = rule.kind == RuleKind::Deref;
    if deref && rule.cfa_addend != 0 {
        return Err("a word plus a distance for the CFA");
    }
    let base = Base::Register(u32::from(rule.cfa_register));
    let cfa = Location { base, offset: i64::from(rule.cfa_offset), deref };
    let [_, slot, ..] = rule.slots;
    let from_rbp = rule.from_fp >> RBP_SLOT & 1 != 0;
    let fp = match slot {
        SAME => None,
        UNKNOWN => return Err("a lost frame pointer"),
        slot => {
            let base = if from_rbp { Base::Register(FP) } else { Base::Cfa };
            Some(Location { base, offset: i64::from(slot) * 8, deref: true })
        }
    };
    let ra = Some(Location { base: Base::Cfa, offset: -8, deref: true });
    Ok(normal(Unwind::Caller { cfa, ra, fp }))
}
