//! The command line of `uu record`, and the files that follow from it.

use super::inside;
use crate::exit::Failure;
use crate::options::Mode;
use crate::{options, save};
use clap::{Args, ValueHint};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;
use uunwind_push::{Credentials, Target, TargetError};
use uunwind_recording::Unit;
use uunwind_report::formats::Format;
use uunwind_report::hide::NativeFrames;
use uunwind_ring::{
    FLAG_ALLOC, FLAG_AWAITING, FLAG_COPIES, FLAG_COPIES_BESIDE, FLAG_EXPLICIT, FLAG_KERNEL, FLAG_LOCK,
    FLAG_NO_CHILDREN, FLAG_NO_REPLAY, FLAG_WALL,
};

/// An odd rate, so that samples do not run in step with the program's own clocks.
const DEFAULT_RATE: &str = "99";
/// Bytes from a sampled allocation to the next, on average.
const DEFAULT_BYTES: u32 = 512 << 10;
/// Ns of waiting from a sampled wait to the next, on average.
const DEFAULT_WAIT: u32 = 100_000;

/// Runs a program, or takes a running one, and records where it spends its CPU time.
#[derive(Debug, Args)]
#[command(
    args_override_self = true,
    override_usage = "uu record [OPTIONS] [--] PROGRAM [ARGUMENTS]\n       uu record [OPTIONS] -p PID",
    after_help = after_help()
)]
pub struct Options {
    /// Samples per second of CPU time, per thread (1 to 10000); with --mode wall, per second
    #[arg(short, long, value_name = "HZ", default_value = DEFAULT_RATE, allow_negative_numbers = true)]
    rate: OsString,
    /// Record this running process; it lives on
    #[arg(short, long, value_name = "PID", allow_negative_numbers = true)]
    pid: Option<OsString>,
    /// With -p: record its children and theirs, too, those that it has and those to come
    #[arg(short, long)]
    subprocesses: bool,
    /// cpu: sample threads that run, by their CPU time; wall: those that wait, too, by the time that passes; alloc:
    /// sample allocations, by their bytes; lock: sample waits for locks, by their time (below)
    #[arg(long, value_name = "MODE", default_value = "cpu", value_parser = options::Offers(Mode::NAMES),
          hide_possible_values = true)]
    mode: OsString,
    /// With --mode alloc: bytes from a sampled allocation to the next, on average [default: 512K]
    #[arg(long, value_name = "BYTES", allow_negative_numbers = true, conflicts_with = "all")]
    every_bytes: Option<OsString>,
    /// With --mode alloc or lock: record every allocation, or every wait
    #[arg(long)]
    all: bool,
    /// With --mode alloc: have Python take its small objects from malloc, too, which takes longer (PYTHONMALLOC)
    #[arg(long)]
    python_malloc: bool,
    /// With --mode wall: show threads, too, that did nothing but wait in one place
    #[arg(short, long)]
    idle: bool,
    /// With -p: put no sampler into the process, but stop its running threads shortly for each sample
    #[arg(long)]
    remote: bool,
    /// End the recording after this time; the program runs on, and uu waits for it, except with -p
    #[arg(short, long, value_name = "SECONDS", allow_negative_numbers = true)]
    duration: Option<OsString>,
    /// Sample nothing until `uu resume PID`, or until the program calls uu_record_start() of uu.h
    #[arg(long)]
    start_paused: bool,
    /// Write what there is so far, as a recording of its own, each time this time is over, such as 60s
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    every: Option<OsString>,
    /// Where the result goes [default: uu-PROGRAM-PID.uu]
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    output: Option<OsString>,
    /// Format of the result [default: by the extension of FILE]
    #[arg(short, long, value_name = "FORMAT", value_parser = options::formats(), hide_possible_values = true)]
    format: Option<OsString>,
    /// hide: leave out an interpreter's own frames and importlib's, in pictures its allocator and the like, too: their
    /// time is the calling line's; leaf: keep those in which time was spent; show: keep all
    #[arg(long, value_name = "MODE", default_value = "hide", value_parser = options::Offers(&["hide", "leaf", "show"]),
          hide_possible_values = true)]
    native_frames: OsString,
    /// Write each sample as it comes, as lines of JSON, into FILE, a FIFO or /dev/fd/N
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "pid")]
    stream: Option<OsString>,
    /// Send a profile to this store each 10 s, such as http://localhost:4040 (below)
    #[arg(long, value_name = "URL", value_hint = ValueHint::Url, conflicts_with_all = ["pid", "every", "gil"])]
    push: Option<OsString>,
    /// With --push: the time between profiles
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    push_every: Option<OsString>,
    /// With --push: the service's name [default: that of PROGRAM]
    #[arg(long, value_name = "NAME")]
    service: Option<OsString>,
    /// With --push: a label of each profile; again for another one
    #[arg(long, value_name = "KEY=VALUE")]
    label: Vec<OsString>,
    /// Do not keep the recording (.uu) beside a result in another format
    #[arg(long)]
    no_keep: bool,
    /// Show only samples of threads that held Python's global interpreter lock; the recording keeps all
    #[arg(short, long)]
    gil: bool,
    /// Say nothing but warnings and errors
    #[arg(short, long, conflicts_with = "verbose")]
    quiet: bool,
    /// Let the summary say more of uu's own work: plugins, replayed frames
    #[arg(short, long)]
    verbose: bool,
    /// Record and show the coroutines that await the asyncio task that runs, too (CPython 3.14 and 3.15)
    #[arg(long = "async")]
    awaiting: bool,
    /// Do not record child processes
    #[arg(long)]
    no_children: bool,
    /// Exit with code 125 if nothing was sampled
    #[arg(long)]
    fail_empty: bool,
    /// Show functions of the kernel, too, above those that called it (as root, not with -p; below)
    #[arg(long, conflicts_with_all = ["pid", "explicit"])]
    kernel: bool,
    /// Have perf events opened by the `uu kernel-events` that listens on this socket; for users who may not open them
    #[arg(long, value_name = "SOCKET", value_hint = ValueHint::FilePath, conflicts_with = "pid")]
    events_from: Option<OsString>,
    /// A SIGPROF that a thread sends itself takes a sample
    #[arg(long)]
    explicit: bool,
    #[arg(long, help = NO_REPLAY)]
    no_replay: bool,
    /// live: walk stacks as the program runs; offline: copy them, and walk the copies afterwards (below); both: compare
    #[arg(long, value_name = "WHEN", default_value = "live",
          value_parser = options::Offers(&["live", "offline", "both"]), hide_possible_values = true)]
    unwind: OsString,
    /// now: name functions when the program has ended; later: leave that to uu report, which needs the files (below)
    #[arg(long, value_name = "WHEN", default_value = "now", value_parser = options::Offers(&["now", "later"]),
          hide_possible_values = true, conflicts_with = "pid")]
    names: OsString,
    /// The program, and its arguments
    #[arg(value_name = "PROGRAM", required_unless_present = "pid", conflicts_with = "pid", trailing_var_arg = true,
          value_hint = ValueHint::CommandWithArguments)]
    command: Vec<OsString>,
}

const NO_REPLAY: &str = "\
Walk every frame of every stack anew (slower), to find out whether a wrong stack
comes from replaying the thread's last one";

fn after_help() -> String {
    format!(
        "\
Formats:
{}
A recording (.uu) is kept beside any other result, so that more can be made from it without running PROGRAM again.
With --stream, a reader that is slow or goes away stops neither PROGRAM nor the recording: what it misses is counted
(docs/stream.md).

A summary goes to standard error; the program's own output is left alone.

Ctrl-C ends the program as usual, and the recording with it. SIGTERM to uu is passed on to the program. Once the program
has ended, either leaves the functions that are not named yet without names. With -p, either ends the recording alone.

With -p, uu puts a sampler into the process, and with -s into its children, and takes it out again: the program's own
calls, locks and signals are left alone. Where that cannot be, and with --remote or --mode wall, nothing enters them: a
thread that has used a period of CPU time is stopped for its sample, mostly for less than a millisecond, if it is found
running then. The summary says which way was taken, and why.

With --mode wall, threads that wait are sampled, too: each sample shows its thread running, or waiting and in which
system call. Running threads sample themselves as ever. A waiting one is looked at from outside once for each call that
it waits in, mostly without a stop, and then counted; no call ends early for it.

With --mode alloc, allocations are sampled and no time: malloc and its relatives, of all threads, each with its stack, its
size and when it was freed. uu report shows who held memory at its peak, at the end, or has allocated most (--memory).
Python's objects of up to 512 bytes are in none of this: it maps arenas for them, which malloc does not see. With
--python-malloc it takes each from malloc.

With --mode lock, waits for locks are sampled and no time: pthread mutexes, reader-writer locks, condition variables,
semaphores, barriers, joins, and what is made of them, such as std::mutex, Python's GIL and threading.Lock. Each has the
stack that waited, the lock, how long it took, and for a mutex the thread that had it. --all: every wait.

With --start-paused, nothing is sampled at first. uu pause PID and uu resume PID switch a recording off and on, where PID is
a recorded process or uu itself; so does the program, by uu_record_stop() and uu_record_start() of uu.h. What sets
labels, by uu_label_set(), has them in its samples: uu report --filter label=KEY:VALUE.

Snapshots: SIGUSR2 to uu (or uu snapshot) and --every write what there is so far as a recording beside the other one,
with .1.uu, .2.uu and so on at its end. The recording goes on.

With --push, uu (never PROGRAM) sends what each 10 s have brought to the store's /ingest: gzip pprof, as Pyroscope and
Grafana Alloy take it; by http:// only. Credentials are in UU_PUSH_TOKEN, or UU_PUSH_USER and UU_PUSH_PASSWORD. What the
store does not take now is kept, at most 64 MiB, and sent later, by a later uu, too.

With --kernel, and with a rate above 1000, the kernel takes the samples with a clock of its own (perf events, on Linux
6.15 or later): at any rate, with its own functions for --kernel. It takes root, or CAP_PERFMON and CAP_BPF, or
--events-from. Without those, a rate above 1000 is that of the user mode alone, system calls are sampled at the
kernel's ticks, and --kernel shows nothing; the summary says why. The sampling signal is SIGTRAP then, so that a
debugger and PROGRAM disturb each other.

With --unwind offline, each sample is a copy of the registers and of the words of the stack that point into code or into
the stack. uu report walks them, also elsewhere and later, with the files of the program and its libraries, which it
finds by build-id (--debug-dir). Such stacks have machine frames only, none of an interpreter.

With --names later, nothing is named and no summary shown at the end: what takes most of the time of a short recording.
uu report does it, with the files of the program and its libraries, which it recognizes by build-id. Functions of files
that are gone or changed by then have no names; names of code made at run time, and lines of interpreted functions, are kept.

Exit code: the program's; 128 + n if signal n ended it; 126 if it cannot be executed, 127 if it was not found;
125 if uu failed before the program ran, or if nothing was sampled and --fail-empty was given. A result that could not be
written is reported on standard error and leaves the program's exit code alone. With -p: 0, or 125 if the process could
not be recorded.

Environment: UU_PLUGINS (plugin files or folders, separated by colons), UU_PUSH_TOKEN, UU_PUSH_USER, UU_PUSH_PASSWORD,
NO_COLOR.",
        Format::list()
    )
}

/// The distance of sampled events, in bytes or ns, 1 for all, if these are recorded.
fn check_events(options: &Options, mode: Mode) -> Result<Option<u32>, Failure> {
    let of_alloc = [(options.every_bytes.is_some(), "--every-bytes"), (options.python_malloc, "--python-malloc")];
    if let (true, Some((_, option))) = (mode != Mode::Alloc, of_alloc.iter().find(|(is_given, _)| *is_given)) {
        return Err(Failure::new(format!("{option} is for --mode alloc: give that, too")));
    }
    let (name, event, follows, function) = match mode {
        Mode::Alloc => ("alloc", "allocation", "from --every-bytes", "malloc"),
        Mode::Lock => ("lock", "wait", "from the waits", "the functions of locks"),
        Mode::Cpu | Mode::Wall if options.all => {
            return Err(Failure::new("--all is for --mode alloc and --mode lock: give one of them, too"));
        }
        Mode::Cpu | Mode::Wall => return Ok(None),
    };
    let others = [
        (options.unwind != "live", "--unwind", format!("the stack of each {event} is walked at once")),
        (options.kernel, "--kernel", format!("no {event} is made by the kernel")),
        (options.explicit, "--explicit", format!("samples are those of {event}s")),
        (options.rate != DEFAULT_RATE, "-r (--rate)", format!("what is sampled follows {follows}")),
        (
            options.pid.is_some(),
            "-p (--pid)",
            format!("uu stands in front of {function} from the start of a program on. Start PROGRAM with uu record"),
        ),
    ];
    match others.iter().find(|(is_given, ..)| *is_given) {
        Some((_, option, why)) => Err(Failure::new(format!("{option} and --mode {name} do not go together: {why}"))),
        None if options.all => Ok(Some(1)),
        None if mode == Mode::Lock => Ok(Some(DEFAULT_WAIT)),
        None => {
            options.every_bytes.as_ref().map_or(Ok(DEFAULT_BYTES), |b| options::bytes(b, "--every-bytes")).map(Some)
        }
    }
}

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
    pub push: Option<Push>,
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
        let is_wall = mode == Mode::Wall;
        let events = check_events(options, mode)?;
        let flags = [
            (options.no_children, FLAG_NO_CHILDREN),
            (options.explicit, FLAG_EXPLICIT),
            (options.kernel, FLAG_KERNEL),
            (options.no_replay, FLAG_NO_REPLAY),
            (options.awaiting, FLAG_AWAITING),
            (is_wall, FLAG_WALL),
            (mode == Mode::Alloc, FLAG_ALLOC),
            (mode == Mode::Lock, FLAG_LOCK),
            (options.unwind == "offline", FLAG_COPIES),
            (options.unwind == "both", FLAG_COPIES_BESIDE),
        ];
        if options.start_paused
            && (options.kernel || options.rate.to_string_lossy().parse().is_ok_and(|r: u32| r > 1000))
        {
            let text =
                "--start-paused does not go together with --kernel or a rate above 1000: perf events, which time the \
                        samples then, are not paused. Leave one of them out";
            return Err(Failure::new(text));
        }
        if options.idle && !is_wall {
            return Err(Failure::new("-i shows threads that only wait, which --mode wall samples: give that, too"));
        }
        if let Some(why) = inside::NO_COPIES.filter(|_| options.unwind != "live") {
            return Err(Failure::new(why));
        }
        if is_wall && options.unwind != "live" {
            return Err(Failure::new("--unwind offline and --mode wall do not go together: leave one of them out"));
        }
        if options.kernel && options.unwind != "live" {
            let text = "--kernel and --unwind offline do not go together: the kernel's stack belongs on one that is \
                        walked at once. Leave one of them out";
            return Err(Failure::new(text));
        }
        if options.awaiting && options.unwind == "offline" {
            let text =
                "--async and --unwind offline do not go together: stacks that are walked afterwards have no frames \
                        of Python. Leave one of them out";
            return Err(Failure::new(text));
        }
        if options.kernel && is_wall {
            let text = "--kernel and --mode wall do not go together: perf events count CPU time. Leave one of them out";
            return Err(Failure::new(text));
        }
        if options.pid.is_some() && options.unwind != "live" {
            let text = "--unwind takes a PROGRAM: a running process (-p) is walked at once";
            return Err(Failure::new(text));
        }
        if options.pid.is_some() && options.explicit {
            return Err(Failure::new("--explicit takes a PROGRAM: uu puts no handler into a running process (-p)"));
        }
        if options.pid.is_none() && options.subprocesses {
            let text = "-s takes a running process (-p PID): children of a PROGRAM are recorded anyway, unless \
                        --no-children is given";
            return Err(Failure::new(text));
        }
        if options.pid.is_none() && options.remote {
            return Err(Failure::new("--remote takes a running process: give it with -p PID"));
        }
        let format = options::choose_format(format, output.as_deref(), Format::Recording)?;
        let names_later = options.names == "later";
        if names_later && format != Format::Recording {
            let text =
                "--names later keeps a recording (.uu) alone: any other result needs the names. Leave one of them out";
            return Err(Failure::new(text));
        }
        let of_push = [
            ("--push-every", options.push_every.is_some()),
            ("--service", options.service.is_some()),
            ("--label", !options.label.is_empty()),
        ];
        if let Some((option, _)) = of_push.iter().find(|(_, given)| *given && options.push.is_none()) {
            return Err(Failure::new(format!(
                "{option} says something of profiles that are sent: give --push URL, too"
            )));
        }
        let push = options.push.as_ref().map(|url| Push::of(url, options)).transpose()?;
        Ok(Arguments {
            names_later,
            python_malloc: options.python_malloc,
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

/// What `--push` asks for.
#[derive(Clone, Debug)]
pub struct Push {
    /// Where profiles go.
    pub target: Target,
    /// Time between them.
    pub every: Duration,
}

impl Push {
    fn of(url: &OsString, options: &Options) -> Result<Push, Failure> {
        if options.names == "later" || options.unwind != "live" {
            let text = "--push sends profiles with names while the program runs: leave --names and --unwind out";
            return Err(Failure::new(text));
        }
        if options.mode == "lock" {
            let text = "--push and --mode lock do not go together: stores take time and memory";
            return Err(Failure::new(format!("{text}. Leave one of them out")));
        }
        if options.mode == "alloc" {
            let text = "--push and --mode alloc do not go together: who holds memory is known at the end";
            return Err(Failure::new(format!("{text}. Leave one of them out")));
        }
        let text = |word: &OsString| word.to_string_lossy().into_owned();
        let of_program = || {
            let name = options.command.first().map(Path::new).and_then(Path::file_name).unwrap_or_default();
            let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
            name.to_string_lossy().chars().map(|c| if is_plain(c) { c } else { '-' }).collect()
        };
        let service: String = options.service.as_ref().map_or_else(of_program, text);
        let labels: Vec<String> = options.label.iter().map(text).collect();
        let wrong = |error: TargetError| {
            let (option, value) = match error {
                TargetError::Service => ("--service", service.clone()),
                TargetError::Label => ("--label", labels.join(" ")),
                TargetError::Credentials => ("--push", "the environment".to_owned()),
                // It may have a password.
                TargetError::Secret => ("--push", "URL".to_owned()),
                TargetError::Https | TargetError::Url => ("--push", text(url)),
            };
            Failure::new(format!("{option} {value}: {error}"))
        };
        let target = Target::new(&text(url), &service, &labels, credentials()).map_err(wrong)?;
        let every = options.push_every.as_ref().map(|time| options::seconds(time, "--push-every")).transpose()?;
        Ok(Push { target, every: every.unwrap_or(PUSHED) })
    }
}

/// Time between profiles that are pushed.
const PUSHED: Duration = Duration::from_secs(10);

/// Who pushes: not in options, which others can see.
fn credentials() -> Credentials {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    match (variable("UU_PUSH_TOKEN"), variable("UU_PUSH_USER")) {
        (Some(token), _) => Credentials::Bearer(token),
        (None, Some(user)) => Credentials::Basic(user, variable("UU_PUSH_PASSWORD").unwrap_or_default()),
        (None, None) => Credentials::None,
    }
}

/// The files of a recording.
#[derive(Debug)]
pub struct Places {
    /// The recording, if its name is given from the start.
    pub recording: Option<PathBuf>,
    /// The result in another format, if its name is given from the start.
    pub result: Option<PathBuf>,
    /// A temporary folder that holds the recording and is removed at the end.
    temporary: Option<TempDir>,
}

impl Places {
    /// Chooses the files.
    pub fn choose(arguments: &Arguments) -> Result<Places, Failure> {
        let output = arguments.output.clone();
        let mut places = match arguments.format {
            Format::Recording => Places { recording: output, result: None, temporary: None },
            _ => Places { recording: output.as_deref().and_then(beside), result: output, temporary: None },
        };
        if !arguments.keep {
            if arguments.format == Format::Recording && places.recording.is_some() {
                let text = "--no-keep with a recording (.uu) as the result would leave nothing. Leave one of them out";
                return Err(Failure::new(text));
            }
            let folder = tempfile::Builder::new().prefix("uu-").tempdir().map_err(|e| {
                let place = std::env::temp_dir();
                Failure::new(format!("cannot make a folder in {}: {e}. Set TMPDIR", place.display()))
            })?;
            places.recording = Some(folder.path().join("recording.uu"));
            places.temporary = Some(folder);
        }
        if let Some(result) = places.result.as_ref().filter(|_| places.recording == places.result) {
            let name = result.display();
            let text =
                format!("{name} is the recording's name, and cannot be the result's too. Give the result another one");
            return Err(Failure::new(text));
        }
        if let Some(stream) = &arguments.stream {
            let mut results = places.result.iter().chain(&places.recording);
            if let Some(result) = results.find(|result| save::is_same(stream, result)) {
                let (stream, result) = (stream.display(), result.display());
                let text = format!("--stream {stream}: {result} is written, too. Give the stream another place");
                return Err(Failure::new(text));
            }
        }
        Ok(places)
    }

    /// The file of the result, now that the recording has a name.
    pub fn result(&self, format: Format, recording: &Path, default_stem: &str) -> Option<PathBuf> {
        if format == Format::Recording || format == Format::Summary && self.result.is_none() {
            return None;
        }
        let extension = format.offer().extensions.first().unwrap_or(&"");
        let named = || {
            let stem = recording.file_stem().filter(|_| self.temporary.is_none());
            let stem = stem.map_or(default_stem.into(), |s| s.to_string_lossy());
            recording.with_file_name(format!("{stem}{extension}"))
        };
        let default =
            if self.temporary.is_some() { PathBuf::from(format!("{default_stem}{extension}")) } else { named() };
        Some(self.result.clone().unwrap_or(default))
    }

    /// Removes temporary files, and lets a reader go who waits for the result.
    pub fn clean_up(self) {
        if let Some(result) = &self.result {
            save::release(result);
        }
        if let Some(folder) = self.temporary {
            // Best effort: the folder lies among temporary files.
            let _ = folder.close();
        }
    }
}

/// `x.svg` becomes `x.uu`; `.uu` is appended to a name without an extension of a format. `None`: beside a device, a
/// FIFO or an open file (`/dev/stdout`), nobody would look for it.
fn beside(result: &Path) -> Option<PathBuf> {
    let is_special = std::fs::metadata(result).is_ok_and(|meta| !meta.is_file() && !meta.is_dir());
    if is_special || save::is_open_file(result) {
        return None;
    }
    let stem = Format::strip_extension(result)
        .or_else(|| result.file_name().map(|f| f.to_string_lossy().into_owned()))
        .unwrap_or_default();
    Some(result.with_file_name(format!("{stem}.uu")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> Result<Arguments, String> {
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

    #[test]
    fn the_recording_lies_beside_the_result() {
        for (result, recording) in
            [("d/x.svg", "d/x.uu"), ("x.pb.gz", "x.uu"), ("x.odd", "x.odd.uu"), ("/dev/shm/x.svg", "/dev/shm/x.uu")]
        {
            assert_eq!(beside(Path::new(result)).as_deref(), Some(Path::new(recording)));
        }
        for result in ["/dev/null", "/dev/stdout", "/dev/fd/3", "/proc/self/fd/1"] {
            assert_eq!(beside(Path::new(result)), None, "{result}");
        }
        let a = parsed(&["-f", "svg", "p"]).expect("valid");
        let places = Places::choose(&a).expect("places");
        let result = places.result(a.format, Path::new("d/uu-p-7.uu"), "uu-p-7");
        assert_eq!(result.as_deref(), Some(Path::new("d/uu-p-7.svg")));
    }
}
