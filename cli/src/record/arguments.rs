//! The command line of `uu record`, with its values checked.

use super::command_line::Options;
use super::store::{self, Store};
use super::together::{check, check_events};
use crate::exit::Failure;
use crate::options::{self, Mode};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;
use uunwind_recording::Unit;
use uunwind_report::formats::Format;
use uunwind_report::hide::NativeFrames;
use uunwind_ring::{
    FLAG_ALLOC, FLAG_AWAITING, FLAG_COPIES, FLAG_COPIES_BESIDE, FLAG_EXPLICIT, FLAG_KERNEL, FLAG_LOCK, FLAG_MAPPINGS,
    FLAG_NO_CHILDREN, FLAG_NO_REPLAY, FLAG_WALL,
};

/// The command line, with its values checked.
#[derive(Debug)]
pub struct Arguments {
    /// Rate in Hz of CPU time; of allocations, the bytes from a sample to the next on average, 1 for all.
    pub rate: u32,
    /// A running process to record.
    pub pid: Option<u32>,
    /// Its children are recorded, too.
    pub subprocesses: bool,
    /// No sampler may be put into that process.
    pub remote: bool,
    /// Time after which the recording ends.
    pub duration: Option<Duration>,
    /// Nothing is sampled until it is resumed.
    pub start_paused: bool,
    /// Time between snapshots.
    pub every: Option<Duration>,
    /// Where profiles are sent.
    pub push: Option<Store>,
    /// Labels of all samples.
    pub labels: Vec<(String, String)>,
    /// File for the result.
    pub output: Option<PathBuf>,
    /// Where a `uu kernel-events` listens.
    pub events_from: Option<PathBuf>,
    /// Where samples go as they come.
    pub stream: Option<PathBuf>,
    /// Format of the result.
    pub format: Format,
    /// Whether an interpreter's native frames are hidden.
    pub native_frames: NativeFrames,
    /// Show only samples of threads that held their runtime's lock.
    pub gil: bool,
    /// Show threads, too, that did nothing but wait in one place.
    pub idle: bool,
    /// No summary, no progress.
    pub quiet: bool,
    /// A summary with what concerns uu itself.
    pub verbose: bool,
    /// Functions are left without names.
    pub names_later: bool,
    /// Keep the recording beside a result in another format.
    pub keep: bool,
    /// Exit with code 125 if nothing was sampled.
    pub fail_empty: bool,
    /// Python takes its small objects from malloc.
    pub python_malloc: bool,
    /// `uunwind_ring::FLAG_*`.
    pub flags: u32,
    /// The program and its arguments.
    pub command: Vec<OsString>,
}

impl Arguments {
    /// What is sampled, for people.
    pub fn sampled(&self) -> String {
        if self.flags & FLAG_LOCK != 0 {
            let sampled = Unit::Nanoseconds.amount(self.rate.into(), 1);
            return if self.rate == 1 {
                "with every wait".to_owned()
            } else {
                format!("with a wait in {sampled} of waiting")
            };
        }
        match (self.flags & FLAG_ALLOC != 0, self.rate) {
            (false, rate) => format!("at {rate} Hz"),
            (true, 1) => "with every allocation".to_owned(),
            (true, bytes) => format!("with an allocation in {}", Unit::Bytes.amount(bytes.into(), 1)),
        }
    }

    /// Checks the values of the options.
    pub fn of(options: &Options) -> Result<Arguments, Failure> {
        let path = |output: &OsString| options::path(output.clone(), "-o");
        let output = options.output.as_ref().map(path).transpose()?;
        if output.as_deref() == Some(Path::new("-")) {
            let text = "-o -: standard output belongs to the program. Give a file, or use `uu report` afterwards";
            return Err(Failure::new(text));
        }
        let stream = options.stream.as_ref().map(|file| options::path(file.clone(), "--stream")).transpose()?;
        if stream.as_deref() == Some(Path::new("-")) {
            let text = "--stream -: standard output belongs to the program. Give a file, a FIFO, or a descriptor: \
                        --stream /dev/fd/3 3>FILE";
            return Err(Failure::new(text));
        }
        let events_from = options.events_from.as_ref().map(|file| options::path(file.clone(), "--events-from"));
        let events_from = events_from.transpose()?;
        let format = options.format.as_ref().map(options::format).transpose()?;
        let mode = Mode::of(&options.mode)?;
        let events = check_events(options, mode)?;
        let flags = [
            (options.no_children, FLAG_NO_CHILDREN),
            (options.explicit, FLAG_EXPLICIT),
            (options.kernel, FLAG_KERNEL),
            (options.no_replay, FLAG_NO_REPLAY),
            (options.awaiting, FLAG_AWAITING),
            (mode == Mode::Wall, FLAG_WALL),
            (mode == Mode::Alloc, FLAG_ALLOC),
            (mode == Mode::Lock, FLAG_LOCK),
            (options.mmap, FLAG_MAPPINGS),
            (options.unwind == "offline", FLAG_COPIES),
            (options.unwind == "both", FLAG_COPIES_BESIDE),
        ];
        let format = options::choose_format(format, output.as_deref(), Format::Recording)?;
        check(options, mode, format)?;
        let push = options.push.as_ref().map(|url| Store::of(url, options)).transpose()?;
        Ok(Arguments {
            names_later: options.names == "later",
            python_malloc: options.python_malloc,
            labels: if push.is_some() { Vec::new() } else { store::labels(&options.label)? },
            push,
            pid: options.pid.as_ref().map(|pid| options::pid(pid, "-p")).transpose()?,
            subprocesses: options.subprocesses,
            remote: options.remote,
            rate: events.map_or_else(|| options::rate(&options.rate), Ok)?,
            start_paused: options.start_paused,
            every: options.every.as_ref().map(options::every).transpose()?,
            duration: options.duration.as_ref().map(options::duration).transpose()?,
            format,
            output,
            events_from,
            stream,
            native_frames: options::native_frames(&options.native_frames)?,
            gil: options.gil,
            idle: options.idle,
            quiet: options.quiet,
            verbose: options.verbose,
            keep: !options.no_keep,
            fail_empty: options.fail_empty,
            flags: flags.iter().filter(|(given, _)| *given).fold(0, |all, (_, flag)| all | flag),
            command: options.command.clone(),
        })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::record) fn parsed(words: &[&str]) -> Result<Arguments, String> {
        #[derive(clap::Parser)]
        #[command(no_binary_name = true)]
        struct Line {
            #[command(flatten)]
            options: Options,
        }
        let line = <Line as clap::Parser>::try_parse_from(words).map_err(|e| e.to_string())?;
        Arguments::of(&line.options).map_err(|failure| failure.text)
    }

    #[test]
    fn options_end_where_the_program_begins() {
        for words in [&["-r", "50", "--", "prog", "-r", "9", "--help"][..], &["-r50", "prog", "-r", "9", "--help"]] {
            let a = parsed(words).expect("valid");
            assert_eq!(a.rate, 50);
            assert_eq!(a.command, ["prog", "-r", "9", "--help"]);
        }
        let a = parsed(&["--", "prog", "--", "x"]).expect("valid");
        assert_eq!(a.command, ["prog", "--", "x"]);
        let a = parsed(&["-r9", "-r", "7", "prog", "--", "x"]).expect("valid");
        assert_eq!((a.rate, a.command), (7, ["prog", "--", "x"].map(OsString::from).to_vec()));
        for bad in
            [&[][..], &["-r", "0", "p"], &["-r", "10001", "p"], &["-r", "x", "p"], &["-d", "-1", "p"], &["--what"]]
        {
            assert!(parsed(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_process_stands_in_place_of_the_program() {
        let a = parsed(&["-p", "7", "-d", "2", "--remote"]).expect("valid");
        assert_eq!((a.pid, a.remote, a.command.len()), (Some(7), true, 0));
        for bad in [&["-p", "7", "prog"][..], &["-p", "0"], &["-p", "-1"], &["-p", "x"], &["--remote", "prog"]] {
            assert!(parsed(bad).is_err(), "{bad:?}");
        }
        let error = parsed(&["-p", "7", "--unwind", "offline"]).expect_err("it needs a handler");
        assert!(error.contains("--unwind takes a PROGRAM"), "{error}");
        let error = parsed(&["-p", "7", "--explicit"]).expect_err("it needs a handler");
        assert!(error.contains("--explicit takes a PROGRAM"), "{error}");
    }
}
