//! The part of a recording that was not sent yet, as a profile of its own.

use crate::target::{Protocol, Target};
use uunwind_recording::Recording;
use uunwind_report::formats::{export, pprof::gzip, render, Format};
use uunwind_report::view::View;

/// A profile, and which time it is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Compressed pprof, or a compressed request of OTLP.
    pub bytes: Vec<u8>,
    /// Wall-clock time of its begin and end, in ns since 1970.
    pub from: u64,
    /// See `from`.
    pub until: u64,
    /// Sampling rate, in Hz; `None`: it is of waits for locks.
    pub rate: Option<u32>,
    /// Number of samples.
    pub samples: u64,
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
        let first = recording.samples.iter().skip(self.samples).map(|sample| sample.time).min().unwrap_or(u64::MAX);
        let is_timed = matches!(self.target.protocol, Protocol::Otlp { .. });
        let start = if is_timed { self.end.min(first) } else { self.end }.max(begin);
        let unix = |time: u64| begin_unix.saturating_add(time.saturating_sub(begin));
        (settings.start_unix, settings.start_monotonic) = (unix(start), start);
        let counts = (recording.samples.len(), recording.starts.len());
        let gone = self.samples.min(counts.0);
        recording.samples.drain(..gone);
        recording.lock_waits.retain(|wait| wait.sample >= gone);
        recording.lock_waits.iter_mut().for_each(|wait| wait.sample -= gone);
        recording.starts.drain(..self.starts.min(counts.1));
        (self.samples, self.starts, self.end) = (counts.0, counts.1, end);
        if recording.samples.is_empty() && recording.starts.is_empty() {
            return Ok(None);
        }
        let samples = recording.samples.len() as u64;
        let bytes = match &self.target.protocol {
            Protocol::Pyroscope { .. } => render(Format::PprofGz, recording, view.clone())?,
            Protocol::Otlp { resource } => {
                gzip(&export(recording, view.clone(), resource)?).map_err(|error| error.to_string())?
            }
        };
        let rate = (!recording.is_lock()).then_some(recording.settings.rate);
        Ok(Some(Profile { bytes, from: unix(start), until: unix(end), rate, samples }))
    }
}
