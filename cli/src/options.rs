//! Options that both subcommands have, and how their values are read.

use crate::exit::Failure;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;
use uunwind_report::formats::Format;
use uunwind_report::hide::NativeFrames;

/// Highest rate, in Hz. CPU timers stop at the kernel's tick, which is lower; above it samples only weigh more.
const HIGHEST_RATE: u32 = 10_000;

/// An error of the command-line parser.
pub fn malformed(error: lexopt::Error, command: &str) -> Failure {
    Failure::usage(&error.to_string(), command)
}

/// A rate in Hz.
pub fn rate(value: &OsString) -> Result<u32, Failure> {
    let text = value.to_string_lossy();
    match text.parse::<u32>() {
        Ok(rate @ 1..=HIGHEST_RATE) => Ok(rate),
        _ => Err(Failure::new(format!("-r {text}: the rate must be a whole number of Hz from 1 to {HIGHEST_RATE}"))),
    }
}

/// A time in seconds.
pub fn duration(value: &OsString) -> Result<Duration, Failure> {
    let text = value.to_string_lossy();
    let seconds = text.parse::<f64>().ok().filter(|s| *s > 0.0);
    seconds.and_then(|s| Duration::try_from_secs_f64(s).ok()).ok_or_else(|| {
        Failure::new(format!("-d {text}: the duration must be a number of seconds above 0, such as 10 or 0.5"))
    })
}

/// What to do with native frames.
pub fn native_frames(value: &OsString) -> Result<NativeFrames, Failure> {
    match value.to_str() {
        Some("hide") => Ok(NativeFrames::Hide),
        Some("show") => Ok(NativeFrames::Show),
        _ => Err(Failure::new(format!("--native-frames {}: it takes hide or show", value.to_string_lossy()))),
    }
}

/// A format by its name.
pub fn format(value: &OsString) -> Result<Format, Failure> {
    let text = value.to_string_lossy();
    Format::by_name(&text)
        .ok_or_else(|| Failure::new(format!("-f {text}: unknown format. The known ones are:\n{}", Format::list())))
}

/// The format that was asked for, or that the output's extension means; `default` when there is neither.
pub fn choose_format(asked: Option<Format>, output: Option<&Path>, default: Format) -> Result<Format, Failure> {
    match (asked, output) {
        (Some(format), _) => Ok(format),
        (None, None) => Ok(default),
        (None, Some(path)) => Format::by_extension(path).ok_or_else(|| {
            let directory = path.is_dir();
            let path = path.display();
            if directory {
                return Failure::new(format!("-o {path}: that is a directory; name a file in it"));
            }
            Failure::new(format!(
                "-o {path}: no format has this extension. Say which with -f, or use one of these:\n{}",
                Format::list()
            ))
        }),
    }
}

/// A path that is not empty.
pub fn path(value: OsString, option: &str) -> Result<PathBuf, Failure> {
    if value.is_empty() {
        return Err(Failure::new(format!("{option}: the file name is empty")));
    }
    Ok(PathBuf::from(value))
}
