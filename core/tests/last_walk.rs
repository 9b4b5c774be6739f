//! Reuse of the last walk is exact: over random changes of a world, a walk with a cached last walk emits the same
//! frames as a walk without one.
#![cfg(target_arch = "x86_64")]

#[path = "last_walk/plugin.rs"]
mod plugin;

use plugin::{overlay, step, REST_KNOWN, STEP_KNOWN};
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use uunwind_core::cache::last_walk::LastWalk;
use uunwind_core::cache::short::Short;
use uunwind_core::cursor::Cursor;
use uunwind_core::memory::{Reader, Region};
use uunwind_core::plugin::{Visit, NO_REGISTERS};
use uunwind_core::regs::{Regs, RBP, RSP};
use uunwind_core::rule::{Packed, Rule, RuleKind, SAME, UNKNOWN};
use uunwind_core::stop_reason::StopReason;
use uunwind_core::walk::{walk, Claim, Claimed, DependsOn, Env, Look, Names, Outcome, Replay, Setting, SCRATCH};
use uunwind_random::Random;

const STACK: u64 = 0x7000_0000;
const HEAP: u64 = 0x1000_0000;
const STACK_WORDS: usize = 400;
const HEAP_WORDS: usize = 64;
/// The word that the rules of [`Owner::Read`] follow from: one that plugins read, too.
const DECIDES: u64 = HEAP;
/// Functions: code [n * 0x1000, (n + 1) * 0x1000), n from 1.
const FUNCTIONS: u64 = 24;

#[derive(Clone, Copy, PartialEq)]
enum Owner {
    /// An object that stays.
    Plain,
    /// One that a plugin claims.
    Claimed,
    /// One that may go away.
    Loaded,
    /// A window.
    Window,
    /// Code whose rule follows from a word of memory.
    Read,
}

#[derive(Clone)]
struct World {
    rules: Vec<(Rule, Owner)>,
    stack: Vec<u64>,
    heap: Vec<u64>,
    /// What a change outside of words bumps.
    generation: u64,
    windows: u64,
    loaded: bool,
    names: HashMap<(u64, u64), u32>,
    pc: u64,
    registers: [u64; 16],
    readable: usize,
}

struct Process<'w> {
    world: &'w mut World,
    /// With the short rules' loop.
    short: bool,
    met_window: bool,
    met_loaded: bool,
    missed: bool,
    pending: bool,
    claim_flags: u32,
}

impl Process<'_> {
    fn code(&self, pc: u64) -> Option<(Rule, Owner)> {
        self.world.rules.get((pc >> 12) as usize).copied()
    }
}

impl Env for Process<'_> {
    fn rule(&mut self, cursor: &Cursor, reader: &mut Reader<'_>) -> Packed {
        match self.code(cursor.lookup_pc()) {
            Some((_, Owner::Loaded)) if !self.world.loaded => {
                self.missed = true;
                Packed::failed(StopReason::NoOwner)
            }
            Some((rule, Owner::Read)) => match reader.word(DECIDES) {
                Some(word) => Rule { cfa_offset: rule.cfa_offset + 8 * (word & 1) as i32, ..rule }.pack(),
                None => Packed::failed(StopReason::NoRule),
            },
            Some((rule, owner)) => {
                self.met_window |= owner == Owner::Window;
                self.met_loaded |= owner == Owner::Loaded;
                rule.pack()
            }
            None => Packed::failed(StopReason::NoOwner),
        }
    }
    fn look(&mut self, cursor: &Cursor, reader: &mut Reader<'_>) -> Look {
        let claim = match self.code(cursor.lookup_pc()) {
            Some((_, Owner::Claimed)) => Claimed::By(Claim {
                step: (self.claim_flags == 0).then_some(step as Visit),
                overlay: Some(overlay),
                index: 3,
                flags: self.claim_flags,
                scratch_bytes: 24,
                ..Claim::NOTHING
            }),
            _ => Claimed::No,
        };
        Look { claim, ..Look::at(self.rule(cursor, reader)) }
    }
    fn short_rule_cached(&self, lookup: u64) -> Option<Short> {
        let (rule, owner) = self.code(lookup)?;
        Short::new(&rule).filter(|_| self.short && owner == Owner::Plain)
    }
    fn learned(&mut self) {
        self.world.generation += 1;
    }
}

impl Names for Process<'_> {
    fn find_name(&mut self, _: u8, code: u64, fingerprint: u64) -> u32 {
        let next = self.world.names.len() as u32 + 1;
        *self.world.names.entry((code, fingerprint)).or_insert(next)
    }
}

impl Replay for Process<'_> {
    fn stamp(&self) -> u64 {
        self.world.generation
    }
    fn depends_on(&self) -> Option<DependsOn<'_>> {
        let windows = if self.met_window { self.world.windows } else { 0 };
        let objects: &[u64] = if self.met_loaded { &[77] } else { &[] };
        (!self.missed && !self.pending).then_some(DependsOn { windows, objects })
    }
    fn windows_hold(&self, stamp: u64) -> bool {
        stamp == self.world.windows
    }
    fn confirm(&mut self, object: u64, _: &mut Reader<'_>) -> bool {
        assert_eq!(object, 77);
        self.world.loaded
    }
}

impl World {
    fn new(random: &mut Random) -> World {
        let mut rules = vec![(Rule::end(), Owner::Plain)];
        for _ in 0..FUNCTIONS {
            let size = 16 + 8 * random.below(6) as i32;
            let mut rule = Rule::simple(if random.one_in(4) { RBP } else { RSP }, size);
            for (index, slot) in rule.slots.iter_mut().take(6).enumerate() {
                *slot = match random.below(6) {
                    0 if size >= 32 => -2 - (index as i16 % 2),
                    1 if random.one_in(6) => UNKNOWN,
                    _ => SAME,
                };
            }
            match random.below(40) {
                0 => rule.kind = RuleKind::Deref,
                1 => rule = Rule::end(),
                2 => rule.cfa_register = 12,
                3 => rule = Rule::signal(8),
                _ => {}
            }
            let owner = match random.below(8) {
                0 => Owner::Claimed,
                1 => Owner::Loaded,
                2 => Owner::Window,
                3 => Owner::Read,
                _ => Owner::Plain,
            };
            rules.push((rule, owner));
        }
        let mut world = World {
            rules,
            stack: Vec::new(),
            heap: (0..HEAP_WORDS).map(|_| random.number()).collect(),
            generation: 1,
            windows: 1,
            loaded: true,
            names: HashMap::new(),
            pc: 0,
            registers: [0; 16],
            readable: STACK_WORDS,
        };
        world.stack = (0..STACK_WORDS).map(|_| world.word(random)).collect();
        world.jump(random);
        world
    }

    /// A word as stacks have them: a return address, an address nearer the root of the stack, or anything.
    fn word(&self, random: &mut Random) -> u64 {
        match random.below(8) {
            0..=4 => ((1 + random.below(FUNCTIONS)) << 12) + 0x10 + random.below(3),
            5 | 6 => STACK + 8 * random.below(STACK_WORDS as u64),
            _ => random.number(),
        }
    }

    fn jump(&mut self, random: &mut Random) {
        self.pc = ((1 + random.below(FUNCTIONS)) << 12) + 0x20;
        self.registers = std::array::from_fn(|_| random.number());
        self.registers[usize::from(RSP)] = STACK + 8 * random.below(40);
        self.registers[usize::from(RBP)] = STACK + 8 * (40 + random.below(40));
        self.registers[12] = STACK + 8 * (40 + random.below(200));
    }

    /// Fills the stack so that a walk from the leaf is long: return addresses where the rules look for them.
    fn build(&mut self, random: &mut Random) {
        let mut sp = self.registers[usize::from(RSP)];
        let mut pc = self.pc;
        for _ in 0..60 {
            let Some((rule, _)) = self.rules.get((pc >> 12) as usize) else { return };
            let plain = rule.kind == RuleKind::Offset && matches!(rule.cfa_register, RSP | RBP);
            let base = if !plain { return } else { sp };
            if rule.cfa_register == RBP {
                // The frame pointer is the leaf's, or lies in a slot that only the walk can find: this helps now and
                // then.
                self.registers[usize::from(RBP)] = sp;
            }
            let cfa = base + rule.cfa_offset as u64;
            let index = ((cfa - 8 - STACK) / 8) as usize;
            let Some(place) = self.stack.get_mut(index) else { return };
            *place = ((1 + random.below(FUNCTIONS)) << 12) + 0x10;
            (pc, sp) = (*place, cfa);
        }
    }

    fn change(&mut self, random: &mut Random) {
        match random.below(32) {
            0..=5 => {
                // The top of the stack, as calls and returns change it.
                for _ in 0..1 + random.below(12) {
                    let word = self.word(random);
                    let at = random.below(48) as usize;
                    self.stack[at] = word;
                }
                self.registers[usize::from(RSP)] = STACK + 8 * random.below(24);
            }
            6..=9 => self.jump(random),
            10 => {
                let word = self.word(random);
                let at = random.below(STACK_WORDS as u64) as usize;
                self.stack[at] = word;
            }
            11 => self.registers[usize::from(RBP)] = STACK + 8 * random.below(STACK_WORDS as u64),
            12 => self.registers[12] = STACK + 8 * random.below(STACK_WORDS as u64),
            13 => self.registers[3] = random.number(),
            14 => {
                let at = random.below(HEAP_WORDS as u64) as usize;
                self.heap[at] = random.number();
            }
            15 => self.heap[0] = random.number(),
            16 => self.readable = STACK_WORDS - random.below(200) as usize,
            17 => self.readable = STACK_WORDS,
            18 => self.loaded = !self.loaded,
            19 if random.one_in(4) => {
                // Another object where one was: a new generation, or another set of windows.
                let at = 1 + random.below(FUNCTIONS) as usize;
                self.rules[at].0.cfa_offset = 16 + 8 * random.below(6) as i32;
                match self.rules[at].1 {
                    Owner::Window => self.windows += 1,
                    _ => self.generation += 1,
                }
            }
            20..=22 => self.build(random),
            24..=28 => {
                // Functions stand at other instructions, and nothing else is another.
                let elsewhere = |pc: u64, random: &mut Random| match pc >> 12 {
                    1..=FUNCTIONS => (pc & !0xfff) + 0x10 + random.below(3),
                    _ => pc,
                };
                self.pc = elsewhere(self.pc, random);
                for _ in 0..random.below(3) {
                    let at = random.below(48) as usize;
                    self.stack[at] = elsewhere(self.stack[at], random);
                }
            }
            // The innermost records are others.
            29..=31 => self.heap[0] = random.number() & !0xff | self.heap[0] & 0xff,
            _ => {}
        }
    }
}

fn emit(
    world: &mut World,
    short: bool,
    pending: bool,
    flags: u32,
    capacity: usize,
    last_walk: *mut LastWalk,
) -> (Outcome, Vec<u64>) {
    let bytes = |words: &[u64]| words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<u8>>();
    let (stack, heap) = (bytes(&world.stack[..world.readable]), bytes(&world.heap));
    let regions = [Region { address: STACK, bytes: &stack }, Region { address: HEAP, bytes: &heap }];
    let mut reader = Reader::recorded(&regions);
    let mut scratch = vec![0u128; SCRATCH / 16];
    let setting = Setting {
        thread_pointer: 0,
        tsd_offset: 0,
        ucontext: std::ptr::null(),
        scratch: scratch.as_mut_ptr().cast(),
        exchange: std::ptr::null_mut(),
        progress: std::ptr::null_mut(),
        last_walk,
        keep_outermost: false,
        by_frame_pointer: false,
    };
    let leaf = Cursor { regs: Regs::full(world.pc, world.registers), exact: true };
    let mut process =
        Process { world, short, met_window: false, met_loaded: false, missed: false, pending, claim_flags: flags };
    let mut words = vec![0; capacity];
    // SAFETY: SCRATCH bytes, 16-aligned; the last_walk is this test's alone.
    let outcome = unsafe { walk(leaf, &mut process, &mut reader, &mut words, &setting) };
    words.truncate(outcome.words);
    (outcome, words)
}

/// How many changes are tried: a million or more with `UU_REUSE_CHANGES`.
fn changes() -> u64 {
    std::env::var("UU_REUSE_CHANGES").ok().and_then(|n| n.parse().ok()).unwrap_or(300_000)
}

#[test]
fn a_walk_with_reuse_tells_what_a_walk_without_tells() {
    let mut random = Random::new(0x9e37_79b9_7f4a_7c15);
    let (mut walks, mut reused, mut frames, mut emitted, mut with_registers) = (0u64, 0u64, 0u64, 0u64, 0u64);
    while walks < changes() {
        let mut world = World::new(&mut random);
        world.build(&mut random);
        let mut last_walk = Box::new(LastWalk::new());
        let (short, flags) = (!random.one_in(3), if random.one_in(3) { 0 } else { NO_REGISTERS });
        for _ in 0..400 {
            walks += 1;
            let capacity = if random.one_in(20) { random.below(40) as usize } else { 2000 };
            let (pending, mut other) = (random.one_in(30), world.clone());
            let (plain, words) = emit(&mut other, short, false, flags, capacity, std::ptr::null_mut());
            let (with, same) = emit(&mut world, short, pending, flags, capacity, &raw mut *last_walk);
            let text = || format!("walk {walks}: {plain:?} {with:?}");
            assert_eq!((plain.stop, plain.desync, plain.frames), (with.stop, with.desync, with.frames), "{}", text());
            assert_eq!(words, same, "{}", text());
            reused += u64::from(with.reused > 0);
            with_registers += u64::from(with.reused > 0 && flags == 0);
            frames += u64::from(with.reused);
            emitted += u64::from(with.frames);
            world.change(&mut random);
        }
    }
    println!("{walks} walks of {emitted} frames; {reused} reused {frames} frames, {with_registers} with a plugin that looks at registers");
    let (known, steps) = (REST_KNOWN.load(Ordering::Relaxed), STEP_KNOWN.load(Ordering::Relaxed));
    println!("{known} ended within an overlay's call, {steps} within a step");
    assert!(known > walks / 400 && steps > walks / 4000, "seldom within a call: {known} and {steps} of {walks}");
    assert!(reused > walks / 4, "reuse is seldom: {reused} of {walks}");
    assert!(with_registers > walks / 20, "seldom where a plugin looks at registers: {with_registers} of {walks}");
    assert!(frames > emitted / 4, "little is reused: {frames} of {emitted}");
}
