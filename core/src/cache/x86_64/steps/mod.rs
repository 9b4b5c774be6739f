//! A thread's step cache: the steps of its last capture through plain frames, to be reused where the stack is still the
//! same.
//!
//! A [`Step`] from a plain frame to its caller depends on the frame's pc, which determines the rule, on its stack
//! pointer or rbp, and on one word of the stack, the return address; where the frame has aligned its stack, also on the
//! word below rbp, where its CFA is saved. So where a capture reaches a frame of the last one, the last one's next step
//! is valid if these words have not changed; and so on. This check is faster than stepping: the addresses of the words
//! are available in advance, so the loads are independent. Whatever else rules depend on is represented by a validity
//! epoch, the stamp.
//!
//! ```text
//! half   [ free, in front | start, step, step, ..., start, step, ... | free ]     start: where a run of plain frames
//! ```
//! A capture logs its steps in the half that does not hold the cached steps. When it reaches a frame of the cached
//! steps, its own few steps are copied in front of the rest of them, which stays in place (a *splice*):
//!
//! ```text
//!                 first_at              candidate_at             end
//! cached  [ free  | start, a, b, c, d,  e,            f, g, ...  | free ]        captured before: a to g
//! log     [ free  | start, x, y | free ]                         y leads to the frame after e: `met_at` is e's index
//!                               end
//! spliced [ free  | start, a, b,  start, x, y,        f, g, ...  | free ]        captured now: x, y, f, g
//!                                 first_at                       end
//! ```
//! The steps from `first_at` up to `end` are then checked from f on. `end` is always the index after the last step, and
//! a name in `_at` the index of a step, both in one half.
//!
//! ```text
//! tops      [ top, top, ... ]                  pc and stack pointer of stacks that were captured repeatedly
//! prefixes  [ inputs, frame words, ... ]       lead from a top to the tail
//! tail      [ inputs | frame words ]           inputs: words of memory, with their values
//! ```
//! Steps that are valid at two captures in a row are stored once more as a list of their inputs (`tail`), and so are
//! the frames that lead there (`prefix`). A capture tries, in this order: a replay of prefix and tail
//! ([`StepCache::replay`]); unwinding by short rules along the cached steps ([`StepCache::unwind`]); a walk along them
//! ([`WalkSteps`]), which begins where unwinding came to a frame that has no short rule ([`Part`]).
//!
//! The only caller is `uu_capture` (`ffi/src/capture.rs`). The words are loaded without being probed: where the program
//! has called `uu_handle_faults`, and else on the thread's own stack ([`OwnStack`](crate::memory::OwnStack)), in the
//! order in which a walk reads them ([`StackWords::ORDERED`]). Samples and `uu_walk` have a
//! [`LastWalk`](crate::cache::last_walk::LastWalk) instead.
//!
//! There are two logs, a file each: `CaptureSteps` while a capture unwinds, [`WalkSteps`] while it walks. A [`Part`]
//! hands the one on as the other, with the same indices.
//!
//! Two mechanisms keep a capture from using steps that another one was changing. [`Holder`](crate::slots::Holder)
//! excludes interruption: a capture in a handler that finds the cache held does without it. `turn` finds abandonment: a
//! capture that was left by siglongjmp no longer holds the cache, but has left an odd number. `capture_steps.rs` has
//! the table of a log's states.

mod capture_steps;
mod dependencies;
mod frames;
mod in_order;
mod part;
mod prefix;
mod relocate;
mod tail;
mod unwind;
mod walk_steps;

pub use crate::cache::query::{At, Rules, Top, Validity, EXACT_KEY};
use crate::cache::short::{Short, LOST, RBP_FIELD, SLOT_BITS};
use crate::frame::{native_word, user_word, FLAG_EXACT};
use crate::memory::StackWords;
use crate::regs::{ucontext_offset, CALLEE_SAVED, UCONTEXT_PC, UCONTEXT_SP};
use core::cell::UnsafeCell;
use core::sync::atomic::{compiler_fence, AtomicU64, Ordering};
pub use part::{Part, Unwound};
use tail::VerifiedTail;
pub use walk_steps::WalkSteps;

/// Number of steps in a half.
const STEPS: usize = 512;
/// Number of steps that are left free in front, for captures that begin further towards the leaf.
const FRONT: usize = 64;
/// Limit of the cached frames that a walk compares with its current frame. It does so at each frame, so the search goes
/// on at the next one; unwinding, which looks for them seldom, compares all.
const SEARCH: usize = 16;
/// After this number of captures in a row that shared no frame, or only few, with the one before, the cache rests: only
/// two of [`REST`] captures are logged.
const PATIENCE: u16 = 4;
/// See [`PATIENCE`].
const REST: u16 = 16;

/// A step from a frame to its caller. With the rule `Short::NONE` it starts a run: `caller` and `cfa` are the pc and
/// the stack pointer of the first frame of a run.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Step {
    /// The frame's rule, or `Short::NONE` for the start of a run, or `Short::END` for the outermost frame.
    pub rule: Short,
    /// Its CFA: the caller's stack pointer.
    pub cfa: u64,
    /// Its return address: the caller's pc; of a signal frame, the interrupted code's, with [`EXACT_KEY`].
    pub caller: u64,
}

impl Step {
    /// The end of the stack, at an outermost frame with stack pointer `sp`. The word below it is readable, as for every
    /// step.
    #[inline(always)]
    fn end(sp: u64) -> Step {
        Step { rule: Short::END, cfa: sp, caller: 0 }
    }

    /// The frame word of the caller.
    #[inline(always)]
    fn word(&self) -> u64 {
        if self.rule.is_signal() {
            native_word(self.caller, FLAG_EXACT)
        } else {
            user_word(self.caller)
        }
    }

    /// The word of memory with the caller's pc: the process address at which it ends, and its value.
    #[inline(always)]
    fn input(&self) -> (u64, u64) {
        if self.rule.is_signal() {
            (self.ucontext().wrapping_add(UCONTEXT_PC + 8), self.caller & !EXACT_KEY)
        } else {
            (self.cfa, self.caller)
        }
    }

    /// Process address of the ucontext of a signal frame.
    #[inline(always)]
    fn ucontext(&self) -> u64 {
        self.cfa.wrapping_sub(self.rule.cfa(0))
    }

    /// Whether a signal frame's ucontext still says the same.
    #[inline(always)]
    fn leads_to_the_same_code(&self, bare: impl StackWords) -> bool {
        let word = |offset: u64| bare.word_just_below(self.ucontext().wrapping_add(offset + 8));
        word(UCONTEXT_PC) == self.caller & !EXACT_KEY && word(UCONTEXT_SP) == self.cfa
    }

    /// The place of a callee-saved register that the frame did not leave alone, by its index: an address and, in the
    /// lowest bits, the number n of words by which the register lies below the word just below it, or [`LOST`].
    #[inline(always)]
    pub(crate) fn place(&self, index: u32) -> u64 {
        let (mut above, field) = (self.cfa, self.rule.field(index));
        if self.rule.is_signal() {
            let register = CALLEE_SAVED.get(index as usize).copied().unwrap_or_default();
            above = self.ucontext().wrapping_add(ucontext_offset(register) + 8 * (field + 1));
        }
        above << SLOT_BITS | field
    }
}

/// The step cache of one thread, used by one capture at a time. All-zero is empty.
#[repr(C, align(64))]
pub struct StepCache {
    /// Even: the cached steps are consistent. Odd: a capture is modifying them, or was abandoned while it did.
    turn: AtomicU64,
    inner: UnsafeCell<Inner>,
}

// The fields that distinguish another stack lie in one cache line.
#[repr(C)]
struct Inner {
    /// The validity epoch of the cached steps; 0: there are none.
    stamp: u64,
    /// The first frame of the cached steps.
    at: At,
    /// Index of the half that they lie in.
    half: u32,
    /// Index of the first of them there, the start of a run.
    first_at: u32,
    /// Index after the last of them.
    end: u32,
    /// Number of captures in a row, at most [`PATIENCE`], that shared little with the one before.
    apart: u16,
    /// While the cache rests: the current capture's place in a cycle of [`REST`], of which the first two are logged.
    resting: u16,
    tail: VerifiedTail,
    halves: [[Step; STEPS]; 2],
}

// SAFETY: only unsafe functions access `inner`, and their callers guarantee that no other thread does.
unsafe impl Sync for StepCache {}

/// rbp in the frame after `before`, steps of a run whose first frame has rbp `fp`. `None`: a step lost it.
#[inline(always)]
fn fp_after(before: &[Step], fp: Option<u64>, bare: impl StackWords) -> Option<u64> {
    if before.is_empty() {
        return fp;
    }
    fp_after_any(before, fp, bare)
}

/// [`fp_after`] for at least one step.
#[inline(never)]
fn fp_after_any(mut before: &[Step], fp: Option<u64>, bare: impl StackWords) -> Option<u64> {
    // Usually the last step has saved it, or nearly all leave it unchanged.
    while let Some((inner, last)) = before.split_last_chunk::<8>() {
        if !Short::all_keep_rbp(last.iter().map(|step| step.rule)) {
            break;
        }
        before = inner;
    }
    match before.iter().rev().find(|step| step.rule.field(RBP_FIELD) != 0).map(|step| step.place(RBP_FIELD)) {
        None => fp,
        Some(place) if place & LOST == LOST => None,
        Some(place) => Some(bare.word_below((place >> SLOT_BITS).wrapping_sub(8 * (place & LOST)), 0)),
    }
}

/// Whether a step whose CFA counts from rbp leads from a frame whose rbp is `fp`.
#[inline(always)]
fn counts_from(step: &Step, fp: u64, bare: impl StackWords) -> bool {
    step.rule != Short::END
        && step.rule != Short::NONE
        && !step.rule.is_signal()
        && step.rule.cfa(fp) == step.cfa
        && (!step.rule.is_realigned() || bare.word_just_below(fp) == step.cfa)
}

/// Number of these steps that are still valid, up to the first whose CFA counts from rbp; their callers' frame words
/// are written to `words`. Not inlined, so that all state stays in registers.
#[inline(never)]
fn count_valid_from_sp(steps: &[Step], bare: impl StackWords, words: &mut [u64]) -> usize {
    const BLOCK: usize = 4;
    let mut equal = 0;
    let together = if bare.are_ordered() { 0 } else { steps.len() };
    let blocks = steps.get(..together).unwrap_or_default().chunks_exact(BLOCK);
    for (block, room) in blocks.zip(words.chunks_exact_mut(BLOCK)) {
        let ([a, b, c, d], [to_a, to_b, to_c, to_d]) = (block, room) else { break };
        let (at_a, at_b) = (bare.word_just_below(a.cfa), bare.word_just_below(b.cfa));
        let (at_c, at_d) = (bare.word_just_below(c.cfa), bare.word_just_below(d.cfa));
        if at_a != a.caller || at_b != b.caller || at_c != c.caller || at_d != d.caller {
            break;
        }
        if Short::any_from_rbp([a.rule, b.rule, c.rule, d.rule]) {
            break;
        }
        (*to_a, *to_b, *to_c, *to_d) = (user_word(at_a), user_word(at_b), user_word(at_c), user_word(at_d));
        equal += BLOCK;
    }
    // The rest, one by one, or up to the first difference.
    let (steps, words) = (steps.get(equal..).unwrap_or_default(), words.get_mut(equal..).unwrap_or_default());
    for (step, word) in steps.iter().zip(words) {
        if step.rule.from_rbp() || bare.word_just_below(step.cfa) != step.caller {
            break;
        }
        *word = user_word(step.caller);
        equal += 1;
    }
    equal
}

/// As [`count_valid_from_sp`], for steps whose CFA counts from rbp: the first, whose rbp is `fp`, and the following
/// ones, as long as they are frames with a frame pointer ([`Short::all_framed`]).
#[inline(never)]
fn count_valid_from_rbp(steps: &[Step], mut fp: u64, bare: impl StackWords, words: &mut [u64]) -> usize {
    const BLOCK: usize = 4;
    let saved = |step: &Step| bare.word_just_below(step.cfa.wrapping_sub(8));
    let own = |step: &Step| step.cfa.wrapping_sub(16);
    let mut equal = 0;
    let together = if bare.are_ordered() { 0 } else { steps.len() };
    let blocks = steps.get(..together).unwrap_or_default().chunks_exact(BLOCK);
    for (block, room) in blocks.zip(words.chunks_exact_mut(BLOCK)) {
        let ([a, b, c, d], [to_a, to_b, to_c, to_d]) = (block, room) else { break };
        if !Short::all_framed([a.rule, b.rule, c.rule, d.rule]) {
            break;
        }
        let (at_a, at_b) = (bare.word_just_below(a.cfa), bare.word_just_below(b.cfa));
        let (at_c, at_d) = (bare.word_just_below(c.cfa), bare.word_just_below(d.cfa));
        if at_a != a.caller || at_b != b.caller || at_c != c.caller || at_d != d.caller {
            break;
        }
        if fp != own(a) || saved(a) != own(b) || saved(b) != own(c) || saved(c) != own(d) {
            break;
        }
        fp = saved(d);
        (*to_a, *to_b, *to_c, *to_d) = (user_word(at_a), user_word(at_b), user_word(at_c), user_word(at_d));
        equal += BLOCK;
    }
    let (steps, words) = (steps.get(equal..).unwrap_or_default(), words.get_mut(equal..).unwrap_or_default());
    for (step, word) in steps.iter().zip(words) {
        let is_framed = Short::all_framed([step.rule]);
        let is_first_of_others = equal == 0 && counts_from(step, fp, bare);
        if !(is_framed && fp == own(step) || is_first_of_others) || bare.word_just_below(step.cfa) != step.caller {
            break;
        }
        *word = user_word(step.caller);
        equal += 1;
        if !is_framed {
            break;
        }
        fp = saved(step);
    }
    equal
}

/// Whether the step at index `at` is still valid, given that those from `run_at`, the first of its run, up to it are.
#[inline(always)]
fn is_valid(steps: &[Step], run_at: usize, at: usize, fp: Option<u64>, bare: impl StackWords) -> bool {
    let before = steps.get(run_at..at).unwrap_or_default();
    steps.get(at).is_some_and(|step| {
        if step.rule.is_signal() {
            return step.leads_to_the_same_code(bare);
        }
        (!step.rule.from_rbp() || fp_after(before, fp, bare).is_some_and(|fp| counts_from(step, fp, bare)))
            && bare.word_just_below(step.cfa) == step.caller
    })
}

/// Number of valid steps from index `from` on, in a run whose first is at index `run_at`; their callers' frame words
/// are written to `words`. They end at no frame with an exact pc, which has another key than a return address.
#[inline(always)]
fn count_valid(
    steps: &[Step],
    run_at: usize,
    from: usize,
    fp: Option<u64>,
    bare: impl StackWords,
    words: &mut [u64],
) -> usize {
    let (mut ahead, mut room) = (steps.get(from..).unwrap_or_default(), words);
    let all = ahead.len();
    // Steps that count from rbp mostly follow each other: an object is compiled with frame pointers, or without.
    while let Some(step) = ahead.first() {
        let valid = if step.rule.is_signal() {
            let word = room.first_mut().filter(|_| step.leads_to_the_same_code(bare));
            word.map_or(0, |word| {
                *word = step.word();
                1
            })
        } else if step.rule.from_rbp() {
            let before = steps.get(run_at..steps.len() - ahead.len()).unwrap_or_default();
            match fp_after(before, fp, bare) {
                Some(fp) => count_valid_from_rbp(ahead, fp, bare, room),
                None => 0,
            }
        } else {
            count_valid_from_sp(ahead, bare, room)
        };
        if valid == 0 {
            break;
        }
        ahead = ahead.get(valid..).unwrap_or_default();
        room = core::mem::take(&mut room).get_mut(valid..).unwrap_or_default();
    }
    let valid = all - ahead.len();
    let last = steps.get(from..from + valid).and_then(|valid| valid.last());
    valid - usize::from(last.is_some_and(|step| step.rule.is_signal()))
}

impl Inner {
    /// Whether the capture that begins now is not to be logged, because stacks differ all the time.
    #[inline(always)]
    fn rests(&mut self) -> bool {
        if self.apart < PATIENCE {
            return false;
        }
        self.resting = (self.resting + 1) % REST;
        self.resting > 1
    }

    /// Counts a logged capture. `apart`: it shared so little with the one before that the log was of little use.
    #[inline(always)]
    fn count_apart(&mut self, apart: bool) {
        if !apart {
            (self.apart, self.resting) = (0, 0);
        } else if self.apart < PATIENCE {
            self.apart += 1;
        }
    }
}

impl StepCache {
    /// An empty cache.
    #[allow(clippy::new_without_default, reason = "made once, as a static")]
    pub const fn new() -> StepCache {
        let none = Step { rule: Short::EMPTY, cfa: 0, caller: 0 };
        let (tail, halves) = (VerifiedTail::new(), [[none; STEPS]; 2]);
        let inner =
            Inner { stamp: 0, at: At::NOWHERE, half: 0, first_at: 0, end: 0, apart: 0, resting: 0, tail, halves };
        StepCache { turn: AtomicU64::new(0), inner: UnsafeCell::new(inner) }
    }

    /// Drops all steps.
    ///
    /// # Safety
    /// No other code may use the cache meanwhile.
    pub unsafe fn clear(&self) {
        // SAFETY: guaranteed by the caller.
        let inner = unsafe { &mut *self.inner.get() };
        inner.tail.forget();
        (inner.stamp, inner.at, inner.first_at, inner.end) = (0, At::NOWHERE, 0, 0);
        inner.count_apart(false);
        self.turn.store(0, Ordering::Relaxed);
    }

    /// Begins a walk whose steps are logged. `None`: this one is not logged, because stacks differ all the time.
    ///
    /// # Safety
    /// To be called on the cache's own thread only, while no other call on it uses this cache.
    pub unsafe fn begin(&self, stamp: u64) -> Option<WalkSteps<'_>> {
        let turn = self.turn.load(Ordering::Relaxed);
        // SAFETY: guaranteed by the caller.
        let inner = unsafe { &mut *self.inner.get() };
        if inner.rests() {
            return None;
        }
        // Odd: the last capture was abandoned, and its steps are not consistent.
        let stands = turn & 1 == 0;
        // Odd until `WalkSteps::finish`.
        self.turn.store(turn.wrapping_add(if stands { 1 } else { 2 }), Ordering::Relaxed);
        compiler_fence(Ordering::Release);
        let candidate_at = (stands && inner.stamp == stamp).then_some(inner.first_at as usize);
        let half = inner.half as usize ^ 1;
        Some(WalkSteps {
            cache: inner,
            turn: &self.turn,
            stamp,
            half,
            first_at: FRONT,
            end: FRONT,
            run_at: FRONT,
            candidate_at,
            following_end: 0,
            kept: true,
        })
    }
}
