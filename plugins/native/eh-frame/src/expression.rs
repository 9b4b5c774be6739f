//! DWARF expressions, evaluated symbolically ([DWARF 5](https://dwarfstd.org/doc/DWARF5.pdf), 2.5).
//!
//! A rule is data, so an expression must reduce to one of a few shapes: a constant, a register plus a constant, the
//! word at such an address. What depends on the pc alone is constant here, because a rule belongs to one pc: the PLT's
//! `rsp + 8 + ((rip & 15) >= 11) * 8` becomes `rsp + 8` or `rsp + 16`.

use crate::bytes::Input;
use crate::cpu::Cpu;
use uunwind_core::stop_reason::StopReason;

/// Limit of the operations of an expression.
pub const MAX_OPERATIONS: u32 = 64;
const DEPTH: usize = 8;

/// A symbolic value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Value {
    /// A constant.
    Constant(u64),
    /// A register of this frame plus a constant.
    Register(u8, i64),
    /// The CFA plus a constant (the initial value of the stack in register rules).
    Cfa(i64),
    /// The word at the address register + first constant, plus the second constant.
    Word(u8, i64, i64),
}

impl Value {
    fn plus(self, n: i64) -> Result<Value, StopReason> {
        let add = |a: i64| a.checked_add(n).ok_or(StopReason::UnsupportedRule);
        Ok(match self {
            Value::Constant(c) => Value::Constant(c.wrapping_add_signed(n)),
            Value::Register(r, a) => Value::Register(r, add(a)?),
            Value::Cfa(a) => Value::Cfa(add(a)?),
            Value::Word(r, at, a) => Value::Word(r, at, add(a)?),
        })
    }
}

struct Stack {
    values: [Value; DEPTH],
    len: usize,
}

impl Stack {
    fn push(&mut self, value: Value) -> Result<(), StopReason> {
        *self.values.get_mut(self.len).ok_or(StopReason::UnsupportedRule)? = value;
        self.len += 1;
        Ok(())
    }

    fn pop(&mut self) -> Result<Value, StopReason> {
        self.len = self.len.checked_sub(1).ok_or(StopReason::BadUnwindInfo)?;
        self.values.get(self.len).copied().ok_or(StopReason::BadUnwindInfo)
    }

    fn peek(&self, depth: usize) -> Result<Value, StopReason> {
        let index = self.len.checked_sub(depth + 1).ok_or(StopReason::BadUnwindInfo)?;
        self.values.get(index).copied().ok_or(StopReason::BadUnwindInfo)
    }
}

/// Evaluates the block (length first) at `at`, for an instruction at `pc`. `initial` is on the stack at the start.
pub fn evaluate<C: Cpu>(
    at: u64,
    pc: u64,
    initial: Option<Value>,
    input: &mut Input<'_, '_>,
) -> Result<Value, StopReason> {
    let unsupported = StopReason::UnsupportedRule;
    input.at = at;
    let len = input.uleb()?;
    let end = input.at.checked_add(len).ok_or(StopReason::BadUnwindInfo)?;
    let mut stack = Stack { values: [Value::Constant(0); DEPTH], len: 0 };
    if let Some(value) = initial {
        stack.push(value)?;
    }
    let mut operations = 0;
    while input.at < end {
        operations += 1;
        if operations > MAX_OPERATIONS {
            return Err(unsupported);
        }
        let op = input.u8()?;
        let value = match op {
            0x03 => Value::Constant(input.u64()?),                          // addr
            0x08 => Value::Constant(u64::from(input.u8()?)),                // const1u
            0x09 => Value::Constant(i64::from(input.u8()? as i8) as u64),   // const1s
            0x0a => Value::Constant(u64::from(input.u16()?)),               // const2u
            0x0b => Value::Constant(i64::from(input.u16()? as i16) as u64), // const2s
            0x0c => Value::Constant(u64::from(input.u32()?)),               // const4u
            0x0d => Value::Constant(i64::from(input.u32()? as i32) as u64), // const4s
            0x0e | 0x0f => Value::Constant(input.u64()?),                   // const8u, const8s
            0x10 => Value::Constant(input.uleb()?),                         // constu
            0x11 => Value::Constant(input.sleb()? as u64),                  // consts
            0x12 => stack.peek(0)?,                                         // dup
            0x14 => stack.peek(1)?,                                         // over
            0x13 => {
                stack.pop()?; // drop
                continue;
            }
            0x16 => {
                let (a, b) = (stack.pop()?, stack.pop()?); // swap
                stack.push(a)?;
                b
            }
            0x06 => match stack.pop()? {
                Value::Register(r, n) => Value::Word(r, n, 0), // deref
                _ => return Err(unsupported),
            },
            0x23 => {
                let n = i64::try_from(input.uleb()?).map_err(|_| unsupported)?; // plus_uconst
                stack.pop()?.plus(n)?
            }
            0x22 => match (stack.pop()?, stack.pop()?) {
                (Value::Constant(c), other) | (other, Value::Constant(c)) => other.plus(c as i64)?, // plus
                _ => return Err(unsupported),
            },
            0x1c => match (stack.pop()?, stack.pop()?) {
                (Value::Constant(c), other) => other.plus((c as i64).checked_neg().ok_or(unsupported)?)?, // minus
                _ => return Err(unsupported),
            },
            0x1a | 0x1e | 0x21 | 0x24..=0x27 | 0x29..=0x2e => {
                let (Value::Constant(b), Value::Constant(a)) = (stack.pop()?, stack.pop()?) else {
                    return Err(unsupported);
                };
                Value::Constant(arithmetic(op, a, b))
            }
            0x30..=0x4f => Value::Constant(u64::from(op - 0x30)), // lit0..lit31
            0x70..=0x8f => register::<C>(u64::from(op - 0x70), pc, input)?, // breg0..breg31
            0x92 => {
                let number = input.uleb()?; // bregx
                register::<C>(number, pc, input)?
            }
            0x96 => continue, // nop
            _ => return Err(unsupported),
        };
        stack.push(value)?;
    }
    stack.pop()
}

fn register<C: Cpu>(number: u64, pc: u64, input: &mut Input<'_, '_>) -> Result<Value, StopReason> {
    let n = input.sleb()?;
    if C::PC.is_some_and(|pc| number == u64::from(pc)) {
        input.depends_on_pc = true;
        return Ok(Value::Constant(pc.wrapping_add_signed(n)));
    }
    Ok(Value::Register(u8::try_from(number).map_err(|_| StopReason::UnsupportedRule)?, n))
}

fn arithmetic(op: u8, a: u64, b: u64) -> u64 {
    let shift = |f: fn(u64, u32) -> Option<u64>| u32::try_from(b).ok().and_then(|n| f(a, n)).unwrap_or(0);
    let (sa, sb) = (a as i64, b as i64);
    match op {
        0x1a => a & b,
        0x1e => a.wrapping_mul(b),
        0x21 => a | b,
        0x24 => shift(u64::checked_shl),
        0x25 => shift(u64::checked_shr),
        0x26 => (sa >> b.min(63)) as u64,
        0x27 => a ^ b,
        0x29 => u64::from(sa == sb),
        0x2a => u64::from(sa >= sb),
        0x2b => u64::from(sa > sb),
        0x2c => u64::from(sa <= sb),
        0x2d => u64::from(sa < sb),
        _ => u64::from(sa != sb),
    }
}
