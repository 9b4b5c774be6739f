//! `uu merge`: adds up many recordings.

use crate::exit::Failure;
use crate::{options, save, terminal};
use clap::{Args, ValueHint};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use uunwind_built_in::HALVES;
use uunwind_recording::languages::complete;
use uunwind_recording::{Held, Recording, Settings};
use uunwind_report::fleet::{Fleet, LEFT_OUT};
use uunwind_report::formats::{self, callgrind, folded, pprof, svg, Format};
use uunwind_report::resolve::Resolver;
use uunwind_report::view::View;

/// The exit code if some recordings are not in the result.
const PART: u8 = 1;
/// Bytes that stacks may take.
const ROOM: usize = 512 << 20;

/// Adds up any number of recordings, such as those of all machines of a day.
#[derive(Debug, Args)]
#[command(after_help = "\
Each recording is read by itself, so that memory does not grow with their number. Of each program and each name of a
thread, the stacks and their time are kept, by names of functions: no processes, no moments. Snapshots are left out
where a fuller file of the same run is there. Where distinct stacks take more than 512 MiB, those with least time become
one, [stacks with less time]; how many is said.

The result is a picture or a profile for other programs: svg, folded, pprof, pb or callgrind. Weights of time
are in ns, so that recordings of different rates can be added; of waits, kinds of locks are told apart, and no locks;
of allocations they are bytes of those that --memory names, and pprof has what was allocated, held at the end and
temporary. To see a few recordings with all they have: uu report FILE FILE...

Exit code: 0; 1 if recordings could not be read or added, each of which is named; 125 if there is no result.")]
pub struct Options {
    /// Where the result goes; its extension is its format
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath, required = true)]
    output: OsString,
    /// Format of the result [default: by the extension of the output]
    #[arg(short, long, value_name = "FORMAT", value_parser = options::formats(), hide_possible_values = true)]
    format: Option<OsString>,
    /// hide: leave out an interpreter's own frames and importlib's, in pictures its allocator and the like, too: their
    /// time is the calling line's; leaf: keep those in which time was spent; show: keep all
    #[arg(long, value_name = "MODE", default_value = "hide", value_parser = options::Offers(&["hide", "leaf", "show"]),
          hide_possible_values = true)]
    native_frames: OsString,
    /// Of recordings of allocations: peak, end, total or temporary, as uu report has them [default: peak]
    #[arg(long, value_name = "WHICH", value_parser = options::Offers(&["peak", "end", "total", "temporary"]),
          hide_possible_values = true)]
    memory: Option<OsString>,
    /// The recordings; of a folder all files in it that end in .uu
    #[arg(value_name = "FILE", required = true, value_hint = ValueHint::AnyPath)]
    files: Vec<OsString>,
}

/// Runs the subcommand; returns the exit code.
pub fn run(options: Options) -> Result<u8, Failure> {
    let output = options::path(options.output, "-o")?;
    let format = options.format.as_ref().map(options::format).transpose()?;
    let format = options::choose_format(format, Some(&output), Format::PprofGz)?;
    if !matches!(format, Format::Svg | Format::Folded | Format::Pprof | Format::PprofGz | Format::Callgrind) {
        let name = format.offer().name;
        return Err(Failure::new(format!(
            "the format {name} has processes or times, which a sum of recordings has not: -f takes svg, folded, pprof, pb \
             or callgrind"
        )));
    }
    terminal::check_readable(format, &output)?;
    let held = options.memory.as_ref().map_or(Ok(Held::default()), options::held)?;
    if matches!(held, Held::Grown(..)) {
        return Err(Failure::new("--memory FROM-TO: times are of one run; merge takes peak, end, total or temporary"));
    }
    let native_frames = options::native_frames(&options.native_frames)?;
    let view = View { held, of_many_runs: true, ..View::from(native_frames) };
    let mut files = Vec::new();
    for file in options.files {
        add_files(options::path(file, "FILE")?, &mut files)?;
    }
    save::check_apart(&output, &files)?;
    let (mut fleet, mut missing) = (Fleet::new(ROOM), 0usize);
    let mut note = |added: Result<(), Failure>| {
        if let Err(failure) = added {
            terminal::warn(&failure.text);
            missing += 1;
        }
    };
    let mut runs = Runs::default();
    for file in &files {
        note(read(file).and_then(|recording| match runs.awaits_others(&recording, file) {
            true => Ok(()),
            false => add(&mut fleet, file, recording, format, &view),
        }));
    }
    let (fullest, snapshots) = runs.fullest();
    for file in &fullest {
        note(read(file).and_then(|recording| add(&mut fleet, file, recording, format, &view)));
    }
    if missing == files.len() {
        return Err(Failure::new("no recording could be added, so there is no result"));
    }
    if fleet.left_out() > 0 {
        let count = fleet.left_out();
        terminal::warn(&format!("the {count} stacks with least time are not distinguished: {LEFT_OUT}"));
    }
    let (recording, profile) = fleet.finish();
    let bytes = match format {
        Format::Svg => svg::render(&recording, &profile).map_err(Failure::new)?,
        Format::Folded => folded::render(&profile).into_bytes(),
        Format::Callgrind => callgrind::render(&recording, &profile).into_bytes(),
        Format::Pprof => pprof::render(&recording, &profile),
        _ => pprof::gzip(&pprof::render(&recording, &profile))
            .map_err(|e| Failure::new(format!("cannot compress: {e}")))?,
    };
    if output.as_os_str() == "-" {
        terminal::output(&bytes)?;
    } else {
        save::may_replace(&output)?;
        save::write(&output, &bytes)?;
    }
    let added = files.len() - missing - snapshots;
    terminal::say(&format!("{added} of {} recordings are in {}", files.len(), output.display()));
    if snapshots > 0 {
        terminal::say(&format!("left out: {snapshots} snapshots, whose samples are in another file of the same run"));
    }
    Ok(if missing > 0 { PART } else { 0 })
}

/// The file; of a folder the recordings in it, by name.
fn add_files(path: PathBuf, files: &mut Vec<PathBuf>) -> Result<(), Failure> {
    if !path.is_dir() {
        files.push(path);
        return Ok(());
    }
    let cannot = |e| Failure::new(format!("cannot read the folder {}: {e}", path.display()));
    let mut found = Vec::new();
    for entry in std::fs::read_dir(&path).map_err(cannot)? {
        found.push(entry.map_err(cannot)?.path());
    }
    found.retain(|file| Format::by_extension(file) == Some(Format::Recording));
    if found.is_empty() {
        return Err(Failure::new(format!("{}: no recording (.uu) lies in this folder", path.display())));
    }
    found.sort();
    files.extend(found);
    Ok(())
}

/// Which runs there are. A snapshot holds all samples from the beginning of its run, so of a run either the recording
/// itself is added, or the snapshot with most samples.
#[derive(Default)]
struct Runs {
    /// Those of which the recording itself is there.
    whole: Vec<Settings>,
    /// Snapshots, with their numbers of samples.
    snapshots: Vec<(Settings, PathBuf, usize)>,
}

impl Runs {
    /// Takes note of a recording. Whether others must be known first, since it is a snapshot.
    fn awaits_others(&mut self, recording: &Recording, file: &Path) -> bool {
        let (settings, is_snapshot) = (recording.settings.clone(), recording.is_snapshot());
        match is_snapshot {
            true => self.snapshots.push((settings, file.to_owned(), recording.samples.len())),
            false => self.whole.push(settings),
        }
        is_snapshot
    }

    /// Of each run without a recording the fullest snapshot; and how many snapshots are left out.
    fn fullest(mut self) -> (Vec<PathBuf>, usize) {
        let all = self.snapshots.len();
        // The fullest first.
        self.snapshots.sort_by_key(|(_, _, samples)| std::cmp::Reverse(*samples));
        let mut chosen = Vec::new();
        for (settings, file, _) in self.snapshots {
            if !self.whole.contains(&settings) {
                self.whole.push(settings);
                chosen.push(file);
            }
        }
        let left_out = all - chosen.len();
        (chosen, left_out)
    }
}

fn read(file: &Path) -> Result<Recording, Failure> {
    Ok(Recording::read(file).map_err(Failure::new)?.to_show(file))
}

fn add(fleet: &mut Fleet, file: &Path, mut recording: Recording, format: Format, view: &View) -> Result<(), Failure> {
    crate::offline::walk(&mut recording, &[])?;
    complete(&mut recording, HALVES);
    for warning in &recording.warnings {
        terminal::warn(&formats::printable(warning));
    }
    let why = |why: String| Failure::new(format!("{}: {why}", file.display()));
    let profile = view.profile(format, &mut Resolver::new(&recording)).map_err(why)?;
    fleet.add(&recording, &profile).map_err(why)
}
