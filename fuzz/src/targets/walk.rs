//! The walk: the bytes are registers, rules and a stack.
//!
//! | bytes | |
//! |---|---|
//! | 1, 1, 2 | bit 0: the pc is exact, bit 1: rules are raw words; unused; words of the frame buffer |
//! | 8, 8 x 16 | pc and general registers |
//! | 24 x 8 | rules; a pc's low three bits choose one |
//! | rest | the stack, at [`STACK`] |

use crate::input::Input;
use uunwind_core::cursor::Cursor;
use uunwind_core::frame::frames;
use uunwind_core::memory::{Reader, Region};
use uunwind_core::regs::Regs;
use uunwind_core::rule::{Packed, Rule, RuleKind};
use uunwind_core::short_rule::Short;
use uunwind_core::stop_reason::StopReason;
use uunwind_core::walk::{walk, Env, Setting, MAX_FRAMES};

/// Address of the stack.
const STACK: u64 = 0x7000_0000;

struct Rules {
    /// Each rule, and its short form where it has one.
    rules: [(Packed, Option<Short>); 8],
    /// Every rule counts as remembered, so that the walk takes its short way wherever it may.
    remembered: bool,
}

impl Env for Rules {
    fn rule(&mut self, cursor: &Cursor, _: &mut Reader<'_>) -> Packed {
        self.rules[cursor.lookup_pc() as usize % 8].0
    }
    fn peek(&self, lookup: u64) -> Option<Short> {
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
    let (exact, raw) = (flags & 1 != 0, flags & 2 != 0);
    if !exact {
        // Behind a call, nobody knows the others.
        regs.keep_callee_saved();
    }
    let rules = std::array::from_fn(|_| rule(&mut input, raw));
    let regions = [Region { address: STACK, bytes: input.rest() }];
    let [long, short] = [false, true].map(|remembered| {
        let (mut words, mut progress) = (vec![0; capacity], 0);
        let scratch = std::ptr::null_mut();
        let trail = std::ptr::null_mut();
        let (exchange, progress_at) = (std::ptr::null_mut(), &raw mut progress);
        let setting = Setting { thread_pointer: 0, tsd_offset: 0, scratch, exchange, progress: progress_at, trail };
        let mut reader = Reader::recorded(&regions);
        let cursor = Cursor { regs, exact };
        // SAFETY: no scratch, so no plugin is called; the progress is a word of this frame.
        let outcome = unsafe { walk(cursor, &mut Rules { rules, remembered }, &mut reader, &mut words, &setting) };
        assert!(outcome.words <= capacity && outcome.words <= MAX_FRAMES as usize, "{outcome:?}");
        assert_eq!(progress, outcome.words, "the progress that is told is the words that stand");
        words.truncate(outcome.words);
        (outcome, words)
    });
    assert!(long == short, "the short way tells another stack: {long:?}, {short:?}");
    let told = frames(&long.1).count();
    assert_eq!(told, long.1.len(), "every word is one native frame");
    told > 1
}
