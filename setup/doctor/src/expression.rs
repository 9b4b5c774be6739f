//! DWARF expressions as "register + n" or "the word at register + n".
//!
//! An expression is run on made-up registers and memory; what shape it has is read off the result, and confirmed on a
//! second, different state. So it does not matter how the shape was written. Whether it looks at the pc is noted.

use gimli::{Encoding, EvaluationResult, Expression, Location as Place, Reader, Value};
use uunwind_sframe::row::{Base, Location};

/// What an expression comes down to.
pub struct Shape {
    /// Register + n, or the word there.
    pub location: Location,
    /// It holds for this pc only.
    pub pc_dependent: bool,
}

/// Largest distance from a register that is taken for an offset. Registers lie farther apart than that.
const FAR: i64 = 1 << 31;

fn register(state: u64, n: u16) -> u64 {
    // Farther apart than any offset, and not the same distances in both states.
    (1 << 61) + (u64::from(n) + 1) * ((1 << 40) + state * 0x1234_5678_9000)
}

fn memory(state: u64, address: u64) -> u64 {
    (address ^ state).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1 << 63
}

struct Run {
    value: u64,
    read_from: Vec<u64>,
    registers: Vec<u16>,
    pc: bool,
}

fn run<R: Reader>(expression: Expression<R>, encoding: Encoding, pc: u64, state: u64) -> Option<Run> {
    let mut evaluation = expression.evaluation(encoding);
    evaluation.set_max_iterations(1000);
    let mut run = Run { value: 0, read_from: Vec::new(), registers: Vec::new(), pc: false };
    // The CFA, for expressions that give the place where a register was saved: none was found that uses it.
    evaluation.set_initial_value(register(state, 99));
    let mut result = evaluation.evaluate().ok()?;
    loop {
        result = match result {
            EvaluationResult::Complete => break,
            EvaluationResult::RequiresRegister { register: r, .. } if r.0 == 16 => {
                run.pc = true;
                evaluation.resume_with_register(Value::Generic(pc)).ok()?
            }
            EvaluationResult::RequiresRegister { register: r, .. } => {
                run.registers.push(r.0);
                evaluation.resume_with_register(Value::Generic(register(state, r.0))).ok()?
            }
            EvaluationResult::RequiresMemory { address, .. } => {
                run.read_from.push(address);
                evaluation.resume_with_memory(Value::Generic(memory(state, address))).ok()?
            }
            _ => return None,
        };
    }
    match evaluation.result().first()?.location {
        Place::Address { address } => run.value = address,
        _ => return None,
    }
    Some(run)
}

fn location(run: &Run, state: u64) -> Option<Location> {
    let near = |value: u64| {
        let offset = |n: u16| value.wrapping_sub(register(state, n)) as i64;
        let found = run.registers.iter().find(|n| offset(**n).abs() < FAR)?;
        Some((u32::from(*found), offset(*found)))
    };
    let (at, deref) = match run.read_from.as_slice() {
        [] => (near(run.value)?, false),
        // One word, taken as it is.
        [address] if memory(state, *address) == run.value => (near(*address)?, true),
        _ => return None,
    };
    Some(Location { base: Base::Register(at.0), offset: at.1, deref })
}

/// The shape of an expression at a pc, if it has one.
pub fn shape<R: Reader>(expression: &Expression<R>, encoding: Encoding, pc: u64) -> Option<Shape> {
    let (one, two) = (run(expression.clone(), encoding, pc, 1)?, run(expression.clone(), encoding, pc, 2)?);
    let first = location(&one, 1)?;
    (location(&two, 2)? == first).then_some(Shape { location: first, pc_dependent: one.pc || two.pc })
}
