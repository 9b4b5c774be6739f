//! Relocation of the cached steps. A function that is called from another place of a loop, or deeper in a recursion,
//! may have the same callers at other stack addresses, with nothing else changed.
//!
//! Not all frames lie the same distance away. A frame that aligns its stack to 64 bytes leaves a gap of its own size
//! above its locals, so its callees have moved by a multiple of 64, whatever it has moved by itself; and of two stacks
//! that a program switches between only one may be elsewhere. In each such case a frame counts its CFA from rbp, which
//! says where it is: from there on, the distance is another one.

use super::frames::RbpAt;
use super::{fp_after, Step, StepCache};
use crate::cache::short::Short;
use crate::memory::{StackWords, USER_END};

/// Number of frames that must have the same return addresses at the new place before the steps are relocated.
const ALIKE: usize = 8;

/// A step whose CFA counts from rbp, in a frame where this is `fp`, and the stack pointer `sp`. `None`: that is no
/// frame pointer, as for [`Frame::stretch`](super::frames::Frame::stretch).
fn with_base(step: &Step, fp: u64, sp: u64, bare: impl StackWords) -> Option<Step> {
    if !(sp..USER_END).contains(&fp) || fp & 7 != 0 {
        return None;
    }
    let rule = if step.rule.is_realigned() { step.rule.in_frame(fp, bare.word_just_below(fp))? } else { step.rule };
    Some(Step { rule, cfa: rule.cfa(fp), ..*step })
}

/// Relocates the steps of a run whose first frame is at `sp` with rbp `fp`, `further` away from where it was. Returns
/// how many of them lie where the run leads now. The others are as they were: the first one has no frame pointer there,
/// or, where words are loaded in order, its return address is another one.
fn relocated(steps: &mut [Step], sp: u64, fp: u64, mut further: u64, bare: impl StackWords) -> usize {
    let mut at = 0;
    loop {
        for step in steps.get_mut(at..).unwrap_or_default().iter_mut().take_while(|step| !step.rule.from_rbp()) {
            let cfa = step.cfa.wrapping_add(further);
            if bare.are_ordered() && bare.word_just_below(cfa) != step.caller {
                return at;
            }
            step.cfa = cfa;
            at += 1;
        }
        let Some((before, [step, ..])) = steps.split_at_mut_checked(at) else { return at };
        if step.rule == Short::END {
            step.cfa = step.cfa.wrapping_add(further);
            return steps.len();
        }
        let fp = match before.last().filter(|last| Short::all_framed([last.rule])) {
            Some(last) => Some(bare.word_just_below(last.cfa.wrapping_sub(8))),
            None => fp_after(before, Some(fp), bare),
        };
        let sp = before.last().map_or(sp, |last| last.cfa);
        let is_start = step.rule == Short::NONE;
        let Some(there) = fp.filter(|_| !is_start).and_then(|fp| with_base(step, fp, sp, bare)) else { return at };
        if bare.are_ordered() && bare.word_just_below(there.cfa) != there.caller {
            return at;
        }
        further = there.cfa.wrapping_sub(step.cfa);
        (*step, at) = (there, at + 1);
        if further == 0 {
            // The outer frames are where they were.
            return steps.len();
        }
    }
}

/// Whether the first steps lead through the same return addresses there. Mostly the first or second one shows it.
fn looks_alike(steps: &[Step], mut sp: u64, fp: u64, mut further: u64, bare: impl StackWords) -> bool {
    let mut fp_at = RbpAt::REGISTER;
    for step in steps.iter().take_while(|step| step.rule != Short::END).take(ALIKE) {
        let there = if step.rule.from_rbp() {
            let fp = fp_at.get(Some(fp), bare).filter(|_| step.rule != Short::NONE);
            match fp.and_then(|fp| with_base(step, fp, sp, bare)) {
                Some(there) => there,
                None => return false,
            }
        } else {
            Step { cfa: step.cfa.wrapping_add(further), ..*step }
        };
        if bare.word_just_below(there.cfa) != there.caller {
            return false;
        }
        further = there.cfa.wrapping_sub(step.cfa);
        (sp, fp_at) = (there.cfa, fp_at.after(there.rule, there.cfa));
    }
    true
}

impl StepCache {
    /// Relocates the cached steps to a stack whose first frame is at `sp` with rbp `fp`. Rules are functions of the pc,
    /// so the steps are the same there if the words of the stack are, which the caller still has to compare. False: the
    /// stacks do not look alike, or the last capture met the cached steps in their place.
    ///
    /// # Safety
    /// As [`StepCache::unwind`].
    #[cold]
    #[inline(never)]
    pub(super) unsafe fn relocate(&self, sp: u64, fp: u64, bare: impl StackWords) -> bool {
        // SAFETY: the caller vouches for the thread.
        let inner = unsafe { &mut *self.inner.get() };
        let further = sp.wrapping_sub(inner.at.sp);
        let (first_at, end) = (inner.first_at as usize, inner.end as usize);
        let half = inner.halves.get_mut(inner.half as usize & 1);
        let Some((start, steps)) = half.and_then(|half| half.get_mut(first_at..end)?.split_first_mut()) else {
            return false;
        };
        if inner.apart == 0 || !looks_alike(steps, sp, fp, further, bare) {
            return false;
        }
        if steps.iter().any(|step| step.rule.is_signal()) {
            // What a signal interrupted has not moved with its handler.
            return false;
        }
        self.begin_change();
        start.cfa = sp;
        let count = relocated(steps, sp, fp, further, bare);
        if let Some((inner_ones, [next, ..])) = steps.split_at_checked(count) {
            // The outer frames are kept if they lie towards the root; and not where the next one was left as it was
            // since the run does not lead through it any more.
            let reached = inner_ones.last().map_or(sp, |last| last.cfa);
            if bare.are_ordered() || next.cfa.wrapping_sub(next.rule.cfa(0)) < reached {
                inner.end = (first_at + 1 + count) as u32;
            }
        }
        inner.at.sp = sp;
        self.end_change();
        true
    }
}
