//! Whatever is preloaded into uu itself, and puts other clocks and waits in the place of libc's: uu ends, and its times
//! are the kernel's.

use std::path::{Path, PathBuf};
use std::process::Command;
use uunwind_tests::running::Running;
use uunwind_tests::terminal::Terminal;
use uunwind_tests::{compile, paths, process, skips, uu};

/// Length of the recordings, in seconds.
const LENGTH: f64 = 0.5;

/// What to preload, and how it lies.
struct Lie {
    variables: Vec<(&'static str, String)>,
}

impl Lie {
    fn to(&self, command: &mut Command) {
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
    }
}

fn lies(scratch: &Path) -> Vec<Lie> {
    let object = compile::shared(scratch, "lying_clock.so", &["native/lying_clock.c"]);
    let own = |how: &str| Lie {
        variables: vec![("LD_PRELOAD", object.to_string_lossy().into_owned()), ("LIE", how.to_owned())],
    };
    let mut all = ["frozen", "back", "fast", "far"].map(own).into_iter().collect::<Vec<_>>();
    let faketime = Path::new("/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1");
    if faketime.exists() {
        let variables = vec![
            ("LD_PRELOAD", faketime.to_string_lossy().into_owned()),
            ("FAKETIME", "2020-01-01 00:00:00".to_owned()),
        ];
        all.push(Lie { variables });
    } else {
        skips::skipped("uu under libfaketime", "it is not installed");
    }
    all
}

fn spins(scratch: &Path) -> PathBuf {
    compile::gcc(scratch, "main_ended", &["native/main_ended.c"], &["-pthread"])
}

#[test]
fn recordings_and_reports_end() {
    let scratch = paths::scratch("lying-clocks-record");
    let program = spins(&scratch);
    for lie in lies(&scratch) {
        let what = &lie.variables;
        // Without clocks, and without a wait: it is the same with all lies.
        let work = "i=0; while [ $i -lt 400000 ]; do i=$((i + 1)); done";
        let words: [&std::ffi::OsStr; 3] = ["/bin/sh".as_ref(), "-c".as_ref(), work.as_ref()];
        // The mode with the most threads.
        let options = ["-r", "499", "--mode", "wall"];
        let recording = uu::record(&scratch, &options, |command| lie.to(command), &words).expect_code(0);
        assert!(recording.samples().len() > 20, "{what:?}: {}", recording.outcome.text());
        let mut command = uu::command(&scratch, &["report"]);
        lie.to(command.arg(&recording.file));
        process::run(&mut command, &scratch, uu::LIMIT).expect_code(0);
        let mut running = Running::ready(&mut Command::new(&program));
        let pid = running.pid().to_string();
        for words in [
            &["dump", "-p"][..],
            &["record", "-d", "0.5", "-o", "/dev/null", "-f", "folded", "--no-keep", "-p"],
            &[
                "record",
                "--remote",
                "--mode",
                "wall",
                "-d",
                "0.5",
                "-o",
                "/dev/null",
                "-f",
                "folded",
                "--no-keep",
                "-p",
            ],
        ] {
            let mut command = uu::command(&scratch, words);
            lie.to(command.arg(&pid));
            let begun = std::time::Instant::now();
            let out = process::run(&mut command, &scratch, uu::LIMIT).expect_code(0);
            let took = begun.elapsed().as_secs_f64();
            assert!(!words.contains(&"-d") || took >= LENGTH, "{what:?} {words:?}: {took} s: {}", out.text());
        }
        let mut command = uu::command(&scratch, &["top", "-p", &pid]);
        lie.to(&mut command);
        let mut terminal = Terminal::start(&mut command, uu::LIMIT);
        terminal.wait_for("a row", |screen| screen.text().contains("spins"));
        terminal.keys("q");
        assert!(terminal.end().success(), "{what:?}");
        running.kill();
    }
}
