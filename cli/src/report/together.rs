//! Which options of `uu report` go with which recordings and formats: one that would change nothing is refused by name,
//! because whoever gave it would take the result for what it is not.

use super::Options;
use crate::exit::Failure;
use uunwind_recording::{Held, Settings};
use uunwind_report::formats::Format;
use uunwind_report::selection::Condition;
use uunwind_ring::{FLAG_AWAITING, FLAG_COPIES, FLAG_COPIES_BESIDE};

/// Formats in which [`View::lines`](uunwind_report::view::View::lines) makes a difference.
const MERGED: [Format; 5] = [Format::Folded, Format::Svg, Format::Summary, Format::Speedscope, Format::Trace];
/// Formats with a value of their own for each part of the allocations.
const WITH_ALL_MEMORY: [Format; 4] = [Format::Pprof, Format::PprofGz, Format::Json, Format::Html];

/// Fails if an option does not apply. `flags`: those of all recordings' settings together.
pub(super) fn check(options: &Options, flags: u32, format: Format, conditions: &[Condition]) -> Result<(), Failure> {
    let of_kind = |flag: u32| flags & flag == 0;
    let of_state = conditions.iter().any(|condition| matches!(condition, Condition::Waits(_)));
    let kinds = [
        (options.memory.is_some(), Settings::ALLOC, "--memory", "uu record --mode alloc"),
        (options.idle, Settings::WALL, "-i (--idle)", "uu record --mode wall"),
        (of_state, Settings::WALL, "--filter state=", "uu record --mode wall"),
        (options.awaiting, FLAG_AWAITING, "--async", "uu record --async"),
        (!options.debug_dir.is_empty(), FLAG_COPIES | FLAG_COPIES_BESIDE, "--debug-dir", "uu record --unwind offline"),
    ];
    if let Some((_, _, option, made)) = kinds.iter().find(|(is_given, flag, ..)| *is_given && of_kind(*flag)) {
        return Err(Failure::new(format!(
            "{option} is for recordings made with `{made}`, and this is none: leave it out"
        )));
    }
    let name = format.offer().name;
    // Of these, what is recorded is written as it is.
    let is_recording = format == Format::Recording;
    let is_plain = is_recording || format == Format::Samples;
    let is_grown =
        options.memory.as_ref().is_some_and(|which| matches!(crate::options::held(which), Ok(Held::Grown(..))));
    let formats = [
        (
            // JSON has the times of all.
            options.memory.is_some() && WITH_ALL_MEMORY.contains(&format) && (!is_grown || format == Format::Json),
            "--memory",
            "has the peak, the end, the total and what was temporary",
        ),
        (options.lines && !MERGED.contains(&format), "--lines", "has lines in any case, or no place for them"),
        (options.verbose && format != Format::Summary, "-v (--verbose)", "is not the summary"),
        (is_plain && options.by.is_some(), "--by", "has every sample by itself, with its process and thread"),
        (is_recording && !options.filter.is_empty(), "--filter", "has every sample"),
        (is_recording && !options.focus.is_empty(), "--focus", "has every sample"),
        (is_recording && !options.ignore.is_empty(), "--ignore", "has every sample"),
        (is_plain && options.idle, "-i (--idle)", "has every sample in any case"),
        (is_plain && options.charge, "--charge", "has every frame"),
        (is_plain && options.native_frames != "hide", "--native-frames", "has every frame in any case"),
        (is_recording && options.gil, "-g (--gil)", "has every sample"),
        (is_recording && options.columns, "--columns", "is the recording as it is"),
        (is_recording && options.awaiting, "--async", "is the recording as it is"),
        (is_recording && !options.debug_dir.is_empty(), "--debug-dir", "is the recording as it is"),
    ];
    match formats.iter().find(|(is_given, ..)| *is_given) {
        Some((_, option, why)) => Err(Failure::new(format!(
            "{option} changes nothing in the format {name}, which {why}: leave it out, or choose another format with -f"
        ))),
        None => Ok(()),
    }
}
