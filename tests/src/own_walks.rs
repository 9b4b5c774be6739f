//! Programs whose own signal handler calls `uu_walk()`, without a recorder: `targets/native/walk_samples.c` is
//! preloaded into them.

use crate::samples::{self, Sample};
use crate::standing::{self, Standing};
use crate::{compile, paths, process, uu};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

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
/// [`standing::VARIABLE`], each of these samples is compared with what `uu dump -p` finds at the same moment.
pub fn explicit(
    scratch: &Path,
    reads: Reads,
    configure: impl FnOnce(&mut Command),
    program: &[&OsStr],
) -> Result<Walked, String> {
    let (objects, standing) = (objects(), Standing::wanted());
    let walk = || {
        let configure = |command: &mut Command| {
            configure(command);
            command.env("LD_PRELOAD", &objects.walks);
            standing.iter().for_each(|standing| standing.configure(command));
        };
        run(scratch, reads, configure, program)
    };
    let Some(standing) = &standing else { return walk() };
    let (walked, dumped) = standing.run(walk);
    let walked = walked?;
    let equal = standing::compare(&walked.samples, &dumped)?;
    println!("from outside: {equal} stacks are those that {program:?} has found itself");
    Ok(walked)
}

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
    run(
        scratch,
        reads,
        |command| {
            configure(command);
            command.env("LD_PRELOAD", preload).env("UU_TEST_STORM", "1");
        },
        program,
    )
}

fn run(
    scratch: &Path,
    reads: Reads,
    configure: impl FnOnce(&mut Command),
    program: &[&OsStr],
) -> Result<Walked, String> {
    let [file, arguments @ ..] = program else { return Err("no program".into()) };
    let samples = scratch.join("samples");
    let mut command = Command::new(file);
    command.args(arguments).env("XDG_CACHE_HOME", &objects().cache).env("UU_TEST_SAMPLES", &samples);
    if reads == Reads::Guarded {
        command.env("UU_TEST_HANDLE_FAULTS", "1");
    }
    configure(&mut command);
    let outcome = process::run(&mut command, scratch, uu::LIMIT);
    if outcome.code() != 0 {
        return Err(outcome.text());
    }
    // The runtimes cut texts at any byte.
    let text = std::fs::read(&samples).map_err(|error| format!("{}: {error}", samples.display()))?;
    Ok(Walked { samples: samples::parse(&String::from_utf8_lossy(&text))?, outcome })
}
