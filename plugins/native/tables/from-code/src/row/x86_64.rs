//! From facts to the rule of a frame: x86-64.

use crate::state::{Base, Slot, State, Value, CALLEE_SAVED, RBP, RSP};
use uunwind_core::rule::SAME;
use uunwind_core::rule::{Rule, RuleKind, UNKNOWN};

/// Whether this CPU's machine code is understood.
pub const IS_SERVED: bool = true;

/// DWARF numbers of the registers, by the numbers that instructions have for them.
const DWARF: [u8; 16] = [0, 2, 1, 3, 7, 6, 4, 5, 8, 9, 10, 11, 12, 13, 14, 15];
/// What a frame pointer has to the CFA, in bytes.
const FRAME: Value = Value::Cfa(-16);
/// Registers from which the CFA is counted, best first, but for a frame pointer.
const BASES: [usize; 7] = [RSP, RBP, 3, 12, 13, 14, 15];
/// The same, of those that calls change: a rule with them is of no use to a caller.
const CHANGED_BY_CALLS: [usize; 8] = [10, 11, 0, 1, 2, 6, 7, 8];
/// What signal handlers leave alone below the stack pointer, in bytes.
const RED_ZONE: i64 = 128;
/// Limit of a slot's distance, in words.
const MOST_WORDS: i64 = 4000;

/// The rule of a frame with these facts before the instruction that it is at. `None`: it is not known.
pub fn rule(state: &State) -> Option<Rule> {
    if !state.is_whole() {
        return None;
    }
    // Callees that take their arguments from the stack, as V8's do, leave a frame pointer as it was.
    let frame_pointer = (state.get(RBP) == FRAME).then_some(RBP);
    let mut rule = by_register(state, frame_pointer.into_iter().chain(BASES))
        .or_else(|| by_word(state))
        .or_else(|| by_register(state, CHANGED_BY_CALLS))?;
    for (index, register) in CALLEE_SAVED.into_iter().enumerate() {
        let (slot, from_rbp) = place(state, register);
        *rule.slots.get_mut(index)? = slot;
        rule.from_fp |= u8::from(from_rbp) << index;
    }
    Some(rule)
}

fn by_register(state: &State, bases: impl IntoIterator<Item = usize>) -> Option<Rule> {
    bases.into_iter().find_map(|register| {
        let Value::Cfa(at) = state.get(register) else { return None };
        Some(Rule::simple(*DWARF.get(register)?, i32::try_from(at.checked_neg()?).ok()?))
    })
}

/// The CFA by a word of an aligned frame.
fn by_word(state: &State) -> Option<Rule> {
    [RBP, RSP].into_iter().find_map(|register| {
        let Value::Aligned(base) = state.get(register) else { return None };
        state.slots().iter().find_map(|slot| {
            let (Base::Aligned, Value::Cfa(at)) = (slot.base, slot.value) else { return None };
            let mut rule = Rule::simple(*DWARF.get(register)?, i32::try_from(slot.at.checked_sub(base)?).ok()?);
            rule.kind = RuleKind::Deref;
            rule.cfa_addend = i16::try_from(at.checked_neg()?).ok()?;
            Some(rule)
        })
    })
}

/// Where a register of the caller is, and whether that counts from rbp.
fn place(state: &State, register: usize) -> (i16, bool) {
    let is_it = |slot: &&Slot| slot.value == Value::Original(register as u8);
    let words = |bytes: i64| {
        let words = (bytes % 8 == 0).then_some(bytes / 8).filter(|words| words.abs() <= MOST_WORDS);
        words.and_then(|words| i16::try_from(words).ok())
    };
    let in_register = state.get(register) == Value::Original(register as u8);
    let lowest = match state.get(RSP) {
        Value::Cfa(sp) if in_register => sp,
        Value::Cfa(sp) => sp.saturating_sub(RED_ZONE),
        _ => i64::MIN,
    };
    let by_cfa = state.slots().iter().filter(is_it).filter(|slot| slot.base == Base::Cfa && slot.at >= lowest);
    if let Some(slot) = by_cfa.filter_map(|slot| words(slot.at)).next_back() {
        return (slot, false);
    }
    if in_register {
        return (SAME, false);
    }
    if let Value::Aligned(base) = state.get(RBP) {
        let by_rbp = state.slots().iter().filter(is_it).filter(|slot| slot.base == Base::Aligned);
        if let Some(slot) = by_rbp.filter_map(|slot| words(slot.at.checked_sub(base)?)).next_back() {
            return (slot, true);
        }
    }
    (UNKNOWN, false)
}

/// Whether what a rule says follows from the facts.
pub fn follows(state: &State, rule: &Rule) -> bool {
    let Some(register) = DWARF.iter().position(|number| *number == rule.cfa_register) else { return false };
    let offset = i64::from(rule.cfa_offset);
    let cfa = match (rule.kind, state.get(register)) {
        (RuleKind::Offset, value) => value.plus(offset),
        (RuleKind::Deref, Value::Cfa(at)) => state.load(Base::Cfa, at + offset).plus(i64::from(rule.cfa_addend)),
        (RuleKind::Deref, Value::Aligned(at)) => {
            state.load(Base::Aligned, at + offset).plus(i64::from(rule.cfa_addend))
        }
        _ => Value::NOTHING,
    };
    let saved = CALLEE_SAVED
        .into_iter()
        .zip(rule.slots)
        .enumerate()
        .all(|(index, (register, slot))| register_follows(state, register, slot, rule.from_fp >> index & 1 != 0));
    cfa == Value::Cfa(0) && saved
}

/// Whether a register of the caller is where a rule's slot says, by the facts.
pub fn register_follows(state: &State, register: usize, slot: i16, from_rbp: bool) -> bool {
    let original = Value::Original(register as u8);
    let at = i64::from(slot) * 8;
    match slot {
        UNKNOWN => true,
        SAME => state.get(register) == original,
        _ if !from_rbp => state.load(Base::Cfa, at) == original,
        _ => match state.get(RBP) {
            Value::Cfa(rbp) => state.load(Base::Cfa, rbp + at) == original,
            Value::Aligned(rbp) => state.load(Base::Aligned, rbp + at) == original,
            _ => false,
        },
    }
}
