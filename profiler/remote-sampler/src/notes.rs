//! What a recording says of itself: how it was made, and what is missing in it.

use crate::record::Attach;
use crate::sampler::{Sampler, Tally, CHILDREN};
use std::time::Duration;
use uunwind_recording::{FROM_OUTSIDE, NOT_RECORDED};
use uunwind_remote::doing;
use uunwind_remote::threads::tids;

/// A recording that looked at the process less often than this share of what was asked for says so.
const LOOKED: f64 = 0.8;

/// How the recording was made, and what that cost the process.
pub fn how(attach: &Attach, tally: &Tally, wall: Duration) -> String {
    let why = &attach.why;
    let stops = &tally.stops;
    let share = stops.total.as_secs_f64() * 100.0 / wall.as_secs_f64().max(1e-9);
    format!(
        "{FROM_OUTSIDE}{why}. {} stops of single running threads, {}, {share:.1} % of the time in all",
        stops.count,
        stops.lengths()
    )
}

/// Notes on what is missing.
pub fn losses(sampler: &Sampler, rate: u32, wall: Duration) -> Vec<String> {
    let tally = &sampler.tally;
    let mut notes = Vec::new();
    if sampler.wall {
        notes.push(sampler.waits.note());
        notes.extend(sampler.singles.note());
    }
    if sampler.unseen > 0 {
        let seconds = sampler.unseen as f64 / 1e9;
        notes.push(format!(
            "{seconds:.2} s of threads' time were not seen: they had ended before, or were not found in time"
        ));
    }
    if tally.left_out > 0 {
        notes.push(format!(
            "{} samples were left out: before they could be checked, the program had ended or unloaded code",
            tally.left_out
        ));
    }
    if tally.meanwhile > 0 {
        let seconds = tally.meanwhile as f64 / 1e9;
        notes.push(format!("{seconds:.2} s of CPU time passed unsampled, while newly loaded code was examined"));
    }
    if tally.unstopped > 0 {
        notes.push(format!(
            "{} times a thread could not be stopped, or not in time, and was not sampled",
            tally.unstopped
        ));
    }
    notes.extend(sampler.clockless.note());
    if sampler.beyond > 0 {
        notes
            .push(format!("{} children were not recorded: {CHILDREN} processes were recorded already", sampler.beyond));
    }
    let looked = tally.looks as f64 / wall.as_secs_f64().max(1e-9);
    let is_long = wall.as_secs_f64() * f64::from(rate) > 10.0;
    if is_long && looked < f64::from(rate) * LOOKED {
        notes.push(format!(
            "threads were looked at {looked:.0} times a second instead of {rate}: more would cost too much. Samples stand for \
             more time each"
        ));
    }
    if sampler.targets.iter().any(|target| target.names.is_full()) {
        notes.push("no room for the names of more code objects: frames of further ones have none".to_owned());
    }
    notes
}

/// A line on the process's children, which are not recorded.
pub fn not_recorded(children: &[u32]) -> Vec<String> {
    /// At most this number of them is named.
    const NAMED: usize = 5;
    let lives = |pid: &&u32| tids(**pid).is_ok();
    let named = children.iter().filter(lives).take(NAMED);
    let mut list: Vec<String> = named.map(|pid| format!("{} (pid {pid})", doing::name(*pid, *pid))).collect();
    if children.len() > NAMED {
        list.push(format!("{} more", children.len() - NAMED));
    }
    if list.is_empty() {
        return Vec::new();
    }
    vec![format!("{NOT_RECORDED}the process's children, which -p leaves out: {}", list.join(", "))]
}
