//! The trace event format of Chrome
//! (<https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU>), which Perfetto reads, too: a
//! slice for each call that consecutive samples of a thread have in common.
//!
//! A sample stands for the CPU time before it. Where the sample before is no more than a period further back, its
//! slices begin there; otherwise the thread waited in between, and nothing is drawn. They begin a nanosecond after
//! those before them have ended: a reader may take a beginning and an end at one time, of functions with one name,
//! for a slice without length (speedscope does).

use super::period;
use super::threads::{self, Thread};
use crate::stacks::{Kind, Profile};
use serde_json::{json, Value};
use uunwind_recording::Recording;

/// The trace as JSON.
pub fn render(recording: &Recording, profile: &Profile) -> Result<Vec<u8>, String> {
    let mut events = Vec::new();
    for (_, thread) in threads::sampled(recording, profile) {
        let pid = threads::pid(recording, thread.process);
        let program = threads::program(recording, thread.process);
        for (name, text) in [("process_name", &*program), ("thread_name", thread.name)] {
            events.push(json!({"ph": "M", "pid": pid, "tid": thread.tid, "name": name, "args": {"name": text}}));
        }
        Slices { events: &mut events, profile, pid, tid: thread.tid, open: Vec::new(), end: 0 }
            .draw(&thread, period(recording.settings.rate));
    }
    let file = json!({
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {"command": super::command(recording), "recorder": concat!("uu ", env!("CARGO_PKG_VERSION"))},
    });
    serde_json::to_vec(&file).map_err(|e| e.to_string())
}

/// The slices of one thread.
struct Slices<'a> {
    events: &'a mut Vec<Value>,
    profile: &'a Profile,
    pid: u32,
    tid: u32,
    /// Texts of the open slices, outermost first.
    open: Vec<String>,
    /// Time at which the last sample was taken, in ns.
    end: u64,
}

impl Slices<'_> {
    fn draw(&mut self, thread: &Thread<'_>, period: u64) {
        for (entry, stack) in &thread.entries {
            let length = entry.weight.saturating_mul(period);
            let gap = entry.time.saturating_sub(self.end);
            let touches = gap <= length.saturating_add(period);
            let start = if touches { self.end + 1 } else { entry.time.saturating_sub(length) }.min(entry.time);
            let lines = stack.lines.iter().rev().filter_map(|line| self.profile.lines.get(*line as usize));
            let names: Vec<(String, Kind)> = lines.map(|line| (line.merged(), line.kind)).collect();
            let same = self.open.iter().zip(&names).take_while(|(open, (name, _))| *open == name).count();
            self.close(if touches { same } else { 0 });
            for (name, kind) in names.into_iter().skip(self.open.len()) {
                self.event("B", start, &name, Some(kind));
                self.open.push(name);
            }
            self.end = entry.time.max(self.end);
        }
        self.close(0);
    }

    fn close(&mut self, depth: usize) {
        while self.open.len() > depth {
            let Some(name) = self.open.pop() else { return };
            self.event("E", self.end, &name, None);
        }
    }

    fn event(&mut self, phase: &str, time: u64, name: &str, kind: Option<Kind>) {
        // Microseconds, as the format has them.
        let ts = time as f64 / 1e3;
        let mut event = json!({"ph": phase, "pid": self.pid, "tid": self.tid, "ts": ts, "name": name});
        if let (Some(kind), Some(event)) = (kind, event.as_object_mut()) {
            event.insert("cat".to_owned(), kind.name().into());
        }
        self.events.push(event);
    }
}
