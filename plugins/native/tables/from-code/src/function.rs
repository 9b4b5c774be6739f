//! The analysis of one function: the facts at the start of each of its blocks, until they do not change any more.

mod flow;

use super::code::Code;
use super::quick::{Map, Set};
use super::state::State;
use super::step::{branch, Stepper};
use flow::fetches_its_address;
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic};
use std::collections::{BTreeMap, BTreeSet};

/// Instructions that are carried out for one function at most.
const MOST_STEPS: u64 = 2_000_000;
/// The same for its blocks.
const MOST_BLOCKS: usize = 60_000;
/// Instructions that are carried out for what nothing but its place suggests to be a function.
const MOST_GUESSED: u64 = 20_000;

/// What functions are aligned to, in bytes, by most compilers.
pub const FUNCTION_ALIGNMENT: u64 = 16;

/// What is known of a function that is called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Returns {
    /// It was seen to.
    Yes,
    /// Nothing says that it does not.
    Perhaps,
    /// It never does.
    Never,
    /// It was not analysed yet: what follows the call waits.
    Unsettled,
}

/// What says that a function begins at a place, best first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Origin {
    /// A symbol, or a call.
    Sure,
    /// Data or instructions have its address, or it is aligned as functions are and follows space. It may also be a
    /// place within a function.
    Likely,
    /// Something ends before it.
    Guess,
}

/// Why nothing is claimed of a function.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Fault {
    /// An instruction that is none, or that no program has.
    NoInstruction,
    /// An indirect jump whose targets are not understood.
    IndirectJump,
    /// It returns with another stack pointer, or with other registers, than it was called with.
    Return,
    /// A system call that returns elsewhere.
    SystemCall,
    /// It has no end that proves it.
    NoEnd,
    /// It calls with a stack pointer that is not aligned as the ABI demands.
    Misaligned,
    /// It leads into code of other functions, of which something else is known.
    Disagreement,
    /// Nothing but jumps leaves it, and most functions of the code are so: they may use the stack in another way than C
    /// does.
    Jumps,
    /// It takes more work than a function may.
    TooLong,
    /// It is where the program starts: there is no caller.
    Start,
}

/// What the analysis asks of all functions.
pub trait Others {
    /// Whether the function at an address returns, as far as is known.
    fn returns(&mut self, address: u64) -> Returns;
    /// Whether a function begins at an address for certain.
    fn begins(&self, address: u64) -> bool;
    /// Whether a function is known to begin in a range of addresses.
    fn begins_between(&self, start: u64, end: u64) -> bool;
    /// The first address from a place on that is not padding.
    fn after_padding(&self, address: u64) -> u64;
    /// What is claimed of a block of another function.
    fn claimed(&self, block: u64) -> Option<&State>;
    /// Whether an address was run through by something that was not understood, and that was a function at least as
    /// likely as this.
    fn is_doubtful(&self, address: u64, origin: Origin) -> bool;
    /// Whether an address was analysed as a function's first one, with whatever result.
    fn was_analysed(&self, address: u64) -> bool;
}

/// A call, after which the code goes on once something is known.
pub struct Wait {
    /// The function that is called; 0 if it is not known.
    pub callee: u64,
    /// The block that calls.
    pub from: u64,
    /// It lies apart from its function's beginning.
    pub is_apart: bool,
    /// It is a jump, as the last thing that the function does: nothing follows it.
    pub is_tail: bool,
    /// Where the code goes on.
    pub next: u64,
    /// The facts there.
    pub state: State,
}

/// From a block to the next one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Edge {
    from: u64,
    to: u64,
    /// After a call of which it is not known whether it returns.
    perhaps: bool,
}

/// One function under analysis.
pub struct Function {
    /// Its first instruction.
    pub entry: u64,
    /// The same of the function that this is the rest of.
    home: u64,
    /// The facts at the start of each block.
    blocks: Map<u64, State>,
    /// Where each block that was carried out ends.
    ends: BTreeMap<u64, u64>,
    /// Blocks that are to be carried out, the first ones first: then what leads to the others is mostly done.
    queue: BTreeSet<u64>,
    /// Calls of functions of which it is not known whether they return.
    pub waits: Vec<Wait>,
    /// Calls after which another function may begin.
    pub doubtful: Vec<Wait>,
    /// The block that is carried out.
    current: u64,
    /// It lies apart from the function's beginning, where compilers put code that seldom runs: parts of many functions
    /// follow each other there, without space between them, and most end in calls that do not return.
    is_apart: bool,
    /// From which block to which one the code goes.
    edges: Set<Edge>,
    /// Blocks that end so that they prove the frame.
    proofs: Set<u64>,
    /// Why nothing is claimed of it.
    pub fault: Option<Fault>,
    /// It may return.
    pub returns: bool,
    /// It was seen to return.
    pub returned: bool,
    /// It has an end that proves its frame: a return, or a jump to another function.
    pub proved: bool,
    /// One of these is a return, or leads to one.
    pub by_return: bool,
    /// It sets up a frame, and calls with the stack pointer aligned by that.
    calls_aligned: bool,
    /// What says that it is a function.
    origin: Origin,
    steps: u64,
}

/// Where a block leads.
enum Next {
    /// The block goes on with the next instruction.
    On,
    /// It has ended.
    End,
}

impl Function {
    /// A function that begins there, as this says.
    pub fn new(entry: u64, origin: Origin) -> Function {
        Function::at(entry, State::entry(), origin)
    }

    /// What says that it is one.
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// Whether something shows that it begins as functions do: an end, or, where there is more than its place, calls.
    /// The middle of a function calls with an aligned stack pointer without more pushes, which from a function's first
    /// instruction on would not be aligned.
    pub fn is_proved(&self) -> bool {
        self.proved || self.origin != Origin::Guess && self.calls_aligned
    }

    /// Whether it may be none.
    fn is_guessed(&self) -> bool {
        self.origin != Origin::Sure
    }

    /// What follows one of its calls, if anything does.
    pub fn rest(&self, wait: &Wait) -> Function {
        Function { home: self.home, ..Function::at(wait.next, wait.state.clone(), Origin::Guess) }
    }

    /// A function, or the rest of one, from a place on at which these facts hold.
    fn at(entry: u64, state: State, origin: Origin) -> Function {
        let mut function = Function {
            entry,
            home: entry,
            blocks: Map::default(),
            ends: BTreeMap::new(),
            queue: BTreeSet::new(),
            waits: Vec::new(),
            doubtful: Vec::new(),
            current: entry,
            is_apart: false,
            edges: Set::default(),
            proofs: Set::default(),
            fault: None,
            returns: false,
            returned: false,
            proved: false,
            by_return: false,
            calls_aligned: false,
            origin,
            steps: 0,
        };
        function.enter(entry, state);
        function
    }

    /// Goes on after a call. `perhaps`: if it returns.
    pub fn resume(&mut self, wait: Wait, perhaps: bool) {
        if wait.is_tail {
            self.returns = true;
            self.returned |= !perhaps;
            self.proved = true;
            self.by_return |= !perhaps;
            self.proofs.insert(wait.from);
            return;
        }
        self.edges.insert(Edge { from: wait.from, to: wait.next, perhaps });
        self.enter(wait.next, wait.state);
    }

    /// Goes on in another block, from the one that is carried out.
    fn follow(&mut self, address: u64, state: State, perhaps: bool) {
        self.edges.insert(Edge { from: self.current, to: address, perhaps });
        self.enter(address, state);
    }

    /// Goes on at an address with these facts.
    fn enter(&mut self, address: u64, state: State) {
        if let Some(known) = self.blocks.get_mut(&address) {
            if known.join(&state) {
                self.queue.insert(address);
            }
            return;
        }
        if self.blocks.len() >= MOST_BLOCKS {
            self.fault = Some(Fault::TooLong);
            return;
        }
        // A block that runs through this place ends here from now on.
        if let Some((start, end)) = self.ends.range(..address).next_back() {
            if *end > address {
                self.queue.insert(*start);
            }
        }
        self.blocks.insert(address, state);
        self.queue.insert(address);
    }

    /// The blocks that were carried out: start and end.
    pub fn blocks(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.ends.iter().map(|(start, end)| (*start, *end))
    }

    /// The facts at the start of a block.
    pub fn facts_at(&self, block: u64) -> Option<&State> {
        self.blocks.get(&block)
    }

    /// Carries out what there is to do. Returns how many instructions that took.
    pub fn run(&mut self, code: &Code<'_>, stepper: &mut Stepper, others: &mut dyn Others) -> u64 {
        let before = self.steps;
        while let Some(start) = self.queue.pop_first() {
            if self.fault.is_some() {
                self.queue.clear();
                break;
            }
            let Some(state) = self.blocks.get(&start).cloned() else { continue };
            self.block(start, state, code, stepper, others);
        }
        self.steps - before
    }

    fn block(&mut self, start: u64, mut state: State, code: &Code<'_>, stepper: &mut Stepper, others: &mut dyn Others) {
        let Some(bytes) = code.part(start).and_then(|part| part.from(start)) else {
            self.fault = Some(Fault::NoInstruction);
            return;
        };
        let mut decoder = Decoder::with_ip(64, bytes, start, DecoderOptions::NONE);
        let mut instruction = Instruction::default();
        let mut end = start;
        self.current = start;
        self.is_apart = start < self.home || others.begins_between(self.home + 1, start);
        self.edges.retain(|edge| edge.from != start || edge.perhaps);
        loop {
            if end != start && self.blocks.contains_key(&end) {
                self.follow(end, state, false);
                break;
            }
            self.steps += 1;
            if self.steps > if self.origin == Origin::Guess { MOST_GUESSED } else { MOST_STEPS } {
                self.fault = Some(Fault::TooLong);
                break;
            }
            decoder.decode_out(&mut instruction);
            if instruction.is_invalid() {
                self.fault = Some(Fault::NoInstruction);
                break;
            }
            end = instruction.next_ip();
            match self.instruction(&instruction, &mut state, code, stepper, others) {
                Next::On if decoder.can_decode() => {}
                Next::On => {
                    self.fault = Some(Fault::NoInstruction);
                    break;
                }
                Next::End => break,
            }
        }
        self.ends.insert(start, end);
    }

    /// The blocks that are certainly run in this function. What follows a call that may never return is, if it leads to
    /// an end that proves the frame; else it may be another function's code.
    fn certain(&self) -> Set<u64> {
        let mut before: Map<u64, Vec<u64>> = Map::default();
        let mut after: Map<u64, Vec<Edge>> = Map::default();
        for edge in &self.edges {
            before.entry(edge.to).or_default().push(edge.from);
            after.entry(edge.from).or_default().push(*edge);
        }
        let mut proved: Set<u64> = self.proofs.clone();
        let mut queue: Vec<u64> = proved.iter().copied().collect();
        while let Some(block) = queue.pop() {
            queue.extend(before.get(&block).into_iter().flatten().filter(|from| proved.insert(**from)));
        }
        let mut certain: Set<u64> = [self.entry].into_iter().collect();
        let mut queue = vec![self.entry];
        while let Some(block) = queue.pop() {
            let next = after.get(&block).into_iter().flatten();
            let next = next.filter(|edge| !edge.perhaps || proved.contains(&edge.to)).map(|edge| edge.to);
            queue.extend(next.filter(|to| certain.insert(*to)));
        }
        certain
    }

    /// Whether one of its blocks begins there.
    pub fn has_block(&self, address: u64) -> bool {
        self.blocks.contains_key(&address)
    }

    /// Hands out each instruction with the facts before it: its address, its length, and a row's facts, if they are not
    /// those of the instruction before.
    pub fn each(&self, code: &Code<'_>, stepper: &mut Stepper, mut give: impl FnMut(u64, usize, Option<&State>)) {
        let mut instruction = Instruction::default();
        let certain = self.certain();
        for (start, end) in self.ends.iter().filter(|(start, _)| certain.contains(start)) {
            let Some(state) = self.blocks.get(start) else { continue };
            let mut state = state.clone();
            let Some(bytes) = code.part(*start).and_then(|part| part.from(*start)) else { continue };
            let mut decoder = Decoder::with_ip(64, bytes, *start, DecoderOptions::NONE);
            let mut changed = true;
            while decoder.ip() < *end && decoder.can_decode() {
                decoder.decode_out(&mut instruction);
                give(instruction.ip(), instruction.len(), changed.then_some(&state));
                changed = match instruction.flow_control() {
                    FlowControl::Next => stepper.step(&mut state, &instruction),
                    FlowControl::ConditionalBranch | FlowControl::XbeginXabortXend => {
                        stepper.step(&mut state, &instruction) | branch(&mut state, &instruction, false)
                    }
                    FlowControl::Call if fetches_its_address(&instruction, code) => {
                        stepper.step(&mut state, &instruction)
                    }
                    FlowControl::Call if instruction.mnemonic() == Mnemonic::Syscall => {
                        stepper.step(&mut state, &instruction)
                    }
                    FlowControl::Call | FlowControl::IndirectCall => {
                        state.after_call(instruction.ip());
                        true
                    }
                    _ => true,
                };
            }
        }
    }
}
