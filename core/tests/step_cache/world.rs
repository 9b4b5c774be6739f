//! A program whose stack, code and registers change at random.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU64, Ordering};
use uunwind_core::cache::short::{Salt, Short, ShortRules};
use uunwind_core::cache::steps::{Rules, StepCache, Top, Unwound, Validity, EXACT_KEY};
use uunwind_core::cursor::Cursor;
use uunwind_core::frame::FLAG_EXACT;
use uunwind_core::memory::{guarded, Bare, Mode, OwnStack, Reader, StackWords};
use uunwind_core::regs::{Regs, RBP, RSP, UCONTEXT_FP, UCONTEXT_PC, UCONTEXT_SP};
use uunwind_core::rule::{Packed, Rule, RuleKind, SAME, UNKNOWN};
use uunwind_core::span::Span;
use uunwind_core::stop_reason::StopReason;
use uunwind_core::walk::{walk, walk_rest, walk_with_steps, Env, Names, Outcome, Replay, Setting};
use uunwind_random::Random;

/// Functions: code [n * 0x1000, (n + 1) * 0x1000), n from 1.
pub const FUNCTIONS: u64 = 24;
pub const WORDS: usize = 3000;
/// Number of words after the stack in which a CFA may lie.
pub const MARGIN: usize = 64;
/// Number of words of a ucontext, up to its last register.
pub const UCONTEXT_WORDS: u64 = 28;

/// A program: real memory, since guarded reads read that.
pub struct World {
    pub rules: Vec<Rule>,
    /// Those of interrupted instructions, which may be others.
    pub exact_rules: Vec<Rule>,
    pub stack: Vec<u64>,
    /// pc, sp and rbp of the frames that were built last.
    pub frames: Vec<(u64, u64, u64)>,
    pub stamp: Box<u64>,
    pub pc: u64,
    pub registers: [u64; 16],
    pub exact: bool,
    pub framed: bool,
    /// Number of stacks that [`StepCache::replay`] captured, from a return address and from an exact pc.
    pub replayed: [Cell<u64>; 2],
    /// Number of those in which a signal frame lies.
    pub through_signals: Cell<u64>,
    /// Number of stacks that a walk completed, and of frames that it was handed.
    pub handed_on: [Cell<u64>; 2],
    /// Where walks looked at a frame.
    pub looked_at: RefCell<Vec<u64>>,
}

/// The program as walks ask it; with short rules or without.
struct Code<'w>(&'w World, bool);

impl Code<'_> {
    fn rule_at(&self, pc: u64, exact: bool) -> Option<&Rule> {
        let rules = if exact { &self.0.exact_rules } else { &self.0.rules };
        rules.get((pc >> 12) as usize)
    }
}

impl Names for Code<'_> {}

impl Replay for Code<'_> {}

impl Env for Code<'_> {
    fn rule(&mut self, cursor: &Cursor, _: &mut Reader<'_>) -> Packed {
        self.0.looked_at.borrow_mut().push(cursor.lookup_pc());
        self.rule_at(cursor.lookup_pc(), cursor.exact).map_or(Packed::failed(StopReason::NoOwner), |rule| rule.pack())
    }
    fn short_rule_cached(&self, lookup: u64) -> Option<Short> {
        Short::of(self.rule_at(lookup, false).filter(|_| self.1)?.pack())
    }
}

/// `struct sigaction` of the C library (glibc, x86-64).
#[repr(C)]
struct SigAction {
    handler: unsafe extern "C" fn(i32, *mut u8, *mut u8),
    mask: [u64; 16],
    flags: i32,
    restorer: usize,
}

extern "C" {
    fn sigaction(signal: i32, new: *const SigAction, old: *mut SigAction) -> i32;
}

/// The page in which faults are counted, and how many there were.
pub static WATCHED: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];

unsafe extern "C" fn on_fault(_: i32, info: *mut u8, ucontext: *mut u8) {
    // SAFETY: the kernel's siginfo: si_addr.
    let address = unsafe { info.cast::<u64>().add(2).read() };
    if address & !4095 == WATCHED[0].load(Ordering::Relaxed) {
        WATCHED[1].fetch_add(1, Ordering::Relaxed);
    }
    // SAFETY: the kernel's ucontext.
    if !unsafe { guarded::mend(ucontext) } {
        std::process::abort();
    }
}

/// Guarded reads of what is no memory fail from now on.
pub fn handle_faults() {
    const SIGSEGV: i32 = 11;
    const SA_SIGINFO: i32 = 4;
    const SA_NODEFER: i32 = 0x4000_0000;
    let action = SigAction { handler: on_fault, mask: [0; 16], flags: SA_SIGINFO | SA_NODEFER, restorer: 0 };
    // SAFETY: a valid structure.
    assert_eq!(unsafe { sigaction(SIGSEGV, &raw const action, std::ptr::null_mut()) }, 0);
}

/// `framed`: most code keeps a frame pointer, as compilers make it.
fn a_rule(random: &mut Random, framed: bool) -> Rule {
    if framed && !random.one_in(8) {
        let mut rule = Rule::simple(RBP, 16);
        rule.slots[1] = -2;
        if random.one_in(3) {
            rule.slots[2] = -3;
        }
        return rule;
    }
    if random.one_in(150) {
        return Rule::simple(12, 24);
    }
    if random.one_in(12) {
        return realigned(random);
    }
    if random.one_in(20) {
        return Rule::signal(0);
    }
    let size = 16 + 8 * random.below(6) as i32;
    let mut rule = Rule::simple(if random.one_in(6) { RBP } else { RSP }, size);
    for (index, slot) in rule.slots.iter_mut().take(6).enumerate() {
        *slot = match random.below(6) {
            0 if size >= 32 => -2 - (index as i16 % 2),
            1 if random.one_in(40) => UNKNOWN,
            _ => SAME,
        };
    }
    if rule.cfa_register == RBP && !random.one_in(10) {
        // Who counts from rbp has saved its caller's, as compilers do it.
        rule.slots[1] = -2;
    }
    if random.one_in(200) {
        rule.kind = RuleKind::Deref;
    }
    rule
}

/// As gcc compiles a function that aligns its stack: the CFA lies just below the caller's rbp, to which rbp points.
pub fn realigned(random: &mut Random) -> Rule {
    let mut rule = Rule { kind: RuleKind::Deref, ..Rule::simple(RBP, -8) };
    (rule.slots[1], rule.from_fp) = (0, 2);
    if random.one_in(2) {
        // r12, at a lower address.
        (rule.slots[2], rule.from_fp) = (-2 - random.below(3) as i16, 6);
    }
    rule
}

/// Whether it is one of [`realigned`].
fn is_realigned(rule: &Rule) -> bool {
    rule.kind == RuleKind::Deref && rule.cfa_offset == -8
}

impl Validity for World {
    fn words(&self, each: &mut dyn FnMut(u64, u64)) -> Option<u64> {
        each(std::ptr::from_ref(&*self.stamp) as u64, *self.stamp);
        Some(*self.stamp)
    }
}

impl World {
    pub fn new(random: &mut Random) -> World {
        // Function 1 is the one that stacks end with.
        let framed = random.one_in(3);
        let mut rules = vec![Rule::end(), Rule::end()];
        rules.extend((1..FUNCTIONS).map(|_| a_rule(random, framed)));
        let exact = |rule: &Rule| if random.one_in(4) { a_rule(random, framed) } else { *rule };
        let exact_rules = rules.iter().map(exact).collect();
        let stack = vec![0; WORDS + MARGIN];
        let (frames, registers) = (Vec::new(), [0; 16]);
        let mut world = World {
            rules,
            exact_rules,
            stack,
            frames,
            stamp: Box::new(1),
            pc: 0,
            registers,
            exact: false,
            framed,
            replayed: Default::default(),
            through_signals: Default::default(),
            handed_on: Default::default(),
            looked_at: Default::default(),
        };
        for at in 0..WORDS {
            world.stack[at] = world.word(random);
        }
        world.jump(random);
        world.build(random);
        world
    }

    pub fn address(&self, index: u64) -> u64 {
        self.stack.as_ptr() as u64 + 8 * index
    }

    /// A return address, or a place in the stack.
    pub fn word(&self, random: &mut Random) -> u64 {
        if random.one_in(3) {
            self.address(random.below(WORDS as u64))
        } else {
            ((1 + random.below(FUNCTIONS)) << 12) + 0x10 + random.below(3)
        }
    }

    fn jump(&mut self, random: &mut Random) {
        self.pc = ((1 + random.below(FUNCTIONS)) << 12) + 0x120;
        self.exact = random.one_in(3);
        self.registers = [0; 16];
        for register in [3, 12, 13, 14, 15] {
            self.registers[register] = self.address(random.below(WORDS as u64));
        }
        self.registers[usize::from(RSP)] = self.address(100 + random.below(40));
        self.registers[usize::from(RBP)] = self.address(140 + random.below(40));
    }

    /// Return addresses where the rules look for them, so that the walk is long.
    fn build(&mut self, random: &mut Random) {
        let (mut pc, mut sp, mut exact) = (self.pc, self.registers[usize::from(RSP)], self.exact);
        // Where rbp lies: in the register, or where a frame saved it. What it is there is chosen when a frame counts
        // from it.
        let mut saved: Option<usize> = None;
        let depth = 20 + random.below(700);
        self.frames.clear();
        for left in (0..depth).rev() {
            let rules = if std::mem::take(&mut exact) { &self.exact_rules } else { &self.rules };
            let mut rule = rules[(pc >> 12) as usize];
            if rule.kind == RuleKind::Signal {
                let Some((to, rbp)) = self.interrupt(sp, random) else { return };
                ((pc, sp), saved, exact) = (to, Some(rbp), true);
                self.frames.push((pc, sp, self.stack[rbp]));
                continue;
            }
            let realigned = is_realigned(&rule);
            if realigned {
                rule.cfa_offset = 16 + 8 * random.below(9) as i32;
                rule.slots[1] = -(rule.cfa_offset as i16) / 8;
            } else if rule.kind != RuleKind::Offset || !matches!(rule.cfa_register, RSP | RBP) {
                return;
            }
            let mut base = sp;
            if rule.cfa_register == RBP {
                base += 8 * random.below(12);
                match saved {
                    Some(at) => self.stack[at] = base,
                    None => self.registers[usize::from(RBP)] = base,
                }
            }
            let cfa = base + rule.cfa_offset as u64;
            let index = (cfa - 8 - self.address(0)) / 8;
            if index >= WORDS as u64 {
                return;
            }
            if realigned {
                let below = (base - self.address(0)) / 8 - 1;
                self.stack[below as usize] = cfa;
            }
            let callee = if left == 0 { 1 } else { 2 + random.below(FUNCTIONS - 1) };
            self.stack[index as usize] = (callee << 12) + 0x10;
            if let slot @ ..0 = rule.slots[1] {
                saved = (slot != UNKNOWN).then(|| (index as usize).wrapping_add_signed(isize::from(slot) + 1));
            }
            (pc, sp) = (self.stack[index as usize], cfa);
            self.frames.push((pc, sp, saved.map_or(self.registers[usize::from(RBP)], |at| self.stack[at])));
        }
    }

    /// Writes a ucontext to `sp`. Returns pc and sp of the interrupted code, and the index of its rbp. `None`: there is
    /// no room.
    fn interrupt(&mut self, sp: u64, random: &mut Random) -> Option<((u64, u64), usize)> {
        let ucontext = ((sp - self.address(0)) / 8) as usize;
        let beyond = ucontext as u64 + UCONTEXT_WORDS + random.below(20);
        if beyond >= WORDS as u64 {
            return None;
        }
        // Some are interrupted where others return to.
        let to = ((2 + random.below(FUNCTIONS - 1)) << 12) + if random.one_in(2) { 0x10 } else { 0x120 };
        // Now and then it is the stack of somebody else, towards the leaf.
        let at = if random.one_in(12) { self.address(random.below(beyond)) } else { self.address(beyond) };
        self.stack[ucontext + UCONTEXT_PC as usize / 8] = to;
        self.stack[ucontext + UCONTEXT_SP as usize / 8] = at;
        let rbp = ucontext + UCONTEXT_FP as usize / 8;
        self.stack[rbp] = self.word(random);
        (at == self.address(beyond)).then_some(((to, at), rbp))
    }

    /// Other callees on top of one of the frames, as calls and returns make them.
    pub fn call(&mut self, random: &mut Random) {
        let Some((mut pc, mut sp, mut fp)) = self.frames.get(random.below(12) as usize).copied() else { return };
        for _ in 0..1 + random.below(8) {
            let callee = 2 + random.below(FUNCTIONS - 1);
            let mut rule = self.rules[callee as usize];
            let realigned = is_realigned(&rule);
            if realigned {
                (rule.kind, rule.cfa_offset) = (RuleKind::Offset, 16 + 8 * random.below(9) as i32);
                rule.slots[1] = -(rule.cfa_offset as i16) / 8;
            }
            let room = (sp - self.address(0)) as i64;
            let is_offset = rule.kind == RuleKind::Offset && matches!(rule.cfa_register, RSP | RBP);
            if !is_offset || room < i64::from(rule.cfa_offset) + 64 {
                continue;
            }
            let return_address = ((sp - 8 - self.address(0)) / 8) as usize;
            self.stack[return_address] = pc;
            if let slot @ ..0 = rule.slots[1] {
                if slot != UNKNOWN {
                    self.stack[return_address.wrapping_add_signed(isize::from(slot) + 1)] = fp;
                }
                fp = self.word(random);
            }
            if rule.cfa_register == RBP {
                fp = sp - rule.cfa_offset as u64;
            }
            if realigned {
                let below = (fp - self.address(0)) / 8 - 1;
                self.stack[below as usize] = sp;
            }
            (pc, sp) = ((callee << 12) + 0x10, sp - rule.cfa_offset as u64 - if realigned { 8 } else { 0 });
        }
        self.pc = pc;
        self.registers[usize::from(RSP)] = sp;
        self.registers[usize::from(RBP)] = fp;
    }

    /// Returns to one of the frames; the inner frames' words stay as they are.
    pub fn go_out(&mut self, random: &mut Random) {
        if let Some((pc, sp, fp)) = self.frames.get(random.index(40)).copied() {
            (self.pc, self.registers[usize::from(RSP)], self.registers[usize::from(RBP)]) = (pc, sp, fp);
            self.exact = false;
        }
    }

    /// Moves the stack towards the leaf or the root; or only the part up to one of its frames. Pointers into it follow.
    fn shift(&mut self, random: &mut Random) {
        let most = if random.one_in(2) { 6 } else { 40 };
        let by = 1 + random.below(most);
        let to_root = random.one_in(2);
        let frame = self.frames.get(random.below(60) as usize).map(|(_, sp, _)| *sp);
        let limit = frame.filter(|_| random.one_in(2)).unwrap_or(self.address(WORDS as u64 - by));
        let part = self.address(by)..limit.max(self.address(by));
        let moved = |word: u64| match to_root {
            _ if !part.contains(&word) => word,
            true => word + 8 * by,
            false => word - 8 * by,
        };
        self.stack.iter_mut().chain(&mut self.registers).for_each(|word| *word = moved(*word));
        self.frames.iter_mut().for_each(|(_, sp, fp)| (*sp, *fp) = (moved(*sp), moved(*fp)));
        let [from, to] = [part.start, part.end].map(|address| ((address - self.address(0)) / 8) as usize);
        let by = by as usize;
        self.stack.copy_within(from..to, if to_root { from + by } else { from - by });
    }

    /// Other code, with another rule, takes the place of a function.
    pub fn recompile(&mut self, random: &mut Random) {
        let at = 2 + random.below(FUNCTIONS - 1) as usize;
        self.rules[at] = a_rule(random, self.framed);
        self.exact_rules[at] = if random.one_in(4) { a_rule(random, self.framed) } else { self.rules[at] };
        *self.stamp += 1;
    }

    pub fn change(&mut self, random: &mut Random) {
        let place = |random: &mut Random, n: u64| random.below(n) as usize;
        match random.below(28) {
            0..=8 => self.call(random),
            9 => self.jump(random),
            10 | 11 => {
                // One word, often one that the walk reads.
                let near =
                    self.frames.get(place(random, 40)).map_or(0, |(_, sp, _)| (sp - self.address(0)) as usize / 8);
                let at = if random.one_in(3) {
                    place(random, WORDS as u64)
                } else if random.one_in(3) {
                    near + place(random, UCONTEXT_WORDS)
                } else {
                    near.saturating_sub(1 + place(random, 4))
                };
                self.stack[at] = self.word(random);
            }
            // Some that no frame pointer can be.
            12 => {
                let odd = if random.one_in(4) { 1 + random.below(7) } else { 0 };
                self.registers[usize::from(RBP)] = self.address(random.below(WORDS as u64)) + odd;
            }
            13 => self.registers[12] = self.address(random.below(WORDS as u64)),
            14 if random.one_in(4) => self.recompile(random),
            15..=17 => {
                self.jump(random);
                self.build(random);
            }
            18 => self.exact = !self.exact,
            19..=22 => self.shift(random),
            _ => {}
        }
    }

    fn cursor(&self) -> Cursor {
        Cursor { regs: Regs::full(self.pc, self.registers), exact: self.exact }
    }

    /// Walks the stack. `cache`: `None`: without short rules, too.
    pub fn emit(&self, capacity: usize, cache: Option<&StepCache>) -> (Outcome, Vec<u64>) {
        let mut words = vec![0; capacity];
        // SAFETY: faults are handled. No scratch, so no plugin is called.
        let outcome = unsafe {
            let mut reader = Reader::new(Mode::Guarded);
            match cache {
                None => walk(self.cursor(), &mut Code(self, false), &mut reader, &mut words, &Setting::EMPTY),
                Some(cache) => {
                    let mut steps = cache.begin(*self.stamp);
                    let outcome = walk_with_steps(
                        steps.as_mut(),
                        self.cursor(),
                        &mut Code(self, true),
                        &mut reader,
                        &mut words,
                        &Setting::EMPTY,
                    );
                    if let Some(steps) = steps {
                        steps.finish();
                    }
                    outcome
                }
            }
        };
        words.truncate(outcome.words);
        (outcome, words)
    }

    /// Stores the current rules in the table of short rules.
    pub fn remember(&self, table: &Table) {
        for function in 1..=FUNCTIONS {
            let code = function << 12;
            let put = |key: u64, rule: &Rule| {
                if let Some(short) = Short::of(rule.pack()) {
                    table.put(key, Salt::new(*self.stamp), short);
                }
            };
            [0x10, 0x11, 0x12, 0x120].iter().for_each(|pc| put(code + pc - 1, &self.rules[function as usize]));
            // Those that a stack may begin with; no more than there is room for in a line of the table.
            [0x10, 0x120].iter().for_each(|pc| put((code + pc) | EXACT_KEY, &self.exact_rules[function as usize]));
        }
    }

    /// The stack by [`StepCache::replay`] or [`StepCache::replay_in_order`], or else by [`StepCache::unwind`] and a
    /// walk from where that ends.
    pub fn whole(&self, capacity: usize, table: &Table, cache: &StepCache) -> Option<(StopReason, Vec<u64>)> {
        if OWN.get() {
            let stack = self.own_stack();
            let mut reader = Reader::probed();
            reader.believe(stack);
            let replay = |top, words: &mut [u64]| cache.replay_in_order(top, *self.stamp, stack, words);
            return self.whole_by(stack, replay, reader, capacity, table, cache);
        }
        // SAFETY: faults are handled.
        let (bare, reader) = unsafe { (Bare::new(true)?, Reader::new(Mode::Guarded)) };
        self.whole_by(bare, |top, words: &mut [u64]| cache.replay(top, bare, words), reader, capacity, table, cache)
    }

    /// All of the stack, as the thread's own.
    fn own_stack(&self) -> OwnStack {
        // SAFETY: the array outlives it. What a test makes unreadable lies between frames, or nothing is read there.
        unsafe { OwnStack::new(Span::new(self.address(0), self.address(self.stack.len() as u64))) }
    }

    fn whole_by<'c, W: StackWords>(
        &self,
        stack: W,
        replay: impl Fn(Top, &mut [u64]) -> Option<(usize, StopReason)>,
        mut reader: Reader<'c>,
        capacity: usize,
        table: &Table,
        cache: &'c StepCache,
    ) -> Option<(StopReason, Vec<u64>)> {
        let mut words = vec![0; capacity];
        let rules = Rules { table, salt: Salt::new(*self.stamp), stamp: *self.stamp, validity: self };
        let [sp, fp] = [RSP, RBP].map(|register| self.registers[usize::from(register)]);
        let top = Top { pc: self.pc, exact: self.exact, sp, fp };
        if let Some((count, stop)) = replay(top, &mut words) {
            let interrupted = words[..count].iter().skip(1).any(|word| word & FLAG_EXACT != 0);
            for times in [Some(&self.replayed[usize::from(self.exact)]), interrupted.then_some(&self.through_signals)] {
                times.into_iter().for_each(|times| times.set(times.get() + 1));
            }
            words.truncate(count);
            return Some((stop, words));
        }
        // SAFETY: the cache is this thread's.
        let (count, stop) = match unsafe { cache.unwind(&rules, top, stack, &mut words) } {
            Unwound::Whole(count, stop) => (count, stop),
            Unwound::Nothing => return None,
            Unwound::Part(mut part) => {
                let (handed, inner) = (part.count, words[..part.count].to_vec());
                // SAFETY: as above. No scratch, so no plugin is called.
                let outcome = unsafe {
                    walk_rest(&mut part, self.cursor(), &mut Code(self, true), &mut reader, &mut words, &Setting::EMPTY)
                };
                part.steps.finish();
                assert_eq!(words[..handed], inner, "the frames that were handed on stay as they were");
                for (number, more) in self.handed_on.iter().zip([1, handed as u64]) {
                    number.set(number.get() + more);
                }
                (outcome.words, outcome.stop)
            }
        };
        words.truncate(count);
        Some((stop, words))
    }
}

thread_local! {
    /// Whether captures read the stack as the thread's own, and no fault is handled for them.
    static OWN: Cell<bool> = const { Cell::new(false) };
}

/// A test of captures whose reads are guarded, and of those that believe that the stack is the thread's own.
pub fn by_both(test: impl Fn()) {
    for own in [false, true] {
        OWN.set(own);
        test();
    }
}

pub type Table = ShortRules<65536>;
