//! Runs `uu` and reads its recordings.

use crate::process::{run, Outcome};
use crate::{evidence, paths, samples};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Time limit of any recording of a test program, and of whatever a test waits for. Only what hangs reaches it: a
/// machine with ten or twenty times more to do than it has processors needs minutes for seconds of work.
pub const LIMIT: Duration = Duration::from_secs(600);

/// The `uu` command with these arguments, its caches kept inside the scratch folder.
pub fn command<S: AsRef<OsStr>>(scratch: &Path, args: &[S]) -> Command {
    let mut command = Command::new(paths::uu());
    command.args(args).env("XDG_CACHE_HOME", scratch.join("cache"));
    command.env("XDG_CONFIG_HOME", scratch.join("config"));
    command
}

/// A recording: the file, and how `uu record` ended.
pub struct Recording {
    /// The recording file.
    pub file: PathBuf,
    /// How `uu record` ended.
    pub outcome: Outcome,
    scratch: PathBuf,
}

/// Runs `uu record OPTIONS -o FILE -- PROGRAM...`.
#[track_caller]
pub fn record(scratch: &Path, options: &[&str], configure: impl FnOnce(&mut Command), program: &[&OsStr]) -> Recording {
    let file = scratch.join("recording.uu");
    let mut uu = command(scratch, &["record"]);
    uu.args(options).arg("-o").arg(&file).arg("--").args(program);
    configure(&mut uu);
    let outcome = run(&mut uu, scratch, LIMIT);
    let recording = Recording::made(file, outcome, scratch.to_path_buf());
    evidence::note(&recording, &format!("{uu:?}"));
    recording
}

impl Recording {
    /// The recording that `uu record` made in this scratch folder.
    pub fn made(file: PathBuf, outcome: Outcome, scratch: PathBuf) -> Recording {
        Recording { file, outcome, scratch }
    }

    /// Fails unless the program, and so `uu record`, ended with this exit code.
    #[track_caller]
    pub fn expect_code(self, code: i32) -> Recording {
        Recording { outcome: self.outcome.expect_code(code), ..self }
    }

    /// `uu report -f FORMAT`, its output.
    #[track_caller]
    pub fn report(&self, format: &str) -> String {
        self.report_with(format, &[])
    }

    /// The same with more options.
    #[track_caller]
    pub fn report_with(&self, format: &str, options: &[&str]) -> String {
        let out = self.scratch.join(format!("report.{format}"));
        let mut uu = command(&self.scratch, &["report"]);
        uu.arg(&self.file).args(options).args(["-f", format, "-o"]).arg(&out);
        run(&mut uu, &self.scratch, LIMIT).expect_code(0);
        String::from_utf8_lossy(&std::fs::read(&out).expect("the report was written")).into_owned()
    }

    /// Passes the text of each sample to `look`, in the order in which each thread took them, without keeping all of
    /// them.
    #[track_caller]
    pub fn each_sample(&self, look: &mut dyn FnMut(&str)) {
        let out = self.scratch.join("report.samples");
        let mut uu = command(&self.scratch, &["report"]);
        uu.arg(&self.file).args(["-f", "samples", "-o"]).arg(&out);
        run(&mut uu, &self.scratch, LIMIT).expect_code(0);
        let mut report = BufReader::new(File::open(&out).expect("the report was written"));
        let (mut one, mut line) = (String::new(), String::new());
        while report.read_line(&mut line).expect("the report is UTF-8") > 0 {
            if line.starts_with("sample ") && !one.is_empty() {
                look(&one);
                one.clear();
            }
            one += &line;
            line.clear();
        }
        look(&one);
        let _ = std::fs::remove_file(&out);
    }

    /// How often a walk has read what is no memory, by the summary.
    pub fn faults(&self) -> usize {
        let lines = self.outcome.stderr.lines().chain(self.outcome.stdout.lines());
        let count = lines.filter_map(|line| line.trim().strip_suffix(" faults contained during walks")).next();
        count.map_or(0, |count| count.parse().expect("a number"))
    }

    /// All samples, in the order in which each thread took them.
    #[track_caller]
    pub fn samples(&self) -> Vec<samples::Sample> {
        samples::parse(&self.report("samples")).unwrap_or_else(|e| panic!("{e}"))
    }
}
