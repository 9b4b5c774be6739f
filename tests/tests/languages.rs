//! Languages without a plugin of uu: the example plugins in C and Rust, and an embedder, compared with the stacks that
//! their interpreters print; and the native unwinder as a plugin, compared with the built-in one.

use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use uunwind_tests::dumps::{functions, threads};
use uunwind_tests::own_walks::{self, Reads};
use uunwind_tests::running::{all_sleep, wait_for, Running};
use uunwind_tests::samples::{completeness, Frame, Sample};
use uunwind_tests::{attached, compile, paths, process, skips, uu};

/// How the examples say that they are to be compiled, and more strictly.
const STRICT: &[&str] = &["-Werror", "-pedantic"];

fn include() -> String {
    format!("-I{}", paths::tree().join("include").display())
}

fn example(name: &str) -> PathBuf {
    paths::root().join("examples").join(name)
}

fn toy(scratch: &Path) -> PathBuf {
    compile::gcc_files(scratch, "toy", &[example("plugin-c/toy.c")], STRICT)
}

/// Builds a crate's DSO as it is to be built: in the profile whose link proves that nothing panics.
fn dso(package: &str, file: &str) -> PathBuf {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build.args(["rustc", "--locked", "--profile", "dso", "-p", package, "--lib", "--crate-type", "cdylib"]);
    build.arg("--target-dir").arg(paths::target());
    let done = build.current_dir(paths::root()).output().expect("cargo runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    paths::target().join("dso").join(file)
}

/// Records a program that prints its own stacks where it asks for samples; `plugins` is UU_PLUGINS.
#[track_caller]
fn record(scratch: &Path, plugins: &str, program: &[&str]) -> (Vec<Sample>, Vec<String>, String) {
    let environment = |command: &mut Command| {
        command.env("UU_PLUGINS", plugins);
    };
    let words: Vec<_> = program.iter().map(std::ffi::OsStr::new).collect();
    let recording = uu::record(scratch, &["--explicit", "-r", "999"], environment, &words).expect_code(0);
    let printed =
        recording.outcome.stdout.lines().filter_map(|l| l.strip_prefix("stack ")).map(str::to_owned).collect();
    (recording.samples(), printed, recording.outcome.stderr)
}

/// The frames of a language in a sample, as the interpreter prints them.
fn language(sample: &Sample, plugin: &str) -> String {
    let frames = sample.frames.iter().filter_map(|frame| match frame {
        Frame::Other { plugin: p, name, line, .. } if p == plugin => Some(format!("{name}:{line}")),
        _ => None,
    });
    frames.collect::<Vec<_>>().join(" ")
}

/// Each stack that the interpreter printed is the one in the sample that it asked for then, and in every sample each
/// group of its frames is followed by the native frame that hosts it.
#[track_caller]
fn agrees(samples: &[Sample], printed: &[String], plugin: &str, host: &str) {
    let asked: Vec<&Sample> = samples.iter().filter(|s| s.kind == "explicit").collect();
    assert!(printed.len() >= 40 && asked.len() == printed.len(), "{} printed, {} samples", printed.len(), asked.len());
    for (sample, printed) in asked.iter().zip(printed) {
        assert_eq!(language(sample, plugin), *printed, "{}", sample.text());
    }
    are_hosted(samples, host);
    // Samples that the timer took, anywhere in the program.
    let timed = samples.iter().filter(|s| s.kind == "timer" && !language(s, plugin).is_empty()).count();
    println!("{plugin}: {} stacks agree; {timed} of the timer's samples are inside the language", printed.len());
}

/// Stacks are whole, and each group of a language's frames is followed by the native frame that hosts it.
#[track_caller]
fn are_hosted(samples: &[Sample], host: &str) {
    let (share, reasons) = completeness(samples);
    assert!(share >= 0.99, "{reasons:?}");
    for sample in samples {
        for pair in sample.frames.windows(2) {
            if let [Frame::Other { name, .. }, Frame::Native { symbol, interpreter, .. }] = pair {
                assert!(symbol == host && *interpreter, "{name} is hosted by {symbol}: {}", sample.text());
            }
        }
        let last = sample.frames.last();
        assert!(!matches!(last, Some(Frame::Other { .. })), "no frame hosts the outermost: {}", sample.text());
    }
}

#[test]
fn a_plugin_in_c() {
    let scratch = paths::scratch("plugin-c");
    let include = include();
    let options = [STRICT, &["-shared", "-fPIC", "-nostartfiles", "-Wl,-z,now", &include]].concat();
    let plugin = compile::gcc_files(&scratch, "toy_plugin.so", &[example("plugin-c/toy_plugin.c")], &options);
    let program = toy(&scratch).display().to_string();
    let (samples, printed, said) = record(&scratch, &plugin.display().to_string(), &[&program, "400"]);
    assert!(said.contains("toy") && !said.contains("failed "), "{said}");
    // The label and the lines come from the plugin: the positions that its signal half emits are words of bytecode.
    agrees(&samples, &printed, "ty", "toy_run");
    assert!(samples.iter().all(|sample| language(sample, "toy").is_empty()));
    hides_its_glue(&scratch);
}

/// The recording is all that a report needs: the plugin is gone. Its interpreter's glue is hidden unless it is asked
/// for, and C code between two frames of the language is not.
#[track_caller]
fn hides_its_glue(scratch: &Path) {
    std::fs::remove_file(scratch.join("toy_plugin.so")).expect("the plugin");
    let folded = |mode: &str| {
        let file = scratch.join("recording.uu");
        let mut report = Command::new(paths::tree().join("bin/uu"));
        report.args(["report", "-f", "folded", "--native-frames", mode]).arg(file);
        process::run(&mut report, scratch, uu::LIMIT).expect_code(0).stdout
    };
    let (hidden, all) = (folded("hide"), folded("show"));
    for glue in [";toy_call;", ";toy_run;"] {
        assert!(all.contains(glue) && !hidden.contains(glue), "{glue} in:\n{hidden}");
    }
    let inner = "down (prog.toy:12);through_c;down (prog.toy:10);leaf (prog.toy:17);";
    let stack = format!("main;main (prog.toy:2);down (prog.toy:13);down (prog.toy:12);through_c;{inner}");
    assert!(hidden.contains(&stack), "no {stack} in:\n{hidden}");
    assert!(all.contains("down (prog.toy:12);through_c;toy_call;toy_run;down (prog.toy:12)"), "{all}");
}

#[test]
fn a_plugin_in_rust() {
    let scratch = paths::scratch("plugin-rust");
    let plugin = dso("uunwind-example-plugin", "libuunwind_example_plugin.so");
    let program = toy(&scratch).display().to_string();
    let (samples, printed, _) = record(&scratch, &plugin.display().to_string(), &[&program, "400"]);
    agrees(&samples, &printed, "toy-rust", "toy_run");
}

/// By the commands in the comment of `outside.toml`: what it makes is a plugin of its own, which works.
#[test]
fn a_plugin_in_rust_that_is_built_elsewhere() {
    let scratch = paths::scratch("plugin-rust-elsewhere");
    let manifest = std::fs::read_to_string(example("plugin-rust/outside.toml")).expect("the manifest");
    let commands: Vec<&str> = manifest.lines().filter_map(|line| line.strip_prefix("#     ")).collect();
    assert_eq!(commands.len(), 3, "{manifest}");
    for command in commands {
        let mut shell = Command::new("sh");
        shell.args(["-c", command]).current_dir(&scratch).env("UU", paths::root());
        // It needs uu's core and nothing else.
        shell.env_remove("CARGO_TARGET_DIR").env("CARGO_NET_OFFLINE", "true");
        process::run(&mut shell, &scratch, uu::LIMIT * 5).expect_code(0);
    }
    let plugin = scratch.join("my-plugin/target/dso/libmy_plugin.so");
    let facts = uunwind_tests::rules::objects::read(&plugin).expect("an ELF object");
    assert_eq!((facts.exports, facts.soname), (vec!["uu_plugin".to_owned()], None));
    let program = toy(&scratch).display().to_string();
    let (samples, printed, _) = record(&scratch, &plugin.display().to_string(), &[&program, "400"]);
    agrees(&samples, &printed, "toy-rust", "toy_run");
}

#[test]
fn an_embedder_without_a_plugin() {
    let scratch = paths::scratch("embedder");
    let include = include();
    let options = [STRICT, &["-pthread", "-ldl", &include]].concat();
    let program = compile::gcc_files(&scratch, "embedder", &[example("embedder/embedder.c")], &options);
    let program = program.display().to_string();
    // Without a recording, the calls have no effect.
    let alone = Command::new(&program).arg("1").output().expect("it runs");
    assert!(alone.status.success() && String::from_utf8_lossy(&alone.stdout).contains("marked -38"));
    let (samples, printed, _) = record(&scratch, "", &[&program, "40"]);
    agrees(&samples, &printed, "embedder", "run");
    let threads: std::collections::BTreeSet<u32> =
        samples.iter().filter(|s| !language(s, "embedder").is_empty()).map(|s| s.tid).collect();
    assert_eq!(threads.len(), 2, "each thread has a list of its own");
}

/// Languages without a plugin of uu's, in programs without a recorder: an embedder in both ways of reading memory;
/// foreign plugins, whose faults must be handled, in the one where they are.
#[test]
fn languages_by_uu_walk() {
    let scratch = paths::scratch("languages-walk");
    let include = include();
    let options = [STRICT, &["-pthread", "-ldl", &include]].concat();
    let embedder = compile::gcc_files(&scratch, "embedder", &[example("embedder/embedder.c")], &options);
    let options = [STRICT, &["-shared", "-fPIC", "-nostartfiles", "-Wl,-z,now", &include]].concat();
    let in_c = compile::gcc_files(&scratch, "toy_plugin.so", &[example("plugin-c/toy_plugin.c")], &options);
    let in_rust = dso("uunwind-example-plugin", "libuunwind_example_plugin.so");
    let toy = toy(&scratch);
    let none = PathBuf::new();
    for (program, rounds, plugin, language, host, reads) in [
        (&embedder, "40", &none, "embedder", "run", Reads::Probed),
        (&embedder, "40", &none, "embedder", "run", Reads::Guarded),
        (&toy, "400", &in_c, "toy", "toy_run", Reads::Guarded),
        (&toy, "400", &in_rust, "toy-rust", "toy_run", Reads::Guarded),
    ] {
        let configure = |command: &mut Command| {
            command.env("UU_PLUGINS", plugin);
        };
        let walked = own_walks::explicit(&scratch, reads, configure, &[program.as_ref(), rounds.as_ref()]);
        let walked = walked.unwrap_or_else(|said| panic!("{language}: {said}"));
        let printed = walked.outcome.stdout.lines().filter_map(|l| l.strip_prefix("stack "));
        // The plugin in C does not say that its lines may be asked for in handlers, so that uu_describe() has none.
        let lines = |frame: &str| match frame.split_once(':') {
            Some((name, _)) if language == "toy" => format!("{name}:0"),
            _ => frame.to_owned(),
        };
        let printed = printed.map(|stack| stack.split(' ').map(lines).collect::<Vec<_>>().join(" "));
        agrees(&walked.samples, &printed.collect::<Vec<_>>(), language, host);
        // The same anywhere, in a storm of signals with calls of malloc() and locks watched: each frame has its host.
        let walked = own_walks::storm(&scratch, reads, configure, &[program.as_ref(), rounds.as_ref()]);
        let walked = walked.unwrap_or_else(|said| panic!("{language}: {said}"));
        are_hosted(&walked.samples, host);
        let inside = walked.samples.iter().filter(|s| !self::language(s, language).is_empty()).count();
        assert!(inside > 100, "{language}: {inside} of {} samples are in the language", walked.samples.len());
    }
}

fn plugin_in_c(scratch: &Path) -> PathBuf {
    let include = include();
    let options = [STRICT, &["-shared", "-fPIC", "-nostartfiles", "-Wl,-z,now", &include]].concat();
    compile::gcc_files(scratch, "toy_plugin.so", &[example("plugin-c/toy_plugin.c")], &options)
}

/// The frames of the language in a dump of a program with one thread, as its interpreter prints them; and whether each
/// group of them is followed by the native frame that hosts it.
#[track_caller]
fn dumped(dump: &Value, label: &str) -> String {
    let [thread] = threads(dump) else { panic!("{dump:#}") };
    assert_eq!(thread["complete"], true, "{dump:#}");
    let frames = thread["frames"].as_array().expect("frames");
    let is_own = |frame: &Value| frame["language"] == label;
    for (inner, outer) in frames.iter().zip(frames.iter().skip(1)) {
        assert!(!is_own(inner) || is_own(outer) || outer["function"] == "toy_run", "{dump:#}");
    }
    let shown = |frame: &Value| format!("{}:{}", frame["function"].as_str().expect("a name"), frame["line"]);
    let own: Vec<String> = frames.iter().filter(|frame| is_own(frame)).map(shown).collect();
    assert!(functions(thread).contains(&"main") && dump["notes"] == Value::Array(Vec::new()), "{dump:#}");
    own.join(" ")
}

/// Plugins that are not uu's own, in processes of their own: `uu dump` of a process and of its core file have the
/// frames that the interpreter prints.
#[test]
fn languages_from_outside() {
    let scratch = paths::scratch("languages-outside");
    let in_rust = dso("uunwind-example-plugin", "libuunwind_example_plugin.so");
    let toy = toy(&scratch);
    for (plugin, label) in [(plugin_in_c(&scratch), "toy"), (in_rust, "toy-rust")] {
        let dump = |arguments: &[&str]| {
            let mut command = uu::command(&scratch, &["dump", "--json", "--native-frames", "show"]);
            let out = process::run(command.args(arguments).env("UU_PLUGINS", &plugin), &scratch, uu::LIMIT);
            serde_json::from_str::<Value>(&out.expect_code(0).stdout).expect("JSON")
        };
        let mut running = Running::start(Command::new(&toy).args(["8", "wait"]));
        let pid = running.pid().to_string();
        for stop in 0..16 {
            let line = running.line();
            let printed = line.strip_prefix("stack ").unwrap_or_else(|| panic!("{line:?}"));
            while !all_sleep(running.pid()) {
                std::thread::yield_now();
            }
            assert_eq!(dumped(&dump(&["-p", &pid]), label), printed, "stop {stop}");
            if stop == 15 {
                let mut gcore = Command::new("gcore");
                let core = scratch.join(label);
                if gcore.arg("-o").arg(&core).arg(&pid).output().is_ok_and(|out| out.status.success()) {
                    let core = format!("{}.{pid}", core.display());
                    assert_eq!(dumped(&dump(&[&core]), label), printed, "the core file");
                } else {
                    skips::skipped("languages in core files", "gcore is not installed");
                }
            }
            running.say("");
        }
        running.kill();
    }
}

/// The same in a recording from outside: stacks are whole, and those of the language are among the printed ones.
#[test]
fn languages_recorded_from_outside() {
    let scratch = paths::scratch("languages-recorded-outside");
    let (toy, plugin) = (toy(&scratch), plugin_in_c(&scratch));
    let printed = Command::new(&toy).arg("8").output().expect("it runs").stdout;
    let known: BTreeSet<String> = String::from_utf8_lossy(&printed)
        .lines()
        .filter_map(|line| line.strip_prefix("stack "))
        .map(|line| line.replacen("leaf:17", "leaf", 1))
        .collect();
    let mut running = Command::new(&toy).arg("2000000000").stdout(std::process::Stdio::null()).spawn().expect("toy");
    let attached = attached::Attached::begin_as(&scratch, running.id(), &["-r", "199"], |command| {
        command.env("UU_PLUGINS", &plugin);
    });
    let file = scratch.join("recording.uu");
    let has_samples = |recording: uunwind_recording::Recording| recording.samples.len() >= 100;
    wait_for("samples", || uunwind_recording::Recording::read(&file).is_ok_and(has_samples));
    attached.signal(libc::SIGINT);
    let (_, samples, said) = attached.end();
    running.kill().expect("a kill");
    running.wait().expect("its end");
    are_hosted(&samples, "toy_run");
    let in_leaf: Vec<String> = samples
        .iter()
        .map(|sample| language(sample, "ty"))
        .filter_map(|stack| Some(format!("leaf{}", stack.strip_prefix("leaf:16")?)))
        .collect();
    assert!(!in_leaf.is_empty() && !said.contains("plugin \""), "{} samples: {said}", samples.len());
    for stack in in_leaf {
        assert!(known.contains(&stack), "{stack:?} is none of {known:?}");
    }
}

/// The stacks at the places where the program asks for them, without addresses.
fn native(samples: &[Sample]) -> Vec<Vec<String>> {
    let frame = |frame: &Frame| match frame {
        Frame::Native { symbol, offset, .. } => Some(format!("{symbol}+{offset:#x}")),
        _ => None,
    };
    let asked = samples.iter().filter(|s| s.kind == "explicit");
    asked.map(|s| s.frames.iter().filter_map(frame).collect()).collect()
}

/// The native unwinder, opened as a plugin, produces the stacks of the built-in one, and it is really called.
#[test]
fn the_native_unwinder_as_a_plugin() {
    let scratch = paths::scratch("native-dso");
    let plugin = dso("uunwind-native-dso", "libuunwind_native_dso.so").display().to_string();
    let program = toy(&scratch).display().to_string();
    let built_in = native(&record(&scratch, "", &[&program, "40"]).0);
    let through = |claimed: &str| {
        let environment = |command: &mut Command| {
            command.env("UU_PLUGINS", &plugin).env("UU_NATIVE_DSO", claimed);
        };
        let words = [program.as_ref(), "40".as_ref()];
        let recording = uu::record(&scratch, &["--explicit", "-r", "999"], environment, &words).expect_code(0);
        assert!(!recording.outcome.stderr.contains("failed "), "{}", recording.outcome.text());
        recording.samples()
    };
    let claimed = "toy:libc.so.6";
    assert!(built_in.len() >= 40 && built_in.iter().all(|s| s.len() >= 6), "{built_in:?}");
    assert_eq!(native(&through(claimed)), built_in);
    // This plugin says that all of libc's frames are outermost ones, which shows that its rules are used.
    assert!(native(&through(&format!("{claimed}:end"))).iter().all(|stack| stack.len() == 1));
}

/// The same on a program as it is installed, under the timer.
#[test]
fn the_native_unwinder_as_a_plugin_on_a_real_program() {
    let Some(program) = ["/usr/bin/sqlite3"].into_iter().find(|p| Path::new(p).exists()) else {
        skips::skipped("the native unwinder as a plugin on sqlite3", "it is not installed");
        return;
    };
    let scratch = paths::scratch("native-dso-real");
    let plugin = dso("uunwind-native-dso", "libuunwind_native_dso.so");
    let environment = |command: &mut Command| {
        let claimed = "sqlite3:libsqlite3.so.0.8.6:libc.so.6:libreadline.so.8.2:libm.so.6";
        command.env("UU_PLUGINS", &plugin).env("UU_NATIVE_DSO", claimed);
    };
    let query = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 900000) \
        SELECT count(*), sum(length(hex(i))) FROM (SELECT i FROM n ORDER BY i * 31 % 1009, i DESC);";
    let words = [program.as_ref(), ":memory:".as_ref(), query.as_ref()];
    let recording = uu::record(&scratch, &["-r", "999"], environment, &words).expect_code(0);
    assert!(!recording.outcome.stderr.contains("\"native-dso\" failed"), "{}", recording.outcome.text());
    let samples = recording.samples();
    let (share, reasons) = completeness(&samples);
    println!("sqlite3 through the plugin: {} samples, {:.2} % whole", samples.len(), share * 100.0);
    assert!(samples.len() >= 50 && share >= 0.99, "{} samples, {share}: {reasons:?}", samples.len());
}

/// Whoever publishes a place that cannot be read has frames that are not shown.
#[test]
fn an_unreadable_place_of_frames_is_a_doubt() {
    let scratch = paths::scratch("published");
    let program = compile::with_library(&scratch, "published", &["-O1"]);
    let mut command = Command::new(program);
    command.env("XDG_CACHE_HOME", scratch.join("cache"));
    let out = process::run(&mut command, &scratch, uu::LIMIT).expect_code(0);
    assert_eq!(out.stdout.trim(), "0 1 0");
}
