//! The CPU time of threads that ended without a sample, up to where their sampling began: exec and the dynamic loader
//! for a process, the making of a thread. A program of a millisecond has spent most of its life there.
//!
//! All of it together is measured as by one clock: the thread at whose end a period is full is charged with it, so that
//! programs have their due share on average. Threads with a sample are left out: their start is a small part of them,
//! and where it is not, the report says how much it was.

use std::collections::HashMap;

/// A start that is longer than this, in ns, is none: before its exec, the process was a program that was not recorded.
const LONGEST: u64 = 100_000_000;

/// The CPU time of starts that no sample stands for yet, by which their samples are spaced.
pub struct Starts {
    /// The sampling period, in ns.
    period: u64,
    /// Ns that no sample stands for yet.
    due: u64,
    /// Processes that go on as another program, by pid.
    earlier: HashMap<u32, Earlier>,
}

/// What a process was before its exec.
#[derive(Clone, Copy, Default)]
struct Earlier {
    cpu: u64,
    is_sampled: bool,
}

/// How the CPU time of a thread's start is accounted for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Charge {
    /// Periods that end in it.
    pub periods: u32,
    /// Ns that no period stands for.
    pub left_out: u64,
}

/// A thread whose block is no longer used.
#[derive(Clone, Copy)]
pub struct Life {
    /// Thread id.
    pub tid: u32,
    /// Process id.
    pub pid: u32,
    /// `ThreadBlock::cpu_before`.
    pub cpu_before: u64,
    /// It has a sample, or has lost one.
    pub is_sampled: bool,
    /// The process goes on as another program.
    pub goes_on: bool,
}

impl Starts {
    /// A clock for this number of samples a second, which begins anywhere in its first period.
    pub fn new(rate: u32, random: u64) -> Starts {
        let period = 1_000_000_000 / u64::from(rate.max(1));
        Starts { period, due: random % period.max(1), earlier: HashMap::new() }
    }

    /// Takes a thread's start.
    pub fn ended(&mut self, life: Life) -> Charge {
        let is_main = life.tid == life.pid;
        let earlier = if is_main { self.earlier.remove(&life.pid) } else { None }.unwrap_or_default();
        let is_sampled = life.is_sampled || earlier.is_sampled;
        if life.goes_on && is_main {
            self.earlier.insert(life.pid, Earlier { cpu: life.cpu_before.max(earlier.cpu), is_sampled });
        }
        let own = life.cpu_before.saturating_sub(earlier.cpu);
        if earlier.is_sampled {
            return Charge::default();
        }
        if is_sampled || own > LONGEST {
            return Charge { periods: 0, left_out: own };
        }
        let due = self.due + own;
        self.due = due % self.period.max(1);
        Charge { periods: (due / self.period.max(1)) as u32, left_out: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn life(pid: u32, cpu_before: u64) -> Life {
        Life { tid: pid, pid, cpu_before, is_sampled: false, goes_on: false }
    }

    #[test]
    fn many_short_lives_have_their_share() {
        for rate in [99, 999, 20_000] {
            let mut starts = Starts::new(rate, 12_345_678_901);
            let periods = (1..=1000).fold(0, |sum, pid| sum + starts.ended(life(pid, 7 * MS / 10)).periods);
            let due = 0.7 * f64::from(rate);
            assert!((periods as f64 - due).abs() <= 1.0, "{periods} of {due} at {rate} Hz");
        }
    }

    #[test]
    fn what_was_sampled_or_is_no_start_is_left_out() {
        let mut starts = Starts::new(1000, 0);
        assert_eq!(starts.ended(Life { is_sampled: true, ..life(1, 5 * MS) }), Charge { periods: 0, left_out: 5 * MS });
        for cpu in [3600 * 1000 * MS, u64::MAX] {
            assert_eq!(starts.ended(life(2, cpu)), Charge { periods: 0, left_out: cpu });
        }
        assert_eq!(starts.ended(life(4, 5 * MS)), Charge { periods: 5, left_out: 0 });
    }

    #[test]
    fn an_exec_begins_where_the_program_before_it_began() {
        let mut starts = Starts::new(1000, 0);
        assert_eq!(starts.ended(Life { goes_on: true, ..life(1, MS) }).periods, 1);
        assert_eq!(starts.ended(Life { tid: 9, ..life(8, MS) }).periods, 1, "a thread of another process");
        assert_eq!(starts.ended(Life { tid: 9, ..life(1, MS) }).periods, 1, "another thread of this process");
        assert_eq!(starts.ended(Life { goes_on: true, ..life(1, 3 * MS) }).periods, 2);
        assert_eq!(starts.ended(life(1, 4 * MS)).periods, 1);
        assert_eq!(starts.ended(life(1, 4 * MS)).periods, 4, "another process with this pid");
        assert_eq!(starts.ended(Life { goes_on: true, is_sampled: true, ..life(2, MS) }).periods, 0);
        assert_eq!(starts.ended(life(2, 30 * MS)), Charge::default(), "what it did before its exec has samples");
    }
}
