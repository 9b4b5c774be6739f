//! The walk over made-up stacks: valid ones are emitted as a whole, hostile ones end with a reason and within their
//! bounds.
#![cfg(target_arch = "x86_64")]

use uunwind_core::cache::short::Short;
use uunwind_core::cursor::Cursor;
use uunwind_core::frame::{frames, Frame};
use uunwind_core::memory::{Reader, Region};
use uunwind_core::regs::{ucontext_offset, Regs, RA, RBP, RSP};
use uunwind_core::rule::{Packed, Rule, RuleKind, BY_FRAME_POINTER, RA_IN_REGISTER, SAME, UNKNOWN};
use uunwind_core::stop_reason::StopReason;
use uunwind_core::walk::{
    walk, Env, Names, Outcome, Replay, Setting, DEEPEST, DEEP_WORDS, MAX_FRAMES, MAX_WORDS, OUTERMOST,
};
use uunwind_random::Random;

/// Rules by a function of the pc; no plugins.
struct Rules<F: Fn(u64) -> Result<Rule, StopReason>>(F, bool);

impl<F: Fn(u64) -> Result<Rule, StopReason>> Names for Rules<F> {}

impl<F: Fn(u64) -> Result<Rule, StopReason>> Replay for Rules<F> {}

impl<F: Fn(u64) -> Result<Rule, StopReason>> Env for Rules<F> {
    fn rule(&mut self, cursor: &Cursor, _: &mut Reader<'_>) -> Packed {
        Packed::from_result((self.0)(cursor.lookup_pc()))
    }
    fn short_rule_cached(&self, lookup: u64) -> Option<Short> {
        (self.0)(lookup).ok().filter(|_| self.1).and_then(|rule| Short::new(&rule))
    }
}

const STACK: u64 = 0x7000_0000;

fn run(
    rules: impl Fn(u64) -> Result<Rule, StopReason>,
    stack: &[u64],
    cursor: Cursor,
    capacity: usize,
) -> (Outcome, Vec<u64>) {
    run_with(&Setting::EMPTY, rules, stack, cursor, capacity)
}

fn run_with(
    setting: &Setting,
    rules: impl Fn(u64) -> Result<Rule, StopReason>,
    stack: &[u64],
    cursor: Cursor,
    capacity: usize,
) -> (Outcome, Vec<u64>) {
    let bytes: Vec<u8> = stack.iter().flat_map(|w| w.to_le_bytes()).collect();
    let regions = [Region { address: STACK, bytes: &bytes }];
    // With and without the short loop for plain frames: the same, to the last word.
    let walked = [false, true].map(|peek| {
        let mut reader = Reader::recorded(&regions);
        let mut words = vec![0; capacity];
        // SAFETY: no scratch, so no plugin is called.
        let outcome = unsafe { walk(cursor, &mut Rules(&rules, peek), &mut reader, &mut words, setting) };
        words.truncate(outcome.words);
        (outcome, words)
    });
    let [general, short] = walked;
    assert_eq!(general, short, "the short loop differs");
    general
}

fn leaf(pc: u64, sp: u64) -> Cursor {
    Cursor { regs: Regs::full(pc, std::array::from_fn(|r| if r == usize::from(RSP) { sp } else { 0 })), exact: true }
}

fn addresses(words: &[u64]) -> Vec<(u64, bool)> {
    frames(words)
        .map(|f| match f {
            Frame::Native { address, exact, .. } => (address, exact),
            other => panic!("{other:?}"),
        })
        .collect()
}

#[test]
fn a_stack_is_emitted_up_to_the_undefined_return_address() {
    // Frame sizes 16, 32, 8; the last function's return address is undefined.
    let stack = [1, 0x2000, 2, 3, 4, 0x3000, 0x4000, 9];
    let rules = |pc: u64| match pc {
        0x1000 => Ok(Rule::simple(RSP, 16)),
        0x1fff => Ok(Rule::simple(RSP, 32)),
        0x2fff => Ok(Rule::simple(RSP, 8)),
        0x3fff => Ok(Rule::end()),
        other => panic!("asked for {other:#x}: return addresses are looked up one byte before"),
    };
    let (outcome, words) = run(rules, &stack, leaf(0x1000, STACK), 100);
    assert_eq!(outcome.stop, StopReason::Complete);
    assert_eq!(addresses(&words), [(0x1000, true), (0x2000, false), (0x3000, false), (0x4000, false)]);
}

#[test]
fn a_chain_of_frame_pointers_ends_at_a_zero() {
    let guessed = Rule::frame_pointer();
    // As a compiler's table has it.
    let by_data = Rule { flags: 0, ..guessed };
    for (rule, outermost, stop) in [
        (guessed, 0, StopReason::FramePointerEnd),
        (guessed, 0x1234, StopReason::NoRule),
        (by_data, 0, StopReason::NoRule),
    ] {
        let stack = [STACK + 16, 0x2000, outermost, 0x3000, 9];
        let rules = |pc: u64| if pc < 0x2fff { Ok(rule) } else { Err(StopReason::NoRule) };
        let mut cursor = leaf(0x1000, STACK);
        cursor.regs.set(RBP, STACK);
        let (outcome, words) = run(rules, &stack, cursor, 100);
        assert_eq!(outcome.stop, stop, "{rule:?}, {outermost:#x}");
        assert_eq!(addresses(&words), [(0x1000, true), (0x2000, false), (0x3000, false)]);
    }
}

#[test]
fn callee_saved_registers_travel_and_lost_ones_end_the_walk() {
    // The leaf saves rbp at CFA-16; its caller's CFA is rbp + 16; that one's caller lost rbx, which the next rule
    // needs.
    let frame = STACK + 32;
    let stack = [0, frame, 0x2000, 0, 7, 0x3000, 8, 8];
    let mut saves_fp = Rule::simple(RSP, 24);
    saves_fp.slots[1] = -2;
    let mut loses = Rule::simple(RBP, 16);
    loses.slots[0] = UNKNOWN;
    let rules = move |pc: u64| match pc {
        0x1000 => Ok(saves_fp),
        0x1fff => Ok(loses),
        _ => Ok(Rule::simple(3, 16)),
    };
    let (outcome, words) = run(rules, &stack, leaf(0x1000, STACK), 100);
    assert_eq!(outcome.stop, StopReason::UnknownRegister);
    assert_eq!(addresses(&words), [(0x1000, true), (0x2000, false), (0x3000, false)]);
}

#[test]
fn a_signal_frame_leads_to_exact_registers_on_another_stack() {
    let mut stack = vec![0u64; 64];
    stack[0] = 0x2000; // return address of the handler: the trampoline
    let context = 8u64; // the ucontext begins after it
    let word = |register: u8| ((context + ucontext_offset(register)) / 8) as usize;
    stack[word(RA)] = 0x3000;
    stack[word(RSP)] = STACK + 8 * 60;
    stack[60] = 0x4000;
    let rules = |pc: u64| match pc {
        0x1000 => Ok(Rule::simple(RSP, 8)),
        0x1fff => Ok(Rule::signal(0)),
        0x3000 => Ok(Rule::simple(RSP, 8)),
        0x3fff => Ok(Rule::end()),
        other => panic!("asked for {other:#x}"),
    };
    let (outcome, words) = run(rules, &stack, leaf(0x1000, STACK), 100);
    assert_eq!(outcome.stop, StopReason::Complete);
    assert_eq!(addresses(&words), [(0x1000, true), (0x2000, false), (0x3000, true), (0x4000, false)]);
}

#[test]
fn losses_have_their_reason_and_keep_what_was_found() {
    let simple = |_: u64| Ok(Rule::simple(RSP, 8));
    let cases: [(&[u64], StopReason, usize); 3] = [
        (&[0x2000, 0], StopReason::NullReturnAddress, 2),
        (&[0x2000, 0x3000], StopReason::UnreadableStack, 3),
        (&[], StopReason::UnreadableStack, 1),
    ];
    for (stack, stop, count) in cases {
        let (outcome, words) = run(simple, stack, leaf(0x1000, STACK), 100);
        assert_eq!((outcome.stop, words.len()), (stop, count));
    }
    let endless = vec![0x2000; 10_000];
    let (outcome, words) = run(simple, &endless, leaf(0x1000, STACK), 20_000);
    assert_eq!((outcome.stop, words.len()), (StopReason::TooManyFrames, MAX_FRAMES as usize));
    let (outcome, words) = run(simple, &endless, leaf(0x1000, STACK), 7);
    assert_eq!((outcome.stop, words.len()), (StopReason::BufferFull, 7));
    let backwards = |_: u64| Ok(Rule::simple(RSP, -8));
    assert_eq!(run(backwards, &endless, leaf(0x1000, STACK + 80), 100).0.stop, StopReason::BadCfa);
    let misaligned = |_: u64| Ok(Rule::simple(RSP, 12));
    assert_eq!(run(misaligned, &endless, leaf(0x1000, STACK), 100).0.stop, StopReason::BadCfa);
}

/// The stack of `depth` frames whose addresses count down to the root's, which has none before it.
fn countdown(depth: u64) -> Vec<u64> {
    (1..depth).rev().map(|n| 0x10_0000 + n * 16).chain([0x1000]).collect()
}

#[test]
fn a_deep_stack_keeps_its_innermost_and_outermost_frames_and_counts_the_others() {
    let deep = Setting { keep_outermost: true, ..Setting::EMPTY };
    let rules = |pc: u64| Ok(if pc == 0xfff { Rule::end() } else { Rule::simple(RSP, 8) });
    let most = u64::from(MAX_FRAMES);
    for depth in [most - 1, most, most + 1, most + 64, most + 65, most + 66, most + 1024, most + 1200, 100_000] {
        let stack = countdown(depth);
        let (outcome, words) = run_with(&deep, rules, &stack, leaf(0x50_0000, STACK), DEEP_WORDS);
        assert_eq!((outcome.stop, u64::from(outcome.frames)), (StopReason::Complete, depth + 1), "{depth}");
        assert!(words.len() <= MAX_WORDS);
        let all: Vec<u64> = std::iter::once(0x50_0000).chain(stack).collect();
        let omitted = all.len().saturating_sub(MAX_FRAMES as usize + OUTERMOST);
        let expected = all.iter().enumerate().filter_map(|(at, address)| {
            let native = Frame::Native {
                address: *address,
                exact: at == 0,
                by_frame_pointer: false,
                interpreter: false,
                by_code: false,
            };
            match at.checked_sub(MAX_FRAMES as usize) {
                Some(0) if omitted > 0 => Some(Frame::Omitted { frames: omitted as u32 }),
                Some(after) if after < omitted => None,
                _ => Some(native),
            }
        });
        assert!(frames(&words).eq(expected), "{depth}");
    }
    // Without an end, the walk has one, and what was found is kept with the reason.
    let endless = vec![0x2000; DEEPEST as usize + 2];
    let (outcome, words) = run_with(&deep, |_| Ok(Rule::simple(RSP, 8)), &endless, leaf(0x1000, STACK), DEEP_WORDS);
    assert_eq!((outcome.stop, outcome.frames), (StopReason::TooManyFrames, DEEPEST));
    assert_eq!(words.len(), MAX_FRAMES as usize + 1 + OUTERMOST);
    // A buffer that cannot take the outermost part has the innermost one.
    let most = MAX_FRAMES as usize;
    for capacity in [most, most + 2 * OUTERMOST + 1] {
        let (outcome, words) = run_with(&deep, rules, &countdown(5000), leaf(0x50_0000, STACK), capacity);
        assert_eq!((outcome.stop, words.len()), (StopReason::TooManyFrames, most));
    }
}

#[test]
fn a_frame_pointer_below_the_stack_pointer_is_stale() {
    // The leaf's caller counts from rbp, which the leaf saved: at, above and below that frame's stack pointer.
    let mut saves_fp = Rule::simple(RSP, 16);
    saves_fp.slots[1] = -2;
    let rules = move |pc: u64| match pc {
        0x1000 => Ok(saves_fp),
        0x1fff => Ok(Rule::simple(RBP, 16)),
        _ => Ok(Rule::end()),
    };
    for (fp, stop, count) in [(16, StopReason::Complete, 3), (24, StopReason::Complete, 3), (8, StopReason::BadCfa, 2)]
    {
        let (outcome, words) = run(rules, &[STACK + fp, 0x2000, 0x5000, 0x3000, 0x3000], leaf(0x1000, STACK), 10);
        assert_eq!((outcome.stop, words.len()), (stop, count), "rbp {fp} above the leaf's rsp");
    }
}

#[test]
fn a_frame_pointer_in_the_red_zone_is_right_where_the_return_address_is_still_to_be_popped() {
    // As in libffi's ffi_call_unix64: rbp points to what was saved, three words below the return address, and the stack
    // pointer was moved up to that.
    let mut saved = Rule::simple(RBP, 32);
    saved.slots[1] = -2;
    let rules = move |pc: u64| match pc {
        0x1000 => Ok(saved),
        0x1fff => Ok(Rule::simple(RBP, 16)),
        _ => Ok(Rule::end()),
    };
    let mut stack = [0; 40];
    (stack[20], stack[21]) = (STACK + 8 * 22, 0x2000);
    stack[23] = 0x3000;
    let at = |sp: u64, exact: bool| {
        let mut cursor = leaf(0x1000, STACK + 8 * sp);
        cursor.regs.set(RBP, STACK + 8 * 18);
        cursor.exact = exact;
        cursor
    };
    // The saved registers are above the stack pointer; below it, up to the return address; and that was popped.
    for (sp, stop) in [(18, StopReason::Complete), (21, StopReason::Complete), (22, StopReason::BadCfa)] {
        assert_eq!(run(rules, &stack, at(sp, true), 10).0.stop, stop, "rsp at word {sp}");
    }
    let not_exact = move |pc: u64| rules(pc + u64::from(pc == 0xfff));
    assert_eq!(run(not_exact, &stack, at(21, false), 10).0.stop, StopReason::BadCfa, "it has called something");
    let guessed = move |pc: u64| {
        let rule: Rule = rules(pc)?;
        Ok(Rule { flags: if pc == 0x1000 { BY_FRAME_POINTER } else { 0 }, ..rule })
    };
    assert_eq!(run(guessed, &stack, at(21, true), 10).0.stop, StopReason::BadCfa, "the frame pointer is a guess");
    let mut far = at(21, true);
    far.regs.set(RBP, STACK + 8 * 4);
    let long = move |pc: u64| if pc == 0x1000 { Ok(Rule { cfa_offset: 8 * 18, ..saved }) } else { rules(pc) };
    assert_eq!(run(long, &stack, far, 10).0.stop, StopReason::BadCfa, "17 words below");
}

#[test]
fn a_return_address_in_a_register_leaves_a_frame_of_no_size_at_the_leaf_only() {
    // As in vfork: the return address was popped into rdi.
    let mut popped = Rule::simple(RSP, 0);
    popped.flags = RA_IN_REGISTER;
    popped.slots[6] = 5;
    let rules = move |pc: u64| Ok(if pc == 0x2fff { Rule::end() } else { popped });
    let mut cursor = leaf(0x1000, STACK);
    cursor.regs.set(5, 0x3000);
    assert_eq!(run(rules, &[0; 4], cursor, 10).0.stop, StopReason::Complete);
    cursor.exact = false;
    assert_eq!(run(rules, &[0; 4], cursor, 10).0.stop, StopReason::BadCfa);
}

#[test]
fn a_return_address_popped_into_memory_is_read_below_the_stack_at_the_leaf_only() {
    // As in OCaml's caml_c_call: the CFA is rsp, and the return address still lies below it.
    let popped = Rule::simple(RSP, 0);
    let rules = move |pc: u64| Ok(if pc == 0x2fff { Rule::end() } else { popped });
    let mut cursor = leaf(0x1000, STACK + 8);
    let (outcome, words) = run(rules, &[0x3000, 0, 0, 0], cursor, 10);
    assert_eq!((outcome.stop, words.len()), (StopReason::Complete, 2));
    cursor.exact = false;
    assert_eq!(run(rules, &[0x3000, 0, 0, 0], cursor, 10).0.stop, StopReason::BadCfa);
}

#[test]
fn a_call_on_another_stack_returns_to_a_lower_one_from_any_frame() {
    // The frame pointer, and a goroutine's depth, lead to a stack below: both return addresses lie in the first half of
    // the words.
    let by_fp = Rule::on_other_stack(RBP, 16);
    let by_depth = Rule::on_goroutine(0, 16);
    // rbp and return address; then depth, and the address of the goroutine, whose stack ends after the first four
    // words.
    let stack = [0, 0x3000, 0, 0, 32, STACK + 48, STACK, STACK + 32];
    for (rule, fp) in [(by_fp, STACK), (by_depth, 0)] {
        let rules = move |pc: u64| Ok(if pc == 0x2fff { Rule::end() } else { rule });
        for exact in [true, false] {
            let mut cursor = leaf(0x1000, STACK + 32);
            (cursor.exact, cursor.regs) = (exact, Regs::new(0x1000, STACK + 32, fp));
            let (outcome, words) = run(rules, &stack, cursor, 10);
            assert_eq!((outcome.stop, words.len()), (StopReason::Complete, 2), "{rule:?}");
        }
    }
    // A stack that leads into itself ends at the limit.
    let stack = [STACK, 0x3000];
    let (outcome, words) =
        run(|_| Ok(by_fp), &stack, Cursor { regs: Regs::new(0x1000, STACK, STACK), exact: true }, 100);
    assert_eq!((outcome.stop, words.len()), (StopReason::BufferFull, 100));
}

#[test]
fn random_rules_registers_and_stacks_always_end() {
    let mut random = Random::new(0x5eed_0003);
    let mut next = move || random.number();
    let mut stops = std::collections::BTreeSet::new();
    for _ in 0..if cfg!(debug_assertions) { 20_000 } else { 200_000 } {
        let size = 1 + next() % 200;
        let stack: Vec<u64> = (0..size)
            .map(|_| if next().is_multiple_of(3) { STACK + next() % (size * 8) } else { next() % 0x8000 })
            .collect();
        let mut rules = Vec::new();
        for _ in 0..16 {
            let slot = |n: u64| {
                if n.is_multiple_of(4) {
                    SAME
                } else if n % 4 == 1 {
                    UNKNOWN
                } else {
                    n as i16
                }
            };
            rules.push(Rule {
                cfa_offset: if next() % 8 == 0 { next() as i32 } else { (next() % 256) as i32 },
                cfa_register: if next() % 4 == 0 { next() as u8 } else { RSP },
                kind: match next() % 12 {
                    0 => RuleKind::Deref,
                    1 => RuleKind::Signal,
                    2 => RuleKind::End,
                    _ => RuleKind::Offset,
                },
                from_fp: if next() % 8 == 0 { next() as u8 } else { 0 },
                flags: if next() % 8 == 0 { next() as u8 } else { 0 },
                slots: std::array::from_fn(|i| if i == 6 { -1 } else { slot(next()) }),
                cfa_addend: next() as i16,
            });
        }
        let registers = std::array::from_fn(|_| STACK + next() % (size * 8));
        let cursor = Cursor { regs: Regs::full(next(), registers), exact: next() % 2 == 0 };
        let capacity = (next() % 300) as usize;
        let (outcome, words) = run(|pc| Ok(rules[(pc % 16) as usize]), &stack, cursor, capacity);
        assert!(words.len() <= capacity && words.len() <= MAX_FRAMES as usize);
        stops.insert(outcome.stop.number());
    }
    assert!(stops.len() >= 5, "a random walk that always ends the same way tests little: {stops:?}");
}
