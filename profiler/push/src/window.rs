//! The part of a recording that was not sent yet, as a profile of its own.

use crate::otlp;
use crate::parca;
use crate::pusher;
use crate::pyroscope;
use crate::target::{Protocol, Target};
use uunwind_recording::{Held, Recording};
use uunwind_report::formats::{export, pprof::gzip, render, Format};
use uunwind_report::values::Part;
use uunwind_report::view::View;

/// A profile, and which time it is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Compressed pprof, a compressed request of OTLP, or a request of Parca or of Pyroscope's API.
    pub bytes: Vec<u8>,
    /// Wall-clock time of its begin and end, in ns since 1970.
    pub from: u64,
    /// See `from`.
    pub until: u64,
    /// What its values are of.
    pub of: Of,
    /// Number of samples.
    pub samples: u64,
    /// The query of its request.
    pub(crate) query: String,
}

/// What the values of a profile are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// Time, sampled at this rate in Hz.
    Time(u32),
    /// Waits for locks.
    Waits,
    /// Allocations: those since the last profile, and what is held at the end of this one.
    Memory,
}

impl Of {
    fn recording(recording: &Recording) -> Of {
        match (recording.is_lock(), recording.is_alloc()) {
            (true, _) => Of::Waits,
            (_, true) => Of::Memory,
            _ => Of::Time(recording.settings.rate),
        }
    }
}

/// How much of a recording was made profiles of.
#[derive(Debug)]
pub struct Windows {
    target: Target,
    /// Number of samples.
    samples: usize,
    /// Number of times before threads' first samples.
    starts: usize,
    /// End of the last window (CLOCK_MONOTONIC, ns); 0: there was none.
    end: u64,
}

impl Windows {
    /// Nothing yet, for this target.
    pub fn new(target: Target) -> Windows {
        Windows { target, samples: 0, starts: 0, end: 0 }
    }

    /// The profile of what this copy of the recording has after the last one: samples are appended to a recording, so
    /// that each is in one window. `None`: it has no more. The copy is used up: it has that window only.
    pub fn next(&mut self, recording: &mut Recording, view: &View) -> Result<Option<Profile>, String> {
        let settings = &mut recording.settings;
        let (begin_unix, begin) = (settings.start_unix, settings.start_monotonic);
        let end = recording.end.as_ref().map_or(begin, |end| end.time).max(self.end);
        // Samples may come after the copy of a time that was before them, and OTLP has the time of each.
        let samples = recording.samples.iter().skip(self.samples).map(|sample| sample.time);
        let starts = recording.starts.iter().skip(self.starts).map(|start| start.time);
        let first = samples.chain(starts).min().unwrap_or(u64::MAX);
        let is_timed = matches!(self.target.protocol, Protocol::Otlp { .. });
        let start = if is_timed { self.end.min(first) } else { self.end }.max(begin);
        let unix = |time: u64| begin_unix.saturating_add(time.saturating_sub(begin));
        (settings.start_unix, settings.start_monotonic) = (unix(start), start);
        let counts = (recording.samples.len(), recording.starts.len());
        let gone = self.samples.min(counts.0);
        let of = Of::recording(recording);
        let mut view = view.clone();
        // Memory that was allocated before may still be held.
        if of == Of::Memory {
            view.since = Some(gone);
        } else {
            recording.samples.drain(..gone);
        }
        recording.lock_waits.retain(|wait| wait.sample >= gone);
        recording.lock_waits.iter_mut().for_each(|wait| wait.sample -= gone);
        recording.starts.drain(..self.starts.min(counts.1));
        (self.samples, self.starts, self.end) = (counts.0, counts.1, end);
        let is_held = || recording.held(Held::Now).iter().any(|amount| amount.count > 0.0);
        let samples = (counts.0 - gone) as u64;
        if samples == 0 && recording.starts.is_empty() && !(of == Of::Memory && is_held()) {
            return Ok(None);
        }
        let bytes = match &self.target.protocol {
            Protocol::Pyroscope { .. } => render(Format::PprofGz, recording, view)?,
            Protocol::Pusher { labels } => {
                pusher::request(labels, recording, &render(Format::PprofGz, recording, view)?)
            }
            Protocol::Parca { labels } => {
                // A profile there is a sum over time, or it is none.
                let parts = match of {
                    Of::Memory => &[Part::Allocated, Part::InUse][..],
                    _ => &[Part::Whole],
                };
                let of_part = |part: &Part| render(Format::PprofGz, recording, View { part: *part, ..view.clone() });
                parca::request(labels, recording, &parts.iter().map(of_part).collect::<Result<Vec<_>, _>>()?)
            }
            Protocol::Otlp { resource } => {
                gzip(&export(recording, view, resource)?).map_err(|error| error.to_string())?
            }
        };
        let query = String::new();
        let mut profile = Profile { bytes, from: unix(start), until: unix(end), of, samples, query };
        profile.query = match &self.target.protocol {
            Protocol::Pyroscope { name } => pyroscope::query(name, &profile),
            Protocol::Otlp { .. } => otlp::REQUEST.to_owned(),
            Protocol::Pusher { .. } => pusher::REQUEST.to_owned(),
            Protocol::Parca { .. } => parca::REQUEST.to_owned(),
        };
        Ok(Some(profile))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::credentials::Credentials;
    use uunwind_recording::{End, Process, Sample, Start, Symbols, Thread};
    use uunwind_report::hide::NativeFrames;

    /// A copy with samples and a start at these times, in ns since the recording began.
    fn copy(samples: &[u64], starts: &[u64], end: u64) -> Recording {
        let begin = 1_000;
        let sample =
            |time: &u64| Sample { thread: 0, stack: 0, time: begin + time, weight: 1, stop: 1, kind: 0, flags: 0 };
        let mut recording = Recording {
            processes: vec![Process { pid: 7, ..Process::default() }],
            threads: vec![Thread { process: 0, tid: 7, name: String::new() }],
            samples: samples.iter().map(sample).collect(),
            starts: starts.iter().map(|time| Start { thread: 0, time: begin + time, weight: 1 }).collect(),
            symbols: Some(Symbols::default()),
            end: Some(End { time: begin + end, ..End::default() }),
            ..Recording::default()
        };
        (recording.settings.start_monotonic, recording.settings.start_unix) = (begin, 0);
        recording
    }

    /// OTLP has the time of each sample, and the profile's time has to have it.
    #[test]
    fn what_came_late_is_within_its_window() {
        for (url, from) in [("http://h", 150), ("otlp+http://h", 40)] {
            let target = Target::new(url, None, "p", &[], Credentials::None, None, &|_| None).expect("valid");
            let mut windows = Windows::new(target);
            let mut next = |mut copy| windows.next(&mut copy, &NativeFrames::Show.into()).expect("a profile");
            let first = next(copy(&[10, 50], &[], 100)).expect("samples");
            assert_eq!((first.from, first.until, first.samples), (0, 100, 2));
            assert_eq!(next(copy(&[10, 50], &[], 150)), None);
            // A thread's first sample, and the start of another one, were found later.
            let second = next(copy(&[10, 50, 60, 190], &[40], 200)).expect("samples");
            assert_eq!((second.from, second.until, second.samples), (from, 200, 2), "{url}");
        }
    }
}
