//! The command line of `uu record`, as clap reads it, and its help.

use crate::options;
use crate::options::Mode;
use clap::{Args, ValueHint};
use std::ffi::OsString;
use uunwind_report::formats::Format;

/// An odd rate, so that samples do not run in step with the program's own clocks.
pub(super) const DEFAULT_RATE: &str = "99";
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
    pub(super) rate: OsString,
    /// Record this running process; it lives on
    #[arg(short, long, value_name = "PID", allow_negative_numbers = true)]
    pub(super) pid: Option<OsString>,
    /// With -p: record its children and theirs, too, those that it has and those to come
    #[arg(short, long)]
    pub(super) subprocesses: bool,
    /// cpu: sample threads that run, by their CPU time; wall: those that wait, too, by the time that passes; alloc:
    /// sample allocations, by their bytes; lock: sample waits for locks, by their time (below)
    #[arg(long, value_name = "MODE", default_value = "cpu", value_parser = options::Offers(Mode::NAMES),
          hide_possible_values = true)]
    pub(super) mode: OsString,
    /// With --mode alloc: bytes from a sampled allocation to the next, on average [default: 512K]
    #[arg(long, value_name = "BYTES", allow_negative_numbers = true, conflicts_with = "all")]
    pub(super) every_bytes: Option<OsString>,
    /// With --mode alloc or lock: record every allocation, or every wait
    #[arg(long)]
    pub(super) all: bool,
    /// With --mode alloc: have Python take its small objects from malloc, too, which takes longer (PYTHONMALLOC)
    #[arg(long)]
    pub(super) python_malloc: bool,
    /// With --mode alloc: count what the program maps itself (mmap), too, as allocations of that size
    #[arg(long)]
    pub(super) mmap: bool,
    /// With --mode wall: show threads, too, that did nothing but wait in one place
    #[arg(short, long)]
    pub(super) idle: bool,
    /// With -p: put no sampler into the process, but stop its running threads shortly for each sample
    #[arg(long)]
    pub(super) remote: bool,
    /// End the recording after this time; the program runs on, and uu waits for it, except with -p
    #[arg(short, long, value_name = "SECONDS", allow_negative_numbers = true)]
    pub(super) duration: Option<OsString>,
    /// Sample nothing until `uu resume PID`, or until the program calls uu_record_start() of uu.h
    #[arg(long)]
    pub(super) start_paused: bool,
    /// Write what there is so far, as a recording of its own, each time this time is over, such as 60s
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    pub(super) every: Option<OsString>,
    /// Where the result goes; %p in the file's name becomes the process id [default: uu-PROGRAM-PID.uu]
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(super) output: Option<OsString>,
    /// Format of the result [default: by the extension of FILE]
    #[arg(short, long, value_name = "FORMAT", value_parser = options::formats(), hide_possible_values = true)]
    pub(super) format: Option<OsString>,
    /// hide: leave out an interpreter's own frames and importlib's, in pictures its allocator and the like, too: their
    /// time is the calling line's; leaf: keep those in which time was spent; show: keep all
    #[arg(long, value_name = "MODE", default_value = "hide", value_parser = options::Offers(&["hide", "leaf", "show"]),
          hide_possible_values = true)]
    pub(super) native_frames: OsString,
    /// Write each sample as it comes, as lines of JSON, into FILE, a FIFO or /dev/fd/N
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "pid")]
    pub(super) stream: Option<OsString>,
    /// Send a profile to this store each 10 s, such as http://localhost:4040 or otlp+grpc://localhost:4317 (below)
    #[arg(long, value_name = "URL", value_hint = ValueHint::Url, conflicts_with_all = ["every", "gil"])]
    pub(super) push: Option<OsString>,
    /// With --push: the time between profiles
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    pub(super) push_every: Option<OsString>,
    /// With --push: the service's name [default: that of PROGRAM, or of the process]
    #[arg(long, value_name = "NAME")]
    pub(super) service: Option<OsString>,
    /// A label of all samples, or with --push of each profile; again for another one
    #[arg(long, value_name = "KEY=VALUE")]
    pub(super) label: Vec<OsString>,
    /// Do not keep the recording (.uu) beside a result in another format
    #[arg(long)]
    pub(super) no_keep: bool,
    /// Show only samples of threads that held Python's global interpreter lock; the recording keeps all
    #[arg(short, long)]
    pub(super) gil: bool,
    /// Say nothing but warnings and errors
    #[arg(short, long, conflicts_with = "verbose")]
    pub(super) quiet: bool,
    /// Let the summary say more of uu's own work: plugins, replayed frames
    #[arg(short, long)]
    pub(super) verbose: bool,
    /// Record and show the coroutines that await the asyncio task that runs, too (CPython 3.14 and 3.15)
    #[arg(long = "async")]
    pub(super) awaiting: bool,
    /// Do not record child processes
    #[arg(long)]
    pub(super) no_children: bool,
    /// Exit with code 125 if nothing was sampled
    #[arg(long)]
    pub(super) fail_empty: bool,
    /// Show functions of the kernel, too, above those that called it (as root, not with -p; below)
    #[arg(long, conflicts_with_all = ["pid", "explicit"])]
    pub(super) kernel: bool,
    /// Have perf events opened by the `uu kernel-events` that listens on this socket; for users who may not open them
    #[arg(long, value_name = "SOCKET", value_hint = ValueHint::FilePath, conflicts_with = "pid")]
    pub(super) events_from: Option<OsString>,
    /// A SIGPROF that a thread sends itself takes a sample
    #[arg(long)]
    pub(super) explicit: bool,
    #[arg(long, help = NO_REPLAY)]
    pub(super) no_replay: bool,
    /// live: walk stacks as the program runs; offline: copy them, and walk the copies afterwards (below); both: compare
    #[arg(long, value_name = "WHEN", default_value = "live",
          value_parser = options::Offers(&["live", "offline", "both"]), hide_possible_values = true)]
    pub(super) unwind: OsString,
    /// now: name functions when the program has ended; later: leave that to uu report, which needs the files (below)
    #[arg(long, value_name = "WHEN", default_value = "now", value_parser = options::Offers(&["now", "later"]),
          hide_possible_values = true, conflicts_with = "pid")]
    pub(super) names: OsString,
    /// The program, and its arguments
    #[arg(value_name = "PROGRAM", required_unless_present = "pid", conflicts_with = "pid", trailing_var_arg = true,
          value_hint = ValueHint::CommandWithArguments)]
    pub(super) command: Vec<OsString>,
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
--python-malloc it takes each from malloc; with --mmap each arena is an allocation, and so is all anonymous memory that
PROGRAM maps. With -p, what the process allocates from then on is sampled; only by a sampler in it.

With --mode lock, waits for locks are sampled and no time: pthread mutexes, reader-writer locks, condition variables,
semaphores, barriers, joins, and what is made of them, such as std::mutex, Python's GIL and threading.Lock; and futexes
that are waited on by syscall(2), such as those of Rust's standard library and parking_lot. Each has the stack that
waited, the lock, how long it took, and for a mutex the thread that had it. --all: every wait. With -p, waits that begin
from then on; only by a sampler in the process.

With --start-paused, nothing is sampled at first. uu pause PID and uu resume PID switch a recording off and on, where PID is
a recorded process or uu itself; so does the program, by uu_record_stop() and uu_record_start() of uu.h. What sets
labels, by uu_label_set(), has them in its samples: uu report --filter label=KEY:VALUE. --label is for samples that have no
label of that key.

Snapshots: SIGUSR2 to uu (or uu snapshot) and --every write what there is so far as a recording beside the other one,
with .1.uu, .2.uu and so on at its end. The recording goes on.

With --push, uu (never PROGRAM) sends what each 10 s have brought to the store's /ingest: gzip pprof, as Pyroscope and
Grafana Alloy take it; with pyroscope+http://localhost:4040 by Pyroscope's own API (push.v1); with
otlp+http://localhost:4318 or otlp+grpc://localhost:4317 by OTLP to a collector of OpenTelemetry; with
parca+grpc://localhost:7070 to Parca. With https:// or grpcs:// it is by TLS: the system's certificates are trusted, or
those in SSL_CERT_FILE and SSL_CERT_DIR; proxies are those of https_proxy and http_proxy.
Credentials are in UU_PUSH_TOKEN, or UU_PUSH_USER and UU_PUSH_PASSWORD.
What the store does not take now is kept, at most 64 MiB, and sent later, by a later uu, too.

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
