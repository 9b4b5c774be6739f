//! `uu record`: runs a program and records it, or records a running one.

mod arguments;
pub mod attach;
mod command_line;
mod empty;
mod finish;
#[cfg_attr(target_arch = "x86_64", path = "record/inside/x86_64.rs")]
#[cfg_attr(not(target_arch = "x86_64"), path = "record/inside/none.rs")]
pub mod inside;
mod places;
pub mod push;
pub mod store;
mod together;

use crate::exit::{Failure, FAILED, NOT_EXECUTABLE, NOT_FOUND};
use crate::{layout, program, save, terminal};
use arguments::Arguments;
pub use command_line::Options;
use places::Places;
use push::Push;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;
use uunwind_analyse::allocators;
use uunwind_built_in::HALVES;
use uunwind_clock::Instant;
use uunwind_loader::{Analysers, ENV_PLUGINS};
use uunwind_recorder::naming::Progress;
use uunwind_recorder::watch::Watcher;
use uunwind_recorder::{record_with, Config, Event, RecordError};
use uunwind_recording::{TapHolder, FROM_MALLOC};
use uunwind_report::stream::{Delivery, Pipe, Stream};
use uunwind_ring::{FLAG_ALLOC, FLAG_AWAITING, FLAG_LOCK, FLAG_WALL};

/// The subcommand by which uu starts itself once for each plugin.
pub const PLUGIN_SERVER: &str = "plugin-server";
/// The subcommand by which uu starts itself to name functions.
pub const NAMING_SERVER: &str = "naming-server";

/// Of a program whose allocations are not seen.
const OWN_MALLOC: &str = "defines malloc itself";

/// Runs the subcommand; returns the exit code.
pub fn run(options: &Options) -> Result<u8, Failure> {
    let arguments = Arguments::of(options)?;
    layout::check_proc()?;
    layout::check_pages()?;
    let places = Places::choose(&arguments)?;
    if let Some(pid) = arguments.pid {
        return attach::run(pid, &arguments, places.of_process(pid));
    }
    let (mut config, analysers) = prepare(&arguments.command, arguments.flags)?;
    for path in places.recording.iter().chain(&places.result).filter(|_| arguments.output.is_some()) {
        save::may_replace(path)?;
    }
    if let Some(result) = &places.result {
        save::check(result, "The program was not started")?;
    }
    if arguments.flags & FLAG_ALLOC != 0 {
        stand_before_malloc(&mut config, arguments.python_malloc)?;
    }
    if arguments.flags & FLAG_LOCK != 0 {
        stand_before_locks(&mut config)?;
    }
    config.rate = arguments.rate;
    config.flags = arguments.flags;
    config.duration = arguments.duration;
    config.start_paused = arguments.start_paused;
    config.every = arguments.every;
    let push = arguments.push.as_ref().map(|push| Push::begin(push, &arguments)).transpose()?;
    if let (Some(push), Some(asked)) = (&push, &arguments.push) {
        (config.every, config.every_into) = (Some(asked.every), Some(push.folder().to_owned()));
    }
    config.labels = arguments.labels.clone();
    config.events_from = arguments.events_from.clone();
    config.output = places.recording.clone();
    config.names_later = arguments.names_later;
    let pipe = arguments.stream.as_deref().map(open_stream).transpose()?;
    if let Some(pipe) = &pipe {
        config.tap = TapHolder::new(Box::new(Stream::new(pipe.clone(), HALVES)));
    }
    let mut shown = Shown { begun: Some(Instant::now()), ..Shown::default() };
    let watcher = watcher(&arguments)?;
    let running = match record_with(&config, analysers, watcher, |event| match (event, &push) {
        (Event::Snapshot(path, why), Some(push)) if push.is_own(path) => push.window(path, why),
        _ => shown.progress(&arguments, event),
    }) {
        Ok(running) => running,
        Err(error) => {
            places.clean_up();
            return Err(refused(error));
        }
    };
    if let (Some(pipe), Some(path)) = (&pipe, &arguments.stream) {
        said_of_stream(&pipe.delivery(), path);
    }
    finish::finish(running, &arguments, places, push)
}

/// Has the object preloaded that samples allocations.
fn stand_before_malloc(config: &mut Config, python_malloc: bool) -> Result<(), Failure> {
    let program = config.executable.display();
    if config.asan_runtime.is_some() {
        return Err(Failure::new(format!(
            "--mode alloc: {program} has AddressSanitizer, whose malloc comes before all others. Build it without"
        )));
    }
    if config.allocator {
        config.notes.push(format!(
            "{program} {OWN_MALLOC}, so that its allocations are not seen. Those of programs that it starts are; to \
             see its own, link it with libc's malloc, or with an allocator in a shared library"
        ));
    }
    let inside = allocators(&config.executable);
    if !inside.names.is_empty() && !config.allocator {
        config.notes.push(format!(
            "{program} has {} in itself: what it allocates by that is not seen, only what it has from malloc. One in a \
             shared library would be seen",
            inside.names.join(" and ")
        ));
    }
    if inside.operators {
        config.notes.push(format!(
            "{program} defines operator new itself: blocks that this takes from a pool of its own are not seen, as the \
             program calls it directly; what it takes from malloc is. To see all, put it into a shared library"
        ));
    }
    config.preload = layout::find()?.alloc;
    if !config.preload.is_file() {
        return Err(Failure::new(format!("{} is missing: install uu as a whole", config.preload.display())));
    }
    if python_malloc {
        config.environment.push(("PYTHONMALLOC", "malloc"));
        config.notes.push(format!("python{FROM_MALLOC} (--python-malloc)"));
    }
    Ok(())
}

/// Has the object preloaded that samples waits for locks.
fn stand_before_locks(config: &mut Config) -> Result<(), Failure> {
    if config.asan_runtime.is_some() {
        let program = config.executable.display();
        return Err(Failure::new(format!(
            "--mode lock: {program} has a sanitizer, which stands before the functions of locks itself. Build it without"
        )));
    }
    config.preload = layout::find()?.lock;
    if !config.preload.is_file() {
        return Err(Failure::new(format!("{} is missing: install uu as a whole", config.preload.display())));
    }
    Ok(())
}

/// Who watches threads that wait, if these are to be sampled.
fn watcher(arguments: &Arguments) -> Result<Option<Box<dyn Watcher>>, Failure> {
    if arguments.flags & FLAG_WALL == 0 {
        return Ok(None);
    }
    let layout = layout::find()?;
    let open = move || {
        let launcher = vec![layout.command.into_os_string(), PLUGIN_SERVER.into()];
        let found = uunwind_loader::find(&layout.plugins, std::env::var_os(ENV_PLUGINS).as_deref(), launcher);
        uunwind_remote::Plugins::open(found, HALVES)
    };
    let awaiting = arguments.flags & FLAG_AWAITING != 0;
    let watcher = uunwind_waits::Watcher::begin(arguments.rate, awaiting, open)
        .map_err(|e| Failure::new(format!("cannot start the thread that watches waiting threads: {e}")))?;
    Ok(Some(Box::new(watcher)))
}

fn open_stream(path: &Path) -> Result<Pipe, Failure> {
    Pipe::to(path).map_err(|e| {
        let path = path.display();
        Failure::new(format!(
            "cannot write {path}: {e}. The program was not started; give another place with --stream FILE"
        ))
    })
}

/// Says what a reader of the stream has missed.
fn said_of_stream(delivery: &Delivery, path: &Path) {
    let Delivery { error, is_stuck, samples, dropped } = delivery;
    let all = samples + dropped;
    if let Some(error) = error {
        terminal::warn(&format!(
            "--stream {}: {error}; what came after that was not written. The recording has it",
            path.display()
        ));
    } else if *is_stuck {
        terminal::warn(&format!(
            "--stream {}: its reader took nothing for two seconds; the rest was not written",
            path.display()
        ));
    }
    if *dropped > 0 {
        terminal::warn(&format!("--stream: {dropped} of {all} samples found no room, the reader was too slow or gone"));
    }
}

/// How a program is recorded: what it needs, and uu's own objects. Whatever can be found to fail is found here, before
/// the program runs. `flags`: the recording's `FLAG_*`.
pub fn prepare(command: &[OsString], flags: u32) -> Result<(Config, Analysers), Failure> {
    let layout = layout::find()?;
    let of_calls = flags & (FLAG_ALLOC | FLAG_LOCK) != 0;
    let otherwise = if of_calls { program::NO_OTHER_WAY } else { program::FROM_OUTSIDE };
    let program = program::check(command.first().map_or("".as_ref(), OsString::as_os_str), otherwise)?;
    let mut objects = vec![layout.library];
    let namer = vec![layout.command.clone().into_os_string(), NAMING_SERVER.into()];
    let launcher = vec![layout.command.into_os_string(), PLUGIN_SERVER.into()];
    let found = uunwind_loader::find(&layout.plugins, std::env::var_os(ENV_PLUGINS).as_deref(), launcher);
    for (path, trouble) in found.troubles {
        terminal::warn(&format!("plugin {} {trouble}; it is left out", path.display()));
    }
    objects.extend(found.plugins.into_iter().map(|plugin| plugin.path));
    let config = Config {
        command: command.to_vec(),
        executable: program.executable,
        closure: program.closure,
        rate: 0,
        flags: 0,
        duration: None,
        start_paused: false,
        every: None,
        every_into: None,
        output: None,
        preload: layout.preload,
        objects,
        asan_runtime: program.asan_runtime,
        allocator: program.allocator,
        environment: Vec::new(),
        labels: Vec::new(),
        events_from: None,
        notes: program.notes,
        namer,
        named: true,
        names_later: false,
        walk: Some(crate::offline::walk_recorded),
        tap: TapHolder::default(),
    };
    Ok((config, found.analysers))
}

/// The exit code for a program that did not start is `env`'s.
pub fn refused(error: RecordError) -> Failure {
    let code = match &error {
        RecordError::Spawn(_, e) if e.kind() == std::io::ErrorKind::NotFound => NOT_FOUND,
        RecordError::Spawn(..) => NOT_EXECUTABLE,
        RecordError::Interrupted(signal) => 128u8.wrapping_add(*signal as u8),
        _ => FAILED,
    };
    Failure::with_code(code, error)
}

/// What the terminal shows during the recording.
#[derive(Default)]
struct Shown {
    /// When the last line about the naming of functions was shown.
    naming: Option<Instant>,
    /// When the program was started.
    begun: Option<Instant>,
    /// When the last line about the recording was shown.
    recording: Option<Instant>,
}

impl Shown {
    /// Least time between two lines about naming.
    const INTERVAL: Duration = Duration::from_millis(200);
    /// The same about the recording.
    const SECOND: Duration = Duration::from_secs(1);

    fn progress(&mut self, arguments: &Arguments, event: Event<'_>) {
        match event {
            Event::Started { .. } | Event::Recording { .. } | Event::Naming(_) if arguments.quiet => {}
            Event::Snapshot(_, None) if arguments.quiet => {}
            Event::Started { pid, .. } => {
                let words = arguments.command.iter().map(|w| w.as_bytes());
                begun(&words.collect::<Vec<_>>(), pid, &arguments.sampled(), ". Ctrl-C ends it, and the recording");
            }
            Event::Recording { samples } => self.recording(arguments, samples),
            Event::Snapshot(path, why) => snapshot(path, why),
            Event::Over => {}
            Event::Naming(progress) => self.naming(progress),
        }
    }

    fn recording(&mut self, arguments: &Arguments, samples: u64) {
        // The time first: this is called a hundred times a second.
        let is_due = |begun: &Instant| self.recording.unwrap_or(*begun).elapsed() >= Self::SECOND;
        let Some(begun) = self.begun.filter(is_due) else { return };
        self.recording = Some(Instant::now());
        if !terminal::has_a_free_line() {
            return;
        }
        let of = arguments.duration.map_or(String::new(), |duration| format!(" of {}", duration.as_secs()));
        terminal::pass(&format!("{}{of} s, {samples} samples", begun.elapsed().as_secs()));
    }

    fn naming(&mut self, Progress { done, objects }: Progress) {
        if !terminal::stderr_is_terminal() {
            return;
        }
        if done == objects {
            terminal::pass("");
        } else if self.naming.is_none_or(|shown| shown.elapsed() >= Self::INTERVAL) {
            self.naming = Some(Instant::now());
            terminal::pass(&format!(
                "naming functions: {done} of {objects} objects done; Ctrl-C leaves the rest unnamed"
            ));
        }
    }
}

/// Says where a snapshot is, or why it is not there.
fn snapshot(path: &Path, why: Option<&str>) {
    match why {
        None => terminal::say(&format!("snapshot: {} (open it with `uu report`)", path.display())),
        Some(why) => terminal::complain(&format!("the snapshot {} was not written: {why}", path.display())),
    }
}

/// Says that a recording of a command has begun, and `how`.
fn begun(command: &[&[u8]], pid: u32, rate: &str, how: &str) {
    if terminal::stderr_is_terminal() {
        let words: Vec<_> = command.iter().map(|word| String::from_utf8_lossy(word)).collect();
        let command = uunwind_report::formats::printable(&words.join(" "));
        terminal::say(&format!("recording {command} (pid {pid}) {rate}{how}"));
    }
}
