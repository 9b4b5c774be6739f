//! Our rules against gimli's rows: both are executed with the same synthetic registers and memory (a word's value is a
//! hash of its address), and must agree on the CFA and on the sources of the return address and of each callee-saved
//! register.

use gimli::{CfaRule, LittleEndian, Register, RegisterRule, UnwindSection};
use uunwind_core::regs::{ucontext_offset, CALLEE_SAVED, RA};
use uunwind_core::rule::{
    is_register, Rule, RuleKind, RA_IN_REGISTER, RA_SLOT, SAME, SP_IN_REGISTER, SP_SAVED, UNKNOWN,
};

fn word_at(address: u64) -> u64 {
    (address ^ 0x1234_5678_9abc_def0).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn register(n: u16) -> u64 {
    0x7fff_0000_0000 + u64::from(n) * 0x10_0000
}

/// The source of a register's value.
#[derive(Debug, PartialEq, Clone, Copy)]
pub enum From {
    /// The register is unchanged.
    Same,
    /// The value is lost.
    Lost,
    /// The word at this address.
    Word(u64),
    /// Another register.
    Register(u16),
}

/// The result of a rule, or of a row.
#[derive(Debug, PartialEq)]
pub struct Outcome {
    cfa: u64,
    /// The caller's stack pointer; [`From::Same`]: the CFA.
    sp: From,
    callee_saved: [From; 6],
    ra: From,
}

/// The result of our rule; `None` for the outermost frame.
pub fn ours(rule: &Rule) -> Option<Outcome> {
    let sum = register(u16::from(rule.cfa_register)).wrapping_add_signed(i64::from(rule.cfa_offset));
    let word = |r: u8| From::Word(sum + ucontext_offset(r));
    match rule.kind {
        RuleKind::End => return None,
        RuleKind::Signal => {
            let cfa = word_at(sum + ucontext_offset(7));
            return Some(Outcome { cfa, sp: word(7), callee_saved: CALLEE_SAVED.map(word), ra: word(RA) });
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
            slot if is_register(slot) => From::Register((slot & 0xff) as u16),
            slot => From::Word(base.wrapping_add_signed(i64::from(slot) * 8)),
        }
    };
    let ra = if rule.flags & RA_IN_REGISTER != 0 { From::Register(rule.slots[RA_SLOT] as u16) } else { place(RA_SLOT) };
    let sp = match rule.flags & (SP_SAVED | SP_IN_REGISTER) {
        0 => From::Same,
        SP_SAVED => From::Word(cfa.wrapping_add_signed(i64::from(rule.cfa_addend) * 8)),
        _ => From::Register(rule.cfa_addend as u16),
    };
    Some(Outcome { cfa, sp, callee_saved: [0, 1, 2, 3, 4, 5].map(place), ra })
}

/// A section's bytes, for gimli.
pub type Slice<'a> = gimli::EndianSlice<'a, LittleEndian>;

/// Evaluates an expression with the synthetic state.
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

/// A row has something that our rules cannot express.
#[derive(Debug, PartialEq)]
pub struct Beyond;

/// The result of gimli's row.
pub fn theirs<'a, S: UnwindSection<Slice<'a>>>(
    row: &gimli::UnwindTableRow<usize>,
    frame: &S,
    encoding: gimli::Encoding,
    pc: u64,
) -> Result<Option<Outcome>, Beyond> {
    let expression = |e: &gimli::UnwindExpression<usize>| e.get(frame).map_err(|_| Beyond);
    // gimli forgets DW_CFA_undefined: an undefined return address has no entry.
    if matches!(row.register(Register(16)), None | Some(RegisterRule::Undefined)) {
        return Ok(None);
    }
    let cfa = match row.cfa() {
        CfaRule::RegisterAndOffset { register: r, offset } => register(r.0).wrapping_add_signed(*offset),
        CfaRule::Expression(e) => evaluate(expression(e)?, encoding, pc, None).ok_or(Beyond)?,
    };
    let place = |n: u16| {
        Ok(match row.register(Register(n)).unwrap_or(RegisterRule::Undefined) {
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
        *to = place(u16::from(n))?;
    }
    Ok(Some(Outcome { cfa, sp: place(7)?, callee_saved, ra: place(16)? }))
}

/// Whether a row's meaning may depend on the pc.
pub fn has_expression(row: &gimli::UnwindTableRow<usize>) -> bool {
    matches!(row.cfa(), CfaRule::Expression(_))
        || row.registers().any(|(_, rule)| matches!(rule, RegisterRule::Expression(_) | RegisterRule::ValExpression(_)))
}

/// As [`same`], for a row of Go's, which describes no registers: our rule may describe only the frame pointer. `saved`:
/// whether the function has a frame here, and has saved it below the return address; `None`: that is not known.
pub fn same_by_go(ours: Option<&Outcome>, theirs: Option<&Outcome>, saved: Option<bool>) -> bool {
    let (Some(ours), Some(theirs)) = (ours, theirs) else { return ours == theirs };
    let of = |register| match saved {
        Some(false) if register == 6 => From::Same,
        Some(true) if register == 6 => From::Word(ours.cfa - 16),
        _ => From::Lost,
    };
    (ours.cfa, ours.ra) == (theirs.cfa, theirs.ra) && ours.callee_saved == CALLEE_SAVED.map(of)
}

/// Whether a row may be one of the end of an epilogue, after which GCC goes on to describe registers by an rbp that is
/// the caller's already, and our rule says of all of these that they are restored. Which instructions these are,
/// `native_stacks` finds out by executing them.
fn is_restored(ours: &Outcome, row: &gimli::UnwindTableRow<usize>) -> bool {
    let counts_from =
        |r: &[u16]| matches!(row.cfa(), CfaRule::RegisterAndOffset { register, .. } if r.contains(&register.0));
    let by_expression = |n: u8| matches!(row.register(Register(u16::from(n))), Some(RegisterRule::Expression(_)));
    let mut saved = ours.callee_saved.iter().zip(CALLEE_SAVED).filter(|(_, number)| by_expression(*number));
    counts_from(&[7, 10, 13]) && saved.all(|(ours, _)| *ours == From::Same)
}

/// Whether both are the same. A register that is saved where an expression of its own says may be lost by our rule,
/// since no rule can express that; returns the number of such registers. `None`: they differ.
pub fn same(ours: Option<&Outcome>, theirs: Option<&Outcome>, row: &gimli::UnwindTableRow<usize>) -> Option<usize> {
    let (Some(ours), Some(theirs)) = (ours, theirs) else { return (ours == theirs).then_some(0) };
    let mut given_up = 0;
    let is_restored = is_restored(ours, row);
    let registers = ours.callee_saved.iter().zip(theirs.callee_saved).zip(CALLEE_SAVED);
    for ((ours, theirs), number) in registers {
        let by_expression = matches!(row.register(Register(u16::from(number))), Some(RegisterRule::Expression(_)));
        match ours {
            From::Lost if by_expression => given_up += 1,
            From::Same if by_expression && is_restored => {}
            // In a caller's frame, it says.
            From::Lost if matches!(row.register(Register(u16::from(number))), Some(RegisterRule::Offset(0..))) => {}
            // Described by few rules: those of an interrupted pc.
            From::Lost if matches!(theirs, From::Register(_)) => {}
            ours if *ours != theirs => return None,
            _ => {}
        }
    }
    ((ours.cfa, ours.sp, ours.ra) == (theirs.cfa, theirs.sp, theirs.ra)).then_some(given_up)
}
