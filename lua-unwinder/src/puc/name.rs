//! A function's name, inferred from the calling instruction as the debug library does it (`funcnamefromcode` and
//! `getobjname` in <https://github.com/lua/lua/blob/v5.4.0/ldebug.c>): by a search for the instruction that set the
//! called register.
//!
//! That search reads all of the caller's code up to the call. Its [`Path`] can be replayed without a search, which
//! reads a few words: those that a cached name is verified by.

use super::facts::{role, Facts};
use super::function::Proto;
use super::text;
use uunwind_core::plugin::guest::Guest;
use uunwind_core::plugin::Text;

/// Limit of instructions that are searched: the walk log can hold the reads of all of them.
const CODE_LIMIT: u32 = 1 << 12;
/// Size of an instruction in bytes.
const INSTRUCTION: u64 = 4;
/// Numbers of instructions, and of words, that are read at once.
const BLOCK: u32 = 2 * WORDS as u32;
const WORDS: usize = 4;
/// Limit of local variables that are searched.
const LOCALS_LIMIT: u32 = 512;
/// Limit of moves from register to register that are followed.
const MOVES: u32 = 8;
/// Sizes in bytes of a TValue and of a LocVar.
const VALUE: u64 = 16;
const LOCAL: u64 = 16;

impl Facts {
    /// The [`role`] of an instruction's opcode, without the flag for register A.
    pub fn role(&self, instruction: u32) -> u8 {
        self.flagged_role(instruction) & !role::SETS_A
    }

    /// Operand A of an instruction.
    pub fn register_a(&self, instruction: u32) -> u32 {
        field(instruction, self.code.opcode_bits, 8)
    }

    /// Operand Bx of an instruction.
    fn bx(&self, instruction: u32) -> u32 {
        instruction.checked_shr(self.code.bx).unwrap_or(0)
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

/// The results of a search for a name, in order: each is the index of a local variable, or of an instruction that
/// set a register.
pub struct Path {
    steps: [u16; Path::STEPS],
    taken: u8,
    is_replayed: bool,
}

impl Path {
    /// Limit of results: a local variable and an instruction for each register, and an instruction that loaded a key.
    const STEPS: usize = 2 * MOVES as usize + 1;
    const NOTHING: u16 = u16::MAX;

    /// The path of a search that has not begun.
    pub fn new() -> Path {
        Path { steps: [Path::NOTHING; Path::STEPS], taken: 0, is_replayed: false }
    }

    /// Makes the next search return the stored results.
    pub fn replay(&mut self) {
        (self.taken, self.is_replayed) = (0, true);
    }

    fn step(&mut self, search: impl FnOnce() -> Option<u32>) -> Option<u32> {
        let step = self.steps.get_mut(usize::from(self.taken))?;
        self.taken = self.taken.wrapping_add(1);
        if !self.is_replayed {
            // The limits above keep all indices below `NOTHING`.
            *step = search().and_then(|step| u16::try_from(step).ok()).unwrap_or(Path::NOTHING);
        }
        Some(*step).filter(|step| *step != Path::NOTHING).map(u32::from)
    }
}

/// The name of the function that the current instruction of `caller` calls; empty if it has none.
#[inline(never)]
pub fn of_callee(guest: &Guest<'_>, facts: &Facts, caller: &Proto, instruction: u32, path: &mut Path) -> Text {
    let mut code = Code { guest, facts, proto: caller, path };
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
    guest: &'v Guest<'v>,
    facts: &'v Facts,
    proto: &'v Proto,
    path: &'v mut Path,
}

impl Code<'_> {
    fn a(&self, instruction: u32) -> u32 {
        self.facts.register_a(instruction)
    }

    fn b(&self, instruction: u32) -> u32 {
        field(instruction, self.facts.code.b, self.facts.code.bc_bits)
    }

    fn c(&self, instruction: u32) -> u32 {
        field(instruction, self.facts.code.c, self.facts.code.bc_bits)
    }

    fn bx(&self, instruction: u32) -> u32 {
        self.facts.bx(instruction)
    }

    /// The name of the value in register `register` at instruction `at`.
    fn object(&mut self, at: u32, register: u32) -> Option<Text> {
        let (mut at, mut register) = (at, register);
        for _ in 0..MOVES {
            if let Some(local) = self.local(register, at) {
                return Some(local);
            }
            at = self.setter(at, register)?;
            let i = self.proto.instruction(self.guest, at)?;
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

    /// The name of a key: the constant `operand`, or the constant that register `operand` was loaded with.
    fn key(&mut self, at: u32, operand: u32, constant: bool) -> Option<Text> {
        if self.facts.code.bc_bits == 9 {
            // The highest bit distinguishes constants from registers.
            if operand & 0x100 != 0 {
                return self.constant(operand & 0xff);
            }
        } else if constant {
            return self.constant(operand);
        }
        let at = self.setter(at, operand)?;
        let i = self.proto.instruction(self.guest, at)?;
        (self.facts.role(i) == role::LOAD_CONSTANT).then(|| self.constant(self.bx(i)))?
    }

    fn constant(&self, index: u32) -> Option<Text> {
        let layout = &self.facts.proto;
        if index >= self.proto.half(self.guest, layout.constants_len)? {
            return None;
        }
        let value = self.proto.word(self.guest, layout.constants)?.wrapping_add(u64::from(index) * VALUE);
        let tag = self.guest.word(value.wrapping_add(8))? as u8;
        (tag & 0xf == 4).then(|| text::of_string(self.guest, self.facts, self.guest.word(value)?))?
    }

    fn upvalue(&self, index: u32) -> Option<Text> {
        let layout = &self.facts.proto;
        if index >= self.proto.half(self.guest, layout.upvalues_len)? {
            return None;
        }
        let list = self.proto.word(self.guest, layout.upvalues)?;
        let name = self.guest.word(list.wrapping_add(u64::from(index) * u64::from(layout.upvalue_bytes)))?;
        text::of_string(self.guest, self.facts, name)
    }

    /// The name of the local variable that lives in a register at instruction `at`.
    fn local(&mut self, register: u32, at: u32) -> Option<Text> {
        let (guest, facts, proto) = (self.guest, self.facts, self.proto);
        let list = proto.word(guest, facts.proto.locals)?;
        let count = proto.half(guest, facts.proto.locals_len)?;
        let index = self.path.step(|| local_in(guest, (list, count), register, at))?;
        let entry = list.wrapping_add(u64::from(index) * LOCAL);
        // The name depends on the variable's scope, too: this read is for the cached answer.
        guest.word(entry.wrapping_add(8))?;
        text::of_string(guest, facts, guest.word(entry)?)
    }

    /// The last instruction before `last` that set a register, if execution must have passed it: no jump leads past it.
    fn setter(&mut self, last: u32, register: u32) -> Option<u32> {
        let (guest, facts, proto) = (self.guest, self.facts, self.proto);
        let index = self.path.step(|| setter_in(guest, facts, proto, last, register))?;
        if self.path.is_replayed {
            // The name depends on the instructions between the two, too: these reads are for the cached answer.
            let count = last.wrapping_sub(index).wrapping_add(1).min(BLOCK);
            block(guest, proto, index, count, &mut [0; WORDS])?;
        }
        Some(index)
    }
}

/// The index of the local variable that is in a register at instruction `at`. `list` and `count`: `locvars` and
/// `sizelocvars`.
fn local_in(guest: &Guest<'_>, (list, count): (u64, u32), register: u32, at: u32) -> Option<u32> {
    let mut left = register;
    for index in 0..count.min(LOCALS_LIMIT) {
        let range = guest.word(list.wrapping_add(u64::from(index) * LOCAL + 8))?;
        let (start, end) = (range as u32, (range >> 32) as u32);
        if start > at {
            return None;
        }
        if at < end {
            match left.checked_sub(1) {
                Some(less) => left = less,
                None => return Some(index),
            }
        }
    }
    None
}

/// Reads `count` instructions, at most [`BLOCK`], from the index `first` on: two in each word.
#[inline(always)]
fn block(guest: &Guest<'_>, proto: &Proto, first: u32, count: u32, words: &mut [u64; WORDS]) -> Option<()> {
    let part = words.get_mut(..count.div_ceil(2) as usize)?;
    guest.run(proto.code.wrapping_add(u64::from(first) * INSTRUCTION), part).then_some(())
}

/// The search of [`Code::setter`] (`findsetreg` in ldebug.c).
fn setter_in(guest: &Guest<'_>, facts: &Facts, proto: &Proto, last: u32, register: u32) -> Option<u32> {
    if last > CODE_LIMIT || last >= proto.code_len {
        return None;
    }
    let mut last = last;
    if facts.role(proto.instruction(guest, last)?) == role::META_BY_C {
        // The operation before it was not executed: the metamethod is called in its place.
        last = last.saturating_sub(1);
    }
    let a = |i: u32| facts.register_a(i);
    let mut setter = None;
    let mut target = 0i64;
    let mut index = 0;
    while index < last {
        let count = last.wrapping_sub(index).min(BLOCK);
        let mut words = [0; WORDS];
        block(guest, proto, index, count, &mut words)?;
        let (mut end, mut closure) = (index.wrapping_add(count), None);
        let halves = words.iter().flat_map(|word| [*word as u32, (*word >> 32) as u32]);
        for (i, index) in halves.zip(index..last) {
            let (flagged, a) = (facts.flagged_role(i), a(i));
            let changes = match flagged & !role::SETS_A {
                role::LOAD_NIL => {
                    let b = field(i, facts.code.b, facts.code.bc_bits);
                    // In 5.1, B is the last register; later, the number of further registers.
                    let end = if facts.minor == 1 { b } else { a.wrapping_add(b) };
                    a <= register && register <= end
                }
                role::FOR_CALL | role::FOR_LOOP_51 => register >= a.wrapping_add(2),
                role::CALL => register >= a,
                role::JUMP => {
                    let to = jump(facts, index, i);
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
            if flagged & !role::SETS_A == role::CLOSURE_51 {
                (end, closure) = (index.wrapping_add(1), Some(i));
                break;
            }
        }
        index = end;
        if let Some(closure) = closure {
            index = index.wrapping_add(upvalues_51(guest, facts, proto, closure)?);
        }
    }
    setter
}

/// The number of upvalues of the inner function that an instruction of 5.1 makes a closure of: `p[Bx]->nups`.
#[inline(never)]
fn upvalues_51(guest: &Guest<'_>, facts: &Facts, proto: &Proto, instruction: u32) -> Option<u32> {
    const FUNCTIONS: u32 = 32;
    const COUNT: u32 = 88;
    const UPVALUES: u64 = 112;
    let index = facts.bx(instruction);
    // Whole words, as elsewhere: other reads take more stack.
    if index >= proto.word(guest, COUNT)? as u32 {
        return None;
    }
    let inner = guest.word(proto.word(guest, FUNCTIONS)?.wrapping_add(8 * u64::from(index)))?;
    guest.word(inner.wrapping_add(UPVALUES)).map(|word| u32::from(word as u8))
}

/// The index of the instruction that a jump at `index` leads to.
fn jump(facts: &Facts, index: u32, instruction: u32) -> i64 {
    let bits = 32u32.saturating_sub(facts.code.jump);
    let bias = (1i64 << bits.saturating_sub(1).min(31)) - 1;
    let distance = i64::from(instruction.checked_shr(facts.code.jump).unwrap_or(0));
    i64::from(index).wrapping_add(1).wrapping_add(distance).wrapping_sub(bias)
}
