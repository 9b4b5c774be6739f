//! A chain taken along to where the stack has the same frames: a function that is called from elsewhere in a loop, or deeper in a
//! recursion, has its callers at other addresses, and nothing else about them is new.

use super::{counts_from, fp_behind, Chain, Step};
use crate::memory::Bare;
use crate::short_rule::Short;

/// So many frames of a chain must look the same elsewhere on the stack, before it is taken there.
const ALIKE: usize = 8;

impl Chain {
    /// Takes the chain along to where the stack has the same frames further in or out, the first one at `sp` with `fp`: rules are functions
    /// of the pc, so the steps are the same there, as far as words are. False: it does not look so, or the last stack was met where it was.
    ///
    /// # Safety
    /// As [`Chain::whole`].
    #[cold]
    #[inline(never)]
    pub(super) unsafe fn moved(&self, sp: u64, fp: u64, bare: Bare) -> bool {
        // SAFETY: the caller vouches for the thread.
        let inner = unsafe { &mut *self.inner.get() };
        let further = sp.wrapping_sub(inner.sp);
        let (first, mut end) = (inner.first as usize, inner.end as usize);
        let half = inner.halves.get_mut(inner.half as usize & 1);
        let Some((mark, steps)) = half.and_then(|half| half.get_mut(first..end)?.split_first_mut()) else {
            return false;
        };
        let is_same = |step: &Step| bare.word_just_below(step.cfa.wrapping_add(further)) == step.caller;
        if inner.apart == 0 || !steps.iter().take_while(|step| step.rule != Short::END).take(ALIKE).all(is_same) {
            return false;
        }
        self.turn();
        mark.cfa = sp;
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
                None => fp_behind(before, Some(fp), bare),
            };
            if there.rule != Short::END && !fp.is_some_and(|fp| counts_from(&there, fp)) {
                // From where a frame pointer leads to where the frames were, they are where they were; if that is outwards.
                let sp = before.last().map_or(sp, |last| last.cfa);
                if step.cfa.wrapping_sub(step.rule.cfa(0)) < sp {
                    end = first + 1 + at;
                }
                break;
            }
            (step.cfa, at) = (there.cfa, at + 1);
        }
        (inner.sp, inner.end) = (sp, end as u32);
        self.turn();
        true
    }
}
