//! What the agent may use of the machine, and does.

use super::config::Config;
use std::collections::VecDeque;
use std::fs;
use std::time::Duration;
use uunwind_clock::Instant;
use uunwind_recorder::machine;

/// The CPU time of this time is compared with the budget: beginnings take much at once.
const SPAN: Duration = Duration::from_secs(60);
/// Time between looks while processes begin to be recorded, and otherwise.
const SOON: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_secs(10);
/// Time for which the budget must be exceeded before a process is left.
const PATIENCE: Duration = Duration::from_secs(60);

/// A budget, and what was used of it.
pub struct Budget {
    /// CPU time used, helpers included, when it was looked at.
    looks: VecDeque<(Instant, u64)>,
    /// The share of all CPUs that was used in the last minute, in percent.
    pub cpu: f64,
    /// Memory, in bytes: that of which a part belongs to others counts by that part (PSS).
    pub memory: u64,
    /// Since when it is exceeded.
    exceeded: Option<Instant>,
    is_new: bool,
}

impl Budget {
    /// Nothing was used yet.
    pub fn new() -> Budget {
        let looks = VecDeque::from([(Instant::now(), machine::own_cpu(0))]);
        Budget { looks, cpu: 0.0, memory: 0, exceeded: None, is_new: true }
    }

    /// Looks at what is used, now and then. `is_coming`: more often. Returns what is exceeded, if anything is.
    pub fn look(&mut self, config: &Config, is_coming: bool) -> Option<String> {
        let now = Instant::now();
        let pause = if is_coming { SOON } else { LOOK };
        let is_due = self.looks.back().is_none_or(|(last, _)| now.saturating_duration_since(*last) >= pause);
        if is_due || std::mem::take(&mut self.is_new) {
            self.memory = own_memory();
            let used = machine::own_cpu(0);
            if let Some((since, before)) = self.looks.front() {
                let passed = now.saturating_duration_since(*since).as_nanos() as f64 * cpus();
                self.cpu = used.saturating_sub(*before) as f64 / passed.max(1.0) * 100.0;
            }
            self.looks.push_back((now, used));
            while self.looks.get(1).is_some_and(|(at, _)| now.saturating_duration_since(*at) >= SPAN) {
                self.looks.pop_front();
            }
        }
        let over = if self.memory > config.memory {
            Some(format!("the agent has {} of its {} MB (agent.memory)", self.memory >> 20, config.memory >> 20))
        } else if self.cpu > config.cpu {
            Some(format!("the agent uses {:.2} % of the CPUs, of its {} % (agent.cpu)", self.cpu, config.cpu))
        } else {
            None
        };
        match over {
            None => self.exceeded = None,
            Some(_) => drop(self.exceeded.get_or_insert(now)),
        }
        over
    }

    /// Whether it has been exceeded for so long that a process is to be left. Then it is asked again after as long.
    pub fn is_to_shed(&mut self) -> bool {
        let is = self.exceeded.is_some_and(|since| since.elapsed() >= PATIENCE);
        if is {
            self.exceeded = Some(Instant::now());
        }
        is
    }
}

/// Number of the machine's CPUs that run.
fn cpus() -> f64 {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let is_cpu =
        |line: &&str| line.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    text.lines().filter(is_cpu).count().max(1) as f64
}

/// The line `Pss` of [proc_pid_smaps(5)](https://man7.org/linux/man-pages/man5/proc_pid_smaps.5.html), of all mappings.
fn own_memory() -> u64 {
    let text = fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"));
    let kilobytes = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    kilobytes.map_or(0, |kilobytes| kilobytes << 10)
}
