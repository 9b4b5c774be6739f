//! Options that several subcommands share, and the parsing of their values.

use crate::exit::Failure;
use clap::builder::{PossibleValue, TypedValueParser};
use clap::{Arg, Command};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;
use uunwind_recording::Held;
use uunwind_report::formats::{Format, FORMATS};
use uunwind_report::hide::NativeFrames;
use uunwind_report::selection::times;

/// Highest rate, in Hz. CPU timers fire at the kernel's ticks, whose rate is lower: above it, samples only weigh more.
const HIGHEST_RATE: u32 = 10_000;
/// Least distance of sampled allocations, in bytes: below it, all of them may as well be recorded.
const LEAST_BYTES: u32 = 64;

/// Takes any word, and offers some to shells that complete it: words that are wrong are explained by the functions
/// below.
#[derive(Clone)]
pub struct Offers(pub &'static [&'static str]);

impl TypedValueParser for Offers {
    type Value = OsString;

    fn parse_ref(&self, _: &Command, _: Option<&Arg>, value: &OsStr) -> Result<OsString, clap::Error> {
        Ok(value.to_owned())
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.0.iter().map(PossibleValue::new)))
    }
}

/// The names of all formats.
pub fn formats() -> Offers {
    static NAMES: LazyLock<Vec<&'static str>> = LazyLock::new(|| FORMATS.iter().map(|offer| offer.name).collect());
    Offers(&NAMES)
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
    let units = [('s', 1.0), ('m', 60.0), ('h', 3600.0)];
    let unit = units.iter().find_map(|(letter, length)| Some((text.strip_suffix(*letter)?, *length)));
    let (number, length) = unit.unwrap_or((&text, 1.0));
    let seconds = number.parse::<f64>().ok().map(|number| number * length).filter(|s| *s > 0.0);
    seconds.and_then(|s| Duration::try_from_secs_f64(s).ok()).ok_or_else(|| {
        Failure::new(format!("-d {text}: the duration must be above 0: seconds, such as 10 or 0.5, or 30s, 5m, 1h"))
    })
}

/// The time between snapshots.
pub fn every(value: &OsString) -> Result<Duration, Failure> {
    seconds(value, "--every")
}

/// A time in seconds, which may be followed by its unit.
pub fn seconds(value: &OsString, option: &str) -> Result<Duration, Failure> {
    let text = value.to_string_lossy();
    let seconds = text.strip_suffix('s').unwrap_or(&text).parse::<f64>().ok().filter(|seconds| *seconds >= 1.0);
    seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).ok_or_else(|| {
        Failure::new(format!("{option} {text}: the time must be a number of seconds from 1 on, such as 60 or 60s"))
    })
}

/// The id of another process, given by this option.
pub fn pid(value: &OsString, option: &str) -> Result<u32, Failure> {
    let text = value.to_string_lossy();
    let pid = text.parse::<u32>().ok().filter(|pid| *pid != 0 && i32::try_from(*pid).is_ok());
    let pid = pid.ok_or_else(|| Failure::new(format!("{option} {text}: a process id is a whole number above 0")))?;
    if pid == std::process::id() {
        return Err(Failure::new(format!("{option} {text}: that is this uu itself")));
    }
    Ok(pid)
}

/// What to do with an interpreter's native frames.
pub fn native_frames(value: &OsString) -> Result<NativeFrames, Failure> {
    match value.to_str() {
        Some("hide") => Ok(NativeFrames::Hide),
        Some("leaf") => Ok(NativeFrames::Leaf),
        Some("show") => Ok(NativeFrames::Show),
        _ => Err(Failure::new(format!("--native-frames {}: it takes hide, leaf or show", value.to_string_lossy()))),
    }
}

/// What is sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Threads that run.
    Cpu,
    /// Threads that wait, too.
    Wall,
    /// Allocations.
    Alloc,
    /// Waits for locks.
    Lock,
}

impl Mode {
    /// Their names.
    pub const NAMES: &[&str] = &["cpu", "wall", "alloc", "lock"];

    /// The mode of this name.
    pub fn of(value: &OsString) -> Result<Mode, Failure> {
        match value.to_str() {
            Some("cpu") => Ok(Mode::Cpu),
            Some("wall") => Ok(Mode::Wall),
            Some("alloc") => Ok(Mode::Alloc),
            Some("lock") => Ok(Mode::Lock),
            _ => Err(Failure::new(format!("--mode {}: it takes cpu, wall, alloc or lock", value.to_string_lossy()))),
        }
    }
}

/// Which allocations are shown.
pub fn held(value: &OsString) -> Result<Held, Failure> {
    match value.to_str() {
        Some("peak") => Ok(Held::Peak),
        Some("end") => Ok(Held::End),
        Some("total") => Ok(Held::Total),
        Some("temporary") => Ok(Held::Temporary),
        text => match text.and_then(times) {
            Some((from, to)) => Ok(Held::Grown(from, to)),
            None => Err(Failure::new(format!(
                "--memory {}: it takes peak, end, total, temporary, or FROM-TO in seconds, such as 1.5-3",
                value.to_string_lossy()
            ))),
        },
    }
}

/// A number of bytes.
pub fn bytes(value: &OsString, option: &str) -> Result<u32, Failure> {
    let text = value.to_string_lossy();
    let units = [("K", 10), ("M", 20), ("G", 30), ("KiB", 10), ("MiB", 20), ("GiB", 30)];
    let unit = units.iter().find_map(|(unit, bits)| Some((text.strip_suffix(unit)?, *bits)));
    let (number, bits) = unit.unwrap_or((&text, 0));
    let number = number.parse::<u64>().ok().and_then(|number| number.checked_mul(1 << bits));
    number.and_then(|number| u32::try_from(number).ok()).filter(|number| *number >= LEAST_BYTES).ok_or_else(|| {
        Failure::new(format!(
            "{option} {text}: it takes a whole number of bytes from {LEAST_BYTES} on and below 4G, such as 65536, 512K or \
             1M"
        ))
    })
}

/// A format by its name.
pub fn format(value: &OsString) -> Result<Format, Failure> {
    let text = value.to_string_lossy();
    Format::by_name(&text)
        .ok_or_else(|| Failure::new(format!("-f {text}: unknown format. The formats are:\n{}", Format::list())))
}

/// The format that was requested, or the one of the output's extension; `default` if there is neither.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_units() {
        for (text, number) in [("65536", 65536), ("512K", 512 << 10), ("1M", 1 << 20), ("2GiB", 2 << 30)] {
            assert_eq!(bytes(&text.into(), "--every-bytes").expect(text), number);
        }
        for text in ["0", "63", "4G", "-1", "K", "1.5M", "512k ", "18446744073709551615K", ""] {
            let why = bytes(&text.into(), "--every-bytes").expect_err(text);
            assert!(why.text.contains("512K") && why.text.contains(text), "{}", why.text);
        }
    }

    #[test]
    fn durations_have_units() {
        for (text, seconds) in [("10", 10.0), ("0.5", 0.5), ("30s", 30.0), ("5m", 300.0), ("1.5h", 5400.0)] {
            assert_eq!(duration(&text.into()).expect(text).as_secs_f64(), seconds);
        }
        for text in ["0", "-1", "5x", "m", "", "infm", "NaN"] {
            let why = duration(&text.into()).expect_err(text);
            assert!(why.text.contains(text) && why.text.contains("5m"), "{}", why.text);
        }
    }
}
