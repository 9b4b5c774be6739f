//! Programs whose own signal handler calls `uu_walk()`, without a recorder: `targets/native/walk_samples.c` is
//! preloaded into them.

use crate::samples::{self, Sample};
use crate::standing::{self, Equal, Standing};
use crate::{compile, paths, process, uu};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

/// How memory is read in the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reads {
    /// Pages are probed before they are read.
    Probed,
    /// After `uu_handle_faults()`.
    Guarded,
}

impl Reads {
    /// Both ways.
    pub const ALL: [Reads; 2] = [Reads::Probed, Reads::Guarded];

    /// Those that this test of several similar ones (`index`) is run with: both in campaigns, else one, so that each is
    /// met by some of the tests.
    pub fn some(index: usize) -> &'static [Reads] {
        if std::env::var_os("UU_CAMPAIGNS").is_some() {
            return &Reads::ALL;
        }
        &Reads::ALL[index % 2..][..1]
    }

    /// The end of a test's name.
    pub fn suffix(self) -> &'static str {
        match self {
            Reads::Probed => "by_uu_walk",
            Reads::Guarded => "by_uu_walk_guarded",
        }
    }
}

/// What a program's handler found, and what the program printed.
pub struct Walked {
    /// The stacks, in the order in which they were walked.
    pub samples: Vec<Sample>,
    /// How the program ended.
    pub outcome: process::Outcome,
}

struct Objects {
    walks: PathBuf,
    watch: PathBuf,
    /// A cache of what `uu_setup()` finds, for all programs of one test.
    cache: PathBuf,
}

fn objects() -> &'static Objects {
    static MADE: OnceLock<Objects> = OnceLock::new();
    MADE.get_or_init(|| {
        let scratch = paths::scratch("own-walks");
        Objects {
            walks: compile::shared_with_library(&scratch, "libwalks.so", &["native/walk_samples.c"]),
            watch: compile::shared(&scratch, "libwatch.so", &["native/watch_calls.c"]),
            cache: scratch.join("cache"),
        }
    })
}

/// Runs a program that sends itself SIGPROF where it is to be sampled (`targets/python/cap.c`). With
/// [`standing::VARIABLE`], each of these samples is compared with what `uu dump` finds at the same moment.
pub fn explicit(
    scratch: &Path,
    reads: Reads,
    configure: impl FnOnce(&mut Command),
    program: &[&OsStr],
) -> Result<Walked, String> {
    let mut command = command(scratch, reads, objects().walks.as_os_str(), configure, program)?;
    let Some(standing) = Standing::wanted() else { return run(scratch, &mut command, uu::LIMIT) };
    let (walked, Equal { live, cores, .. }) = looked_at(scratch, &mut command, &standing)?;
    println!("from outside: {live} stacks, and {cores} in core files, are those that {program:?} has found itself");
    Ok(walked)
}

/// As [`explicit`], with looks at each of the samples for which the program stands. Returns how many stacks of the
/// process and of core files are equal to the program's own.
pub fn standing(
    scratch: &Path,
    configure: impl FnOnce(&mut Command),
    program: &[&OsStr],
    standing: &Standing,
) -> Result<Equal, String> {
    let mut command = command(scratch, Reads::Guarded, objects().walks.as_os_str(), configure, program)?;
    looked_at(scratch, &mut command, standing).map(|(_, equal)| equal)
}

fn looked_at(scratch: &Path, command: &mut Command, standing: &Standing) -> Result<(Walked, Equal), String> {
    standing.configure(command);
    let plugins = command.get_envs().find(|(name, _)| *name == "UU_PLUGINS").and_then(|(_, value)| value);
    // It waits for the looks most of the time.
    let (walked, dumped) = standing.run(plugins.map(OsStr::to_owned), || run(scratch, command, uu::LIMIT * 10));
    let walked = walked?;
    let equal = standing::compare(&walked.samples, &dumped)?;
    if equal.live == 0 {
        return Err("it has never stood still, so nothing was compared".into());
    }
    Ok((walked, equal))
}

/// When a storm begins, where it is not at the start: see `targets/native/walk_samples.c`.
pub const STORM: &str = "UU_TEST_STORM";

/// Runs a program under a storm of 10,000 signals a second. An error if the handler calls malloc(3), takes a lock, or
/// asks the dynamic loader.
pub fn storm(
    scratch: &Path,
    reads: Reads,
    configure: impl FnOnce(&mut Command),
    program: &[&OsStr],
) -> Result<Walked, String> {
    let objects = objects();
    let preload = [objects.watch.as_os_str(), objects.walks.as_os_str()].join(OsStr::new(":"));
    let mut command = command(scratch, reads, &preload, configure, program)?;
    if !command.get_envs().any(|(name, _)| name == STORM) {
        command.env(STORM, "1");
    }
    run(scratch, &mut command, uu::LIMIT)
}

fn command(
    scratch: &Path,
    reads: Reads,
    preload: &OsStr,
    configure: impl FnOnce(&mut Command),
    program: &[&OsStr],
) -> Result<Command, String> {
    let [file, arguments @ ..] = program else { return Err("no program".into()) };
    let mut command = Command::new(file);
    command.args(arguments).env("XDG_CACHE_HOME", &objects().cache).env("UU_TEST_SAMPLES", samples_in(scratch));
    if reads == Reads::Guarded {
        command.env("UU_TEST_HANDLE_FAULTS", "1");
    }
    configure(&mut command);
    command.env("LD_PRELOAD", preload);
    Ok(command)
}

fn samples_in(scratch: &Path) -> PathBuf {
    scratch.join("samples")
}

fn run(scratch: &Path, command: &mut Command, limit: Duration) -> Result<Walked, String> {
    let samples = samples_in(scratch);
    let outcome = process::run(command, scratch, limit);
    if outcome.code() != 0 {
        return Err(outcome.text());
    }
    // The runtimes cut texts at any byte.
    let text = std::fs::read(&samples).map_err(|error| format!("{}: {error}", samples.display()))?;
    Ok(Walked { samples: samples::parse(&String::from_utf8_lossy(&text))?, outcome })
}
