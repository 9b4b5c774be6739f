//! As many plugins as a process may have, and one more: each frame has its language, inside and from outside.

use serde_json::Value;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use uunwind_tests::dumps::threads;
use uunwind_tests::running::Running;
use uunwind_tests::samples::Frame;
use uunwind_tests::{compile, paths, process, uu};

/// Plugins beside uu's own: the last is one too many.
const FOREIGN: usize = 24;
/// What is said of it.
const TOO_MANY: &str = "is one too many: a process has at most 30 plugins, uu's own included";

/// A program that passes twice through a library of each language, and the plugins of these, as UU_PLUGINS.
fn built(scratch: &Path) -> (PathBuf, OsString) {
    let include = format!("-I{}", paths::tree().join("include").display());
    let folder = scratch.display().to_string();
    let mut options: Vec<String> =
        ["-rdynamic", &format!("-DCOUNT={FOREIGN}"), &format!("-L{folder}"), &format!("-Wl,-rpath,{folder}")]
            .map(str::to_owned)
            .into();
    options.push("-Wl,--no-as-needed".to_owned());
    let sources = ["native/tongues.c"];
    let plugins: Vec<PathBuf> = (1..=FOREIGN)
        .map(|number| {
            let number_is = format!("-DNUMBER={number}");
            let library = format!("libtongue{number}.so");
            compile::gcc(scratch, &library, &sources, &["-shared", "-fPIC", "-DLIBRARY", &number_is]);
            options.push(format!("-ltongue{number}"));
            let shared = ["-shared", "-fPIC", "-nostartfiles", "-Wl,-z,now", "-DPLUGIN", &number_is, &include];
            compile::gcc(scratch, &format!("plugin{number}.so"), &sources, &shared)
        })
        .collect();
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let program = compile::gcc(scratch, "tongues", &sources, &options);
    (program, std::env::join_paths(plugins).expect("no colons"))
}

/// What a stack has to be, leaf first: language, line and function of the language's frame, and the native function
/// after it. The language of the plugin that was left out has no frame.
fn expected() -> Vec<String> {
    let twice = (1..=FOREIGN).rev().map(|number| (number, 1)).chain((1..=FOREIGN).rev().map(|number| (number, 2)));
    let line = |(number, call): (usize, usize)| match number {
        FOREIGN => vec![format!("tongue{number}")],
        _ => vec![format!("tongue{number}: tongue{number} frame:{}", number * 100 + call), format!("tongue{number}")],
    };
    twice.flat_map(line).collect()
}

#[test]
fn each_frame_has_its_language() {
    let scratch = paths::scratch("many-plugins");
    let (program, listed) = built(&scratch);
    let own = std::fs::read_dir(paths::tree().join("lib/uu/plugins")).expect("uu's own").count();
    assert_eq!(own + FOREIGN, 31, "one more than a process may have");
    let environment = |command: &mut Command| {
        command.env("UU_PLUGINS", &listed);
    };
    let recording = uu::record(&scratch, &["--explicit"], environment, &[program.as_os_str()]).expect_code(0);
    let said = &recording.outcome.stderr;
    assert!(said.contains(&format!("plugin{FOREIGN}.so {TOO_MANY}")) && !said.contains(" in process "), "{said}");
    assert_eq!(said.matches("one too many").count(), 1, "{said}");
    let samples = recording.samples();
    let asked: Vec<_> = samples.iter().filter(|sample| sample.kind == "explicit").collect();
    assert_eq!(asked.len(), 4, "{said}");
    for sample in asked {
        assert!(sample.complete(), "{}", sample.text());
        let shown: Vec<String> = sample.frames.iter().filter_map(shown).collect();
        assert_eq!(shown, expected(), "{}", sample.text());
    }

    let mut running = Running::start(Command::new(&program).arg("wait"));
    assert_eq!(running.line(), "here");
    let mut dump = uu::command(&scratch, &["dump", "--json", "--native-frames", "show", "-p"]);
    dump.arg(running.pid().to_string()).env("UU_PLUGINS", &listed);
    let out = process::run(&mut dump, &scratch, uu::LIMIT).expect_code(0);
    let dumped: Value = serde_json::from_str(&out.stdout).expect("JSON");
    let [thread] = threads(&dumped) else { panic!("{dumped:#}") };
    let frames = thread["frames"].as_array().expect("frames");
    let of_tongues: Vec<String> = frames.iter().filter_map(from_outside).collect();
    assert!(thread["complete"] == true && of_tongues == expected(), "{of_tongues:?}\n{dumped:#}");
    running.kill();
}

fn shown(frame: &Frame) -> Option<String> {
    match frame {
        Frame::Other { plugin, name, line, .. } => Some(format!("{plugin}: {name}:{line}")),
        Frame::Native { symbol, .. } => symbol.starts_with("tongue").then(|| symbol.clone()),
        _ => None,
    }
}

fn from_outside(frame: &Value) -> Option<String> {
    let function = frame["function"].as_str().filter(|function| function.starts_with("tongue"))?;
    match function.strip_suffix(" frame") {
        Some(_) => Some(format!("{}: {function}:{}", frame["language"].as_str()?, frame["line"])),
        None => Some(function.to_owned()),
    }
}
