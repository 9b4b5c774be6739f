//! One thread's samples of the kernel's, each put on the user stack that the thread took of itself for it.
//!
//! The event's signal is handled before the thread executes another instruction in user mode. So the samples before a
//! user stack belong to it, all those in which the thread had left user mode at the place that the handler found: more
//! than one where a system call lasted long. The others stand apart: the handler itself was running, or the thread
//! blocked the signal.

use super::event::Event;
use super::records::{KernelSample, PerfRecord, UserAt};
use std::collections::VecDeque;
use std::sync::Arc;
use uunwind_ring::samples::Sample;

/// Samples that wait for their user stack, at most: 6 s of them at 10 kHz. More are lost.
const WAITING: usize = 1 << 16;

/// A user stack that the thread took.
#[derive(Clone, Copy)]
pub struct UserStack {
    /// The sample, as the thread wrote it.
    pub sample: Sample,
    /// The node of its leaf.
    pub node: u32,
    /// Where the thread was interrupted.
    pub at: UserAt,
}

/// A stack that is whole, or as whole as it gets.
#[derive(Clone)]
pub struct Piece {
    /// CLOCK_MONOTONIC, in ns.
    pub time: u64,
    /// Number of periods.
    pub weight: u32,
    /// Kernel addresses, leaf first.
    pub kernel: Vec<u64>,
    /// What called the kernel. `None`: not known.
    pub user: Option<UserStack>,
    /// Without it: where the thread left user mode, if that is known.
    pub at: Option<UserAt>,
}

/// A thread's event, and what is not put together yet.
pub struct Stitch {
    event: Event,
    join: Join,
    /// Samples that found no room.
    lost: u64,
    _token: Arc<()>,
}

impl Stitch {
    /// For a thread whose event was just opened. `before`: periods of CPU time until then. `most`: the timer can have
    /// left as many uncounted. `user_mode`: the event has samples of the user mode alone, and this period. `token` is
    /// held as long as the event.
    pub fn new(event: Event, before: u32, most: u32, user_mode: Option<u64>, token: Arc<()>) -> Stitch {
        let unseen = user_mode.map(|period| Unseen { period, ..Unseen::default() });
        Stitch { event, join: Join { before, most, unseen, ..Join::default() }, lost: 0, _token: token }
    }

    /// The thread's perf event, whose ring the samples come from.
    pub fn event(&self) -> &Event {
        &self.event
    }

    /// A timer has counted this number of periods.
    pub fn counted(&mut self, weight: u32) {
        self.join.counted(weight);
    }

    /// The thread took a stack.
    pub fn push(&mut self, user: UserStack) {
        self.join.user.push(user);
    }

    /// Reads the event's ring, and puts together what can be. `last`: the thread takes no stack any more. Returns the
    /// number of samples that were lost. Call it after all of the thread's own samples so far were pushed: those of the
    /// kernel were written before them.
    pub fn pieces(&mut self, last: bool, out: impl FnMut(Piece)) -> u64 {
        let (waiting, lost) = (&mut self.join.waiting, &mut self.lost);
        let mut unseen = self.join.unseen.as_mut();
        self.event.drain(|record| match record {
            PerfRecord::Sample(sample) => {
                unseen.iter_mut().for_each(|unseen| unseen.sample(&sample));
                if waiting.len() < WAITING {
                    waiting.push_back(sample);
                } else {
                    *lost += 1;
                }
            }
            PerfRecord::Lost(n) => *lost += n,
            _ => {}
        });
        // They would count as time in the kernel.
        if let Some(unseen) = unseen {
            unseen.by_ticks = unseen.by_ticks.saturating_add(*lost);
        }
        self.join.pieces(last, out);
        std::mem::take(&mut self.lost)
    }
}

/// What is not put together yet.
#[derive(Default)]
struct Join {
    waiting: VecDeque<KernelSample>,
    user: Vec<UserStack>,
    last_sequence: u32,
    /// Periods from before the event that no timer has counted, so far.
    before: u32,
    /// Most of them that can be.
    most: u32,
    /// Periods that timers have counted since the event began: as many of its samples stand for no more time.
    counted: u32,
    /// What an event of the user mode alone does not see.
    unseen: Option<Unseen>,
}

/// Time in the kernel that is in no sample of an event. The event counts it nevertheless, and the timer's ticks in
/// system calls have sampled a part.
#[derive(Default)]
struct Unseen {
    /// CPU time between two samples, in ns.
    period: u64,
    /// The event's count at its last sample.
    last: u64,
    /// The last sample's time.
    time: u64,
    /// Periods so far that became due in the kernel.
    due: u64,
    /// Those that ticks stand for.
    by_ticks: u64,
}

impl Unseen {
    fn sample(&mut self, sample: &KernelSample) {
        let since = sample.cpu.saturating_sub(self.last);
        let periods = (since + self.period / 2) / self.period.max(1);
        self.due = self.due.saturating_add(periods.saturating_sub(1));
        (self.last, self.time) = (sample.cpu, sample.time);
    }

    /// What is in no sample, as one without a stack.
    fn rest(&self) -> Option<Piece> {
        let weight = u32::try_from(self.due.saturating_sub(self.by_ticks)).unwrap_or(u32::MAX);
        (weight > 0).then(|| Piece { time: self.time, weight, kernel: Vec::new(), user: None, at: None })
    }
}

impl Join {
    fn counted(&mut self, weight: u32) {
        if let Some(unseen) = &mut self.unseen {
            // Such a tick was in a system call, or came before the first sample.
            unseen.by_ticks = unseen.by_ticks.saturating_add(u64::from(weight.saturating_sub(self.before)));
            self.before = self.before.saturating_sub(weight);
            return;
        }
        self.counted = self.counted.saturating_add(weight.saturating_sub(self.before));
        self.before = self.before.saturating_sub(weight);
    }

    fn pieces(&mut self, last: bool, mut out: impl FnMut(Piece)) {
        let mut run = Run(None);
        for user in std::mem::take(&mut self.user) {
            let gap = user.sample.sequence.wrapping_sub(self.last_sequence).wrapping_sub(1);
            // The thread has counted these as lost.
            let mut missed = if self.last_sequence == 0 { 0 } else { gap };
            self.last_sequence = user.sample.sequence;
            // Ticks that the thread skipped after a walk of a deep stack, which stand for this stack.
            let mut skipped = user.sample.weight.saturating_sub(1);
            while self.waiting.front().is_some_and(|sample| sample.time <= user.sample.time) {
                let Some(sample) = self.waiting.pop_front() else { break };
                if self.counted > 0 {
                    self.counted -= 1;
                    continue;
                }
                // In a loop of one call, what was lost has the place of the stack after it, too: the oldest ones pay,
                // so that the last one has this stack.
                let is_followed = self.waiting.front().is_some_and(|next| next.time <= user.sample.time);
                if missed > 0 && is_followed {
                    missed -= 1;
                    continue;
                }
                let mut piece =
                    Piece { time: sample.time, weight: 1, kernel: sample.kernel, user: Some(user), at: None };
                if sample.at == Some(user.at) {
                    piece.weight = piece.weight.saturating_add(std::mem::take(&mut self.before).min(self.most));
                } else if skipped > 0 {
                    skipped -= 1;
                    piece.kernel.clear();
                } else if missed > 0 {
                    missed -= 1;
                    continue;
                } else {
                    (piece.user, piece.at) = (None, sample.at);
                }
                run.push(piece, &mut out);
            }
        }
        if last {
            self.unseen.as_ref().and_then(Unseen::rest).into_iter().for_each(|rest| run.push(rest, &mut out));
            for sample in self.waiting.drain(..).skip(self.counted as usize) {
                let KernelSample { time, kernel, at, .. } = sample;
                run.push(Piece { time, weight: 1, kernel, user: None, at }, &mut out);
            }
        }
        run.end(&mut out);
    }
}

/// Equal pieces that follow each other, as one.
struct Run(Option<Piece>);

impl Run {
    fn push(&mut self, piece: Piece, out: &mut impl FnMut(Piece)) {
        if let Some(run) = &mut self.0 {
            let sequence = |piece: &Piece| piece.user.map(|user| user.sample.sequence);
            if run.kernel == piece.kernel && sequence(run) == sequence(&piece) && run.at == piece.at {
                run.weight = run.weight.saturating_add(piece.weight);
                return;
            }
        }
        self.0.replace(piece).into_iter().for_each(out);
    }

    fn end(self, out: &mut impl FnMut(Piece)) {
        self.0.into_iter().for_each(out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(time: u64, pc: u64, kernel: &[u64]) -> KernelSample {
        KernelSample { time, kernel: kernel.to_vec(), at: Some(UserAt { pc, sp: 8 }), ..KernelSample::default() }
    }

    fn user(sequence: u32, time: u64, weight: u32, pc: u64) -> UserStack {
        let sample = Sample { time, weight, sequence, stop: 1, kind: 0, flags: 0 };
        UserStack { sample, node: sequence, at: UserAt { pc, sp: 8 } }
    }

    /// Weight, kernel stack, and the number of the user stack (0: apart).
    fn pieces(join: &mut Join, last: bool) -> Vec<(u32, Vec<u64>, u32)> {
        let mut out = Vec::new();
        join.pieces(last, |piece| out.push((piece.weight, piece.kernel, piece.user.map_or(0, |user| user.node))));
        out
    }

    #[test]
    fn all_samples_of_one_stay_in_the_kernel_have_its_user_stack() {
        let mut join = Join { before: 8, most: 3, ..Join::default() };
        join.waiting.extend([sample(10, 1, &[7]), sample(20, 1, &[7]), sample(30, 1, &[9, 7]), sample(50, 2, &[])]);
        join.user.extend([user(1, 31, 1, 1)]);
        assert_eq!(pieces(&mut join, false), [(5, vec![7], 1), (1, vec![9, 7], 1)]);
        join.user.extend([user(2, 51, 1, 2)]);
        assert_eq!(pieces(&mut join, false), [(1, vec![], 2)]);
        // A tick of the timer, for which the event has nothing.
        join.user.extend([user(3, 60, 1, 2)]);
        assert_eq!(pieces(&mut join, true), []);
    }

    /// A thread's first system call may be long: then a timer's signal comes before the event's, and counts its time.
    #[test]
    fn what_a_timer_has_counted_is_not_counted_again() {
        let mut join = Join { before: 2, most: 3, ..Join::default() };
        join.counted(5);
        join.waiting.extend((1..=4).map(|time| sample(time, 1, &[7])));
        join.user.push(user(1, 5, 1, 1));
        assert_eq!(pieces(&mut join, false), [(1, vec![7], 1)]);
        join.counted(2);
        join.waiting.extend((6..=8).map(|time| sample(time, 1, &[7])));
        assert_eq!(pieces(&mut join, true), [(1, vec![7], 0)]);
    }

    /// Samples of the user mode at 1 ms each, with CPU times, and ticks in system calls between them.
    #[test]
    fn what_an_event_of_the_user_mode_does_not_see_is_left_to_ticks() {
        let unseen = Unseen { period: 1_000_000, ..Unseen::default() };
        let mut join = Join { before: 3, most: 4, unseen: Some(unseen), ..Join::default() };
        for (n, cpu) in [1_000_100, 2_000_000, 12_000_000, 13_000_300].into_iter().enumerate() {
            let sample = KernelSample { cpu, ..sample(n as u64, 1, &[]) };
            join.unseen.as_mut().expect("one").sample(&sample);
            join.waiting.push_back(sample);
            join.user.push(user(n as u32 + 1, n as u64, 1, 1));
        }
        // Of nine periods in the kernel, two ticks stand for eight; the first one counts what was before the event.
        join.counted(3);
        join.counted(4);
        join.counted(4);
        let found = pieces(&mut join, true);
        assert_eq!(found, [(1, vec![], 1), (1, vec![], 2), (1, vec![], 3), (1, vec![], 4), (1, vec![], 0)]);
    }

    #[test]
    fn samples_of_other_places_stand_apart() {
        let mut join = Join::default();
        join.waiting.extend([sample(10, 5, &[7]), sample(20, 1, &[]), sample(30, 1, &[])]);
        join.user.extend([user(1, 21, 1, 1)]);
        assert_eq!(pieces(&mut join, false), [(1, vec![7], 0), (1, vec![], 1)]);
        assert_eq!(pieces(&mut join, true), [(1, vec![], 0)]);
        // The same pc with another stack pointer.
        join.waiting.push_back(KernelSample { at: Some(UserAt { pc: 1, sp: 9 }), ..sample(40, 1, &[]) });
        join.user.push(user(2, 41, 1, 1));
        assert_eq!(pieces(&mut join, false), [(1, vec![], 0)]);
    }

    #[test]
    fn a_lost_sample_does_not_get_the_stack_of_the_next_one() {
        let mut join = Join::default();
        join.user.push(user(1, 5, 1, 1));
        join.waiting.extend([sample(10, 1, &[7]), sample(20, 1, &[9])]);
        join.user.push(user(3, 21, 1, 1));
        assert_eq!(pieces(&mut join, false), [(1, vec![9], 3)]);
    }

    #[test]
    fn skipped_ticks_count_for_the_next_stack_and_lost_ones_not_again() {
        let mut join = Join::default();
        join.user.push(user(1, 5, 1, 1));
        join.waiting.extend([sample(10, 2, &[7]), sample(11, 3, &[]), sample(12, 4, &[]), sample(20, 1, &[])]);
        // One was skipped, one lost.
        join.user.push(user(3, 21, 2, 1));
        assert_eq!(pieces(&mut join, false), [(1, vec![], 3), (1, vec![], 0), (1, vec![], 3)]);
    }
}
