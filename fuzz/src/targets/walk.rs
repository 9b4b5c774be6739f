//! The walk: the bytes are registers, rules and a stack.
//!
//! | bytes | |
//! |---|---|
//! | 1, 1, 2 | bit 0: the pc is exact, bit 1: rules are raw words; unused; words of the frame buffer |
//! | 8, 8 x 16 | pc and general registers |
//! | 24 x 8 | rules; a pc's low three bits select one |
//! | rest | the stack, at [`STACK`] |

use crate::input::Input;
use uunwind_core::cache::short::Short;
use uunwind_core::cursor::Cursor;
use uunwind_core::frame::frames;
use uunwind_core::memory::{Reader, Region};
use uunwind_core::regs::Regs;
use uunwind_core::rule::{Packed, Rule, RuleKind};
use uunwind_core::stop_reason::StopReason;
use uunwind_core::walk::{walk, Env, Names, Replay, Setting, MAX_FRAMES, MAX_WORDS};

/// Address of the stack's first byte.
const STACK: u64 = 0x7000_0000;

struct Rules {
    /// Each rule, and its short form if it has one.
    rules: [(Packed, Option<Short>); 8],
    /// All rules are in the table of short rules, so that the walk uses its fast path wherever it can.
    remembered: bool,
}

impl Names for Rules {}

impl Replay for Rules {}

impl Env for Rules {
    fn rule(&mut self, cursor: &Cursor, _: &mut Reader<'_>) -> Packed {
        self.rules[cursor.lookup_pc() as usize % 8].0
    }
    fn short_rule_cached(&self, lookup: u64) -> Option<Short> {
        self.rules[lookup as usize % 8].1.filter(|_| self.remembered)
    }
}

fn rule(input: &mut Input<'_>, raw: bool) -> (Packed, Option<Short>) {
    if raw {
        let words = std::array::from_fn(|_| input.u64());
        return (Packed::from_words(words).unwrap_or(Packed::failed(StopReason::NoRule)), None);
    }
    let rule = Rule {
        cfa_offset: input.u32() as i32,
        cfa_register: input.u8(),
        kind: [RuleKind::Offset, RuleKind::Deref, RuleKind::Signal, RuleKind::End][usize::from(input.u8() % 4)],
        from_fp: input.u8(),
        flags: input.u8(),
        slots: std::array::from_fn(|_| input.u16() as i16),
        cfa_addend: input.u16() as i16,
    };
    (rule.pack(), Short::new(&rule))
}

pub fn run(data: &[u8]) -> bool {
    let mut input = Input::new(data);
    let (flags, _, capacity) = (input.u8(), input.u8(), usize::from(input.u16()));
    let mut regs = Regs::full(input.u64(), std::array::from_fn(|_| input.u64()));
    let (exact, raw, keep_outermost) = (flags & 1 != 0, flags & 2 != 0, flags & 4 != 0);
    if !exact {
        // After a call only the callee-saved registers hold their values.
        regs.keep_callee_saved();
    }
    let rules = std::array::from_fn(|_| rule(&mut input, raw));
    let regions = [Region { address: STACK, bytes: input.rest() }];
    let [long, short] = [false, true].map(|remembered| {
        let (mut words, mut progress) = (vec![0; capacity], 0);
        let scratch = std::ptr::null_mut();
        let last_walk = std::ptr::null_mut();
        let (exchange, progress_at) = (std::ptr::null_mut(), &raw mut progress);
        let setting = Setting {
            thread_pointer: 0,
            tsd_offset: 0,
            ucontext: std::ptr::null(),
            scratch,
            exchange,
            progress: progress_at,
            last_walk,
            keep_outermost,
            by_frame_pointer: false,
        };
        let mut reader = Reader::recorded(&regions);
        let cursor = Cursor { regs, exact };
        // SAFETY: no scratch, so no plugin is called; the progress is a word of this frame.
        let outcome = unsafe { walk(cursor, &mut Rules { rules, remembered }, &mut reader, &mut words, &setting) };
        let most = if keep_outermost { MAX_WORDS } else { MAX_FRAMES as usize };
        assert!(outcome.words <= capacity && outcome.words <= most, "{outcome:?}");
        assert_eq!(progress, outcome.words, "the reported progress is the number of words written");
        words.truncate(outcome.words);
        (outcome, words)
    });
    assert!(long == short, "the fast path emits another stack: {long:?}, {short:?}");
    let count = frames(&long.1).count();
    assert_eq!(count, long.1.len(), "every word is one native frame, or counts those left out");
    count > 1
}
