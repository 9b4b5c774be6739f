//! All functions: in which order they are analysed, whether they return, and what is claimed in the end.

use super::code::Code;
use super::covered::Covered;
use super::function::{Fault, Function, Origin, Others, Returns, Understood, FUNCTION_ALIGNMENT};
use super::intern::Interned;
use super::padding;
use super::quick::{Map, Set};
use super::row;
use super::state::State;
use super::step::Stepper;
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic};
use std::collections::BTreeSet;
use std::num::NonZeroU32;
use uunwind_core::rule::Rule;
use uunwind_core::span::Span;

/// Circles of functions that are dealt with one by one, for what one function calls.
const MOST_ROUNDS: u32 = 256;

/// How much work an analysis may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Budget {
    /// Instructions that are carried out. A second does some ten million.
    pub steps: u64,
}

/// What is claimed of an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Claim {
    /// File address of its first byte.
    pub address: u64,
    /// Its length in bytes.
    pub len: u8,
    /// Number of its facts, from 1 on; `None`: ways that lead there disagree.
    pub facts: Option<NonZeroU32>,
}

/// A function that was analysed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Analysed {
    /// File address of its first instruction.
    pub entry: u64,
    /// Nothing but jumps leaves it: no return shows that it uses the stack as C does.
    pub by_jumps: bool,
    /// Why nothing is claimed of it.
    pub fault: Option<Fault>,
}

/// A part of the code with one rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row {
    /// File addresses.
    pub span: Span,
    /// `None`: the function was understood, but its frame is not known here.
    pub rule: Option<Rule>,
}

/// What an analysis has found.
#[derive(Default)]
pub struct Found {
    /// By address.
    pub claims: Vec<Claim>,
    /// What claims refer to.
    pub facts: Vec<State>,
    /// The functions, by address.
    pub functions: Vec<Analysed>,
    /// The budget was not enough: other functions were not analysed.
    pub exhausted: bool,
}

impl Found {
    /// The rows, by address; those that follow each other differ, or have a gap between them.
    pub fn rows(&self) -> Vec<Row> {
        let rules: Vec<Option<Rule>> = self.facts.iter().map(row::rule).collect();
        let mut rows: Vec<Row> = Vec::new();
        for claim in &self.claims {
            let rule = claim.facts.and_then(|facts| rules.get(facts.get() as usize - 1).copied().flatten());
            let span = Span::sized(claim.address, u64::from(claim.len));
            match rows.last_mut() {
                Some(last) if last.span.end >= span.start && last.rule == rule => {
                    last.span.end = last.span.end.max(span.end);
                }
                Some(last) if last.span.end > span.start => {
                    // Instructions that overlap.
                    last.span.end = span.start;
                    rows.push(Row { span, rule });
                }
                _ => rows.push(Row { span, rule }),
            }
        }
        rows.retain(|row| row.span.start < row.span.end);
        rows
    }

    /// The known rows, cut where a function begins: the function that each belongs to (file address), its addresses and
    /// its rule.
    pub fn rows_of_functions(&self) -> Vec<(u64, Span, Rule)> {
        let entries: Vec<u64> = self.functions.iter().filter(|f| f.fault.is_none()).map(|f| f.entry).collect();
        let mut all = Vec::new();
        for row in self.rows() {
            let Some(rule) = row.rule else { continue };
            let later = entries.partition_point(|entry| *entry <= row.span.start);
            let own = later.checked_sub(1).and_then(|index| entries.get(index)).copied();
            let mut function = own.unwrap_or(row.span.start);
            let mut start = row.span.start;
            // A row may go on where another function begins.
            let inside = entries.get(later..).unwrap_or(&[]).iter().copied().take_while(|entry| *entry < row.span.end);
            for end in inside.chain([row.span.end]) {
                all.push((function, Span::new(start, end), rule));
                (function, start) = (end, end);
            }
        }
        all
    }

    /// The facts of a claim.
    pub fn facts_of(&self, claim: &Claim) -> Option<&State> {
        self.facts.get(claim.facts?.get() as usize - 1)
    }
}

/// Analyses the functions that no source describes. On CPUs whose machine code is not understood, it finds none.
pub fn analyse(code: &Code<'_>, budget: Budget) -> Found {
    if !row::IS_SERVED {
        return Found::default();
    }
    let mut program = Program::new(code, budget);
    for entry in code.entries.iter().chain(&code.candidates) {
        if !code.is_described(*entry) {
            let origin = if program.sure.contains(entry) { Origin::Sure } else { Origin::Likely };
            program.explore(*entry, origin);
        }
    }
    program.gaps(Origin::Likely);
    program.gaps(Origin::Guess);
    program.finish()
}

/// Functions that are analysed together, since their facts depend on whether others of them return.
#[derive(Default)]
struct Work {
    /// Those that are to be carried out, the next one last.
    stack: Vec<u64>,
    /// All of them, by their first instructions.
    active: Map<u64, Box<Function>>,
    /// Which ones wait for a function.
    waiters: Map<u64, Set<u64>>,
    /// Those that have calls after which another function may begin.
    doubtful: BTreeSet<u64>,
    /// Circles that were dealt with.
    rounds: u32,
}

/// Whether functions return, and where they begin.
struct Known<'p> {
    returns: &'p Map<u64, Returns>,
    begins: &'p Begins,
    code: &'p Code<'p>,
    claimed: &'p Map<u64, NonZeroU32>,
    facts: &'p [State],
    doubtful: &'p Doubts,
}

impl Others for Known<'_> {
    fn returns(&mut self, address: u64) -> Returns {
        self.returns.get(&address).copied().unwrap_or(Returns::Unsettled)
    }

    fn begins(&self, address: u64) -> bool {
        self.begins.bits.has(address) || self.code.is_described_start(address)
    }

    fn begins_between(&self, start: u64, end: u64) -> bool {
        self.next_begin(start) < end
    }

    fn next_begin(&self, address: u64) -> u64 {
        self.begins.list.range(address..).next().map_or(u64::MAX, |begin| *begin)
    }

    fn after_padding(&self, address: u64) -> u64 {
        let bytes = self.code.part(address).and_then(|part| part.from(address));
        address + bytes.map_or(0, |bytes| padding::len(bytes) as u64)
    }

    fn claimed(&self, block: u64) -> Option<&State> {
        self.facts.get(self.claimed.get(&block)?.get() as usize - 1)
    }

    fn is_doubtful(&self, address: u64, origin: Origin) -> bool {
        self.doubtful.has(address, origin)
    }

    fn was_analysed(&self, address: u64) -> bool {
        self.returns.contains_key(&address)
    }
}

/// What functions have run through that were not understood.
struct Doubts {
    /// Those that are more than guesses.
    likely: Covered,
    guesses: Covered,
}

impl Doubts {
    fn has(&self, address: u64, origin: Origin) -> bool {
        self.likely.has(address) || origin == Origin::Guess && self.guesses.has(address)
    }

    fn put(&mut self, address: u64, len: usize, origin: Origin) {
        let place = if origin == Origin::Guess { &mut self.guesses } else { &mut self.likely };
        place.put(address, len as u64);
    }
}

/// Where functions begin for certain.
struct Begins {
    list: BTreeSet<u64>,
    bits: Covered,
}

impl Begins {
    fn insert(&mut self, address: u64) {
        if self.list.insert(address) {
            self.bits.put(address, 1);
        }
    }
}

struct Program<'c> {
    code: &'c Code<'c>,
    stepper: Stepper,
    left: u64,
    exhausted: bool,
    returns: Map<u64, Returns>,
    begins: Begins,
    sure: Set<u64>,
    facts: Interned,
    claims: Vec<Claim>,
    /// The same of functions that nothing but jumps leaves.
    by_jumps: Vec<Claim>,
    functions: Vec<Analysed>,
    covered: Covered,
    doubtful: Doubts,
    /// The facts at the starts of blocks.
    claimed: Map<u64, NonZeroU32>,
    /// What functions call that were understood.
    called: Covered,
}

impl<'c> Program<'c> {
    fn new(code: &'c Code<'c>, budget: Budget) -> Program<'c> {
        let none = Covered::of(&code.text);
        let sure: Set<u64> = code.entries.iter().copied().collect();
        let mut begins = Begins { list: BTreeSet::new(), bits: none.clone() };
        code.entries.iter().for_each(|entry| begins.insert(*entry));
        Program {
            code,
            stepper: Stepper::new(),
            left: budget.steps,
            exhausted: false,
            returns: Map::default(),
            begins,
            sure,
            facts: Interned::default(),
            claims: Vec::new(),
            by_jumps: Vec::new(),
            functions: Vec::new(),
            covered: none.clone(),
            doubtful: Doubts { likely: none.clone(), guesses: none.clone() },
            claimed: Map::default(),
            called: none,
        }
    }

    /// Analyses a function, and those on whose return its own facts depend.
    fn explore(&mut self, entry: u64, origin: Origin) {
        if self.returns.contains_key(&entry) || self.code.part(entry).is_none() {
            return;
        }
        // The middle of a function that was not understood.
        let is_in_doubt = self.doubtful.has(entry, origin) && !entry.is_multiple_of(FUNCTION_ALIGNMENT);
        if origin != Origin::Sure && (is_in_doubt || self.code.is_in_part(entry)) {
            return;
        }
        let mut work = Work { stack: vec![entry], ..Work::default() };
        work.active.insert(entry, Box::new(Function::new(entry, origin)));
        self.returns.insert(entry, Returns::Unsettled);
        loop {
            self.follow(&mut work);
            for address in core::mem::take(&mut work.doubtful) {
                if let Some(function) = work.active.get_mut(&address) {
                    if self.go_on(function) {
                        work.stack.push(address);
                    }
                }
            }
            if work.stack.is_empty() && !self.go_round(&mut work) {
                break;
            }
        }
        let mut all: Vec<Box<Function>> = work.active.into_values().collect();
        all.sort_by_key(|function| function.entry);
        for function in all {
            self.settle(&function);
        }
    }

    /// Carries out the functions of a stack, and those that they call and of which it is not known whether they return.
    fn follow(&mut self, work: &mut Work) {
        let Work { stack, active, waiters, doubtful, .. } = work;
        while let Some(address) = stack.pop() {
            let Some(mut function) = active.remove(&address) else { continue };
            if self.left == 0 {
                function.fault = Some(Fault::TooLong);
                self.exhausted = true;
            }
            self.run(&mut function);
            if function.returns || function.fault.is_some() {
                let returns = if function.returned { Returns::Yes } else { Returns::Perhaps };
                if self.returns.insert(address, returns) != Some(returns) {
                    stack.extend(waiters.remove(&address).unwrap_or_default());
                }
            }
            let mut again = false;
            for wait in core::mem::take(&mut function.waits) {
                match self.returns.get(&wait.callee) {
                    Some(Returns::Yes) if !wait.is_apart || wait.is_tail => {
                        function.resume(wait, false);
                        again = true;
                    }
                    Some(Returns::Yes | Returns::Perhaps) => again |= function.after_unknown(wait, &self.known()),
                    Some(Returns::Never) => {}
                    found => {
                        if found.is_none() {
                            self.returns.insert(wait.callee, Returns::Unsettled);
                            let origin = if wait.is_tail { Origin::Likely } else { Origin::Sure };
                            active.insert(wait.callee, Box::new(Function::new(wait.callee, origin)));
                            stack.push(wait.callee);
                        }
                        waiters.entry(wait.callee).or_default().insert(address);
                        function.waits.push(wait);
                    }
                }
            }
            if !function.doubtful.is_empty() {
                doubtful.insert(address);
            }
            active.insert(address, function);
            if again {
                stack.push(address);
            }
        }
    }

    /// Where functions only wait for each other: settles those that never return; else lets one of a circle go on, and
    /// after many rounds all of them, as if its callees may return. Calls in a circle that has no end are no program:
    /// a way out was not seen, such as one that begins where an exception is caught. Returns whether there is something
    /// to do.
    fn go_round(&mut self, work: &mut Work) -> bool {
        let Work { stack, active, waiters, doubtful, rounds } = work;
        let ends = |function: &Function| function.waits.is_empty() && !function.returns && function.fault.is_none();
        for function in active.values().filter(|function| ends(function)) {
            if self.returns.insert(function.entry, Returns::Never) != Some(Returns::Never) {
                stack.extend(waiters.remove(&function.entry).unwrap_or_default());
            }
        }
        if !stack.is_empty() {
            stack.sort_unstable();
            return true;
        }
        let Some(mut at) = active.values().filter(|f| !f.waits.is_empty()).map(|f| f.entry).min() else { return false };
        let mut seen = Set::default();
        while seen.insert(at) {
            let callee = active.get(&at).and_then(|function| function.waits.first()).map(|wait| wait.callee);
            let waits = |entry: &u64| active.get(entry).is_some_and(|function| !function.waits.is_empty());
            at = callee.filter(waits).unwrap_or(at);
        }
        stack.push(at);
        if *rounds >= MOST_ROUNDS {
            stack.clear();
            stack.extend(active.values().filter(|function| !function.waits.is_empty()).map(|function| function.entry));
            stack.sort_unstable();
        }
        *rounds += 1;
        for at in stack.iter() {
            let Some(function) = active.get_mut(at) else { continue };
            for wait in core::mem::take(&mut function.waits) {
                function.after_unknown(wait, &self.known());
            }
            if !function.doubtful.is_empty() {
                doubtful.insert(*at);
            }
        }
        true
    }

    fn known(&self) -> Known<'_> {
        let Program { returns, begins, code, claimed, facts, doubtful, .. } = self;
        Known { returns, begins, code, claimed, facts: &facts.list, doubtful }
    }

    fn run(&mut self, function: &mut Function) {
        let Program { returns, begins, code, claimed, facts, doubtful, stepper, .. } = self;
        let mut known = Known { returns, begins, code, claimed, facts: &facts.list, doubtful };
        let steps = function.run(code, stepper, &mut known);
        self.left = self.left.saturating_sub(steps);
    }

    /// Goes on after calls where another function may begin: where a jump leads there, too, and where the code returns
    /// properly from the frame that it has after the call. Returns whether there is something to do.
    fn go_on(&mut self, function: &mut Function) -> bool {
        let mut again = false;
        for wait in core::mem::take(&mut function.doubtful) {
            if function.fault.is_some() {
                break;
            }
            if !function.has_block(wait.next) {
                if wait.state.is_as_at_entry() || self.code.part(wait.next).is_none() {
                    continue;
                }
                let mut rest = function.rest(&wait);
                self.run(&mut rest);
                for wait in core::mem::take(&mut rest.waits) {
                    let returns = self.returns.get(&wait.callee) == Some(&Returns::Yes);
                    if wait.is_tail || returns && !wait.is_apart {
                        rest.resume(wait, !returns);
                    }
                }
                self.run(&mut rest);
                if rest.fault.is_some() || !rest.proved {
                    continue;
                }
            }
            function.resume(wait, true);
            again = true;
        }
        again
    }

    /// What is claimed of a function whose analysis is done.
    fn settle(&mut self, function: &Function) {
        let entry = function.entry;
        let returns = match function {
            Function { returned: true, .. } => Returns::Yes,
            Function { returns: false, fault: None, .. } => Returns::Never,
            _ => Returns::Perhaps,
        };
        self.returns.insert(entry, returns);
        if self.code.is_described(entry) {
            return;
        }
        let is_start = self.code.start == Some(entry);
        let unproved = !function.is_proved() && !self.sure.contains(&entry);
        let fault = match function.fault {
            None if is_start => Some(Fault::Start),
            None if unproved => Some(Fault::NoEnd),
            fault => fault,
        };
        let by_jumps = function.proved && !function.by_return;
        self.functions.push(Analysed { entry, by_jumps, fault });
        if fault.is_some() {
            for (start, end) in function.blocks() {
                self.doubtful.put(start, end.saturating_sub(start) as usize, function.origin());
            }
            return;
        }
        self.begins.insert(entry);
        let Program { code, facts, claims, by_jumps: others, covered, claimed, called, stepper, .. } = self;
        let claims = if by_jumps { others } else { claims };
        let mut last = None;
        // Addresses that nothing describes, and what is covered up to now.
        let (mut free, mut run) = (Span::new(0, 0), Span::new(0, 0));
        function.each(code, stepper, |Understood { address, len, begins_block, state }| {
            if let Some(state) = state {
                // Mostly a register has changed that no row depends on.
                let before = last.and_then(|last: NonZeroU32| facts.list.get(last.get() as usize - 1));
                if !before.is_some_and(|before| state.has_facts(before)) {
                    last = NonZeroU32::new(facts.number(state.facts()) + 1);
                }
                if let Some(last) = last.filter(|_| begins_block) {
                    claimed.entry(address).or_insert(last);
                }
            }
            if let Some(callee) = code.called_by(address, len) {
                called.put(callee, 1);
            }
            let end = address.saturating_add(len as u64);
            if !(free.start <= address && end <= free.end) {
                if code.is_described(address) || code.is_described(end.saturating_sub(1)) {
                    return;
                }
                free = Span::new(address, code.next_described(address));
            }
            if run.end == address {
                run.end = end;
            } else {
                covered.put(run.start, run.len());
                run = Span::new(address, end);
            }
            claims.push(Claim { address, len: len as u8, facts: last });
        });
        covered.put(run.start, run.len());
    }

    /// Looks for functions in text that nothing covers. `origin`: those that are likely, or all.
    fn gaps(&mut self, origin: Origin) {
        let mut instruction = Instruction::default();
        // Nothing is described from the last place on that was looked for, up to here.
        let mut undescribed = 0;
        for part in &self.code.text {
            let mut at = part.start;
            // A function may begin here.
            let mut may_begin = true;
            let mut after_space = true;
            while let Some(bytes) = part.from(at) {
                if self.left == 0 {
                    self.exhausted = true;
                    return;
                }
                if at >= undescribed {
                    if let Some(end) = self.code.after_described(at) {
                        (at, may_begin, after_space) = (end, true, false);
                        continue;
                    }
                    undescribed = self.code.next_described(at);
                }
                let end = self.covered.end(at).min(undescribed);
                if end > at {
                    (at, may_begin, after_space) = (end, true, false);
                    continue;
                }
                let filled = padding::len(bytes);
                if filled > 0 {
                    at += filled as u64;
                    after_space = true;
                    continue;
                }
                let is_likely = after_space && at.is_multiple_of(FUNCTION_ALIGNMENT);
                after_space = false;
                if may_begin && (is_likely || origin == Origin::Guess) && !self.returns.contains_key(&at) {
                    self.explore(at, if is_likely { Origin::Likely } else { Origin::Guess });
                    if self.covered.has(at) {
                        continue;
                    }
                }
                let mut decoder = Decoder::with_ip(64, bytes, at, DecoderOptions::NONE);
                decoder.decode_out(&mut instruction);
                let ends = matches!(
                    instruction.flow_control(),
                    FlowControl::Return
                        | FlowControl::UnconditionalBranch
                        | FlowControl::IndirectBranch
                        | FlowControl::Exception
                );
                may_begin = ends || instruction.mnemonic() == Mnemonic::Hlt || self.never_returns(&instruction);
                at += instruction.len().max(1) as u64;
                self.left -= 1;
            }
        }
    }

    /// Whether an instruction calls a function that never returns.
    fn never_returns(&self, instruction: &Instruction) -> bool {
        let target = instruction.near_branch_target();
        instruction.flow_control() == FlowControl::Call
            && (self.code.never.contains(&target) || self.returns.get(&target) == Some(&Returns::Never))
    }

    /// Keeps what is claimed of functions that nothing but jumps leaves, or not: in code of which most functions are so
    /// (Haskell's), the stack pointer leads to no return address.
    fn judge_jumps(&mut self) {
        let understood = || self.functions.iter().filter(|function| function.fault.is_none());
        let by_jumps = understood().filter(|function| function.by_jumps).count();
        if by_jumps * 2 <= understood().count() {
            self.claims.append(&mut self.by_jumps);
            return;
        }
        let functions = self.functions.iter_mut().filter(|function| function.by_jumps && function.fault.is_none());
        functions.for_each(|function| function.fault = Some(Fault::Jumps));
    }

    fn finish(mut self) -> Found {
        self.judge_jumps();
        let claims = in_order(core::mem::take(&mut self.claims));
        let claims = self.of_each_place(claims);
        self.functions.sort_by_key(|function| function.entry);
        Found { claims, facts: self.facts.list, functions: self.functions, exhausted: self.exhausted }
    }

    /// Claims by address, without repetitions, of what may be run.
    ///
    /// Left out is what is claimed of a function that is called, with another frame than functions are called with: for
    /// a value that cannot be, LLVM's tables of jumps lead to the end of the function, where another one begins. From
    /// there up to the next one, what follows may come from that way.
    fn of_each_place(&mut self, mut claims: Vec<Claim>) -> Vec<Claim> {
        let as_at_entry: Vec<bool> = self.facts.list.iter().map(State::is_as_at_entry).collect();
        let has_other_frame =
            |claim: &Claim| claim.facts.is_some_and(|facts| as_at_entry.get(facts.get() as usize - 1) == Some(&false));
        let (mut end, mut is_other) = (0, false);
        // Those before this index are kept.
        let mut kept = 0;
        for index in 0..claims.len() {
            let claim = claims[index];
            if self.called.has(claim.address) {
                is_other = has_other_frame(&claim);
            } else if claim.address > end {
                is_other = false;
            }
            end = claim.address + u64::from(claim.len);
            if is_other {
                continue;
            }
            let mut facts = claim.facts;
            if let Some(last) =
                claims[..kept].last_mut().filter(|last| last.address + u64::from(last.len) > claim.address)
            {
                if last.facts != facts {
                    facts = self.agreed(last.facts, facts);
                    last.facts = facts;
                }
                if last.address == claim.address {
                    continue;
                }
            }
            claims[kept] = Claim { facts, ..claim };
            kept += 1;
        }
        claims.truncate(kept);
        claims
    }

    /// What two ways agree on.
    fn agreed(&mut self, one: Option<NonZeroU32>, other: Option<NonZeroU32>) -> Option<NonZeroU32> {
        let of = |number: Option<NonZeroU32>| self.facts.list.get(number?.get() as usize - 1);
        let mut state = of(one)?.clone();
        state.join(of(other)?);
        NonZeroU32::new(self.facts.number(state.facts()) + 1)
    }
}

/// Claims by address and length. Each function's come in runs by address, most of which no others overlap.
fn in_order(claims: Vec<Claim>) -> Vec<Claim> {
    let follows = |one: &Claim, other: &Claim| one.address + u64::from(one.len) == other.address;
    let mut runs: Vec<&[Claim]> = claims.chunk_by(follows).collect();
    runs.sort_by_key(|run| run.first().map(|claim| claim.address));
    let mut ordered: Vec<Claim> = Vec::with_capacity(claims.len());
    // Where runs begin that overlap, how many they are, and where they end.
    let (mut from, mut count, mut end) = (0, 0, 0);
    for run in runs {
        let (Some(first), Some(last)) = (run.first(), run.last()) else { continue };
        if first.address >= end {
            sort_overlapping(&mut ordered, from, count);
            (from, count) = (ordered.len(), 0);
        }
        ordered.extend_from_slice(run);
        (count, end) = (count + 1, end.max(last.address + u64::from(last.len)));
    }
    sort_overlapping(&mut ordered, from, count);
    ordered
}

/// Sorts claims from an index on, if they are of more than one run.
fn sort_overlapping(claims: &mut [Claim], from: usize, runs: usize) {
    if runs > 1 {
        claims.get_mut(from..).into_iter().for_each(|part| part.sort_by_key(|claim| (claim.address, claim.len)));
    }
}
