//! `uu report`: shows a recording, or converts it.

mod together;

use crate::exit::Failure;
use crate::{options, save, terminal};
use clap::{Args, ValueHint};
use std::ffi::OsString;
use std::io::Read;
use std::path::{Path, PathBuf};
use uunwind_built_in::HALVES;
use uunwind_elf::files;
use uunwind_recording::languages::{add_columns, complete};
use uunwind_recording::{Held, Recording};
use uunwind_report::formats::{render, summary, Format};
use uunwind_report::hide::NativeFrames;
use uunwind_report::resolve::Resolver;
use uunwind_report::selection::{pattern, Condition, Groups};
use uunwind_report::view::View;

/// Shows a recording made by `uu record`, or converts it.
#[derive(Debug, Args)]
#[command(args_override_self = true, after_help = after_help())]
pub struct Options {
    /// Where the result goes [default: standard output]
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    output: Option<OsString>,
    /// Format of the result [default: by the extension of the output, else summary]
    #[arg(short, long, value_name = "FORMAT", value_parser = options::formats(), hide_possible_values = true)]
    format: Option<OsString>,
    /// hide: leave out an interpreter's own frames and importlib's, in pictures its allocator and the like, too: their
    /// time is the calling line's; leaf: keep those in which time was spent; show: keep all
    #[arg(long, value_name = "MODE", default_value = "hide", value_parser = options::Offers(&["hide", "leaf", "show"]),
          hide_possible_values = true)]
    native_frames: OsString,
    /// Let the summary say more of uu's own work: plugins, replayed frames
    #[arg(short, long)]
    verbose: bool,
    /// Show at which columns of its line each frame executes, where that is known (CPython 3.11 and later)
    #[arg(long)]
    columns: bool,
    /// Show only samples of threads that held Python's global interpreter lock
    #[arg(short, long)]
    gil: bool,
    /// Show the coroutines that await the asyncio task that runs, too (recorded with uu record --async)
    #[arg(long = "async")]
    awaiting: bool,
    /// Show threads, too, that did nothing but wait in one place (recorded with uu record --mode wall)
    #[arg(short, long)]
    idle: bool,
    /// Put each process, each thread or their labels above the stacks: process, thread, label, or several with commas
    #[arg(long, value_name = "LIST")]
    by: Option<OsString>,
    /// Distinguish frames by line where they are merged by function otherwise
    #[arg(long)]
    lines: bool,
    /// Of a recording of allocations: peak, what was held when that was most; end, what was not freed; total, all;
    /// temporary, what its thread freed before it allocated anything else; FROM-TO, what was allocated after FROM
    /// seconds and held at TO [default: peak]
    #[arg(long, value_name = "WHICH", allow_negative_numbers = true,
          value_parser = options::Offers(&["peak", "end", "total", "temporary"]), hide_possible_values = true)]
    memory: Option<OsString>,
    /// Charge native code to the function of a language that called it, and leave its frames out
    #[arg(long)]
    charge: bool,
    /// Show only samples that meet a condition (below): of a thread, a function, a time, a stop reason; may be repeated
    #[arg(long, value_name = "CONDITION")]
    filter: Vec<OsString>,
    /// Show stacks only that have a function or file that matches
    #[arg(long, value_name = "REGEX")]
    focus: Vec<OsString>,
    /// Leave out stacks that have a function or file that matches
    #[arg(long, value_name = "REGEX")]
    ignore: Vec<OsString>,
    /// A folder with the program and libraries of a recording made with --unwind offline; may be repeated
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    debug_dir: Vec<PathBuf>,
    /// The recording, or several, which are shown as one; -: standard input
    #[arg(value_name = "FILE", required = true, value_hint = ValueHint::FilePath)]
    files: Vec<OsString>,
}

fn after_help() -> String {
    format!(
        "\
Formats:
{}
Conditions of --filter: function=REGEX, module=REGEX (a frame in an object with such a path), thread=NAME or id,
process=COMMAND or pid, label=KEY or label=KEY:REGEX (set by the program, uu_label_set() of uu.h), state=running or
state=waiting (with --mode wall), time=FROM-TO in seconds since the recording began, stop=NUMBER (why the walk ended,
docs/stop-reasons.md) or stop=failed. All must hold.

Exit code: 0, or 125 if the recording cannot be read or the result cannot be written. A truncated recording is reported
as far as it goes, with a warning.",
        Format::list()
    )
}

/// Runs the subcommand; returns the exit code.
pub fn run(options: Options) -> Result<u8, Failure> {
    let files = options.files.iter().map(|file| options::path(file.clone(), "FILE"));
    let files = files.collect::<Result<Vec<PathBuf>, Failure>>()?;
    let [file, others @ ..] = &files[..] else { return Err(Failure::new("no recording given")) };
    let output = options.output.clone().map(|output| options::path(output, "-o")).transpose()?;
    let format = options.format.as_ref().map(options::format).transpose()?;
    let native_frames = options::native_frames(&options.native_frames)?;
    let output = output.filter(|path| path.as_os_str() != "-");
    let format = options::choose_format(format, output.as_deref(), Format::Summary)?;
    if let Some(output) = &output {
        save::check_apart(output, &files)?;
    }
    let view = view(&options.by, options.lines, [&options.filter, &options.focus, &options.ignore], native_frames)?;
    let held = options.memory.as_ref().map_or(Ok(Held::default()), options::held)?;
    let view = View { idle: options.idle, charge: options.charge, held, ..view };
    terminal::check_readable(format, output.as_deref().unwrap_or(Path::new("-")))?;
    let (mut recording, whole) = read(file)?;
    let mut flags = recording.settings.flags;
    crate::offline::walk(&mut recording, &options.debug_dir)?;
    if !others.is_empty() && format == Format::Recording {
        return Err(Failure::new("several recordings cannot become one file; any other format shows them as one"));
    }
    let mut runs = vec![(recording.settings.clone(), recording.is_snapshot(), file)];
    for other in others {
        let (mut more, _) = read(other)?;
        let is_snapshot = more.is_snapshot();
        let same = runs.iter().find(|(settings, old, _)| *settings == more.settings && (*old || is_snapshot));
        if let Some((_, old, first)) = same {
            let (snapshot, other) = if *old { (*first, other) } else { (other, *first) };
            return Err(Failure::new(format!(
                "{} is a snapshot of the run that {} is of, and holds all samples from its beginning: leave one of them out",
                snapshot.display(),
                other.display()
            )));
        }
        runs.push((more.settings.clone(), is_snapshot, other));
        flags |= more.settings.flags;
        crate::offline::walk(&mut more, &options.debug_dir)?;
        recording.merge(more).map_err(|why| Failure::new(format!("{}: {why}", other.display())))?;
    }
    together::check(&options, flags, format, &view.conditions)?;
    complete(&mut recording, HALVES);
    if options.columns {
        add_columns(&mut recording, HALVES);
    }
    recording.awaiting = options.awaiting;
    if options.gil {
        recording.keep_holders();
    }
    for warning in &recording.warnings {
        terminal::warn(&uunwind_report::formats::printable(warning));
    }
    let bytes = match format {
        Format::Recording => whole,
        Format::Summary if recording.without_holders().is_none() => {
            let mut resolver = Resolver::new(&recording);
            let profile = view.profile(format, &mut resolver).map_err(Failure::new)?;
            let style = match output.is_none() {
                true => terminal::style(false, options.verbose),
                false => summary::Style { verbose: options.verbose, ..summary::PLAIN },
            };
            summary::render(&recording, &profile, resolver.unusable(), style).into_bytes()
        }
        _ => render(format, &recording, view).map_err(|e| Failure::new(format!("{}: {e}", file.display())))?,
    };
    match output {
        Some(path) => {
            save::may_replace(&path)?;
            save::write(&path, &bytes)?;
        }
        None => terminal::output(&bytes)?,
    }
    Ok(0)
}

/// A recording, and its bytes.
fn read(file: &Path) -> Result<(Recording, Vec<u8>), Failure> {
    let mut bytes = Vec::new();
    if file.as_os_str() == "-" {
        let from = |e| Failure::new(format!("cannot read standard input: {e}"));
        std::io::stdin().lock().read_to_end(&mut bytes).map_err(from)?;
        let shown = Path::new("standard input");
        let recording = Recording::parse(&bytes, shown).map_err(Failure::new)?.to_show(shown);
        return Ok((recording, bytes));
    }
    let recording = Recording::read(file).map_err(Failure::new)?.to_show(file);
    let whole =
        files::read(file, u64::MAX).map_err(|e| Failure::new(format!("cannot read {}: {e}", file.display())))?;
    Ok((recording, whole))
}

/// What is shown, by the options `--by`, `--lines`, and `--filter`, `--focus` and `--ignore`.
fn view(
    by: &Option<OsString>,
    lines: bool,
    [filter, focus, ignore]: [&Vec<OsString>; 3],
    native_frames: NativeFrames,
) -> Result<View, Failure> {
    let mut groups = Groups::default();
    for word in by.iter().flat_map(|by| by.to_string_lossy().split(',').map(str::to_owned).collect::<Vec<_>>()) {
        match word.as_str() {
            "process" => groups.process = true,
            "thread" => groups.thread = true,
            "label" => groups.label = true,
            _ => {
                let text = format!("--by {word}: it takes process, thread or label, or several of these with commas");
                return Err(Failure::new(text));
            }
        }
    }
    let mut conditions = Vec::new();
    let mut add = |option: &str, values: &[OsString], parse: &dyn Fn(&str) -> Result<Condition, String>| {
        for value in values {
            let text = value.to_string_lossy();
            conditions.push(parse(&text).map_err(|e| Failure::new(format!("{option} {text}: {e}")))?);
        }
        Ok(())
    };
    add("--filter", filter, &Condition::parse)?;
    add("--focus", focus, &|text| pattern(text).map(Condition::Focus))?;
    add("--ignore", ignore, &|text| pattern(text).map(Condition::Ignore))?;
    Ok(View { native_frames, conditions, groups, lines, ..View::default() })
}
