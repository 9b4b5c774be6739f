//! Relocation of the cached steps. A function that is called from another place of a loop, or deeper in a recursion,
//! may have the same callers at other stack addresses, with nothing else changed.

use super::{counts_from, fp_after, Step, StepCache};
use crate::cache::short::Short;
use crate::memory::Bare;

/// Number of frames that must have the same return addresses at the new place before the steps are relocated.
const ALIKE: usize = 8;

impl StepCache {
    /// Relocates the cached steps to a stack whose first frame is at `sp` with rbp `fp`. Rules are functions of the pc,
    /// so the steps are the same there if the words of the stack are, which the caller still has to compare. False: the
    /// stacks do not look alike, or the last capture met the cached steps in their place.
    ///
    /// # Safety
    /// As [`StepCache::unwind`].
    #[cold]
    #[inline(never)]
    pub(super) unsafe fn relocate(&self, sp: u64, fp: u64, bare: Bare) -> bool {
        // SAFETY: the caller vouches for the thread.
        let inner = unsafe { &mut *self.inner.get() };
        let further = sp.wrapping_sub(inner.at.sp);
        let (first_at, mut end) = (inner.first_at as usize, inner.end as usize);
        let half = inner.halves.get_mut(inner.half as usize & 1);
        let Some((start, steps)) = half.and_then(|half| half.get_mut(first_at..end)?.split_first_mut()) else {
            return false;
        };
        if steps.iter().any(|step| step.rule.is_signal()) {
            // What a signal interrupted has not moved with its handler.
            return false;
        }
        let is_same = |step: &Step| bare.word_just_below(step.cfa.wrapping_add(further)) == step.caller;
        if inner.apart == 0 || !steps.iter().take_while(|step| step.rule != Short::END).take(ALIKE).all(is_same) {
            return false;
        }
        self.begin_change();
        start.cfa = sp;
        let mut at = 0;
        loop {
            for step in steps.get_mut(at..).unwrap_or_default().iter_mut().take_while(|step| !step.rule.from_rbp()) {
                step.cfa = step.cfa.wrapping_add(further);
                at += 1;
            }
            let Some((before, [step, ..])) = steps.split_at_mut_checked(at) else { break };
            let there = Step { cfa: step.cfa.wrapping_add(further), ..*step };
            let fp = match before.last().filter(|last| Short::all_framed([last.rule])) {
                Some(last) => Some(bare.word_just_below(last.cfa.wrapping_sub(8))),
                None => fp_after(before, Some(fp), bare),
            };
            if there.rule != Short::END && !fp.is_some_and(|fp| counts_from(&there, fp, bare)) {
                // This frame pointer leads to the old place, so the outer frames are not elsewhere. They are kept if
                // that place lies towards the root.
                let sp = before.last().map_or(sp, |last| last.cfa);
                if step.cfa.wrapping_sub(step.rule.cfa(0)) < sp {
                    end = first_at + 1 + at;
                }
                break;
            }
            (step.cfa, at) = (there.cfa, at + 1);
        }
        (inner.at.sp, inner.end) = (sp, end as u32);
        self.end_change();
        true
    }
}
