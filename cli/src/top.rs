//! `uu top`: a live table of what a program spends its CPU time in.
//!
//! Three threads: one records, as `uu record` does; one follows the recording's file and publishes a table each second;
//! this one draws the last table that was published, and waits for nobody.

mod follow;
mod output;
mod screen;
mod view;

use crate::exit::{of_status, Failure};
use crate::record::{attach, prepare, refused};
use crate::{options, terminal};
use clap::{Args, ValueHint};
use follow::Shared;
use output::Kept;
use rustix::process::{getpid, kill_process, Signal};
use screen::{Input, Screen};
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{channel, Receiver, Sender, TryRecvError};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;
use uunwind_recorder::child::interrupted;
use uunwind_recorder::Event;
use uunwind_remote_sampler::record::Event as AttachEvent;
use uunwind_remote_sampler::Attach;
use uunwind_ring::FLAG_NO_CHILDREN;
use uunwind_tables_build::Cache;
use view::{View, Wish};

/// Time between two looks at what there is to draw.
const LOOK: Duration = Duration::from_millis(100);
/// Functions that are printed at the end.
const LAST_ROWS: usize = 15;

/// Shows live what a program, or a running process, spends its CPU time in.
#[derive(Debug, Args)]
#[command(
    args_override_self = true,
    override_usage = "uu top [OPTIONS] [--] PROGRAM [ARGUMENTS]\n       uu top [OPTIONS] -p PID",
    after_help = "\
Keys: q quits, p pauses the table, s, t and n sort by own time, total time and name, Tab changes between functions,
threads and languages, c between native code as a part of the function of a language that called it and native
functions by themselves, / filters by a part of the name or language, r begins the sums anew, the arrows scroll, Ctrl-Z
stops uu and PROGRAM until they are continued (`fg`).
OWN is time in the function itself, TOTAL includes what it calls. Shares are of the last 5 seconds, times of all.

Ctrl-C ends PROGRAM as usual, q by SIGTERM. With -p, either ends uu alone. PROGRAM's output to the terminal is kept
while the table is drawn, and shown on standard error when it has ended; it has no input from the terminal.

Nothing is kept of the recording: for that, see uu record. Exit code: as for uu record."
)]
pub struct Options {
    /// Samples per second of CPU time, per thread (1 to 10000)
    #[arg(short, long, value_name = "HZ", default_value = "99", allow_negative_numbers = true)]
    rate: OsString,
    /// Look at this running process, without its children; it lives on
    #[arg(short, long, value_name = "PID", allow_negative_numbers = true)]
    pid: Option<OsString>,
    /// End after this time; the program runs on, and uu waits for it, except with -p
    #[arg(short, long, value_name = "SECONDS", allow_negative_numbers = true)]
    duration: Option<OsString>,
    /// hide: leave out an interpreter's own frames and importlib's; show: keep them
    #[arg(long, value_name = "MODE", default_value = "hide", value_parser = options::Offers(&["hide", "show"]),
          hide_possible_values = true)]
    native_frames: OsString,
    /// Leave out child processes
    #[arg(long)]
    no_children: bool,
    /// The program, and its arguments
    #[arg(value_name = "PROGRAM", required_unless_present = "pid", conflicts_with = "pid", trailing_var_arg = true,
          value_hint = ValueHint::CommandWithArguments)]
    command: Vec<OsString>,
}

/// What the recording thread says.
enum Said {
    /// The recording has begun, in this file.
    Begun(PathBuf),
    /// It is over. The thread waits until the screen is left: after that, signals may end uu.
    Over,
}

/// What is recorded, and where.
struct Wanted {
    pid: Option<u32>,
    rate: u32,
    duration: Option<Duration>,
    flags: u32,
    command: Vec<OsString>,
    file: PathBuf,
}

/// Runs the subcommand; returns the exit code.
pub fn run(options: &Options) -> Result<u8, Failure> {
    let native_frames = options::native_frames(&options.native_frames)?;
    let folder = tempfile::Builder::new().prefix("uu-").tempdir().map_err(|e| {
        Failure::new(format!("cannot make a folder in {}: {e}. Set TMPDIR", std::env::temp_dir().display()))
    })?;
    let wanted = Wanted {
        pid: options.pid.as_ref().map(|pid| options::pid(pid, "-p")).transpose()?,
        rate: options::rate(&options.rate)?,
        duration: options.duration.as_ref().map(options::duration).transpose()?,
        flags: if options.no_children { FLAG_NO_CHILDREN } else { 0 },
        command: options.command.clone(),
        file: folder.path().join("recording.uu"),
    };
    let terminal = open_terminal(wanted.pid)?;
    // Nothing is asked of debuginfod's server: the table would wait for it.
    let mut namer: Vec<OsString> = ["env", "-u", "DEBUGINFOD_URLS"].map(OsString::from).to_vec();
    namer.extend([crate::layout::find()?.command.into_os_string(), crate::record::NAMING_SERVER.into()]);
    let is_program = wanted.pid.is_none();
    let failed = |what: &str, error: std::io::Error| Failure::new(format!("cannot {what}: {error}"));
    let mut kept = Kept::begin().map_err(|error| failed("keep output in a file", error))?;
    let (say, said) = channel();
    let (left, is_left) = channel();
    let record = move || record(&wanted, &say, &is_left);
    let recorder = Builder::new().name("recorder".to_owned()).spawn(record).map_err(|e| failed("start a thread", e))?;
    let shared = Arc::new(Shared::default());
    let mut follower = None;
    // Otherwise it ended before it began.
    if let Ok(Said::Begun(path)) = said.recv() {
        let began = follow::begin(path, shared.clone(), namer, native_frames);
        follower = Some(began.map_err(|error| failed("start a thread", error))?);
        let mut screen = Screen::enter(terminal);
        let ended = match &mut screen {
            Ok(screen) => draw(screen, &said, &shared, is_program),
            Err(_) => Ended::Quit,
        };
        if let Err(error) = &screen {
            terminal::complain(&format!("cannot draw on the terminal: {error}"));
        }
        // Before anything else is said: what stands on the other screen is lost.
        drop(screen);
        kept.end();
        if let Ended::Quit = ended {
            // To this process, which passes it on to a program, or ends its look at a process.
            let _ = kill_process(getpid(), Signal::TERM);
        }
    }
    // Without a receiver, the thread has ended.
    let _ = left.send(());
    let code = finish(recorder, follower, &shared);
    // A terminal that is closed shows nothing.
    let _ = kept.show();
    let last = shared.published.load();
    if last.tables.weight > 0 {
        let _ = terminal::print(&view::plain(&last, LAST_ROWS, terminal::style(false, false)));
    }
    code
}

/// The terminal that the table is drawn on, and keys come from.
fn open_terminal(pid: Option<u32>) -> Result<File, Failure> {
    let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb" || term.is_empty());
    if dumb || !std::io::stdout().is_terminal() {
        let what = if dumb { "TERM says that this terminal has none" } else { "standard output is none" };
        let instead = pid.map_or("-- PROGRAM".to_owned(), |pid| format!("-p {pid} -d 10"));
        return Err(Failure::new(format!(
            "uu top draws a table on a terminal with a movable cursor: {what}. The same table without one is in the \
             summary of `uu record {instead}`"
        )));
    }
    let opened = OpenOptions::new().read(true).write(true).open("/dev/tty");
    opened.map_err(|error| Failure::new(format!("cannot open the terminal (/dev/tty): {error}")))
}

/// Why the drawing ended.
enum Ended {
    /// The recording is over, or a signal has come that ends it.
    Over,
    /// A key asked for it, or the terminal is closed.
    Quit,
}

/// Draws until the recording is over, or somebody asks for the end. Ctrl-C is a program's own matter, which may go on.
fn draw(screen: &mut Screen, said: &Receiver<Said>, shared: &Shared, is_program: bool) -> Ended {
    let (mut view, mut drawn) = (View::default(), Vec::new());
    loop {
        if !matches!(said.try_recv(), Err(TryRecvError::Empty)) || !is_program && interrupted().is_some() {
            return Ended::Over;
        }
        let now = shared.published.load_full();
        let lines = view.lines(&now, screen.size());
        if lines != drawn {
            if screen.draw(&lines).is_err() {
                return Ended::Quit;
            }
            drawn = lines;
        }
        match screen.input(LOOK) {
            Input::Closed => return Ended::Quit,
            Input::Keys(keys) => match view.keys(&keys, &now) {
                Wish::Quit => return Ended::Quit,
                Wish::Reset => shared.reset.store(true, Ordering::Relaxed),
                Wish::Suspend if screen.suspend().is_err() => return Ended::Quit,
                // The other screen is empty again.
                Wish::Suspend => drawn.clear(),
                Wish::None => {}
            },
        }
    }
}

/// Waits for the recording thread, and then for the last table.
fn finish(
    recorder: JoinHandle<Result<u8, Failure>>,
    follower: Option<JoinHandle<()>>,
    shared: &Shared,
) -> Result<u8, Failure> {
    let panicked = || Failure::new("the recording has panicked");
    let code = recorder.join().unwrap_or_else(|_| Err(panicked()));
    shared.over.store(true, Ordering::Release);
    if follower.is_some_and(|follower| follower.join().is_err()) {
        return Err(Failure::new("the thread that makes tables has panicked"));
    }
    code
}

/// Records, on a thread of its own. Returns uu's exit code.
fn record(wanted: &Wanted, say: &Sender<Said>, is_left: &Receiver<()>) -> Result<u8, Failure> {
    // The other thread waits for one of them, or for the end of this one.
    let begun = |path: &Path| drop(say.send(Said::Begun(path.to_owned())));
    let over = || {
        let _ = say.send(Said::Over);
        let _ = is_left.recv();
    };
    if let Some(pid) = wanted.pid {
        let (mut plugins, namer) = attach::prepare()?;
        let attach = Attach {
            pid,
            with_children: false,
            rate: wanted.rate,
            duration: wanted.duration,
            start_paused: false,
            every_into: None,
            every: None,
            flags: 0,
            output: Some(wanted.file.clone()),
            namer: namer.into(),
            named: false,
            labels: Vec::new(),
            why: attach::OUTSIDE.to_owned(),
            among: None,
        };
        let recorded = uunwind_remote_sampler::record(&attach, &mut plugins, &Cache::of_user(), |event| match event {
            AttachEvent::Begun(_, path) => begun(path),
            AttachEvent::Over => over(),
            AttachEvent::Snapshot(..) | AttachEvent::Naming(_) | AttachEvent::Left(_) => {}
        });
        return recorded.map(|_| 0).map_err(attach::refused);
    }
    let (mut config, analysers) = prepare(&wanted.command, wanted.flags)?;
    config.rate = wanted.rate;
    config.flags = wanted.flags;
    config.duration = wanted.duration;
    config.output = Some(wanted.file.clone());
    config.named = false;
    let recorded = uunwind_recorder::record(&config, analysers, |event| match event {
        Event::Started { output, .. } => begun(output),
        Event::Over => over(),
        Event::Recording { .. } | Event::Snapshot(..) | Event::Naming(_) => {}
    });
    let mut running = recorded.map_err(refused)?;
    let ended = running.outcome().wait_status;
    Ok(of_status(ended.unwrap_or_else(|| running.wait())))
}
