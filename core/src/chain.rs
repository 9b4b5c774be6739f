//! A thread's last chain of plain frames: steps that a walk made, to be made again where the stack is still the same.
//!
//! A [`Step`] from a plain frame to its caller depends on the frame's pc, which gives the rule, on its stack pointer or its rbp,
//! and on one word of the stack, the return address. So where a walk comes to a frame that the last one was at, the last one's
//! next step is this one's too, if that word has not changed; and so on. To ask so is quicker than to step: the words' places
//! are known beforehand, and no load waits for another. What rules depend on besides the pc is the chain's stamp.
//!
//! ```text
//! half   [ room in front | mark, step, step, ..., mark, step, ... | room ]      mark: where a run of plain frames begins
//! ```
//! A walk writes its steps into the half that the last one's chain is not in. When it comes to a frame of that one's, its own few
//! steps are put in front of the rest of the old chain, which stays where it is.
//!
//! ```text
//! tops   [ top, top, ... ]                                          pc and stack pointer of stacks that were told again and again
//! heads  [ few words that lead from there to ... ]    known  [ words of memory, and what they were | frames to tell ]
//! ```
//! What of a chain holds twice is written down once more as what it depends on ([`known`]), and so are the ways that lead there ([`head`]).
//! A stack is asked for in this order: from its top by what is known ([`Chain::known`]); by rules, along the chain ([`Chain::whole`]); by a walk
//! along it ([`Steps`]).

mod asked;
mod depends;
mod frames;
mod head;
mod known;
mod moved;
mod whole;

use crate::frame::user_word;
use crate::memory::Bare;
use crate::short_rule::{Short, LOST, RBP_FIELD};
pub use asked::{Rules, Surroundings, Top, EXACT_KEY};
use core::cell::UnsafeCell;
use core::sync::atomic::{compiler_fence, AtomicU64, Ordering};
use known::Known;

/// Steps of a half.
const STEPS: usize = 512;
/// So many are left free in front, for walks that begin deeper.
const FRONT: usize = 64;
/// Old frames that are looked at in search of the one in hand.
const SEARCH: usize = 16;
/// After so many walks in a row that met nothing of the one before, or but a few outermost frames, few are noted: two of [`REST`].
const PATIENCE: u32 = 4;
/// See [`PATIENCE`].
const REST: u32 = 16;

/// From a frame to its caller. With [`Short::NONE`], a mark, behind which stands the first frame of a run.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Step {
    /// The frame's rule.
    pub rule: Short,
    /// Its CFA: the caller's stack pointer.
    pub cfa: u64,
    /// Its return address: the caller's pc.
    pub caller: u64,
}

impl Step {
    /// From the outermost frame, whose stack pointer is `sp`: the word below it is one that can be read, as every step's.
    #[inline(always)]
    fn end(sp: u64) -> Step {
        Step { rule: Short::END, cfa: sp, caller: 0 }
    }
}

/// The chain. All-zero is none. Its own thread's alone, one walk at a time.
#[repr(C, align(64))]
pub struct Chain {
    /// Even: a chain stands, or none. Odd: a walk is at work on it.
    turn: AtomicU64,
    inner: UnsafeCell<Inner>,
}

// What tells a stack that is not the same lies in one cache line.
#[repr(C)]
struct Inner {
    stamp: u64,
    /// The first frame's.
    pc: u64,
    sp: u64,
    half: u32,
    first: u32,
    end: u32,
    /// Walks in a row that shared little with the one before; and beyond [`PATIENCE`], all walks.
    apart: u32,
    known: Known,
    halves: [[Step; STEPS]; 2],
}

// SAFETY: only `begin` and `whole` look inside, and their callers vouch for being the only thread to do so.
unsafe impl Sync for Chain {}

/// rbp behind `before`, steps of a run that began with `fp`: what the next step's CFA may count from.
#[inline(always)]
fn fp_behind(before: &[Step], fp: Option<u64>, bare: Bare) -> Option<u64> {
    if before.is_empty() {
        return fp;
    }
    fp_further_in(before, fp, bare)
}

/// The same behind at least one.
#[inline(never)]
fn fp_further_in(mut before: &[Step], fp: Option<u64>, bare: Bare) -> Option<u64> {
    // Mostly the last one has saved it, or nearly all leave it alone.
    while let Some((further_in, last)) = before.split_last_chunk::<8>() {
        if !Short::all_keep_rbp(last.iter().map(|step| step.rule)) {
            break;
        }
        before = further_in;
    }
    let saved = before.iter().rev().map(|step| (step.rule.field(RBP_FIELD), step.cfa)).find(|(field, _)| *field != 0);
    match saved {
        None => fp,
        Some((LOST, _)) => None,
        Some((field, cfa)) => Some(bare.word_below(cfa.wrapping_sub(8 * field), 0)),
    }
}

/// Whether a step whose CFA counts from rbp leads from a frame whose rbp is `fp`.
#[inline(always)]
fn counts_from(step: &Step, fp: u64) -> bool {
    step.rule != Short::END && step.rule != Short::NONE && step.rule.cfa(fp) == step.cfa
}

/// How many of these steps, up to one that counts from rbp, are still those to be made; leaves their callers' words in `words`. By
/// itself, so that all of it stays in registers.
#[inline(never)]
fn equal(steps: &[Step], bare: Bare, words: &mut [u64]) -> usize {
    const BLOCK: usize = 4;
    let mut equal = 0;
    for (block, room) in steps.chunks_exact(BLOCK).zip(words.chunks_exact_mut(BLOCK)) {
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
    // What is left, or up to what differs.
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

/// The same of steps that count from rbp: the first, whose rbp is `fp`, and those behind it up to one that is of no frame that keeps a
/// frame pointer ([`Short::all_framed`]).
#[inline(never)]
fn equal_from_rbp(steps: &[Step], mut fp: u64, bare: Bare, words: &mut [u64]) -> usize {
    const BLOCK: usize = 4;
    let saved = |step: &Step| bare.word_just_below(step.cfa.wrapping_sub(8));
    let own = |step: &Step| step.cfa.wrapping_sub(16);
    let mut equal = 0;
    for (block, room) in steps.chunks_exact(BLOCK).zip(words.chunks_exact_mut(BLOCK)) {
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
        let is_first_of_others = equal == 0 && counts_from(step, fp);
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

/// Whether the step at `at`, in a run whose steps begin at `run` and were made up to there, is still the one to be made.
#[inline(always)]
fn holds(steps: &[Step], run: usize, at: usize, fp: Option<u64>, bare: Bare) -> bool {
    let before = steps.get(run..at).unwrap_or_default();
    steps.get(at).is_some_and(|step| {
        (!step.rule.from_rbp() || fp_behind(before, fp, bare).is_some_and(|fp| counts_from(step, fp)))
            && bare.word_just_below(step.cfa) == step.caller
    })
}

/// How many of the steps from `from` on, in a run whose steps begin at `run`, are still those to be made, and leave their callers'
/// words in `words`.
#[inline(always)]
fn holding(steps: &[Step], run: usize, from: usize, fp: Option<u64>, bare: Bare, words: &mut [u64]) -> usize {
    let (mut ahead, mut room) = (steps.get(from..).unwrap_or_default(), words);
    let all = ahead.len();
    // Those that count from rbp mostly stand together: code is compiled with frame pointers, or without.
    while let Some(step) = ahead.first() {
        let held = if step.rule.from_rbp() {
            let before = steps.get(run..steps.len() - ahead.len()).unwrap_or_default();
            match fp_behind(before, fp, bare) {
                Some(fp) => equal_from_rbp(ahead, fp, bare, room),
                None => 0,
            }
        } else {
            equal(ahead, bare, room)
        };
        if held == 0 {
            break;
        }
        ahead = ahead.get(held..).unwrap_or_default();
        room = core::mem::take(&mut room).get_mut(held..).unwrap_or_default();
    }
    all - ahead.len()
}

impl Inner {
    /// Whether the walk that begins is one of those that are not noted, since stacks differ all the time.
    #[inline(always)]
    fn rests(&mut self) -> bool {
        if self.apart < PATIENCE {
            return false;
        }
        self.apart = PATIENCE + (self.apart - PATIENCE + 1) % REST;
        self.apart > PATIENCE + 1
    }

    /// A walk that was noted shared little with the one before, so that its notes were hardly worth it; or did not.
    #[inline(always)]
    fn count_apart(&mut self, apart: bool) {
        if !apart {
            self.apart = 0;
        } else if self.apart < PATIENCE {
            self.apart += 1;
        }
    }
}

impl Chain {
    /// No chain.
    #[allow(clippy::new_without_default, reason = "made once, as a static")]
    pub const fn new() -> Chain {
        let none = Step { rule: Short::EMPTY, cfa: 0, caller: 0 };
        let (known, halves) = (Known::new(), [[none; STEPS]; 2]);
        let inner = Inner { stamp: 0, pc: 0, sp: 0, half: 0, first: 0, end: 0, apart: 0, known, halves };
        Chain { turn: AtomicU64::new(0), inner: UnsafeCell::new(inner) }
    }

    /// Begins a walk, whose steps are to be noted; `None`: it is hardly worth it, since stacks differ all the time.
    ///
    /// # Safety
    /// Only the chain's own thread may ask, while no other walk of its is under way with this chain.
    pub unsafe fn begin(&self, stamp: u64) -> Option<Steps<'_>> {
        let turn = self.turn.load(Ordering::Relaxed);
        // SAFETY: the caller vouches for it; a handler in between sees an odd turn.
        let inner = unsafe { &mut *self.inner.get() };
        if inner.rests() {
            return None;
        }
        // Odd: that walk was left in the middle, and is over.
        let stands = turn & 1 == 0;
        self.turn.store(turn.wrapping_add(if stands { 1 } else { 2 }), Ordering::Relaxed);
        compiler_fence(Ordering::Release);
        let old = (stands && inner.stamp == stamp).then_some((inner.first as usize, inner.end as usize));
        let half = inner.half as usize;
        Some(Steps { chain: inner, turn: &self.turn, stamp, half: half ^ 1, first: FRONT, len: FRONT, run: FRONT, old })
    }
}

/// The chain of a walk under way.
pub struct Steps<'c> {
    chain: &'c mut Inner,
    turn: &'c AtomicU64,
    stamp: u64,
    half: usize,
    first: usize,
    len: usize,
    /// Where the run's steps begin.
    run: usize,
    /// The last walk's, in the other half, from the frame on that may be met next.
    old: Option<(usize, usize)>,
}

impl Steps<'_> {
    fn steps(&self) -> &[Step; STEPS] {
        self.chain.halves.get(self.half).unwrap_or(&self.chain.halves[0])
    }

    /// Room for further steps.
    #[inline(always)]
    pub(crate) fn room(&mut self) -> &mut [Step] {
        let half = self.chain.halves.get_mut(self.half & 1);
        half.and_then(|half| half.get_mut(self.len..)).unwrap_or_default()
    }

    /// So many were written there.
    #[inline(always)]
    pub(crate) fn add(&mut self, count: usize) {
        self.len += count;
    }

    /// Whether frames of the last walk may still be met.
    #[inline(always)]
    pub(crate) fn may_follow(&self) -> bool {
        self.old.is_some()
    }

    /// The steps of the run.
    #[inline(always)]
    pub(crate) fn run(&self) -> &[Step] {
        self.steps().get(self.run..self.len).unwrap_or_default()
    }

    /// A run of plain frames begins. False: there is no room.
    pub(crate) fn mark(&mut self, pc: u64, sp: u64) -> bool {
        let Some(room) = self.room().first_mut() else { return false };
        *room = Step { rule: Short::NONE, cfa: sp, caller: pc };
        self.len += 1;
        self.run = self.len;
        true
    }

    /// The stack ends with the frame in hand, whose stack pointer is `sp`.
    pub(crate) fn end(&mut self, sp: u64) {
        if let Some(room) = self.room().first_mut() {
            *room = Step::end(sp);
            self.len += 1;
        }
    }

    /// The walk is at `pc`, `sp`, behind the steps so far; its run began with `fp`. Makes those of the last walk's steps that still
    /// hold, and leaves their callers' words in `words`: how many.
    #[inline(never)]
    pub(crate) fn follow(&mut self, pc: u64, sp: u64, fp: Option<u64>, bare: Bare, words: &mut [u64]) -> usize {
        let Some((mut next, end)) = self.old else { return 0 };
        let Some(old) = self.chain.halves.get(self.half & 1 ^ 1).and_then(|half| half.get(..end)) else { return 0 };
        let limit = next.saturating_add(SEARCH);
        let found = loop {
            match old.get(next) {
                Some(step) if next < limit && step.cfa < sp => next += 1,
                Some(step) if step.cfa == sp && step.caller == pc => break true,
                Some(_) => break false,
                None => break false,
            }
        };
        self.old = Some((next, end));
        // What leads here goes in front of what comes next there.
        let count = self.len - self.first;
        let (true, Some(to)) = (found, (next + 1).checked_sub(count)) else { return 0 };
        let (here, there) = self.chain.halves.split_at_mut(1);
        let (Some(here), Some(there)) = (here.first_mut(), there.first_mut()) else { return 0 };
        let (from, into) = if self.half & 1 == 0 { (here, there) } else { (there, here) };
        let (Some(from), Some(into)) = (from.get(self.first..self.len), into.get_mut(to..=next)) else { return 0 };
        for (into, from) in into.iter_mut().zip(from) {
            *into = *from;
        }
        self.run = self.run - self.first + to;
        (self.half, self.first, self.len, self.old) = (self.half ^ 1, to, next + 1, None);
        let steps = self.steps().get(..end).unwrap_or_default();
        let held = holding(steps, self.run, self.len, fp, bare, words);
        self.chain.count_apart(end - next < count);
        self.len += held;
        held
    }

    /// The pc and sp of the frame behind the steps so far.
    pub(crate) fn here(&self) -> Option<(u64, u64)> {
        let last = self.steps().get(self.len.checked_sub(1)?)?;
        Some((last.caller, last.cfa))
    }

    /// The walk is over, or what follows is not noted.
    pub fn finish(self) {
        if self.old.is_some() {
            self.chain.count_apart(true);
        }
        let first = self.steps().get(self.first).copied();
        let chain = self.chain;
        if let Some(mark) = first.filter(|mark| self.first < self.len && mark.rule == Short::NONE) {
            (chain.pc, chain.sp) = (mark.caller, mark.cfa);
        }
        chain.stamp = self.stamp;
        (chain.half, chain.first, chain.end) = (self.half as u32 & 1, self.first as u32, self.len as u32);
        compiler_fence(Ordering::Release);
        self.turn.store(self.turn.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }
}
