//! The analysis of one function: the facts at the start of each of its blocks, until they do not change any more.

mod flow;

use super::code::Code;
use super::quick::Map;
use super::state::State;
use super::step::{branch, Stepper};
use flow::fetches_its_address;
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

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
    /// Where the first function begins from an address on, as far as is known; else the largest address.
    fn next_begin(&self, address: u64) -> u64;
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
    /// The block that calls: its index in its function.
    pub from: usize,
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
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Edge {
    /// Index of the block that it leads to.
    to: usize,
    /// After a call of which it is not known whether it returns.
    perhaps: bool,
}

/// Instructions that follow each other.
struct Block {
    start: u64,
    /// The facts at its start.
    state: State,
    /// Where the code goes from its end.
    edges: Vec<Edge>,
    /// It ends so that it proves the frame.
    proves: bool,
    /// It is to be carried out.
    is_queued: bool,
}

/// An instruction of a function that was understood.
pub struct Understood<'a> {
    pub address: u64,
    pub len: usize,
    /// A block begins with it.
    pub begins_block: bool,
    /// The facts before it, if a row's may differ from those of the instruction before.
    pub state: Option<&'a State>,
}

/// One function under analysis.
pub struct Function {
    /// Its first instruction.
    pub entry: u64,
    /// The same of the function that this is the rest of.
    home: u64,
    blocks: Vec<Block>,
    /// Indices of blocks, by their starts.
    index: Map<u64, usize>,
    /// Where each block that was carried out ends, by its start, and its index.
    ends: BTreeMap<u64, (u64, usize)>,
    /// Blocks that are to be carried out, the first ones first: then what leads to the others is mostly done.
    queue: BinaryHeap<Reverse<(u64, usize)>>,
    /// Calls of functions of which it is not known whether they return.
    pub waits: Vec<Wait>,
    /// Calls after which another function may begin.
    pub doubtful: Vec<Wait>,
    /// The block that is carried out: its index.
    current: usize,
    /// It lies apart from the function's beginning, where compilers put code that seldom runs: parts of many functions
    /// follow each other there, without space between them, and most end in calls that do not return.
    is_apart: bool,
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
    /// Where the next function begins, once it was asked: none is added while this one is under analysis.
    next_begin: Option<u64>,
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
            blocks: Vec::new(),
            index: Map::default(),
            ends: BTreeMap::new(),
            queue: BinaryHeap::new(),
            waits: Vec::new(),
            doubtful: Vec::new(),
            current: 0,
            is_apart: false,
            fault: None,
            returns: false,
            returned: false,
            proved: false,
            by_return: false,
            calls_aligned: false,
            origin,
            next_begin: None,
            steps: 0,
        };
        function.enter(entry, &state);
        function
    }

    /// Goes on after a call. `perhaps`: if it returns.
    pub fn resume(&mut self, wait: Wait, perhaps: bool) {
        if wait.is_tail {
            self.returns = true;
            self.returned |= !perhaps;
            self.proved = true;
            self.by_return |= !perhaps;
            self.proves(wait.from);
            return;
        }
        self.lead(wait.from, wait.next, &wait.state, perhaps);
    }

    /// The block with this index ends so that it proves the frame.
    fn proves(&mut self, index: usize) {
        if let Some(block) = self.blocks.get_mut(index) {
            block.proves = true;
        }
    }

    /// Goes on at an address, from the block that is carried out.
    fn follow(&mut self, address: u64, state: &State) {
        self.lead(self.current, address, state, false);
    }

    /// Goes on at an address, from the block with this index.
    fn lead(&mut self, from: usize, address: u64, state: &State, perhaps: bool) {
        let Some(to) = self.enter(address, state) else { return };
        let Some(block) = self.blocks.get_mut(from) else { return };
        let edge = Edge { to, perhaps };
        // What is certain is found anew whenever the block is carried out, so it is in the list once.
        if !perhaps || !block.edges.contains(&edge) {
            block.edges.push(edge);
        }
    }

    /// Goes on at an address with these facts. Returns the index of the block there.
    fn enter(&mut self, address: u64, state: &State) -> Option<usize> {
        if let Some(index) = self.index.get(&address).copied() {
            if self.blocks.get_mut(index)?.state.join(state) {
                self.put_in_queue(index);
            }
            return Some(index);
        }
        let index = self.blocks.len();
        if index >= MOST_BLOCKS {
            self.fault = Some(Fault::TooLong);
            return None;
        }
        // A block that runs through this place ends here from now on.
        let before = self.ends.range(..address).next_back();
        if let Some(through) = before.filter(|(_, (end, _))| *end > address).map(|(_, (_, index))| *index) {
            self.put_in_queue(through);
        }
        let state = state.clone();
        self.blocks.push(Block { start: address, state, edges: Vec::new(), proves: false, is_queued: false });
        self.index.insert(address, index);
        self.put_in_queue(index);
        Some(index)
    }

    fn put_in_queue(&mut self, index: usize) {
        let Some(block) = self.blocks.get_mut(index) else { return };
        if !core::mem::replace(&mut block.is_queued, true) {
            self.queue.push(Reverse((block.start, index)));
        }
    }

    /// The blocks that were carried out: start and end.
    pub fn blocks(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.ends.iter().map(|(start, (end, _))| (*start, *end))
    }

    /// Carries out what there is to do. Returns how many instructions that took.
    pub fn run(&mut self, code: &Code<'_>, stepper: &mut Stepper, others: &mut dyn Others) -> u64 {
        let before = self.steps;
        while let Some(Reverse((_, index))) = self.queue.pop() {
            if self.fault.is_some() {
                self.queue.clear();
                break;
            }
            self.block(index, code, stepper, others);
        }
        self.steps - before
    }

    fn block(&mut self, index: usize, code: &Code<'_>, stepper: &mut Stepper, others: &mut dyn Others) {
        let Some(block) = self.blocks.get_mut(index) else { return };
        block.is_queued = false;
        block.edges.retain(|edge| edge.perhaps);
        let (start, mut state) = (block.start, block.state.clone());
        let Some(bytes) = code.part(start).and_then(|part| part.from(start)) else {
            self.fault = Some(Fault::NoInstruction);
            return;
        };
        let mut decoder = Decoder::with_ip(64, bytes, start, DecoderOptions::NONE);
        let mut instruction = Instruction::default();
        let mut end = start;
        self.current = index;
        self.is_apart = self.is_apart_from_home(start, others);
        loop {
            if end != start && self.index.contains_key(&end) {
                self.follow(end, &state);
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
        self.ends.insert(start, (end, index));
    }

    /// Whether a place lies before the function, or after the next one.
    fn is_apart_from_home(&mut self, address: u64, others: &dyn Others) -> bool {
        let home = self.home;
        address < home || *self.next_begin.get_or_insert_with(|| others.next_begin(home + 1)) < address
    }

    /// The blocks that are certainly run in this function. What follows a call that may never return is, if it leads to
    /// an end that proves the frame; else it may be another function's code.
    fn certain(&self) -> Vec<bool> {
        let proved = self.proved_blocks();
        let mut certain = vec![false; self.blocks.len()];
        let mut queue = vec![0];
        while let Some(index) = queue.pop() {
            let (Some(block), Some(is_certain)) = (self.blocks.get(index), certain.get_mut(index)) else { continue };
            if core::mem::replace(is_certain, true) {
                continue;
            }
            let leads = |edge: &&Edge| !edge.perhaps || proved.get(edge.to) == Some(&true);
            queue.extend(block.edges.iter().filter(leads).map(|edge| edge.to));
        }
        certain
    }

    /// For each block, whether it leads to an end that proves the frame. Nothing, where nobody asks.
    fn proved_blocks(&self) -> Vec<bool> {
        if !self.blocks.iter().any(|block| block.edges.iter().any(|edge| edge.perhaps)) {
            return Vec::new();
        }
        let mut before: Vec<Vec<usize>> = vec![Vec::new(); self.blocks.len()];
        for (from, block) in self.blocks.iter().enumerate() {
            for edge in &block.edges {
                before.get_mut(edge.to).into_iter().for_each(|list| list.push(from));
            }
        }
        let mut proved = vec![false; self.blocks.len()];
        let mut queue: Vec<usize> = (0..self.blocks.len()).filter(|at| self.blocks[*at].proves).collect();
        while let Some(index) = queue.pop() {
            let Some(is_proved) = proved.get_mut(index) else { continue };
            if !core::mem::replace(is_proved, true) {
                queue.extend(before.get(index).into_iter().flatten());
            }
        }
        proved
    }

    /// Whether one of its blocks begins there.
    pub fn has_block(&self, address: u64) -> bool {
        self.index.contains_key(&address)
    }

    /// Hands out each instruction that is certain, by address.
    pub fn each(&self, code: &Code<'_>, stepper: &mut Stepper, mut give: impl FnMut(Understood<'_>)) {
        let mut instruction = Instruction::default();
        let certain = self.certain();
        for (start, (end, index)) in &self.ends {
            let Some(block) = self.blocks.get(*index).filter(|_| certain.get(*index) == Some(&true)) else { continue };
            let mut state = block.state.clone();
            let Some(bytes) = code.part(*start).and_then(|part| part.from(*start)) else { continue };
            let mut decoder = Decoder::with_ip(64, bytes, *start, DecoderOptions::NONE);
            let mut changed = true;
            while decoder.ip() < *end && decoder.can_decode() {
                let address = decoder.ip();
                decoder.decode_out(&mut instruction);
                give(Understood {
                    address,
                    len: instruction.len(),
                    begins_block: address == *start,
                    state: changed.then_some(&state),
                });
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
                    FlowControl::Call | FlowControl::IndirectCall => state.after_call(instruction.ip()),
                    _ => true,
                };
            }
        }
    }
}
