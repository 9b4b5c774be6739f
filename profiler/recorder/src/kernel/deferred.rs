//! Gives user stacks that the kernel has taken later to the samples that wait for them.
//!
//! A sample that ends in a cookie gets the stack with the same cookie of the same thread. Several samples of one stay
//! in the kernel have one cookie, also those that it takes after the stack, on the rest of its way back to user mode:
//! for these no other stack comes. A cookie is never used twice for one thread
//! ([kernel/unwind/deferred.c](https://github.com/torvalds/linux/blob/v6.17/kernel/unwind/deferred.c)), and stacks come
//! in the order of the cookies, so a stack with another cookie means that the one that was waited for is lost.

use super::records::{DeferredStack, KernelSample};
use std::collections::{HashMap, VecDeque};

/// Samples that may wait at once; beyond it, the oldest is let go without its stack.
const WAITING: usize = 65_536;
/// Threads whose last stack is kept; before one more, all are let go.
const KEPT: usize = 4096;

/// The samples that wait.
#[derive(Default)]
pub struct Merge {
    /// In order of arrival. An empty place: its sample has been given out.
    waiting: VecDeque<Option<KernelSample>>,
    /// Number of the first place: how many have been taken from the front so far.
    first: u64,
    /// By thread: numbers of its places.
    threads: HashMap<u32, Vec<u64>>,
    /// By thread: its last stack. The cookie says whether a later sample belongs to it.
    last: HashMap<u32, DeferredStack>,
    /// Samples whose stack never came.
    pub missing: u64,
    /// Stacks that no sample waited for.
    pub unclaimed: u64,
}

impl Merge {
    /// Takes a sample. Gives out those that are complete, or will not become so: this one, if it waits for nothing, or
    /// its stack has come; the oldest, if too many wait.
    pub fn sample(&mut self, mut sample: KernelSample, mut out: impl FnMut(KernelSample)) {
        let Some(cookie) = sample.cookie else { return out(sample) };
        if let Some(stack) = self.last.get(&sample.tid).filter(|stack| stack.cookie == cookie) {
            sample.user.clone_from(&stack.user);
            sample.cookie = None;
            return out(sample);
        }
        let number = self.first + self.waiting.len() as u64;
        self.threads.entry(sample.tid).or_default().push(number);
        self.waiting.push_back(Some(sample));
        if self.waiting.len() > WAITING {
            if let Some(oldest) = self.oldest() {
                self.missing += 1;
                out(oldest);
            }
        }
    }

    /// Takes a stack. Gives out all samples of its thread that waited: with the stack if the cookie is theirs, without
    /// one otherwise.
    pub fn stack(&mut self, stack: &DeferredStack, mut out: impl FnMut(KernelSample)) {
        let mut claimed = false;
        for number in self.threads.remove(&stack.tid).unwrap_or_default() {
            let Some(mut sample) = self.take(number) else { continue };
            if sample.cookie == Some(stack.cookie) {
                sample.user.clone_from(&stack.user);
                sample.cookie = None;
                claimed = true;
            } else {
                self.missing += 1;
            }
            out(sample);
        }
        self.unclaimed += u64::from(!claimed);
        if self.last.len() >= KEPT && !self.last.contains_key(&stack.tid) {
            self.last.clear();
        }
        self.last.insert(stack.tid, stack.clone());
        self.trim();
    }

    /// Gives out all that still wait, without stacks.
    pub fn finish(&mut self, mut out: impl FnMut(KernelSample)) {
        while let Some(sample) = self.oldest() {
            self.missing += 1;
            out(sample);
        }
    }

    fn take(&mut self, number: u64) -> Option<KernelSample> {
        let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.waiting.get_mut(index)?.take()
    }

    fn oldest(&mut self) -> Option<KernelSample> {
        self.trim();
        let number = self.first;
        let sample = self.waiting.pop_front()??;
        self.first += 1;
        if let Some(places) = self.threads.get_mut(&sample.tid) {
            places.retain(|place| *place != number);
            if places.is_empty() {
                self.threads.remove(&sample.tid);
            }
        }
        self.trim();
        Some(sample)
    }

    /// Removes empty places from the front.
    fn trim(&mut self) {
        while let Some(None) = self.waiting.front() {
            self.waiting.pop_front();
            self.first += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(tid: u32, cookie: u64, time: u64) -> KernelSample {
        KernelSample { tid, time, cookie: (cookie != 0).then_some(cookie), ..KernelSample::default() }
    }

    fn stack(tid: u32, cookie: u64) -> DeferredStack {
        DeferredStack { tid, cookie, user: vec![cookie * 16] }
    }

    /// Times and user stacks of what is given out.
    fn given(run: impl FnOnce(&mut dyn FnMut(KernelSample))) -> Vec<(u64, Vec<u64>)> {
        let mut out = Vec::new();
        run(&mut |sample| out.push((sample.time, sample.user)));
        out
    }

    #[test]
    fn samples_of_one_cookie_share_a_stack_and_other_threads_wait_on() {
        let mut merge = Merge::default();
        let early = given(|out| {
            merge.sample(sample(1, 3, 10), &mut *out);
            merge.sample(sample(2, 3, 11), &mut *out);
            merge.sample(sample(1, 3, 12), &mut *out);
            merge.sample(sample(1, 0, 13), &mut *out);
        });
        assert_eq!(early, [(13, vec![])]);
        assert_eq!(given(|out| merge.stack(&stack(1, 3), out)), [(10, vec![48]), (12, vec![48])]);
        assert_eq!(given(|out| merge.finish(out)), [(11, vec![])]);
        assert_eq!((merge.missing, merge.unclaimed, merge.waiting.len(), merge.threads.len()), (1, 0, 0, 0));
    }

    #[test]
    fn a_stack_with_another_cookie_frees_the_samples_of_a_lost_one() {
        let mut merge = Merge::default();
        merge.sample(sample(1, 3, 10), |_| unreachable!());
        merge.sample(sample(1, 5, 11), |_| unreachable!());
        assert_eq!(given(|out| merge.stack(&stack(1, 5), out)), [(10, vec![]), (11, vec![80])]);
        // A second stack under the same cookie is given to nobody.
        assert_eq!(given(|out| merge.stack(&stack(1, 5), out)), []);
        assert_eq!((merge.missing, merge.unclaimed), (1, 1));
    }

    #[test]
    fn a_sample_after_its_stack_has_it_and_another_thread_of_that_number_has_not() {
        let mut merge = Merge::default();
        merge.sample(sample(1, 3, 10), |_| unreachable!());
        assert_eq!(given(|out| merge.stack(&stack(1, 3), out)), [(10, vec![48])]);
        assert_eq!(given(|out| merge.sample(sample(1, 3, 11), out)), [(11, vec![48])]);
        assert_eq!(given(|out| merge.sample(sample(2, 3, 12), out)), []);
        assert_eq!(given(|out| merge.sample(sample(1, 5, 13), out)), []);
        assert_eq!(given(|out| merge.finish(out)), [(12, vec![]), (13, vec![])]);
    }

    #[test]
    fn the_number_of_kept_stacks_is_limited() {
        let mut merge = Merge::default();
        for tid in 0..3 * KEPT as u32 {
            merge.stack(&stack(tid, 3), |_| unreachable!());
            assert!(merge.last.len() <= KEPT);
        }
    }

    #[test]
    fn the_number_that_waits_is_limited_and_none_vanishes() {
        let mut merge = Merge::default();
        let n = WAITING as u64 + 10;
        let mut out = given(|out| (0..n).for_each(|i| merge.sample(sample(i as u32 % 7, 3, i), &mut *out)));
        assert_eq!(out.iter().map(|(time, _)| *time).collect::<Vec<_>>(), (0..10).collect::<Vec<_>>());
        (0..7).for_each(|tid| out.extend(given(|out| merge.stack(&stack(tid, 3), out))));
        assert_eq!((out.len() as u64, merge.missing, merge.waiting.len()), (n, 10, 0));
        assert_eq!(out.iter().filter(|(_, user)| user[..] == [48]).count(), WAITING);
    }
}
