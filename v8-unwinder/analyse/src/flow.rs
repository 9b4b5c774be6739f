//! The states of a builtin, from its instructions: where the return address is, and whose frame rbp points to. All ways
//! through the code are followed from its first instruction on. What is not reached that way (V8 continues there when
//! something is thrown, or jumps there by a table) has the state of a frame that is set up, if the builtin sets one up.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};
use std::collections::{BTreeMap, HashMap};
use uunwind_language::machine_code::dwarf;
use uunwind_v8::facts::State;

/// Instructions after rbp became the caller's, in which the stack pointer is set.
const NEAR: usize = 6;
/// Limit of the visits of one instruction.
const VISITS: u32 = 8;

/// What is known before an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Facts {
    /// rbp points to this frame.
    framed: bool,
    /// Bytes from the stack pointer to the return address.
    depth: Option<i64>,
    /// The register that holds the return address, if it is not on the stack.
    register: Option<Register>,
    /// The frame was taken down.
    left: bool,
    /// rbp is neither this frame's nor the caller's.
    lost: bool,
}

impl Facts {
    fn state(self) -> State {
        let words = |depth: i64| u32::try_from(depth / 8).ok().filter(|_| depth % 8 == 0);
        if self.lost {
            return State::Unknown;
        }
        if self.framed {
            return State::Framed;
        }
        if let Some(register) = self.register {
            return dwarf(register).map_or(State::Unknown, State::Register);
        }
        match self.depth.and_then(words) {
            Some(words) if self.left => State::Left(words),
            Some(words) => State::Above(words),
            None => State::Inside,
        }
    }

    /// What both ways agree on.
    fn merge(self, other: Facts) -> Facts {
        if self == other {
            return self;
        }
        Facts {
            framed: self.framed && other.framed,
            depth: self.depth.filter(|_| self.depth == other.depth && self.framed == other.framed),
            register: self.register.filter(|_| self.register == other.register),
            left: self.left && other.left,
            lost: self.lost
                || other.lost
                || self.framed != other.framed
                || (self.register != other.register && !self.framed),
        }
    }
}

/// How a builtin begins.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// It was called: the word at the stack pointer is the return address.
    Called,
    /// It makes the frame of what has called it, to which the word at the stack pointer returns.
    ForCaller,
    /// It goes on in the frame of what has jumped to it.
    InFrame,
}

/// What the code of one builtin is.
pub struct Code<'c> {
    /// Its file address.
    pub start: u64,
    /// Its bytes.
    pub bytes: &'c [u8],
    /// How it begins.
    pub entry: Entry,
}

/// The states, by the distance of the first instruction at which each begins.
pub fn states(code: &Code<'_>) -> BTreeMap<u32, State> {
    let decoder = Decoder::with_ip(64, code.bytes, code.start, DecoderOptions::NONE);
    let instructions: Vec<Instruction> = decoder.into_iter().filter(|instruction| !instruction.is_invalid()).collect();
    let index: HashMap<u64, usize> = instructions.iter().enumerate().map(|(at, i)| (i.ip(), at)).collect();
    let known = follow(code, &instructions, &index);
    let sets_up = known.iter().flatten().any(|facts| facts.framed);
    let elsewhere = if sets_up { State::Framed } else { State::Inside };
    let mut states = BTreeMap::new();
    let mut last = None;
    for (instruction, facts) in instructions.iter().zip(&known) {
        let state = facts.map_or(elsewhere, Facts::state);
        if last != Some(state) {
            states.insert((instruction.ip() - code.start) as u32, state);
            last = Some(state);
        }
    }
    states
}

fn follow(code: &Code<'_>, instructions: &[Instruction], index: &HashMap<u64, usize>) -> Vec<Option<Facts>> {
    let mut known: Vec<Option<Facts>> = vec![None; instructions.len()];
    let mut visits = vec![0u32; instructions.len()];
    let (framed, depth) = match code.entry {
        Entry::Called => (false, Some(0)),
        Entry::ForCaller => (false, Some(8)),
        Entry::InFrame => (true, None),
    };
    let first = Facts { framed, depth, register: None, left: false, lost: false };
    let mut waiting = vec![(0usize, first)];
    // Where calls return to, last: some do not return, and what follows them is reached otherwise.
    let mut returns: Vec<(usize, Facts)> = Vec::new();
    loop {
        let (next, returned) = match waiting.pop() {
            Some(next) => (Some(next), false),
            None => (returns.pop(), true),
        };
        let Some((at, facts)) = next else { return known };
        let (Some(place), Some(visited)) = (known.get_mut(at), visits.get_mut(at)) else { continue };
        if returned && place.is_some_and(|before: Facts| before.framed != facts.framed) {
            continue;
        }
        let merged = place.map_or(facts, |before| before.merge(facts));
        if *place == Some(merged) || *visited >= VISITS {
            continue;
        }
        *place = Some(merged);
        *visited += 1;
        let Some(instruction) = instructions.get(at) else { continue };
        let after = step(instruction, merged, instructions.get(at + 1..).unwrap_or_default());
        let target = index.get(&instruction.near_branch_target()).copied();
        match instruction.flow_control() {
            FlowControl::Next => waiting.push((at + 1, after)),
            FlowControl::Call | FlowControl::IndirectCall => returns.push((at + 1, after)),
            FlowControl::ConditionalBranch => {
                waiting.push((at + 1, after));
                waiting.extend(target.map(|target| (target, after)));
            }
            FlowControl::UnconditionalBranch => waiting.extend(target.map(|target| (target, after))),
            _ => {}
        }
    }
}

/// What is known after an instruction. `following`: the instructions after it.
fn step(instruction: &Instruction, facts: Facts, following: &[Instruction]) -> Facts {
    let mut after = facts;
    let operand = |at: u32| (instruction.op_kind(at) == OpKind::Register).then(|| instruction.op_register(at));
    let size = is_immediate(instruction).then(|| instruction.immediate(1) as i64);
    match instruction.mnemonic() {
        Mnemonic::Push => {
            if facts.register.is_some() && operand(0) == facts.register || is_return_address(instruction, facts) {
                // Of a tail call with arguments on the stack, below them.
                (after.register, after.depth) = (None, Some(0));
            } else {
                after.depth = facts.depth.map(|depth| depth + 8);
            }
        }
        Mnemonic::Pop if operand(0) == Some(Register::RBP) => {
            after = Facts { framed: false, depth: Some(0), register: None, left: true, lost: facts.lost };
            if !facts.framed && facts.depth.is_some_and(|depth| depth != 8) {
                // Something else was saved above the caller's.
                after.depth = facts.depth.map(|depth| depth - 8);
            }
        }
        Mnemonic::Pop => {
            if facts.depth == Some(0) && !facts.framed && facts.register.is_none() && operand(0).is_some() {
                after.register = operand(0);
            }
            after.depth = facts.depth.map(|depth| depth - 8);
        }
        Mnemonic::Leave => {
            after = Facts { framed: false, depth: Some(0), register: None, left: true, lost: facts.lost }
        }
        Mnemonic::Mov if operand(0) == Some(Register::RBP) => match instruction.op_kind(1) {
            OpKind::Register if instruction.op_register(1) == Register::RSP => {
                after = match facts.depth {
                    Some(8) => Facts { framed: true, register: None, left: false, ..facts },
                    _ => Facts { lost: true, ..facts },
                };
            }
            OpKind::Memory if is_saved_rbp(instruction) && facts.framed => {
                let add = following
                    .iter()
                    .take(NEAR)
                    .find(|next| next.mnemonic() == Mnemonic::Add && next.op0_register() == Register::RSP);
                let depth = add.map(|add| add.immediate(1) as i64);
                let depth = depth.or(facts.depth);
                after = Facts { framed: false, depth, register: None, left: true, lost: facts.lost };
            }
            _ => after.lost = true,
        },
        Mnemonic::Mov if operand(0) == Some(Register::RSP) => {
            after.depth = if operand(1) == Some(Register::RBP) { Some(8) } else { None };
            if operand(1) == Some(Register::RBP) && !facts.framed {
                // What is left is the frame that rbp points to.
                after.framed = true;
            }
        }
        Mnemonic::Sub if operand(0) == Some(Register::RSP) => {
            after.depth = facts.depth.zip(size).map(|(depth, size)| depth + size);
        }
        Mnemonic::Add if operand(0) == Some(Register::RSP) => {
            after.depth = facts.depth.zip(size).map(|(depth, size)| depth - size);
        }
        Mnemonic::Lea | Mnemonic::And if operand(0) == Some(Register::RSP) => after.depth = None,
        _ if operand(0) == Some(Register::RBP) && writes(instruction) => after.lost = true,
        _ => {}
    }
    after
}

/// Whether the operand in memory is the return address.
fn is_return_address(instruction: &Instruction, facts: Facts) -> bool {
    !facts.framed
        && instruction.op0_kind() == OpKind::Memory
        && instruction.memory_base() == Register::RSP
        && instruction.memory_index() == Register::None
        && facts.depth == Some(instruction.memory_displacement64() as i64)
}

/// `mov (%rbp),%rbp`
fn is_saved_rbp(instruction: &Instruction) -> bool {
    instruction.memory_base() == Register::RBP
        && instruction.memory_index() == Register::None
        && instruction.memory_displacement64() == 0
}

fn is_immediate(instruction: &Instruction) -> bool {
    matches!(
        instruction.op1_kind(),
        OpKind::Immediate8to64 | OpKind::Immediate32to64 | OpKind::Immediate8 | OpKind::Immediate32
    )
}

fn writes(instruction: &Instruction) -> bool {
    !matches!(instruction.mnemonic(), Mnemonic::Cmp | Mnemonic::Test)
}
