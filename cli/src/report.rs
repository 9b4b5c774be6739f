//! `uu report`: shows a recording, or converts it.

use crate::exit::Failure;
use crate::{options, save, terminal};
use clap::{Args, ValueHint};
use std::ffi::OsString;
use uunwind_built_in::HALVES;
use uunwind_elf::files;
use uunwind_recording::languages::{add_columns, complete};
use uunwind_recording::Recording;
use uunwind_report::formats::{render, summary, Format};
use uunwind_report::resolve::Resolver;
use uunwind_report::stacks::Merger;

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
    /// hide: leave out an interpreter's own frames and importlib's; show: keep them
    #[arg(long, value_name = "MODE", default_value = "hide", value_parser = options::Offers(&["hide", "show"]),
          hide_possible_values = true)]
    native_frames: OsString,
    /// Show at which columns of its line each frame executes, where that is known (CPython 3.11 and later)
    #[arg(long)]
    columns: bool,
    /// Show only samples of threads that held Python's global interpreter lock
    #[arg(short, long)]
    gil: bool,
    /// The recording
    #[arg(value_hint = ValueHint::FilePath)]
    file: OsString,
}

fn after_help() -> String {
    format!(
        "\
Formats:
{}
Exit code: 0, or 125 if the recording cannot be read or the result cannot be written. A truncated recording is reported
as far as it goes, with a warning.",
        Format::list()
    )
}

/// Runs the subcommand; returns the exit code.
pub fn run(options: Options) -> Result<u8, Failure> {
    let file = options::path(options.file, "FILE")?;
    let output = options.output.map(|output| options::path(output, "-o")).transpose()?;
    let format = options.format.as_ref().map(options::format).transpose()?;
    let native_frames = options::native_frames(&options.native_frames)?;
    let output = output.filter(|path| path.as_os_str() != "-");
    let format = options::choose_format(format, output.as_deref(), Format::Summary)?;
    let mut recording = Recording::read(&file).map_err(Failure::new)?;
    complete(&mut recording, HALVES);
    if options.columns {
        add_columns(&mut recording, HALVES);
    }
    if options.gil {
        recording.keep_holders();
    }
    for warning in &recording.warnings {
        terminal::warn(&uunwind_report::formats::printable(warning));
    }
    let bytes = match format {
        Format::Recording => {
            files::read(&file, u64::MAX).map_err(|e| Failure::new(format!("cannot read {}: {e}", file.display())))?
        }
        Format::Summary if output.is_none() => {
            let mut resolver = Resolver::new(&recording);
            let profile = Merger::new(&mut resolver, native_frames).profile();
            let style = terminal::style(false);
            summary::render(&recording, &profile, resolver.unusable(), style).into_bytes()
        }
        _ => render(format, &recording, native_frames).map_err(|e| Failure::new(format!("{}: {e}", file.display())))?,
    };
    match output {
        Some(path) => save::write(&path, &bytes)?,
        None => terminal::output(&bytes)?,
    }
    Ok(0)
}
