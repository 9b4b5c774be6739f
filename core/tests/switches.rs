//! Calls on other stacks, over made-up code and stacks: a stack below the current one is gone to where the code proves
//! that it has switched, and nowhere else; and never for ever.
#![cfg(target_arch = "x86_64")]

use uunwind_core::cursor::Cursor;
use uunwind_core::frame::{frames, Frame};
use uunwind_core::memory::{Reader, Region};
use uunwind_core::regs::{Regs, RBP, RBX, RSP};
use uunwind_core::rule::{Packed, Rule, RuleKind, BY_FRAME_POINTER, SAME};
use uunwind_core::span::Span;
use uunwind_core::stop_reason::StopReason;
use uunwind_core::walk::{walk, Env, Names, Outcome, Replay, Setting};

/// Functions of 0x100 bytes: `LEAF`, one without a frame; `SWITCHES`, which runs a function on another stack, and whose
/// CFA is rbp + 16; `MAIN`, the outermost one; `OTHER`, which neither is called nor switches.
const CODE: u64 = 0x10_0000;
const LEAF: u64 = CODE;
const SWITCHES: u64 = CODE + 0x100;
const MAIN: u64 = CODE + 0x200;
const OTHER: u64 = CODE + 0x300;
/// Where `SWITCHES` loads the stack pointer, and where its call returns to.
const LOADS: u64 = SWITCHES + 8;
const RETURNS: u64 = SWITCHES + 16;
/// Where `MAIN` returns to from a call of `SWITCHES` by name, from one by a pointer, and from one of `OTHER`.
const BY_NAME: u64 = MAIN + 32;
const BY_POINTER: u64 = MAIN + 64;
const BY_OTHER_NAME: u64 = MAIN + 96;
/// Where `SWITCHES` itself returns to from a call of `SWITCHES` by name: hostile data may say that it goes on there.
const AGAIN: u64 = SWITCHES + 64;

/// The stack that is below, and the one above it.
const LOW: u64 = 0x7000_0000;
const HIGH: u64 = 0x7100_0000;
const WORDS: usize = 64;

struct World {
    code: Vec<u8>,
    low: Vec<u64>,
    high: Vec<u64>,
    /// The thread was started on the stack that both lie in.
    both_own: bool,
    rule: fn(u64) -> Rule,
}

fn call(code: &mut [u8], returns: u64, target: u64) {
    let distance = target.wrapping_sub(returns) as u32;
    let at = (returns - CODE) as usize;
    code[at - 5] = 0xe8;
    code[at - 4..at].copy_from_slice(&distance.to_le_bytes());
}

fn rule(lookup: u64) -> Rule {
    let mut framed = Rule::simple(RBP, 16);
    framed.slots[1] = -2;
    match lookup & !0xff {
        LEAF | OTHER => Rule::simple(RSP, 8),
        SWITCHES => framed,
        _ => Rule::end(),
    }
}

impl World {
    /// `LEAF` on the high stack, called by `SWITCHES`, whose frame lies on the low one, called by `MAIN`.
    fn new(caller: u64) -> World {
        let mut code = vec![0x90; 0x400];
        // mov %rdi,%rsp; call *%rsi
        code[0x108..0x10b].copy_from_slice(&[0x48, 0x89, 0xfc]);
        code[0x10e..0x110].copy_from_slice(&[0xff, 0xd6]);
        call(&mut code, BY_NAME, SWITCHES);
        code[0x23e..0x240].copy_from_slice(&[0xff, 0xd0]);
        call(&mut code, BY_OTHER_NAME, OTHER);
        call(&mut code, AGAIN, SWITCHES);
        let mut world = World { code, low: vec![0; WORDS], high: vec![0; WORDS], both_own: false, rule };
        world.high[8] = RETURNS;
        // The saved rbp, and the return address.
        (world.low[10], world.low[11]) = (0, caller);
        world
    }

    fn leaf(&self) -> Cursor {
        Cursor { regs: Regs::new(LEAF + 4, HIGH + 8 * 8, LOW + 8 * 10), exact: true }
    }

    fn walk(&self) -> (StopReason, Vec<u64>) {
        let outcome = self.walk_from(self.leaf(), 4096);
        (outcome.0.stop, outcome.1)
    }

    fn walk_from(&self, cursor: Cursor, capacity: usize) -> (Outcome, Vec<u64>) {
        let bytes = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        let (low, high) = (bytes(&self.low), bytes(&self.high));
        let regions = [
            Region { address: CODE, bytes: &self.code },
            Region { address: LOW, bytes: &low },
            Region { address: HIGH, bytes: &high },
        ];
        let mut words = vec![0; capacity];
        let mut env = Functions(self);
        // SAFETY: without scratch memory, no plugin is called; the other pointers are null.
        let outcome = unsafe { walk(cursor, &mut env, &mut Reader::recorded(&regions), &mut words, &Setting::EMPTY) };
        let address = |frame| if let Frame::Native { address, .. } = frame { address } else { 0 };
        let pcs = frames(&words[..outcome.words]).map(address).collect();
        (outcome, pcs)
    }
}

struct Functions<'w>(&'w World);

impl Names for Functions<'_> {}
impl Replay for Functions<'_> {}
impl Env for Functions<'_> {
    fn rule(&mut self, cursor: &Cursor, _: &mut Reader<'_>) -> Packed {
        (self.0.rule)(cursor.lookup_pc()).pack()
    }
    fn function_at(&mut self, address: u64, _: &mut Reader<'_>) -> Option<Span> {
        (CODE..CODE + 0x400).contains(&address).then(|| Span::sized(address & !0xff, 0x100))
    }
    fn is_on_own_stack(&mut self, _: u64, _: u64, _: &mut Reader<'_>) -> bool {
        self.0.both_own
    }
}

#[test]
fn a_switch_to_a_higher_stack_is_followed_back() {
    for (caller, both_own) in [(BY_NAME, false), (BY_NAME, true), (BY_POINTER, false)] {
        let world = World { both_own, ..World::new(caller) };
        assert_eq!(world.walk(), (StopReason::Complete, vec![LEAF + 4, RETURNS, caller]));
    }
}

/// After the switch, and before the call, there is no frame on the new stack.
#[test]
fn a_switch_that_is_interrupted_is_followed_back() {
    let world = World::new(BY_NAME);
    for (pc, is_whole) in [(LOADS, false), (LOADS + 3, true), (LOADS + 6, true)] {
        let cursor = Cursor { regs: Regs::new(pc, HIGH + 8 * 9, LOW + 8 * 10), exact: true };
        let (outcome, pcs) = world.walk_from(cursor, 64);
        let expected =
            if is_whole { (StopReason::Complete, vec![pc, BY_NAME]) } else { (StopReason::BadCfa, vec![pc]) };
        assert_eq!((outcome.stop, pcs), expected, "{pc:#x}");
    }
}

#[test]
fn a_cfa_that_is_read_from_memory_or_counts_from_another_register_is_followed() {
    let by_rbx = World {
        rule: |lookup| {
            if lookup & !0xff == SWITCHES {
                Rule { cfa_register: RBX, ..rule(lookup) }
            } else {
                rule(lookup)
            }
        },
        ..World::new(BY_NAME)
    };
    let mut cursor = by_rbx.leaf();
    cursor.regs.set(RBP, 1);
    cursor.regs.set(RBX, LOW + 8 * 10);
    let (outcome, pcs) = by_rbx.walk_from(cursor, 64);
    assert_eq!((outcome.stop, pcs), (StopReason::Complete, vec![LEAF + 4, RETURNS, BY_NAME]));

    // The old stack pointer lies in the new stack's first word.
    let mut by_word = World {
        rule: |lookup| {
            let on_stack = Rule { kind: RuleKind::Deref, cfa_addend: 16, ..Rule::simple(RSP, 0) };
            if lookup & !0xff == SWITCHES {
                on_stack
            } else {
                rule(lookup)
            }
        },
        ..World::new(BY_NAME)
    };
    by_word.high[9] = LOW + 8 * 10;
    assert_eq!(by_word.walk(), (StopReason::Complete, vec![LEAF + 4, RETURNS, BY_NAME]));
}

#[test]
fn without_proof_a_stack_does_not_go_down() {
    let ends = |world: &World, why: &str| {
        assert_eq!(world.walk(), (StopReason::BadCfa, vec![LEAF + 4, RETURNS]), "{why}");
    };
    ends(&World { both_own: true, ..World::new(BY_POINTER) }, "both lie on one stack, and no call names the function");
    ends(&World::new(BY_OTHER_NAME), "the call names another function");
    ends(&World::new(MAIN + 128), "no call stands there");
    ends(&World::new(RETURNS), "it is a call of the function's own, through a pointer");
    let mut world = World::new(BY_NAME);
    world.code[0x108..0x10b].copy_from_slice(&[0x90; 3]);
    ends(&world, "the function loads no stack pointer");
    world.code[0x120..0x123].copy_from_slice(&[0x48, 0x89, 0xfc]);
    ends(&world, "it does so after the call only");
    for restores in [[0x48, 0x89, 0xec, 0x90], [0x48, 0x8d, 0x65, 0xf0], [0x48, 0x83, 0xec, 0x08]] {
        // mov %rbp,%rsp; lea -16(%rbp),%rsp; sub $8,%rsp
        world.code[0x108..0x10c].copy_from_slice(&restores);
        ends(&world, "an ordinary prologue or epilogue");
    }
    let guessed = World {
        rule: |lookup| Rule { flags: if lookup & !0xff == SWITCHES { BY_FRAME_POINTER } else { 0 }, ..rule(lookup) },
        ..World::new(BY_NAME)
    };
    ends(&guessed, "the rule is no unwind data's");
    let by_sp = World {
        rule: |lookup| if lookup & !0xff == SWITCHES { Rule::simple(RSP, -64) } else { rule(lookup) },
        ..World::new(BY_NAME)
    };
    ends(&by_sp, "the CFA counts from the stack pointer");
}

/// A function may begin by a call of one that switches stacks and takes its caller for its own, as gcc's split stacks
/// have it; or end by a jump to it.
#[test]
fn who_calls_or_jumps_on_to_it_is_seen_through() {
    let mut world = World::new(BY_OTHER_NAME);
    // OTHER: call SWITCHES, which saves rbp below that call's return address.
    call(&mut world.code, OTHER + 5, SWITCHES);
    (world.low[9], world.low[10]) = (0, OTHER + 5);
    let split = |lookup: u64| {
        let saved = Rule { slots: [SAME, -3, SAME, SAME, SAME, SAME, -1], ..Rule::simple(RBP, 24) };
        if lookup & !0xff == SWITCHES {
            saved
        } else {
            rule(lookup)
        }
    };
    world.rule = split;
    let mut cursor = world.leaf();
    cursor.regs.set(RBP, LOW + 8 * 9);
    let (outcome, pcs) = world.walk_from(cursor, 64);
    assert_eq!((outcome.stop, pcs), (StopReason::Complete, vec![LEAF + 4, RETURNS, BY_OTHER_NAME]));

    let mut world = World::new(BY_OTHER_NAME);
    // OTHER: jmp SWITCHES
    let distance = SWITCHES.wrapping_sub(OTHER + 9) as u32;
    world.code[0x304] = 0xe9;
    world.code[0x305..0x309].copy_from_slice(&distance.to_le_bytes());
    assert_eq!(world.walk(), (StopReason::Complete, vec![LEAF + 4, RETURNS, BY_OTHER_NAME]));
}

/// Hostile data: from the high stack down to the low one, up again, and so on.
#[test]
fn two_stacks_that_lead_to_each_other_end() {
    let mut world = World::new(AGAIN);
    // The frame on the low stack leads to one on the high one, and that one down to the same place.
    world.low[10] = HIGH + 8 * 20;
    (world.high[20], world.high[21]) = (LOW + 8 * 10, AGAIN);
    let (stop, pcs) = world.walk();
    assert_eq!(stop, StopReason::BadCfa);
    assert!(pcs.len() < 8, "{pcs:x?}");
}

/// Many switches, up and down, each to a place of its own.
#[test]
fn switches_may_be_many() {
    let mut world = World::new(BY_NAME);
    // Pairs of frames: the one on the low stack leads up, the one on the high stack down to the next pair.
    for pair in 0..12 {
        let (low, high) = (10 + 4 * pair, 10 + 4 * pair);
        (world.low[low], world.low[low + 1]) = (HIGH + 8 * high as u64, AGAIN);
        (world.high[high], world.high[high + 1]) = (LOW + 8 * (low + 4) as u64, AGAIN);
    }
    (world.low[58], world.low[59]) = (0, BY_NAME);
    let (stop, pcs) = world.walk();
    assert_eq!((stop, pcs.len()), (StopReason::Complete, 2 + 24 + 1));
    assert!(pcs[2..26].iter().all(|pc| *pc == AGAIN));
}
