//! `uu diff`: compares two recordings.

use crate::exit::Failure;
use crate::{options, save, terminal};
use clap::{Args, ValueHint};
use std::ffi::OsString;
use std::path::Path;
use uunwind_built_in::HALVES;
use uunwind_recording::languages::complete;
use uunwind_recording::{Held, Recording};
use uunwind_report::charge::{charge, Native};
use uunwind_report::diff::{changes, picture, table, Change};
use uunwind_report::formats::{printable, Format};
use uunwind_report::hide::NativeFrames;
use uunwind_report::resolve::Resolver;
use uunwind_report::selection::held;
use uunwind_report::stacks::{Merger, Profile};

/// The exit code if a function's share grew by more than `--fail-over`.
const GREW: u8 = 1;
/// Rows of the table.
const ROWS: usize = 30;

/// Compares two recordings: which functions take a greater or smaller share of the time than before.
#[derive(Debug, Args)]
#[command(after_help = "\
Shares are compared, not times, so that runs of different lengths can be. Changes are in percentage points. Both
recordings are of one mode, such as CPU time. A change is shown if it is greater than chance explains: three standard
errors of a share, with as many samples as there are.

Exit code: 0; 1 if --fail-over was given and a function's share grew by more, by itself or with what it calls, and by
more than chance explains; 125 if a recording cannot be read or the picture cannot be written.")]
pub struct Options {
    /// Exit with code 1 if the share of a function grew by more than this, such as 5%
    #[arg(long, value_name = "POINTS")]
    fail_over: Option<OsString>,
    /// Also draw a flame graph (svg) of AFTER: red where it grew, blue where it shrank; beside it what only BEFORE has
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    output: Option<OsString>,
    /// hide: leave out an interpreter's own frames and importlib's, the rest of whose time is the calling function's;
    /// leaf: keep those in which time was spent; show: keep all
    #[arg(long, value_name = "MODE", default_value = "hide", value_parser = options::Offers(&["hide", "leaf", "show"]),
          hide_possible_values = true)]
    native_frames: OsString,
    /// Of recordings of allocations: compare what was held at the peak, or otherwise, as of uu report [default: total]
    #[arg(long, value_name = "WHICH", allow_negative_numbers = true,
          value_parser = options::Offers(&["peak", "end", "total", "temporary"]), hide_possible_values = true)]
    memory: Option<OsString>,
    /// The recording to compare with
    #[arg(value_hint = ValueHint::FilePath)]
    before: OsString,
    /// The recording that is compared
    #[arg(value_hint = ValueHint::FilePath)]
    after: OsString,
}

/// Runs the subcommand; returns the exit code.
pub fn run(options: Options) -> Result<u8, Failure> {
    let limit = options.fail_over.as_ref().map(points).transpose()?;
    let output = options.output.map(|output| options::path(output, "-o")).transpose()?;
    if let Some(path) = output.as_ref().filter(|path| has_other_extension(path)) {
        let path = path.display();
        return Err(Failure::new(format!(
            "-o {path}: the picture is a flame graph in SVG. Give it the extension .svg"
        )));
    }
    let native_frames = options::native_frames(&options.native_frames)?;
    let (before, after) = (options::path(options.before, "FILE")?, options::path(options.after, "FILE")?);
    if let Some(output) = &output {
        save::check_apart(output, &[before.clone(), after.clone()])?;
    }
    let (first, second) = (read(&before)?, read(&after)?);
    first.has_value_of(&second).map_err(|why| Failure::new(format!("{}: {why}", after.display())))?;
    let which = options.memory.as_ref().map_or(Ok(Held::Total), options::held)?;
    if options.memory.is_some() && !first.is_alloc() {
        let text = "--memory is for recordings made with `uu record --mode alloc`, and these are none: leave it out";
        return Err(Failure::new(text));
    }
    let profile = |recording| {
        let profile = Merger::new(&mut Resolver::new(recording), native_frames).profile();
        if recording.is_alloc() {
            held(recording, profile, which)
        } else {
            profile
        }
    };
    let names = (before.clone(), after.clone());
    let title = format!("{}: {} to {}", first.value().title, name(&before), name(&after));
    let (before, after) = (profile(&first), profile(&second));
    let (what, than) = (described(&names.0, &first, &before), described(&names.1, &second, &after));
    // As pictures have it.
    let drawn = |profile| match native_frames {
        NativeFrames::Hide => charge(profile, Native::Internals),
        NativeFrames::Leaf | NativeFrames::Show => profile,
    };
    let (before, after) = (drawn(before), drawn(after));
    let changes = changes(&before, &after);
    let style = terminal::style(false, false);
    let text = format!("before  {what}\nafter   {than}\n\n{}", table(&changes, ROWS, style));
    terminal::output(text.as_bytes())?;
    if let Some(path) = output {
        save::write(&path, &picture(&before, &after, &title).map_err(Failure::new)?)?;
    }
    let Some(limit) = limit else { return Ok(0) };
    let grown = |change: &&Change| change.grown().growth() > limit;
    let (certain, uncertain): (Vec<_>, Vec<_>) =
        changes.iter().filter(grown).partition(|change| change.grown().has_changed());
    let worst = |changes: Vec<&Change>| {
        let worst = changes.into_iter().max_by(|a, b| a.grown().growth().total_cmp(&b.grown().growth()))?;
        let function = printable(&worst.function);
        let growth = worst.grown().growth();
        Some((format!("the share of {function} grew by {growth:.1} points, more than {limit}"), worst.grown().chance))
    };
    if let Some((text, _)) = worst(certain) {
        return Err(Failure::with_code(GREW, text));
    }
    if let Some((text, chance)) = worst(uncertain) {
        let why = format!("which chance alone explains, up to {chance:.1} points with so few samples");
        terminal::warn(&format!("{text}, {why}: record longer, or at a higher rate (-r)"));
    }
    Ok(0)
}

/// Whether a file's name says that it holds something else than a picture in SVG.
fn has_other_extension(path: &Path) -> bool {
    // Of `x` or `/dev/stdout`, the user has said nothing.
    path.extension().is_some() && Format::by_extension(path) != Some(Format::Svg)
}

/// A recording, with the names of its functions.
fn read(file: &Path) -> Result<Recording, Failure> {
    let mut recording = Recording::read(file).map_err(Failure::new)?.to_show(file);
    crate::offline::walk(&mut recording, &[])?;
    complete(&mut recording, HALVES);
    for warning in &recording.warnings {
        terminal::warn(&printable(warning));
    }
    Ok(recording)
}

/// A recording's name in the picture's title: the table has its path.
fn name(file: &Path) -> String {
    file.file_name().unwrap_or(file.as_os_str()).to_string_lossy().into_owned()
}

/// A recording in one line.
fn described(file: &Path, recording: &Recording, profile: &Profile) -> String {
    let (weight, samples) = match profile.held {
        Some(_) => (profile.stacks.iter().map(|stack| stack.weight).sum(), profile.entries.len()),
        None => (recording.samples.iter().map(|sample| u64::from(sample.weight.max(1))).sum(), recording.samples.len()),
    };
    let value = recording.value();
    let amount = value.unit.amount(weight, recording.settings.rate);
    let file = printable(&file.to_string_lossy());
    format!("{file}: {amount} of {} in {samples} samples", value.text)
}

/// A number of percentage points.
fn points(value: &OsString) -> Result<f64, Failure> {
    let text = value.to_string_lossy();
    let number = text.strip_suffix('%').unwrap_or(&text).trim_end().parse::<f64>().ok();
    number.filter(|number| (0.0..=100.0).contains(number)).ok_or_else(|| {
        Failure::new(format!("--fail-over {text}: it takes percentage points from 0 to 100, such as 5% or 0.5"))
    })
}
