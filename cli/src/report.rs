//! `uu report`: shows a recording, or converts it.

use crate::exit::Failure;
use crate::{help, options, save, terminal};
use lexopt::prelude::{Long, Short, Value};
use std::ffi::OsString;
use std::path::PathBuf;
use uunwind_report::formats::{render, summary, Format};
use uunwind_report::hide::NativeFrames;
use uunwind_report::resolve::Resolver;
use uunwind_report::stacks::Merger;
use uunwind_report::Recording;

const COMMAND: &str = "uu report";

/// Runs the subcommand; gives the exit code.
pub fn run(arguments: &[OsString]) -> Result<u8, Failure> {
    let (mut file, mut output, mut format) = (None::<PathBuf>, None::<PathBuf>, None);
    let mut native_frames = NativeFrames::default();
    let mut parser = lexopt::Parser::from_args(arguments.iter().cloned());
    let malformed = |e| options::malformed(e, COMMAND);
    while let Some(argument) = parser.next().map_err(malformed)? {
        match argument {
            Short('o') | Long("output") => output = Some(options::path(parser.value().map_err(malformed)?, "-o")?),
            Short('f') | Long("format") => format = Some(options::format(&parser.value().map_err(malformed)?)?),
            Long("native-frames") => native_frames = options::native_frames(&parser.value().map_err(malformed)?)?,
            Short('h') | Long("help") => return terminal::print(help::REPORT),
            Value(value) if file.is_none() => file = Some(options::path(value, "FILE")?),
            Value(value) => {
                let text =
                    format!("{:?} is one file too many: a report is made of one recording", value.to_string_lossy());
                return Err(Failure::usage(&text, COMMAND));
            }
            other => return Err(malformed(other.unexpected())),
        }
    }
    let file = file.ok_or_else(|| Failure::usage("no recording given", COMMAND))?;
    let output = output.filter(|path| path.as_os_str() != "-");
    let format = options::choose_format(format, output.as_deref(), Format::Summary)?;
    let recording = Recording::read(&file).map_err(Failure::new)?;
    for warning in &recording.warnings {
        terminal::warn(&uunwind_report::formats::printable(warning));
    }
    let bytes = match format {
        Format::Recording => {
            std::fs::read(&file).map_err(|e| Failure::new(format!("cannot read {}: {e}", file.display())))?
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
