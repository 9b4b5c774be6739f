//! How often threads were stopped, and what that cost them.

use std::time::Duration;

/// Stops of threads.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stops {
    /// Number of them.
    pub count: u64,
    /// How long threads stood still, in all.
    pub total: Duration,
    /// The longest one.
    pub longest: Duration,
}

impl Stops {
    /// A thread was stopped for so long.
    pub fn add(&mut self, took: Duration) {
        self.count += 1;
        self.total += took;
        self.longest = self.longest.max(took);
    }

    /// Their lengths, for people.
    pub fn lengths(&self) -> String {
        let mean = self.total.as_secs_f64() * 1e3 / self.count.max(1) as f64;
        let longest = self.longest.as_secs_f64() * 1e3;
        format!("{mean:.2} ms on average, {longest:.2} ms at most")
    }
}
