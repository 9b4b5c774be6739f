//! Follows a recording that runs, and publishes tables of it. It reads the file that the recorder writes, so nothing
//! here, and no slow terminal, ever holds up the recorder.

use arc_swap::ArcSwap;
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;
use uunwind_clock::{sleep, Instant};
use uunwind_elf::process;
use uunwind_recorder::jit::Jit;
use uunwind_recorder::naming;
use uunwind_recording::objects::ObjectMap;
use uunwind_recording::{Growing, Object, Process, Recording, Symbols};
use uunwind_report::hide::NativeFrames;
use uunwind_report::live::{Live, Tables};
use uunwind_report::resolve::Resolver;
use uunwind_report::stacks::Merger;
use uunwind_symbolize::questions;

/// Time between two tables, and before the first one.
const INTERVAL: Duration = Duration::from_secs(1);
const FIRST: Duration = Duration::from_millis(300);
/// Time between two looks at what JITs report, which may vanish.
const LOOK: Duration = Duration::from_millis(50);
/// This many intervals count as recent.
pub const RECENT: usize = 5;

/// What is shown at one moment; it never changes.
#[derive(Default)]
pub struct Published {
    /// The program's command line.
    pub command: String,
    /// Its process id, and the rate in Hz.
    pub pid: u32,
    pub rate: u32,
    /// Seconds since the recording began, and of them those that count as recent.
    pub seconds: f64,
    pub recent_seconds: f64,
    /// Samples so far, and those that were lost.
    pub samples: u64,
    pub lost: u64,
    /// Time by function, thread and language since the sums began anew.
    pub tables: Tables,
    /// Why there will be no further table.
    pub failed: Option<String>,
}

/// What the screen and the follower share.
#[derive(Default)]
pub struct Shared {
    /// The last table.
    pub published: ArcSwap<Published>,
    /// The sums are to begin anew.
    pub reset: AtomicBool,
    /// The recording is over.
    pub over: AtomicBool,
}

/// Begins to follow a recording, on a thread of its own.
pub fn begin(
    path: PathBuf,
    shared: Arc<Shared>,
    namer: Vec<OsString>,
    native_frames: NativeFrames,
) -> std::io::Result<JoinHandle<()>> {
    let run = move || {
        let failed = match Growing::open(&path) {
            Ok(growing) => Follower::new(growing, namer, native_frames).run(&shared).err(),
            Err(error) => Some(error.to_string()),
        };
        if let Some(failed) = failed {
            let Published { command, pid, rate, .. } = &**shared.published.load();
            let (command, pid, rate) = (command.clone(), *pid, *rate);
            shared.published.store(Arc::new(Published {
                command,
                pid,
                rate,
                failed: Some(failed),
                ..Published::default()
            }));
        }
    };
    Builder::new().name("follower".to_owned()).spawn(run)
}

struct Follower {
    growing: Growing,
    namer: Vec<OsString>,
    native_frames: NativeFrames,
    jit: Jit,
    /// Processes and objects that `jit` knows.
    processes: usize,
    objects: usize,
    /// Addresses that were looked up, and what was found.
    asked: HashSet<(u32, u64)>,
    symbols: Symbols,
    live: Live,
    samples: u64,
    /// When the last tables were made.
    made: Vec<Instant>,
}

impl Follower {
    fn new(growing: Growing, namer: Vec<OsString>, native_frames: NativeFrames) -> Follower {
        Follower {
            growing,
            namer,
            native_frames,
            jit: Jit::default(),
            processes: 0,
            objects: 0,
            asked: HashSet::new(),
            symbols: Symbols::default(),
            live: Live::new(RECENT),
            samples: 0,
            made: vec![Instant::now()],
        }
    }

    fn run(&mut self, shared: &Shared) -> Result<(), String> {
        let (begun, mut next) = (Instant::now(), Instant::now() + FIRST);
        loop {
            // First whether it is over: then the table that follows has everything.
            let is_over = shared.over.load(Ordering::Acquire);
            self.growing.more().map_err(|error| error.to_string())?;
            self.feed_jit();
            if is_over || Instant::now() >= next {
                if shared.reset.swap(false, Ordering::Relaxed) {
                    self.live.clear();
                    self.samples = 0;
                    self.made = vec![Instant::now()];
                }
                self.take_part();
                let published = self.publish(begun);
                shared.published.store(Arc::new(published));
                next = Instant::now() + INTERVAL;
            }
            if is_over {
                return Ok(());
            }
            sleep(LOOK);
        }
    }

    /// Adds new processes and objects to the sources of names for code made at run time.
    fn feed_jit(&mut self) {
        let recording = &self.growing.recording;
        for (index, process) in (0u32..).zip(&recording.processes).skip(self.processes) {
            let parent = |other: &Process| process.origin == 1 && other.pid == process.parent;
            let earlier = recording.processes.iter().take(index as usize);
            let parent = (0u32..).zip(earlier).filter(|(_, p)| parent(p)).last().map(|(index, _)| index);
            self.jit.process(index, process.pid, process.start, parent);
        }
        for object in recording.objects.iter().skip(self.objects) {
            self.jit.object(object.process, object, || files(recording, object));
        }
        (self.processes, self.objects) = (recording.processes.len(), recording.objects.len());
        self.jit.look();
        // Remarks on sources that cannot be read are for recordings.
        drop(self.jit.take_notes());
        // The recording has them itself.
        drop(self.jit.take_second_mappings());
    }

    /// Names the samples that are new, and adds them to the sums.
    fn take_part(&mut self) {
        let recording = &mut self.growing.recording;
        let mut map = ObjectMap::new(recording);
        let mut asked = questions(recording, &mut map, &|object| files(recording, object));
        for question in &mut asked {
            let object = question.object;
            question.addresses.retain(|address| self.asked.insert((object, *address)));
        }
        asked.retain(|question| !question.addresses.is_empty());
        let (named, _) = naming::name(&self.namer, &asked, |_| {});
        self.symbols.add(Symbols { calls: Vec::new(), unusable: Vec::new(), ..named });
        recording.jit = self.jit.names(recording, &mut map);
        recording.symbols = Some(std::mem::take(&mut self.symbols));
        let profile = Merger::new(&mut Resolver::new(recording), self.native_frames).profile();
        self.symbols = recording.symbols.take().unwrap_or_default();
        self.live.add(&profile);
        self.samples += recording.samples.len() as u64;
        recording.samples.clear();
        recording.fatal.clear();
        recording.starts.clear();
        self.made.push(Instant::now());
        let old = self.made.len().saturating_sub(RECENT + 1);
        self.made.drain(..old);
    }

    fn publish(&self, begun: Instant) -> Published {
        let recording = &self.growing.recording;
        let settings = &recording.settings;
        let recent = self.made.first().zip(self.made.last()).map_or(Duration::ZERO, |(first, last)| *last - *first);
        Published {
            command: uunwind_report::formats::command(recording),
            pid: settings.pid,
            rate: settings.rate,
            seconds: begun.elapsed().as_secs_f64(),
            recent_seconds: recent.as_secs_f64(),
            samples: self.samples,
            lost: lost(recording),
            tables: self.live.tables(recording),
            failed: None,
        }
    }
}

/// Samples that the recorder has counted as lost so far.
fn lost(recording: &Recording) -> u64 {
    recording.lost.iter().map(|lost| lost.samples).sum()
}

/// Where the file of an object may be found: as the process calls it, seen from its root, as it has mapped it, and as
/// this process calls it. Whether it is that file is checked where it is read.
fn files(recording: &Recording, object: &Object) -> Vec<PathBuf> {
    let path = Path::new(OsStr::from_bytes(&object.path));
    let pid = recording.processes.get(object.process as usize).map_or(0, |process| process.pid);
    let inside = path.strip_prefix("/").map(|path| process::file(pid, "root").join(path)).ok();
    let mapped = process::mapped_file(pid, object.start, object.end);
    [Some(path.to_owned()), inside, Some(mapped)].into_iter().flatten().collect()
}
