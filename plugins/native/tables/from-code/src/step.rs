//! What one instruction does to the facts. What is not listed here makes the registers that it writes unknown.

use super::state::{Base, Compared, State, Value, RAX, RBP, RSP};
use iced_x86::{Instruction, InstructionInfoFactory, InstructionInfoOptions, Mnemonic, OpAccess, OpKind, Register};

/// Largest table of places to go on at.
pub const MOST_ENTRIES: u32 = 4096;

/// The number of entries of a table whose index has no limit.
pub const UNLIMITED: u32 = u32::MAX;

/// Carries out instructions.
pub struct Stepper {
    info: InstructionInfoFactory,
    /// Instructions that change no fact, by [`Stepper::kind`]: no operand is a general register, no other one is
    /// written, and no memory. To ask for all that an instruction uses takes longer than to decode it.
    idle: Vec<bool>,
}

/// The number of a general register of any size; `None` for other registers.
pub fn number(register: Register) -> Option<usize> {
    register.is_gpr().then(|| register.full_register().number())
}

fn register(instruction: &Instruction, operand: u32) -> Option<usize> {
    (operand < instruction.op_count() && instruction.op_kind(operand) == OpKind::Register)
        .then(|| number(instruction.op_register(operand)))?
}

/// A register of 64 bits.
fn whole(instruction: &Instruction, operand: u32) -> Option<usize> {
    register(instruction, operand).filter(|_| instruction.op_register(operand).is_gpr64())
}

fn is_memory(instruction: &Instruction, operand: u32) -> bool {
    operand < instruction.op_count() && instruction.op_kind(operand) == OpKind::Memory
}

fn immediate(instruction: &Instruction, operand: u32) -> Option<i64> {
    instruction.try_immediate(operand).ok().map(|n| n as i64)
}

/// Number of bits of a general register's lower part; `None`: not its lower part.
fn low_bits(register: Register) -> Option<u32> {
    let high = matches!(register, Register::AH | Register::BH | Register::CH | Register::DH);
    (register.is_gpr() && !high).then(|| register.size() as u32 * 8)
}

/// The place of the stack that the memory operand means.
pub fn place(state: &State, instruction: &Instruction) -> Option<(Base, i64)> {
    let plain = instruction.memory_index() == Register::None && instruction.segment_prefix() == Register::None;
    let base = instruction.memory_base();
    if !plain || !base.is_gpr64() {
        return None;
    }
    let displacement = instruction.memory_displacement64() as i64;
    match state.get(number(base)?) {
        Value::Cfa(at) => Some((Base::Cfa, at.wrapping_add(displacement))),
        Value::Aligned(at) => Some((Base::Aligned, at.wrapping_add(displacement))),
        _ => None,
    }
}

/// What an address computation gives.
fn address(state: &State, instruction: &Instruction) -> Value {
    if instruction.is_ip_rel_memory_operand() {
        return Value::Constant(instruction.ip_rel_memory_address());
    }
    let displacement = instruction.memory_displacement64() as i64;
    let base = match instruction.memory_base() {
        Register::None => Value::Constant(0),
        base => number(base).filter(|_| base.is_gpr64()).map_or(Value::NOTHING, |base| state.get(base)),
    };
    let index = match instruction.memory_index() {
        Register::None => return base.plus(displacement),
        index => number(index).map_or(Value::NOTHING, |index| state.get(index)),
    };
    let scale = i64::from(instruction.memory_index_scale());
    match (base, index) {
        (Value::Constant(table), Value::Distance(from, count))
        | (Value::Distance(from, count), Value::Constant(table))
            if scale == 1 && displacement == 0 && table == from =>
        {
            Value::Near(from, count)
        }
        (base, Value::Constant(n)) => base.plus(displacement.wrapping_add((n as i64).wrapping_mul(scale))),
        (Value::Constant(0), other) if scale == 1 => other.plus(displacement),
        _ => Value::NOTHING,
    }
}

/// The table that a memory operand reads from: its address and number of entries, which may be [`UNLIMITED`].
pub fn table(state: &State, instruction: &Instruction, entry: u32) -> Option<(u64, u32)> {
    if instruction.memory_index_scale() != entry || instruction.segment_prefix() != Register::None {
        return None;
    }
    let start = match instruction.memory_base() {
        Register::None => 0,
        base => match state.get(number(base)?) {
            Value::Constant(start) => start,
            _ => return None,
        },
    };
    let index = state.get(number(instruction.memory_index())?);
    let count = match state.most(index, 32) {
        Some(most) => u32::try_from(most.checked_add(1)?).ok().filter(|count| *count <= MOST_ENTRIES)?,
        None => UNLIMITED,
    };
    Some((start.wrapping_add(instruction.memory_displacement64()), count))
}

/// What `push` and `pop` move.
fn push(state: &mut State, size: i64, value: Value) -> bool {
    let sp = state.get(RSP).plus(-size);
    let mut changed = state.set(RSP, sp);
    match sp {
        Value::Cfa(at) => changed |= state.store(Base::Cfa, at, size, value),
        Value::Aligned(at) => changed |= state.store(Base::Aligned, at, size, value),
        _ => {}
    }
    changed
}

fn pop(state: &mut State, size: i64) -> (Value, bool) {
    let sp = state.get(RSP);
    let value = match sp {
        Value::Cfa(at) if size == 8 => state.load(Base::Cfa, at),
        Value::Aligned(at) if size == 8 => state.load(Base::Aligned, at),
        _ => Value::NOTHING,
    };
    (value, state.set(RSP, sp.plus(size)))
}

impl Stepper {
    /// One stepper serves any number of instructions.
    pub fn new() -> Stepper {
        Stepper { info: InstructionInfoFactory::new(), idle: Vec::new() }
    }

    /// The facts after an instruction that goes on with the next one. Returns whether a row may differ.
    pub fn step(&mut self, state: &mut State, instruction: &Instruction) -> bool {
        let ip = instruction.ip();
        if instruction.rflags_modified() != 0 {
            state.compared = Compared::Nothing;
        }
        match instruction.mnemonic() {
            Mnemonic::Nop | Mnemonic::Endbr64 | Mnemonic::Test | Mnemonic::Prefetcht0 | Mnemonic::Prefetcht1 => false,
            Mnemonic::Cmp => {
                compare(state, instruction);
                false
            }
            Mnemonic::Push => {
                let value = match whole(instruction, 0) {
                    Some(register) => state.get(register),
                    None if is_memory(instruction, 0) => {
                        place(state, instruction).map_or(Value::NOTHING, |(base, at)| state.load(base, at))
                    }
                    None => Value::NOTHING,
                };
                push(state, -i64::from(instruction.stack_pointer_increment()), value)
            }
            Mnemonic::Pop => {
                let (value, changed) = pop(state, i64::from(instruction.stack_pointer_increment()));
                match register(instruction, 0) {
                    Some(register) if instruction.op_register(0).is_gpr64() => state.set(register, value) | changed,
                    Some(register) => state.set_new(register, ip) | changed,
                    None => self.other(state, instruction, false) | changed,
                }
            }
            Mnemonic::Leave => {
                let changed = state.set(RSP, state.get(RBP));
                let (value, popped) = pop(state, 8);
                state.set(RBP, value) | changed | popped
            }
            Mnemonic::Enter if immediate(instruction, 1) == Some(0) => {
                let changed = push(state, 8, state.get(RBP)) | state.set(RBP, state.get(RSP));
                let size = immediate(instruction, 0).unwrap_or(0) & 0xffff;
                state.set(RSP, state.get(RSP).plus(-size)) | changed
            }
            Mnemonic::Mov => self.mov(state, instruction),
            Mnemonic::Lea => match whole(instruction, 0) {
                Some(register) => match address(state, instruction) {
                    // Alignment by a displacement keeps a value as it is.
                    Value::Unknown(0) if register == RSP => state.set(register, Value::NOTHING),
                    Value::Unknown(0) => state.set_new(register, ip),
                    value => state.set(register, value),
                },
                None => register(instruction, 0).is_some_and(|register| state.set_new(register, ip)),
            },
            Mnemonic::Add | Mnemonic::Sub => self.add(state, instruction),
            Mnemonic::Inc | Mnemonic::Dec if whole(instruction, 0).is_some() => {
                let by = if instruction.mnemonic() == Mnemonic::Inc { 1 } else { -1 };
                let register = whole(instruction, 0).unwrap_or(RAX);
                match state.get(register).plus(by) {
                    Value::Unknown(_) => state.set_new(register, ip),
                    value => state.set(register, value),
                }
            }
            Mnemonic::And => self.and(state, instruction),
            Mnemonic::Xor if register(instruction, 0).is_some() && same_registers(instruction) => {
                let register = register(instruction, 0).unwrap_or(RAX);
                let clears = instruction.op_register(0).size() >= 4;
                if clears {
                    state.set(register, Value::Constant(0))
                } else {
                    state.set_new(register, ip)
                }
            }
            Mnemonic::Movzx => {
                let (Some(to), Some(bits)) = (register(instruction, 0), source_bits(instruction)) else {
                    return self.other(state, instruction, false);
                };
                // Only a comparison limits a table: compilers leave out the entries of values that cannot be.
                let known = register(instruction, 1)
                    .filter(|_| low_bits(instruction.op_register(1)).is_some())
                    .and_then(|from| state.most(state.get(from), bits));
                let changed = state.set_new(to, ip);
                if let Some(known) = known {
                    state.limit(ip, 32, known);
                }
                changed
            }
            Mnemonic::Movsxd => {
                let Some(to) = whole(instruction, 0) else { return self.other(state, instruction, false) };
                match register(instruction, 1) {
                    // The lower half is the same.
                    Some(from) => match state.get(from) {
                        value @ Value::Unknown(number) if number != 0 => state.set(to, value),
                        _ => state.set_new(to, ip),
                    },
                    None => match table(state, instruction, 4) {
                        Some((start, count)) => state.set(to, Value::Distance(start, count)),
                        None => state.set_new(to, ip),
                    },
                }
            }
            // The lower half is the same.
            Mnemonic::Cdqe if matches!(state.get(RAX), Value::Unknown(_) | Value::Distance(..)) => false,
            Mnemonic::Xchg => match (whole(instruction, 0), whole(instruction, 1)) {
                (Some(one), Some(other)) => {
                    let (first, second) = (state.get(one), state.get(other));
                    state.set(one, second) | state.set(other, first)
                }
                _ => self.other(state, instruction, true),
            },
            _ => self.other(state, instruction, false),
        }
    }

    fn mov(&mut self, state: &mut State, instruction: &Instruction) -> bool {
        let ip = instruction.ip();
        if let Some(to) = register(instruction, 0) {
            let size = instruction.op_register(0).size();
            let value = if let Some(from) = register(instruction, 1) {
                match (size, state.get(from)) {
                    (8, value) => value,
                    // The lower half of a value with a number keeps it.
                    (4, value @ Value::Unknown(_)) => value,
                    (4, Value::Constant(n)) => Value::Constant(u64::from(n as u32)),
                    _ => Value::NOTHING,
                }
            } else if is_memory(instruction, 1) {
                match (size, place(state, instruction)) {
                    (8, Some((base, at))) => state.load(base, at),
                    (8, None) => table(state, instruction, 8).map_or(Value::NOTHING, |(at, n)| Value::Far(at, n)),
                    (4, None) => match table(state, instruction, 4) {
                        Some((at, n)) if n != UNLIMITED => Value::Distance(at, n),
                        _ => Value::NOTHING,
                    },
                    _ => Value::NOTHING,
                }
            } else if let (4 | 8, Some(n)) = (size, immediate(instruction, 1)) {
                Value::Constant(if size == 4 { u64::from(n as u32) } else { n as u64 })
            } else {
                Value::NOTHING
            };
            return match value {
                Value::Unknown(0) if to != RSP => state.set_new(to, ip),
                value => state.set(to, value),
            };
        }
        if is_memory(instruction, 0) {
            let Some((base, at)) = place(state, instruction) else { return false };
            let size = instruction.memory_size().size() as i64;
            let value = whole(instruction, 1).map_or(Value::NOTHING, |from| state.get(from));
            return state.store(base, at, size, value);
        }
        self.other(state, instruction, false)
    }

    /// Adds or subtracts.
    fn add(&mut self, state: &mut State, instruction: &Instruction) -> bool {
        let subtracts = instruction.mnemonic() == Mnemonic::Sub;
        let Some(to) = whole(instruction, 0) else { return self.other(state, instruction, false) };
        let from = whole(instruction, 1).map(|from| state.get(from));
        let number = match from {
            Some(Value::Constant(n)) => Some(n as i64),
            _ => immediate(instruction, 1),
        };
        let value = match (state.get(to), number, from) {
            (value, Some(n), _) => value.plus(if subtracts { n.wrapping_neg() } else { n }),
            (Value::Cfa(_) | Value::Aligned(_) | Value::Stack, None, _) if subtracts => Value::Stack,
            (Value::Constant(table), None, Some(Value::Distance(from, count)))
            | (Value::Distance(from, count), None, Some(Value::Constant(table)))
                if !subtracts && table == from =>
            {
                Value::Near(from, count)
            }
            _ => Value::NOTHING,
        };
        let value = match (value, state.get(to), from) {
            (Value::Unknown(_), Value::Distance(at, count), Some(Value::Constant(table)))
            | (Value::Unknown(_), Value::Constant(table), Some(Value::Distance(at, count)))
                if !subtracts && table == at =>
            {
                Value::Near(at, count)
            }
            (value, ..) => value,
        };
        match value {
            Value::Unknown(_) if to != RSP => state.set_new(to, instruction.ip()),
            value => state.set(to, value),
        }
    }

    /// Aligns downwards. What is masked is not limited by that: see `movzx`.
    fn and(&mut self, state: &mut State, instruction: &Instruction) -> bool {
        let ip = instruction.ip();
        let (Some(to), Some(mask)) = (register(instruction, 0), immediate(instruction, 1)) else {
            return self.other(state, instruction, false);
        };
        let aligns = mask < 0 && mask.wrapping_neg().count_ones() == 1 && whole(instruction, 0).is_some();
        if aligns && matches!(state.get(to), Value::Cfa(_) | Value::Aligned(_) | Value::Stack) {
            if to == RSP {
                state.align(ip);
                return true;
            }
            return state.set(to, Value::Stack);
        }
        state.set_new(to, ip)
    }

    /// Any other instruction: what it writes is unknown. `exchanges`: it writes both of its operands.
    fn other(&mut self, state: &mut State, instruction: &Instruction, exchanges: bool) -> bool {
        let kind = Stepper::kind(instruction);
        if kind.is_some_and(|kind| self.idle.get(kind) == Some(&true)) {
            return false;
        }
        let ip = instruction.ip();
        let moved = instruction.stack_pointer_increment();
        let mut changed = false;
        let mut is_idle = moved == 0 && !exchanges;
        let info = self.info.info_options(instruction, InstructionInfoOptions::NONE);
        let writes = |access| {
            matches!(access, OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite)
        };
        for memory in info.used_memory() {
            let by_stack = memory.base() == Register::RSP && moved != 0 && !is_memory(instruction, 0);
            if !(writes(memory.access()) || exchanges) || by_stack {
                continue;
            }
            is_idle = false;
            if let Some((base, at)) = place(state, instruction) {
                let size = (memory.memory_size().size() as i64).max(1);
                changed |= state.store(base, at, size, Value::NOTHING);
            }
        }
        for used in info.used_registers().iter().filter(|used| writes(used.access())) {
            let register = number(used.register());
            is_idle &= register.is_none();
            match register {
                // Below, by what it adds.
                Some(RSP) if moved != 0 => {}
                Some(RSP) => changed |= state.set(RSP, Value::NOTHING),
                Some(register) => changed |= state.set_new(register, ip),
                None => {}
            }
        }
        if moved < 0 {
            changed |= push(state, -i64::from(moved), Value::NOTHING);
        } else if moved > 0 {
            changed |= state.set(RSP, state.get(RSP).plus(i64::from(moved)));
        }
        if let Some(kind) = kind.filter(|_| is_idle) {
            self.idle.resize(self.idle.len().max(kind + 1), false);
            self.idle.get_mut(kind).into_iter().for_each(|idle| *idle = true);
        }
        changed
    }

    /// A number for instructions that use the same registers, but for those that operands name, and access memory in
    /// the same way. `None`: an operand is a general register.
    fn kind(instruction: &Instruction) -> Option<usize> {
        let mut accesses_memory = false;
        for operand in 0..instruction.op_count() {
            match instruction.op_kind(operand) {
                OpKind::Register if number(instruction.op_register(operand)).is_some() => return None,
                OpKind::Memory => accesses_memory = true,
                _ => {}
            }
        }
        Some(instruction.code() as usize * 2 + usize::from(accesses_memory))
    }
}

fn same_registers(instruction: &Instruction) -> bool {
    register(instruction, 1).is_some() && instruction.op_register(0) == instruction.op_register(1)
}

/// Number of bits of what `movzx` reads.
fn source_bits(instruction: &Instruction) -> Option<u32> {
    if is_memory(instruction, 1) {
        return Some(instruction.memory_size().size() as u32 * 8);
    }
    Some(instruction.op_register(1).size() as u32 * 8)
}

fn compare(state: &mut State, instruction: &Instruction) {
    let sp = |one, other| match (whole(instruction, one), whole(instruction, other)) {
        (Some(RSP), Some(with)) => Some(state.get(with)),
        _ => None,
    };
    if let Some(value) = sp(0, 1).or_else(|| sp(1, 0)) {
        state.compared = Compared::Sp(value);
        return;
    }
    let Some(bits) = register(instruction, 0).and_then(|_| low_bits(instruction.op_register(0))) else { return };
    let (Some(register), Some(with)) = (register(instruction, 0), immediate(instruction, 1)) else { return };
    if matches!(state.get(register), Value::NOTHING | Value::Distance(_, UNLIMITED) | Value::Far(_, UNLIMITED)) {
        state.set_new(register, instruction.ip());
    }
    if let Value::Unknown(value) = state.get(register) {
        if with >= 0 {
            state.compared = Compared::Value { value, bits, with: with as u64 };
        }
    }
}

/// What a conditional branch proves where it goes on: `taken`, or with the next instruction.
pub fn branch(state: &mut State, instruction: &Instruction, taken: bool) -> bool {
    let mut changed = false;
    match (state.compared, instruction.mnemonic(), taken) {
        (Compared::Value { value, bits, with }, Mnemonic::Ja, false)
        | (Compared::Value { value, bits, with }, Mnemonic::Jbe, true) => state.limit(value, bits, with),
        (Compared::Value { value, bits, with }, Mnemonic::Jae, false)
        | (Compared::Value { value, bits, with }, Mnemonic::Jb, true) => {
            state.limit(value, bits, with.saturating_sub(1));
        }
        (Compared::Sp(sp @ (Value::Cfa(_) | Value::Aligned(_))), Mnemonic::Je, true)
        | (Compared::Sp(sp @ (Value::Cfa(_) | Value::Aligned(_))), Mnemonic::Jne, false) => {
            changed = state.set(RSP, sp);
        }
        _ => {}
    }
    changed
}
