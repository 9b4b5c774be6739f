//! What the calling instruction calls a function: as the debug library finds it (`getobjname` in ldebug.c), by looking for the
//! instruction that set the register that is called. Done once for each place that calls.

use super::facts::{role, Facts};
use super::function::Proto;
use super::text;
use crate::walk::Walk;
use uunwind_core::plugin::Text;

/// Longest code that is looked through, in instructions.
const CODE_LIMIT: u32 = 1 << 14;
/// Locals looked at.
const LOCALS_LIMIT: u32 = 512;
/// Moves from register to register that are followed.
const MOVES: u32 = 8;
/// Bytes of a TValue, of a LocVar.
const VALUE: u64 = 16;
const LOCAL: u64 = 16;

impl Facts {
    /// What an instruction's opcode means, without the flag for register A.
    pub fn role(&self, instruction: u32) -> u8 {
        self.flagged_role(instruction) & !role::SETS_A
    }

    fn flagged_role(&self, instruction: u32) -> u8 {
        let opcode = field(instruction, 0, self.code.opcode_bits);
        self.roles.get(opcode as usize).copied().unwrap_or(role::PLAIN)
    }
}

fn field(instruction: u32, first: u32, bits: u32) -> u32 {
    let shifted = instruction.checked_shr(first).unwrap_or(0);
    shifted & 1u32.checked_shl(bits).unwrap_or(0).wrapping_sub(1)
}

/// The name of what the instruction in hand of `caller` calls; empty when it has none.
#[inline(never)]
pub fn of_callee(walk: &Walk<'_>, facts: &Facts, caller: &Proto, instruction: u32) -> Text {
    let code = Code { walk, facts, proto: caller };
    let event = |index: u32| text::EVENTS.get(index as usize).map(|name| text::own(name));
    let found = match facts.role(instruction) {
        role::CALL | role::FOR_LOOP_51 => code.object(caller.index, code.a(instruction)),
        role::FOR_CALL => Some(text::own(text::ITERATOR)),
        role::META_BY_C => event(code.c(instruction)),
        role::GET_FIELD
        | role::GET_FIELD_BY_REGISTER
        | role::GET_UPVALUE_FIELD
        | role::GET_INTEGER
        | role::METHOD
        | role::METHOD_54
            if facts.minor > 1 =>
        {
            event(0)
        }
        meta @ role::META.. => event(u32::from(meta.wrapping_sub(role::META))),
        _ => None,
    };
    found.unwrap_or(text::EMPTY)
}

struct Code<'v> {
    walk: &'v Walk<'v>,
    facts: &'v Facts,
    proto: &'v Proto,
}

impl Code<'_> {
    fn a(&self, instruction: u32) -> u32 {
        field(instruction, self.facts.code.opcode_bits, 8)
    }

    fn b(&self, instruction: u32) -> u32 {
        field(instruction, self.facts.code.b, self.facts.code.bc_bits)
    }

    fn c(&self, instruction: u32) -> u32 {
        field(instruction, self.facts.code.c, self.facts.code.bc_bits)
    }

    fn bx(&self, instruction: u32) -> u32 {
        instruction.checked_shr(self.facts.code.bx).unwrap_or(0)
    }

    /// Where a jump at `index` leads.
    fn jump(&self, index: u32, instruction: u32) -> i64 {
        let bits = 32u32.saturating_sub(self.facts.code.jump);
        let bias = (1i64 << bits.saturating_sub(1).min(31)) - 1;
        let distance = i64::from(instruction.checked_shr(self.facts.code.jump).unwrap_or(0));
        i64::from(index).wrapping_add(1).wrapping_add(distance).wrapping_sub(bias)
    }

    /// The name of what register `register` holds at instruction `at`.
    fn object(&self, at: u32, register: u32) -> Option<Text> {
        let (mut at, mut register) = (at, register);
        for _ in 0..MOVES {
            if let Some(local) = self.local(register, at) {
                return Some(local);
            }
            at = self.setter(at, register)?;
            let i = self.proto.instruction(self.walk, at)?;
            match self.facts.role(i) {
                role::MOVE if self.b(i) < self.a(i) => register = self.b(i),
                role::GET_UPVALUE => return self.upvalue(self.b(i)),
                role::GET_GLOBAL | role::LOAD_CONSTANT => return self.constant(self.bx(i)),
                role::GET_INTEGER => return Some(text::own(text::INTEGER)),
                role::GET_FIELD | role::GET_UPVALUE_FIELD | role::METHOD => return self.key(at, self.c(i), true),
                role::METHOD_54 => return self.key(at, self.c(i), i & (1 << 15) != 0),
                role::GET_FIELD_BY_REGISTER => return self.key(at, self.c(i), false),
                _ => return None,
            }
        }
        None
    }

    /// The name of a key: a constant, or a register that was loaded with one.
    fn key(&self, at: u32, operand: u32, constant: bool) -> Option<Text> {
        if self.facts.code.bc_bits == 9 {
            // The highest bit tells.
            if operand & 0x100 != 0 {
                return self.constant(operand & 0xff);
            }
        } else if constant {
            return self.constant(operand);
        }
        let at = self.setter(at, operand)?;
        let i = self.proto.instruction(self.walk, at)?;
        (self.facts.role(i) == role::LOAD_CONSTANT).then(|| self.constant(self.bx(i)))?
    }

    fn constant(&self, index: u32) -> Option<Text> {
        let layout = &self.facts.proto;
        if index >= self.proto.half(self.walk, layout.constants_len)? {
            return None;
        }
        let value = self.proto.word(self.walk, layout.constants)?.wrapping_add(u64::from(index) * VALUE);
        let tag = self.walk.word(value.wrapping_add(8))? as u8;
        (tag & 0xf == 4).then(|| text::of_string(self.walk, self.facts, self.walk.word(value)?))?
    }

    fn upvalue(&self, index: u32) -> Option<Text> {
        let layout = &self.facts.proto;
        if index >= self.proto.half(self.walk, layout.upvalues_len)? {
            return None;
        }
        let list = self.proto.word(self.walk, layout.upvalues)?;
        let name = self.walk.word(list.wrapping_add(u64::from(index) * u64::from(layout.upvalue_bytes)))?;
        text::of_string(self.walk, self.facts, name)
    }

    /// The local variable that lives in a register at instruction `at`.
    fn local(&self, register: u32, at: u32) -> Option<Text> {
        let layout = &self.facts.proto;
        let (list, count) =
            (self.proto.word(self.walk, layout.locals)?, self.proto.half(self.walk, layout.locals_len)?);
        let mut left = register;
        for index in 0..count.min(LOCALS_LIMIT) {
            let entry = list.wrapping_add(u64::from(index) * LOCAL);
            let range = self.walk.word(entry.wrapping_add(8))?;
            let (start, end) = (range as u32, (range >> 32) as u32);
            if start > at {
                return None;
            }
            if at < end {
                match left.checked_sub(1) {
                    Some(less) => left = less,
                    None => return text::of_string(self.walk, self.facts, self.walk.word(entry)?),
                }
            }
        }
        None
    }

    /// The last instruction before `last` that set a register, if none of a jump's two ways can be the other one.
    fn setter(&self, last: u32, register: u32) -> Option<u32> {
        if last > CODE_LIMIT {
            return None;
        }
        let mut last = last;
        let in_hand = self.proto.instruction(self.walk, last)?;
        if self.facts.role(in_hand) == role::META_BY_C {
            // The operation before it was not executed.
            last = last.saturating_sub(1);
        }
        let mut setter = None;
        let mut target = 0i64;
        for index in 0..last {
            let i = self.proto.instruction(self.walk, index)?;
            let (flagged, a) = (self.facts.flagged_role(i), self.a(i));
            let changes = match flagged & !role::SETS_A {
                role::LOAD_NIL => {
                    // 5.1 codes the last register, later versions how many more.
                    let end = if self.facts.minor == 1 { self.b(i) } else { a.wrapping_add(self.b(i)) };
                    a <= register && register <= end
                }
                role::FOR_CALL => register >= a.wrapping_add(2),
                role::FOR_LOOP_51 => register >= a.wrapping_add(2),
                role::CALL => register >= a,
                role::JUMP => {
                    let to = self.jump(index, i);
                    if to > i64::from(index) && to <= i64::from(last) {
                        target = target.max(to);
                    }
                    false
                }
                _ => flagged & role::SETS_A != 0 && register == a,
            };
            if changes {
                setter = (i64::from(index) >= target).then_some(index);
            }
        }
        setter
    }
}
