//! Our rule against gimli's row: both are executed on the same made-up registers and memory (a word's value is a hash of
//! its address), and must agree on the CFA and on where the return address and each callee-saved register come from.

use gimli::{CfaRule, LittleEndian, Register, RegisterRule, UnwindSection};
use uunwind_core::regs::{ucontext_offset, CALLEE_SAVED, RA};
use uunwind_core::rule::{Rule, RuleKind, RA_IN_REGISTER, RA_SLOT, SAME, UNKNOWN};

fn word_at(address: u64) -> u64 {
    (address ^ 0x1234_5678_9abc_def0).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn register(n: u16) -> u64 {
    0x7fff_0000_0000 + u64::from(n) * 0x10_0000
}

/// Where a register's value comes from.
#[derive(Debug, PartialEq, Clone, Copy)]
pub enum From {
    /// It is as it was.
    Same,
    /// It cannot be told.
    Lost,
    /// The word at this address.
    Word(u64),
    /// Another register.
    Register(u16),
}

/// What a rule, or a row, says.
#[derive(Debug, PartialEq)]
pub struct Outcome {
    cfa: u64,
    callee_saved: [From; 6],
    ra: From,
}

/// What our rule says; `None` for the outermost frame.
pub fn ours(rule: &Rule) -> Option<Outcome> {
    let sum = register(u16::from(rule.cfa_register)).wrapping_add_signed(i64::from(rule.cfa_offset));
    let word = |r: u8| From::Word(sum + ucontext_offset(r));
    match rule.kind {
        RuleKind::End => return None,
        RuleKind::Signal => {
            let cfa = word_at(sum + ucontext_offset(7));
            return Some(Outcome { cfa, callee_saved: CALLEE_SAVED.map(word), ra: word(RA) });
        }
        RuleKind::Offset | RuleKind::Deref => {}
    }
    let cfa =
        if rule.kind == RuleKind::Deref { word_at(sum).wrapping_add_signed(i64::from(rule.cfa_addend)) } else { sum };
    let place = |index: usize| {
        let base = if rule.from_fp & (1 << index) != 0 { register(6) } else { cfa };
        match rule.slots[index] {
            SAME => From::Same,
            UNKNOWN => From::Lost,
            slot => From::Word(base.wrapping_add_signed(i64::from(slot) * 8)),
        }
    };
    let ra = if rule.flags & RA_IN_REGISTER != 0 { From::Register(rule.slots[RA_SLOT] as u16) } else { place(RA_SLOT) };
    Some(Outcome { cfa, callee_saved: [0, 1, 2, 3, 4, 5].map(place), ra })
}

/// A section's bytes, for gimli.
pub type Slice<'a> = gimli::EndianSlice<'a, LittleEndian>;

/// Evaluates an expression on the made-up state.
fn evaluate(
    expression: gimli::Expression<Slice<'_>>,
    encoding: gimli::Encoding,
    pc: u64,
    initial: Option<u64>,
) -> Option<u64> {
    let mut evaluation = expression.evaluation(encoding);
    if let Some(value) = initial {
        evaluation.set_initial_value(value);
    }
    let mut result = evaluation.evaluate().ok()?;
    loop {
        result = match result {
            gimli::EvaluationResult::Complete => break,
            gimli::EvaluationResult::RequiresRegister { register: r, .. } => {
                let value = if r.0 == 16 { pc } else { register(r.0) };
                evaluation.resume_with_register(gimli::Value::Generic(value)).ok()?
            }
            gimli::EvaluationResult::RequiresMemory { address, .. } => {
                evaluation.resume_with_memory(gimli::Value::Generic(word_at(address))).ok()?
            }
            _ => return None,
        };
    }
    match evaluation.result().first()?.location {
        gimli::Location::Address { address } => Some(address),
        _ => None,
    }
}

/// A row has something that no rule of ours can say.
#[derive(Debug, PartialEq)]
pub struct Beyond;

/// What gimli's row says.
pub fn theirs<'a, S: UnwindSection<Slice<'a>>>(
    row: &gimli::UnwindTableRow<usize>,
    frame: &S,
    encoding: gimli::Encoding,
    pc: u64,
) -> Result<Option<Outcome>, Beyond> {
    let expression = |e: &gimli::UnwindExpression<usize>| e.get(frame).map_err(|_| Beyond);
    // gimli forgets DW_CFA_undefined: an undefined return address has no entry.
    if matches!(row.register(Register(16)), RegisterRule::Undefined) {
        return Ok(None);
    }
    let cfa = match row.cfa() {
        CfaRule::RegisterAndOffset { register: r, offset } => register(r.0).wrapping_add_signed(*offset),
        CfaRule::Expression(e) => evaluate(expression(e)?, encoding, pc, None).ok_or(Beyond)?,
    };
    let place = |n: u16| {
        Ok(match row.register(Register(n)) {
            RegisterRule::Undefined | RegisterRule::SameValue => From::Same,
            RegisterRule::Offset(o) => From::Word(cfa.wrapping_add_signed(o)),
            RegisterRule::Register(r) => From::Register(r.0),
            RegisterRule::Expression(e) => {
                From::Word(evaluate(expression(&e)?, encoding, pc, Some(cfa)).ok_or(Beyond)?)
            }
            _ => From::Lost,
        })
    };
    let mut callee_saved = [From::Same; 6];
    for (to, n) in callee_saved.iter_mut().zip(CALLEE_SAVED) {
        *to = match place(u16::from(n))? {
            From::Register(_) => From::Lost,
            other => other,
        };
    }
    Ok(Some(Outcome { cfa, callee_saved, ra: place(16)? }))
}

/// Whether a row's meaning may depend on the pc.
pub fn has_expression(row: &gimli::UnwindTableRow<usize>) -> bool {
    matches!(row.cfa(), CfaRule::Expression(_))
        || row.registers().any(|(_, rule)| matches!(rule, RegisterRule::Expression(_) | RegisterRule::ValExpression(_)))
}

/// The same for a row of Go's, which tells nothing of registers: ours must know of none but the frame pointer, and of that only
/// where the function has no frame.
pub fn same_by_go(ours: Option<&Outcome>, theirs: Option<&Outcome>, cfa_offset: i64) -> bool {
    let (Some(ours), Some(theirs)) = (ours, theirs) else { return ours == theirs };
    let lost = |register| if register == 6 && cfa_offset == 8 { From::Same } else { From::Lost };
    (ours.cfa, ours.ra) == (theirs.cfa, theirs.ra) && ours.callee_saved == CALLEE_SAVED.map(lost)
}

/// Whether both say the same. A register that is saved where an expression of its own says may be given up by ours, where no rule
/// can say such a thing; so many were. `None`: they differ.
pub fn same(ours: Option<&Outcome>, theirs: Option<&Outcome>, row: &gimli::UnwindTableRow<usize>) -> Option<usize> {
    let (Some(ours), Some(theirs)) = (ours, theirs) else { return (ours == theirs).then_some(0) };
    let mut given_up = 0;
    let registers = ours.callee_saved.iter().zip(theirs.callee_saved).zip(CALLEE_SAVED);
    for ((ours, theirs), number) in registers {
        let by_expression = matches!(row.register(Register(u16::from(number))), RegisterRule::Expression(_));
        match ours {
            From::Lost if by_expression => given_up += 1,
            ours if *ours != theirs => return None,
            _ => {}
        }
    }
    ((ours.cfa, ours.ra) == (theirs.cfa, theirs.ra)).then_some(given_up)
}
