//! The Python module `uunwind`, of a wheel that is made and installed: in every interpreter of this machine, its stacks
//! against those of the interpreter.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use uunwind_tests::attached::Attached;
use uunwind_tests::interpreters::{self, Interpreter};
use uunwind_tests::running::Running;
use uunwind_tests::{compile, paths, process, readers, skips, uu};

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// The wheel of the tree under test.
fn wheel() -> &'static Path {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    MADE.get_or_init(|| {
        let scratch = paths::scratch("module-wheel");
        let script = paths::root().join("packages/wheel.py");
        let mut make = Command::new("python3");
        make.arg(script).arg(paths::tree()).args(["0.0.1", "2.28"]).arg(&scratch);
        process::run(&mut make, &scratch, uu::LIMIT).expect_code(0);
        scratch.join("uunwind-0.0.1-py3-none-manylinux_2_28_x86_64.whl")
    })
}

fn pip(python: &Path, arguments: &[&str], scratch: &Path) {
    let mut command = Command::new(python);
    command.args(["-m", "pip", "-q", "--disable-pip-version-check", "install", "--no-index"]).args(arguments);
    process::run(command.arg(wheel()), scratch, uu::LIMIT).expect_code(0);
}

fn can(python: &Path, code: &str) -> bool {
    Command::new(python).args(["-c", code]).output().is_ok_and(|done| done.status.success())
}

/// A folder with what pip installs, for interpreters that have no pip. None: no interpreter has.
fn installed() -> Option<&'static Path> {
    static PLACE: OnceLock<Option<PathBuf>> = OnceLock::new();
    let make = || {
        let all = interpreters::supported();
        let with_pip = all.iter().find(|python| can(&python.path, "import pip"))?;
        let scratch = paths::scratch("module-place");
        let place = scratch.join("packages");
        pip(&with_pip.path, &["--target", text(&place)], &scratch);
        Some(place)
    };
    PLACE.get_or_init(make).as_deref()
}

/// The interpreters that can load C libraries, and the folder with the module.
fn pythons() -> Vec<(Interpreter, &'static Path)> {
    let Some(place) = installed() else {
        skips::skipped("the Python module", "no interpreter of this machine has pip");
        return Vec::new();
    };
    let all = interpreters::supported().into_iter().filter(|python| {
        let has = can(&python.path, "import ctypes, unittest, asyncio");
        if !has {
            skips::skipped(&format!("the Python module in {}", python.label), "it has no ctypes or unittest");
        }
        has
    });
    all.map(|python| (python, place)).collect()
}

/// Puts the module on a command's path, and with it the library that it has.
fn with_module<'a>(command: &'a mut Command, place: &Path) -> &'a mut Command {
    command.env("PYTHONPATH", place).env("PYTHONDONTWRITEBYTECODE", "1").env_remove("UUNWIND_LIBRARY")
}

/// Runs a program of tests/targets/python/module with the module on its path.
#[track_caller]
fn run(python: &Path, place: &Path, program: &str, arguments: &[&OsStr], scratch: &Path) -> process::Outcome {
    let mut command = Command::new(python);
    command.arg(paths::source(&format!("python/module/{program}"))).args(arguments);
    with_module(&mut command, place).env("XDG_CACHE_HOME", scratch.join("cache"));
    process::run(&mut command, scratch, uu::LIMIT)
}

/// The library that the programs call, and two that are of other versions, beside it.
fn libraries(scratch: &Path) -> PathBuf {
    for (name, abi) in [("libother.so", "-DABI=7"), ("libolder.so", "-DABI=1")] {
        compile::gcc(scratch, name, &["python/module/version.c"], &["-shared", "-fPIC", abi]);
    }
    compile::shared(scratch, "libbindings.so", &["python/bindings.c"])
}

#[test]
fn stacks_crash_reports_and_refusals_in_every_interpreter() {
    for (python, place) in pythons() {
        let scratch = paths::scratch(&format!("module-{}", python.label));
        let library = libraries(&scratch);
        let done = run(&python.path, place, "works.py", &[library.as_os_str()], &scratch);
        assert!(done.code() == 0, "{}: {}", python.label, done.text());
    }
}

/// One release build of each minor version.
#[test]
fn recordings_and_the_watchdog_in_every_version() {
    let mut seen = BTreeSet::new();
    for (python, place) in pythons() {
        if !python.flags.contains('d') && seen.insert((python.version.0, python.flags.clone())) {
            let scratch = paths::scratch(&format!("module-records-{}", python.label));
            let library = libraries(&scratch);
            let done = run(&python.path, place, "records.py", &[library.as_os_str()], &scratch);
            assert!(done.code() == 0, "{}: {}", python.label, done.text());
        }
    }
}

/// Without a path, a block is a part of the recording that `uu record --start-paused` makes.
#[test]
fn a_block_is_a_part_of_the_recording_that_goes_on() {
    let Some((python, place)) = pythons().into_iter().next() else { return };
    let scratch = paths::scratch("module-section");
    let library = libraries(&scratch);
    let records = std::fs::read_to_string(paths::source("python/module/records.py")).expect("the program");
    let (functions, _) = records.split_once("def functions").expect("its functions");
    let blocks = "
of_before()
with uunwind.record(labels={'part': 'one'}):
    of_inside()
of_after()
with uunwind.record():
    of_thread()
";
    let program = scratch.join("section.py");
    std::fs::write(&program, format!("{functions}{blocks}")).expect("scratch");
    let configure = |uu: &mut Command| {
        with_module(uu, place);
    };
    let command = [python.path.as_os_str(), program.as_os_str(), library.as_os_str()];
    let recording = uu::record(&scratch, &["-r", "499", "--start-paused"], configure, &command).expect_code(0);
    let sampled = |options: &[&str]| -> Vec<&str> {
        let folded = recording.report_with("folded", options);
        let all = ["of_before", "of_inside", "of_after", "of_thread"];
        all.into_iter().filter(|name| folded.contains(&format!("{name} ("))).collect()
    };
    assert_eq!(sampled(&[]), ["of_inside", "of_thread"]);
    assert_eq!(sampled(&["--filter", "label=part:one"]), ["of_inside"]);
}

/// A program of `ci/readers` that runs with the module on its path, in a folder of its own.
fn reader(program: &str, what: &str) -> Option<(Command, PathBuf)> {
    let (program, place) = (readers::installed(what, &format!("python/bin/{program}"))?, installed()?);
    let scratch = paths::scratch("module-reader");
    let mut command = Command::new(program);
    with_module(&mut command, place).env("XDG_CACHE_HOME", scratch.join("cache"));
    command.env("IPYTHONDIR", scratch.join("ipython")).current_dir(&scratch);
    Some((command, scratch))
}

fn pytest(options: &[&str]) -> Option<(process::Outcome, PathBuf)> {
    let (mut command, scratch) = reader("pytest", "the pytest plugin")?;
    std::fs::copy(paths::source("python/module/test_slow.py"), scratch.join("test_slow.py")).expect("scratch");
    command.args(["-p", "no:cacheprovider"]).args(options);
    Some((process::run(&mut command, &scratch, uu::LIMIT), scratch))
}

#[test]
fn pytest_shows_the_slowest_tests_with_their_stacks() {
    let Some((said, scratch)) = pytest(&["--uu", "--uu-slowest", "3"]) else { return };
    let said = said.expect_code(1);
    let (_, shown) = said.stdout.split_once("uu: slowest tests").expect("the plugin's section");
    let (shown, _) = shown.split_once("all of it: uu view uu-pytest.uu\n").expect("its end");
    let tests: Vec<&str> = shown.split("\n\n").map(str::trim).filter(|test| test.contains("::")).collect();
    assert_eq!(tests.len(), 3, "{shown}");
    // A fixture is a part of its test.
    for (name, seconds, stack) in [
        ("test_of_fixture", 1.0, " slow_fixture (test_slow.py) > burn (test_slow.py)"),
        ("test_by_itself", 0.5, " test_by_itself (test_slow.py) > calls_burn (test_slow.py) > burn (test_slow.py)"),
    ] {
        let test = tests.iter().find(|test| test.contains(&format!("test_slow.py::{name} "))).expect(shown);
        let cpu = test.split("CPU time ").nth(1).and_then(|rest| rest.split(' ').next()?.parse::<f64>().ok());
        assert!(cpu.is_some_and(|cpu| cpu > seconds * 0.8) && test.contains(stack), "{cpu:?} {stack}\n{test}");
    }
    assert!(said.stdout.contains("1 failed, 3 passed") && scratch.join("uu-pytest.uu").exists(), "{}", said.text());
}

#[test]
fn pytest_makes_a_profile_of_each_test() {
    let Some((said, scratch)) = pytest(&["--uu-each", "profiles", "--uu-format", "svg"]) else { return };
    let said = said.expect_code(1);
    let profile = |test: &str| std::fs::read_to_string(scratch.join(format!("profiles/test_slow.py.{test}.svg")));
    let (of_fixture, by_itself) = (profile("test_of_fixture"), profile("test_by_itself"));
    assert!(of_fixture.expect("a profile").contains("slow_fixture"), "{}", said.text());
    let by_itself = by_itself.expect("a profile");
    assert!(by_itself.contains("calls_burn") && !by_itself.contains("slow_fixture"), "{}", said.text());
    assert!(said.stdout.contains("4 profiles in profiles"), "{}", said.text());
}

#[test]
fn pytest_says_what_cannot_be_recorded() {
    for (options, why) in [
        (&["--uu", "--uu-each", "x"][..], "--uu and --uu-each do not go together"),
        (&["--uu", "--uu-output", "/no/such/x.uu"], "cannot write /no/such/x.uu: there is no folder"),
        (&["--uu", "--uu-output", "x.html"], "give a name that ends with .uu"),
        (&["--uu-each", "/dev/null/x"], "the folder /dev/null/x cannot be made"),
    ] {
        let Some((said, _)) = pytest(options) else { return };
        let said = said.expect_code(4);
        assert!(said.stderr.contains(why), "{options:?}: {}", said.text());
    }
    // Without an option, it does nothing.
    let Some((said, scratch)) = pytest(&[]) else { return };
    let said = said.expect_code(1);
    assert!(!said.stdout.contains("uu:") && !scratch.join("uu-pytest.uu").exists(), "{}", said.text());
}

#[test]
fn ipython_profiles_a_statement_and_a_cell() {
    let Some((mut command, scratch)) = reader("ipython", "%uu of IPython") else { return };
    command.args(["--no-banner", "--colors=NoColor"]).arg(paths::source("python/module/magics.ipy"));
    let said = process::run(&mut command, &scratch, uu::LIMIT).expect_code(0);
    let places: Vec<_> = [
        "CPU profile of ",
        " burn (<ipython-input-",
        "uu: result: cell.svg",
        "first second",
        "%uu: this process cannot be recorded: cannot write /no/such/x.html: there is no folder",
        "%%uu: the cell is run, and not 'what is this'",
        "False",
        "<IPython.core.display.HTML object>",
    ]
    .iter()
    .map(|text| said.stdout.find(text))
    .collect();
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?}\n{}", said.text());
    assert!(std::fs::read_to_string(scratch.join("cell.svg")).expect("the page").contains("burn"));
}

/// A kernel ignores SIGINT but for the time of a cell.
#[test]
fn a_notebook_shows_the_page_below_the_cell() {
    let Some((mut command, scratch)) = reader("python3", "%%uu of a Jupyter kernel") else { return };
    if !can(Path::new(command.get_program()), "import ipykernel, jupyter_client") {
        return skips::skipped("%%uu of a Jupyter kernel", "ci/readers could not install it");
    }
    for variable in ["JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"] {
        command.env(variable, scratch.join(variable));
    }
    command.arg(paths::source("python/module/notebook.py"));
    let said = process::run(&mut command, &scratch, uu::LIMIT).expect_code(0);
    let lines: Vec<&str> = said.stdout.lines().collect();
    assert_eq!(lines, ["SIGINT is ignored: True", "a page", "a page", "42", "a summary"], "{}", said.text());
}

#[test]
fn a_virtual_environment_has_it() {
    let Some(python) = interpreters::installed().into_iter().find(|i| can(&i.path, "import ensurepip, venv")) else {
        return skips::skipped("the Python module in a virtual environment", "no interpreter has venv");
    };
    let scratch = paths::scratch("module-venv");
    let place = scratch.join("venv");
    process::run(Command::new(&python.path).args(["-m", "venv", text(&place)]), &scratch, uu::LIMIT).expect_code(0);
    let python = place.join("bin/python");
    pip(&python, &[], &scratch);
    let code = "import sys, uunwind
assert not {'ctypes', 'typing'} & set(sys.modules), 'the command would load them at each start'
import importlib.metadata as m
files = {str(f) for f in m.files('uunwind')}
assert {'uunwind/py.typed', 'uunwind/tree/lib/libuunwind.so.0'} <= files, files
missing = [name for name in uunwind.__all__ if not hasattr(uunwind, name)]
assert not missing and set(uunwind.__all__) <= set(dir(uunwind)), missing
print(uunwind.stack()[0])";
    let mut ask = Command::new(&python);
    let said =
        process::run(ask.args(["-I", "-c", code]).env_remove("UUNWIND_LIBRARY"), &scratch, uu::LIMIT).expect_code(0);
    assert_eq!(said.stdout, "File \"<string>\", line 8 in <module>\n", "{}", said.text());
}

/// Each function of labels.py, with the labels that its samples must have.
const LABELS: [(&str, &str); 11] = [
    ("of_none", ""),
    ("of_plain", "request=/plain"),
    ("of_inner", "http.route=/x, more=yes, user=8"),
    ("of_taken", "http.route=/x"),
    ("of_outer", "http.route=/x, user=7"),
    ("of_task_a", "http.route=/x, task=a, user=7"),
    ("of_task_b", "http.route=/x, task=b, user=7"),
    ("of_child_of_a", "http.route=/x, task=a, user=7"),
    ("of_between", "http.route=/x, user=7"),
    ("of_decorated", "decorated=yes, http.route=/x, user=7"),
    ("of_thread", ""),
];

/// The labels of stacks with each of the functions.
fn labels(json: &Value) -> BTreeMap<String, BTreeSet<String>> {
    let mut found = BTreeMap::<_, BTreeSet<String>>::new();
    for stack in json["stacks"].as_array().expect("stacks") {
        let frames = stack["frames"].as_array().expect("frames").iter();
        let names = frames.filter_map(|frame| json["frames"][frame.as_u64()? as usize]["function"].as_str());
        let of = |name: &str| LABELS.iter().map(|(function, _)| *function).find(|function| *function == name);
        let Some(function) = names.filter_map(of).next() else { continue };
        let pairs = stack["labels"].as_object().into_iter().flatten();
        let line: Vec<_> = pairs.map(|(key, value)| format!("{key}={}", value.as_str().expect("text"))).collect();
        found.entry(function.to_owned()).or_default().insert(line.join(", "));
    }
    found
}

#[test]
fn labels_stay_with_their_task() {
    let expected: BTreeMap<_, _> =
        LABELS.iter().map(|(function, line)| ((*function).to_owned(), BTreeSet::from([(*line).to_owned()]))).collect();
    for (python, place) in pythons() {
        let scratch = paths::scratch(&format!("module-labels-{}", python.label));
        let program = paths::source("python/module/labels.py");
        let configure = |uu: &mut Command| {
            with_module(uu, place);
        };
        let command = [python.path.as_os_str(), program.as_os_str()];
        let recording = uu::record(&scratch, &["-r", "499"], configure, &command).expect_code(0);
        let json: Value = serde_json::from_str(&recording.report("json")).expect("JSON");
        assert_eq!(labels(&json), expected, "{}", python.label);
    }
}

/// With `-p`, too, in recordings that follow each other.
#[test]
fn a_running_program_has_labels() {
    let mut expected: BTreeMap<_, _> =
        LABELS.iter().map(|(function, line)| ((*function).to_owned(), BTreeSet::from([(*line).to_owned()]))).collect();
    // A thread that short has no timer.
    expected.remove("of_thread");
    let Some((python, place)) = pythons().into_iter().next() else { return };
    let scratch = paths::scratch("module-labels-attached");
    let mut command = Command::new(&python.path);
    command.arg(paths::source("python/module/labels.py")).arg("attached");
    let mut running = Running::ready(with_module(&mut command, place));
    for _ in 0..2 {
        let attached = Attached::begin_inside(&scratch, running.pid(), &["-r", "499"]);
        running.say("again");
        assert_eq!(running.line(), "done");
        attached.signal(libc::SIGINT);
        let said = attached.end_alone();
        let mut report = uu::command(&scratch, &["report", "-f", "json", "-o", "-"]);
        let json = process::run(report.arg(scratch.join("recording.uu")), &scratch, uu::LIMIT).expect_code(0).stdout;
        let mut found = labels(&serde_json::from_str(&json).expect("JSON"));
        found.remove("of_thread");
        assert_eq!(found, expected, "{said}");
        running.say("alone");
        assert_eq!(running.line(), "done");
    }
    running.say("end");
    assert_eq!(running.end(), Some(0));
}

/// What the module leaves out of a stack is what `uu report` does.
#[test]
fn glue_is_that_of_the_reports() {
    let Some((python, place)) = pythons().into_iter().next() else { return };
    let scratch = paths::scratch("module-glue");
    let mut ask = Command::new(&python.path);
    ask.args(["-c", "import uunwind._stack as s; print(' '.join(s.GLUE))"]).env("PYTHONPATH", place);
    let said = process::run(&mut ask, &scratch, uu::LIMIT).expect_code(0).stdout;
    let half = uunwind_built_in::HALVES.iter().map(|half| half.language()).find(|l| l.plugin == "python");
    let own: Vec<_> = half.expect("Python's half").glue.into_iter().filter(|glue| !glue.contains('!')).collect();
    assert_eq!(said.split_whitespace().collect::<Vec<_>>(), own);
}

/// The numbers and names by which the module says why a stack ended are those of the header.
#[test]
fn stop_reasons_are_those_of_the_header() {
    let Some((python, place)) = pythons().into_iter().next() else { return };
    let scratch = paths::scratch("module-stops");
    let code = "import uunwind._library as l\nfor s in sorted(l.STOPS.items()): print(*s)";
    let mut ask = Command::new(&python.path);
    ask.args(["-c", code]).env("PYTHONPATH", place);
    let said = process::run(&mut ask, &scratch, uu::LIMIT).expect_code(0).stdout;
    let header = std::fs::read_to_string(paths::root().join("ffi/include/uu_stack.h")).expect("the header");
    let line = |line: &str| {
        let (name, rest) = line.trim().strip_prefix("UU_STOP_")?.split_once(" = ")?;
        let number: u32 = rest.split([',', ' ']).next()?.parse().ok()?;
        Some((number, name.to_lowercase().replace('_', " ")))
    };
    let theirs: Vec<String> =
        header.lines().filter_map(line).map(|(number, name)| format!("{number} {name}")).collect();
    assert_eq!(said.lines().collect::<Vec<_>>(), theirs);
}
