//! Split and compressed debug information, in each way that shows lines: `uu record`, `uu report`, `uu dump` of a
//! process and of a core file, `uu_symbolize`. The lines are those that the source's own comments mark. (The forms
//! themselves: `profiler/symbolize/tests/debug_forms.rs`.)

use serde_json::Value;
use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;
use uunwind_tests::dumps::threads;
use uunwind_tests::running::{all_sleep, Running};
use uunwind_tests::{compile, cores, paths, process, skips, uu};

const SOURCE: &str = "native/split.c";

/// A function and its line; 0: none is shown.
type Place = (String, u64);

/// The line of the source with these words.
fn line_of(words: &str) -> u64 {
    let source = std::fs::read_to_string(paths::source(SOURCE)).expect("the source");
    1 + source.lines().position(|line| line.contains(words)).expect("in the source") as u64
}

/// The function that calls, and the one that it was inlined into.
fn whole() -> Vec<Place> {
    let inlined = line_of("/* called by the inlined function */");
    vec![("inlined".to_owned(), inlined), ("outermost".to_owned(), line_of("/* inlined here */"))]
}

/// What there is without the split units: no line, and least of all that of the inlined function.
fn bare() -> Vec<Place> {
    vec![("outermost".to_owned(), 0)]
}

/// Those of a list of frames.
fn places<'v>(frames: impl Iterator<Item = &'v Value>) -> Vec<Place> {
    let place = |frame: &Value| (frame["function"].as_str().unwrap_or_default().to_owned(), frame["line"].as_u64());
    let all = frames.map(place).map(|(function, line)| (function, line.unwrap_or(0)));
    all.filter(|(function, _)| ["inlined", "outermost"].contains(&&**function)).collect()
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|why| panic!("{why}: {text}"))
}

fn dumped(scratch: &Path, arguments: &[&OsStr]) -> (Vec<Place>, String) {
    let mut command = uu::command(scratch, &["dump", "--json"]);
    let out = process::run(command.args(arguments), scratch, uu::LIMIT).expect_code(0);
    let dump = json(&out.stdout);
    let frames = threads(&dump)[0]["frames"].as_array().expect("frames");
    (places(frames.iter()), out.stderr)
}

/// Every way of one program leads to these functions and lines; where something is missing, it says what.
#[track_caller]
fn expect(scratch: &Path, program: &Path, expected: &[Place], missing: Option<&str>) {
    let said = |text: &str, way: &str| match missing {
        Some(name) => {
            assert!(text.contains("split debug information is missing") && text.contains(name), "{way}: {text}")
        }
        None => assert!(!text.contains("debug information"), "{way}: {text}"),
    };
    let recording = uu::record(scratch, &[], |_| {}, &[program.as_os_str()]).expect_code(0);
    let report = json(&recording.report("json"));
    let frames = report["frames"].as_array().expect("frames");
    assert_eq!(places(frames.iter()), expected, "uu record: {report:#}");
    said(&recording.report("summary"), "uu report");

    let mut running = Running::start(Command::new(program).arg("waits"));
    while !all_sleep(running.pid()) {
        std::thread::yield_now();
    }
    let pid = running.pid().to_string();
    let (found, notes) = dumped(scratch, &["-p".as_ref(), pid.as_ref()]);
    assert_eq!(found, expected, "uu dump -p: {notes}");
    said(&notes, "uu dump -p");
    if !cores::has_gcore() {
        skips::skipped("core files with split debug information", "gcore is not installed");
        return;
    }
    let core = cores::gcore(running.pid(), scratch).expect("a core file");
    running.kill();
    let (found, notes) = dumped(scratch, &[core.as_ref()]);
    assert_eq!(found, expected, "uu dump CORE: {notes}");
    said(&notes, "uu dump CORE");
    if missing.is_some() {
        let folder = scratch.join("elsewhere");
        let (found, notes) = dumped(scratch, &[core.as_ref(), "--debug-dir".as_ref(), folder.as_ref()]);
        assert_eq!(found, whole(), "uu dump CORE --debug-dir: {notes}");
    }
}

#[test]
fn split_debug_information_is_whole_in_each_way() {
    for (version, options) in [("5", "-gdwarf-5"), ("4", "-gdwarf-4")] {
        let scratch = paths::scratch(&format!("split-{version}"));
        let program = compile::gcc(&scratch, "split", &[SOURCE], &["-O2", options, "-gsplit-dwarf"]);
        expect(&scratch, &program, &whole(), None);
    }
}

#[test]
fn a_skeleton_alone_claims_no_line_and_the_rest_is_found_elsewhere() {
    let scratch = paths::scratch("split-alone");
    let program = compile::gcc(&scratch, "split", &[SOURCE], &["-O2", "-gsplit-dwarf"]);
    std::fs::create_dir(scratch.join("elsewhere")).expect("scratch");
    let units: Vec<_> = std::fs::read_dir(&scratch).expect("scratch").flatten().map(|file| file.path()).collect();
    let units: Vec<_> = units.iter().filter(|path| path.extension() == Some("dwo".as_ref())).collect();
    assert_eq!(units.len(), 1, "{units:?}");
    let name = units[0].file_name().expect("a name");
    std::fs::rename(units[0], scratch.join("elsewhere").join(name)).expect("moved");
    expect(&scratch, &program, &bare(), Some(name.to_str().expect("text")));
}

#[test]
fn sections_that_zstd_has_compressed_are_whole_in_each_way() {
    let scratch = paths::scratch("split-zstd");
    let program = compile::gcc(&scratch, "split", &[SOURCE], &["-O2", "-g"]);
    let done = Command::new("objcopy").arg("--compress-debug-sections=zstd").arg(&program).status();
    assert!(done.expect("objcopy").success());
    expect(&scratch, &program, &whole(), None);
}
