//! The command line of `uu record`, and the files that follow from it.

use crate::exit::Failure;
use crate::options;
use lexopt::prelude::{Long, Short, Value};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;
use uunwind_report::formats::{Format, KNOWN};
use uunwind_report::hide::NativeFrames;
use uunwind_ring::{FLAG_EXPLICIT, FLAG_NO_CHILDREN};

const COMMAND: &str = "uu record";
/// An odd rate does not fall into step with the program's own clocks.
const DEFAULT_RATE: u32 = 99;

/// What was asked for.
#[derive(Debug)]
pub struct Arguments {
    /// Rate in Hz.
    pub rate: u32,
    /// End of the recording.
    pub duration: Option<Duration>,
    /// `-o`.
    pub output: Option<PathBuf>,
    /// Format of the result.
    pub format: Format,
    /// Hide rule.
    pub native_frames: NativeFrames,
    /// Keep the recording beside a result in another format.
    pub keep: bool,
    /// `uunwind_ring::FLAG_*`.
    pub flags: u32,
    /// Program and arguments.
    pub command: Vec<OsString>,
}

/// Reads the command line; `None`: help was asked for.
pub fn parse(arguments: &[OsString]) -> Result<Option<Arguments>, Failure> {
    let mut parser = lexopt::Parser::from_args(arguments.iter().cloned());
    let malformed = |e| options::malformed(e, COMMAND);
    let mut format = None;
    let mut out = Arguments {
        rate: DEFAULT_RATE,
        duration: None,
        output: None,
        format: Format::Recording,
        native_frames: NativeFrames::default(),
        keep: true,
        flags: 0,
        command: Vec::new(),
    };
    while let Some(argument) = parser.next().map_err(malformed)? {
        match argument {
            Short('r') | Long("rate") => out.rate = options::rate(&parser.value().map_err(malformed)?)?,
            Short('d') | Long("duration") => {
                out.duration = Some(options::duration(&parser.value().map_err(malformed)?)?);
            }
            Short('o') | Long("output") => out.output = Some(options::path(parser.value().map_err(malformed)?, "-o")?),
            Short('f') | Long("format") => format = Some(options::format(&parser.value().map_err(malformed)?)?),
            Long("native-frames") => out.native_frames = options::native_frames(&parser.value().map_err(malformed)?)?,
            Long("no-keep") => out.keep = false,
            Long("no-children") => out.flags |= FLAG_NO_CHILDREN,
            Long("explicit") => out.flags |= FLAG_EXPLICIT,
            Short('h') | Long("help") => return Ok(None),
            // The program: everything after it is its own.
            Value(program) => {
                out.command.push(program);
                out.command.extend(parser.raw_args().map_err(malformed)?);
            }
            other => return Err(malformed(other.unexpected())),
        }
    }
    if out.command.is_empty() {
        return Err(Failure::usage("no program given", COMMAND));
    }
    if out.output.as_deref() == Some(Path::new("-")) {
        let text = "-o -: standard output belongs to the program. Give a file, or use `uu report` afterwards";
        return Err(Failure::new(text));
    }
    out.format = options::choose_format(format, out.output.as_deref(), Format::Recording)?;
    Ok(Some(out))
}

/// The files of a recording.
#[derive(Debug)]
pub struct Places {
    /// The recording, where its name is known beforehand.
    pub recording: Option<PathBuf>,
    /// The result in another format, where its name is known beforehand.
    pub result: Option<PathBuf>,
    /// A folder to be removed at the end, with the recording in it.
    temporary: Option<PathBuf>,
}

impl Places {
    /// Where things go.
    pub fn choose(arguments: &Arguments) -> Result<Places, Failure> {
        let output = arguments.output.clone();
        let mut places = match arguments.format {
            Format::Recording => Places { recording: output, result: None, temporary: None },
            _ => Places { recording: output.as_deref().map(beside), result: output, temporary: None },
        };
        if !arguments.keep {
            if arguments.format == Format::Recording && places.recording.is_some() {
                let text = "--no-keep with a recording (.uu) as the result would leave nothing. Leave one of them out";
                return Err(Failure::new(text));
            }
            let folder = std::env::temp_dir().join(format!("uu-{}", std::process::id()));
            std::fs::create_dir(&folder)
                .map_err(|e| Failure::new(format!("cannot make the folder {}: {e}. Set TMPDIR", folder.display())))?;
            places.recording = Some(folder.join("recording.uu"));
            places.temporary = Some(folder);
        }
        Ok(places)
    }

    /// Where the result goes, now that the recording has a name.
    pub fn result(&self, format: Format, recording: &Path, default_stem: &str) -> Option<PathBuf> {
        if format == Format::Recording || format == Format::Summary && self.result.is_none() {
            return None;
        }
        let extension = KNOWN.iter().find(|(_, _, f, _)| *f == format).and_then(|(_, e, ..)| e.first()).unwrap_or(&"");
        let named = || {
            let stem = recording.file_stem().filter(|_| self.temporary.is_none());
            let stem = stem.map_or(default_stem.into(), |s| s.to_string_lossy());
            recording.with_file_name(format!("{stem}{extension}"))
        };
        let default =
            if self.temporary.is_some() { PathBuf::from(format!("{default_stem}{extension}")) } else { named() };
        Some(self.result.clone().unwrap_or(default))
    }

    /// Removes what was only temporary.
    pub fn clean_up(&self) {
        if let Some(folder) = &self.temporary {
            // Best effort: it lies in a folder for temporary files.
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}

/// `x.svg` to `x.uu`; a name without a known extension gets one more.
fn beside(result: &Path) -> PathBuf {
    let stem = Format::strip_extension(result)
        .or_else(|| result.file_name().map(|f| f.to_string_lossy().into_owned()))
        .unwrap_or_default();
    result.with_file_name(format!("{stem}.uu"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> Result<Option<Arguments>, Failure> {
        parse(&words.iter().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn options_end_where_the_program_begins() {
        for words in [&["-r", "50", "--", "prog", "-r", "9", "--help"][..], &["-r50", "prog", "-r", "9", "--help"]] {
            let a = parsed(words).expect("valid").expect("no help");
            assert_eq!(a.rate, 50);
            assert_eq!(a.command, ["prog", "-r", "9", "--help"]);
        }
        let a = parsed(&["--", "prog", "--", "x"]).expect("valid").expect("no help");
        assert_eq!(a.command, ["prog", "--", "x"]);
        assert!(parsed(&["--help"]).expect("valid").is_none());
        for bad in
            [&[][..], &["-r", "0", "p"], &["-r", "10001", "p"], &["-r", "x", "p"], &["-d", "-1", "p"], &["--what"]]
        {
            assert!(parsed(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn the_recording_lies_beside_the_result() {
        assert_eq!(beside(Path::new("d/x.svg")), Path::new("d/x.uu"));
        assert_eq!(beside(Path::new("x.pb.gz")), Path::new("x.uu"));
        assert_eq!(beside(Path::new("x.odd")), Path::new("x.odd.uu"));
        let a = parsed(&["-f", "svg", "p"]).expect("valid").expect("no help");
        let places = Places::choose(&a).expect("places");
        let result = places.result(a.format, Path::new("d/uu-p-7.uu"), "uu-p-7");
        assert_eq!(result.as_deref(), Some(Path::new("d/uu-p-7.svg")));
    }
}
