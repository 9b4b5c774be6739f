//! What a report shows of a recording, and how.

use crate::charge::{charge, Native};
use crate::formats::Format;
use crate::hide::NativeFrames;
use crate::lock_frames::with_locks;
use crate::resolve::Resolver;
use crate::selection::{group, held, select, since as since_then, without_idle, Condition, Groups};
use crate::stacks::{Entry, Merger, Profile};
use crate::values::Part;
use std::collections::HashSet;
use uunwind_recording::Held;

/// What is shown, and how.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// What to do with an interpreter's native frames.
    pub native_frames: NativeFrames,
    /// What samples must meet to be shown.
    pub conditions: Vec<Condition>,
    /// What stands above the stacks.
    pub groups: Groups,
    /// Whether frames are distinguished by line where they are by function otherwise.
    pub lines: bool,
    /// Whether threads are shown that did nothing but wait in one place.
    pub idle: bool,
    /// Of a recording of allocations: which of them.
    pub held: Held,
    /// Whether all native code is charged to the function of a language that called it.
    pub charge: bool,
    /// Of a recording of allocations: how many of its samples an earlier profile has.
    pub since: Option<usize>,
    /// Of a recording of allocations: which of the values pprof has.
    pub part: Part,
    /// Whether the profile is added to those of other runs: what is of one run only is left out.
    pub of_many_runs: bool,
}

impl From<NativeFrames> for View {
    fn from(native_frames: NativeFrames) -> View {
        View { native_frames, ..View::default() }
    }
}

impl View {
    /// The samples that meet the conditions, by their place in the recording; `None`: there are no conditions. Those of
    /// a crash are in no profile, and are not chosen.
    pub(crate) fn chosen(&self, resolver: &mut Resolver<'_>) -> Result<Option<HashSet<usize>>, String> {
        if self.conditions.is_empty() {
            return Ok(None);
        }
        let profile = Merger::new(resolver, NativeFrames::Show).profile();
        let profile = select(resolver.recording(), profile, &self.conditions)?;
        let samples = profile.entries.iter().filter(|entry| entry.sample != Entry::NONE);
        Ok(Some(samples.map(|entry| entry.sample as usize).collect()))
    }

    /// The profile of a recording for a format.
    pub fn profile(&self, format: Format, resolver: &mut Resolver<'_>) -> Result<Profile, String> {
        let recording = resolver.recording();
        if recording.is_alloc() && matches!(format, Format::Trace | Format::Firefox) {
            let name = format.offer().name;
            return Err(format!("the format {name} shows time, and this is a recording of allocations"));
        }
        if recording.is_lock() && matches!(format, Format::Trace | Format::Firefox) {
            let name = format.offer().name;
            return Err(format!("the format {name} shows what threads do, and this is a recording of waits for locks"));
        }
        let merger = match format {
            // Glue is hidden or shown by the page.
            Format::Html => Merger::marking_glue(resolver),
            _ => Merger::new(resolver, self.native_frames),
        };
        let profile = merger.profile();
        let profile = match (recording.is_alloc(), format) {
            (false, _) => profile,
            // It has values of its own for all of them, but for those between two times.
            (true, Format::Pprof | Format::PprofGz | Format::Otlp | Format::Json | Format::Html)
                if !matches!(self.held, Held::Grown(..)) =>
            {
                match self.since {
                    Some(since) => since_then(recording, profile, since),
                    None => profile,
                }
            }
            (true, _) => held(recording, profile, self.held),
        };
        // Before anything is selected: of a thread that has run, the waits alone may be wanted.
        let profile = if self.idle { profile } else { without_idle(profile) };
        // Beside what the summary and JSON have of each lock.
        let profile = match (recording.is_lock(), format) {
            (false, _) | (true, Format::Summary | Format::Json) => profile,
            (true, _) => with_locks(recording, profile, !self.of_many_runs),
        };
        let mut profile = Profile { part: self.part, ..select(recording, profile, &self.conditions)? };
        if self.charge {
            profile = charge(profile, Native::All);
        }
        // The page has a button for it, and data for other programs have what was measured.
        match (self.native_frames, format) {
            (NativeFrames::Hide, Format::Svg) => profile = charge(profile, Native::Internals),
            (NativeFrames::Hide, _) | (_, Format::Html) => {}
            _ => profile.internals.clear(),
        }
        if self.lines {
            by_line(format, &mut profile);
        }
        if !self.groups.process && !self.groups.thread && !self.groups.label {
            return Ok(profile);
        }
        match format {
            Format::Folded | Format::Svg | Format::Summary | Format::Html => Ok(group(recording, profile, self.groups)),
            _ => Err(format!(
                "the format {} has processes, threads and labels of its own, without --by",
                format.offer().name
            )),
        }
    }
}

/// Adds the line to the names of functions, for formats that merge by name.
fn by_line(format: Format, profile: &mut Profile) {
    if !matches!(format, Format::Folded | Format::Svg | Format::Summary | Format::Speedscope | Format::Trace) {
        return;
    }
    profile.by_line = true;
    for line in profile.lines.iter_mut().filter(|line| line.line > 0) {
        // Folded stacks have the lines of interpreted functions in any case.
        if format != Format::Folded || !line.kind.is_semantic() {
            line.function = format!("{}:{}", line.function, line.position());
        }
    }
}
