//! `libuunwind-compat.so` with `UU_LANGUAGE_FRAMES=1`: libunwind's cursors show the frames of Python and Lua by name,
//! as the runtimes themselves see them, beside the machine frames that there are without it.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use uunwind_tests::embedded::{self, libraries};
use uunwind_tests::lua::{self, Kind};
use uunwind_tests::process::{self, Outcome};
use uunwind_tests::samples::KEPT;
use uunwind_tests::{compile, interpreters, oracle, paths, skips, uu};

const VARIABLE: &str = "UU_LANGUAGE_FRAMES";

fn object() -> PathBuf {
    paths::tree().join("lib/uu/libuunwind-compat.so")
}

/// `targets/compat/cursor_samples.c`, and a cache of what `uu_setup()` finds, for all programs of one run.
fn sampler() -> &'static Path {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    MADE.get_or_init(|| {
        let scratch = paths::scratch("compat-cursor-samples");
        let options = ["-shared", "-fPIC", "-lunwind"];
        compile::gcc(&scratch, "libcursors.so", &["compat/cursor_samples.c"], &options)
    })
}

/// One stack, leaf first.
struct Stack {
    tid: u32,
    /// What the last unw_step() returned.
    end: String,
    machine: Vec<String>,
    languages: Vec<String>,
}

fn parsed(line: &str) -> Stack {
    let mut fields: Vec<&str> = line.split_terminator('\x1f').collect();
    let end = fields.pop().expect("an end").to_owned();
    let tid = fields.remove(0).parse().expect("a thread's id");
    let of = |kind| fields.iter().filter_map(|field| field.strip_prefix(kind)).map(str::to_owned).collect();
    Stack { tid, end, machine: of("N"), languages: of("L") }
}

/// Runs a program that sends itself SIGPROF. With the variable: with the frames of languages.
fn stacks(scratch: &Path, with: bool, command: &mut Command) -> Vec<Stack> {
    let samples = scratch.join(if with { "with" } else { "without" });
    let preload = [object().as_os_str(), sampler().as_os_str()].join(OsStr::new(":"));
    command.env("LD_PRELOAD", preload).env("UU_TEST_SAMPLES", &samples).env_remove(VARIABLE);
    command.env("XDG_CACHE_HOME", sampler().with_file_name("cache"));
    if with {
        command.env(VARIABLE, "1");
    }
    process::run(command, scratch, uu::LIMIT).expect_code(0);
    String::from_utf8_lossy(&std::fs::read(&samples).expect("samples")).lines().map(parsed).collect()
}

/// Compares the frames of languages with the runtime's own view of the stacks of each thread.
fn compare(name: &str, found: &[Stack], expected: &[(u32, Vec<String>)]) {
    assert_eq!(found.len(), expected.len(), "{name}");
    assert!(!found.is_empty(), "{name}");
    let mut left: Vec<&Stack> = found.iter().collect();
    for (tid, want) in expected {
        let index =
            left.iter().position(|stack| stack.tid == *tid).unwrap_or_else(|| panic!("{name}: no thread {tid}"));
        let stack = left.remove(index);
        let is_left_out = |frame: &String| frame.ends_with(" frames left out]");
        match stack.languages.iter().position(is_left_out) {
            None => assert_eq!(stack.languages, *want, "{name}"),
            Some(at) => {
                let (inner, outer) = (&stack.languages[..at], &stack.languages[at + 1..]);
                assert!(inner == &want[..at] && want.ends_with(outer), "{name}: {:?}", stack.languages);
                assert!(at > 0 && at <= KEPT.0 && outer.len() <= KEPT.1, "{name}: {at} and {}", outer.len());
            }
        }
        assert_eq!(stack.end, "0", "{name}: {:?} beside {:?}", stack.machine, stack.languages);
    }
}

/// With the variable as the runtime says, and without it the same machine frames alone.
fn agree(name: &str, scratch: &Path, run: impl Fn(bool) -> Vec<Stack>, expected: impl Fn() -> Vec<(u32, Vec<String>)>) {
    let with = run(true);
    compare(name, &with, &expected());
    let _ = std::fs::remove_file(scratch.join("oracle"));
    let without = run(false);
    assert_eq!(without.len(), with.len(), "{name}");
    // Threads take their samples in any order.
    let is_alone = with.iter().all(|stack| stack.tid == with[0].tid);
    for (with, without) in with.iter().zip(&without) {
        assert!(without.languages.is_empty(), "{name}: {:?}", without.languages);
        let is_cut = with.languages.iter().any(|frame| frame.ends_with(" frames left out]"));
        let is_same = with.machine == without.machine;
        assert!(is_same || is_cut || !is_alone, "{name}: {:?}, {:?}", with.machine, without.machine);
    }
}

fn python(oracle_file: &Path) -> Vec<(u32, Vec<String>)> {
    let texts = |line: &oracle::Expected| line.frames.iter().map(oracle::ExpectedFrame::text).collect();
    oracle::read(oracle_file).iter().map(|line| (line.tid, texts(line))).collect()
}

#[test]
fn a_program_with_python_in_it() {
    let found = libraries();
    if found.is_empty() {
        skips::skipped("embedded CPythons by libunwind's cursors", "this machine has no libpython");
    }
    // The preloaded objects need this machine's C library.
    for library in found.iter().filter(|library| library.with.is_none()) {
        let name = format!("compat-embed-{}", library.label);
        let scratch = paths::scratch(&name);
        let embedding = embedded::build(&scratch, "local", "in-turn", &[library]);
        let run = |with| {
            let mut command = Command::new(&embedding.words[0]);
            embedding.configure(&mut command);
            stacks(&scratch, with, command.args(&embedding.words[1..]))
        };
        agree(&name, &scratch, run, || python(&embedding.oracle));
    }
}

#[test]
fn pythons() {
    for interpreter in interpreters::modern() {
        for program in ["recursion", "generators", "c_callback", "threads", "deep_recursion"] {
            let name = format!("compat-{}-{program}", interpreter.label);
            let scratch = paths::scratch(&name);
            let cap = compile::shared(&scratch, "libcap.so", &["python/cap.c"]);
            let oracle_file = scratch.join("oracle");
            let run = |with| {
                let mut command = Command::new(&interpreter.path);
                command.arg(paths::source(&format!("python/{program}.py"))).env("UU_TEST_CAP", &cap);
                command.env("UU_TEST_ORACLE", &oracle_file).env("PYTHONDONTWRITEBYTECODE", "1");
                stacks(&scratch, with, &mut command)
            };
            agree(&name, &scratch, run, || python(&oracle_file));
        }
    }
}

#[test]
fn luas() {
    for lua in lua::tried(&[Kind::Interpreter, Kind::Library, Kind::Stripped]) {
        for script in ["nested", "errors", "callbacks", "middle"] {
            let name = format!("compat-{}-{script}", lua.label());
            let (scratch, ready) = (paths::scratch(&name), lua.ready());
            let oracle_file = scratch.join("oracle");
            let run = |with| {
                let mut command = Command::new(&ready.program);
                ready.configure(&mut command, &oracle_file);
                stacks(&scratch, with, command.arg(lua::script(script)))
            };
            let text = |frame: &lua::ExpectedFrame| match frame.line {
                0 => format!("{} ({})", frame.name, frame.file),
                line => format!("{} ({}:{line})", frame.name, frame.file),
            };
            let texts = |line: &lua::Expected| (line.tid, line.frames.iter().map(text).collect());
            agree(&name, &scratch, run, || lua::read(&oracle_file).iter().map(texts).collect());
        }
    }
}

/// gperftools' heap profiler keeps addresses alone, and never asks for names: functions have a number each, between the
/// frames that it shows without them.
#[test]
fn profilers_that_ask_for_no_names_tell_functions_apart() {
    let Some(python) = interpreters::modern().into_iter().next() else {
        return skips::skipped("Python under gperftools with frames of languages", "this machine has no CPython");
    };
    let scratch = paths::scratch("compat-heap-of-python");
    let stack = |value: &str| {
        let prefix = scratch.join(format!("heap{value}"));
        let mut command = Command::new(&python.path);
        command.arg(paths::source("compat/heap.py")).env(VARIABLE, value).env("HEAPPROFILE", &prefix);
        command.env("LD_PRELOAD", format!("{}:libtcmalloc.so.4", object().display()));
        process::run(command.env("TCMALLOC_STACKTRACE_METHOD", "libunwind"), &scratch, uu::LIMIT).expect_code(0);
        let profile = std::fs::read_to_string(prefix.with_extension("0001.heap")).expect("a heap profile");
        let address = |word: &str| u64::from_str_radix(word.trim_start_matches("0x"), 16).expect("hexadecimal");
        let mut blocks: BTreeMap<Vec<u64>, u64> = BTreeMap::new();
        for (counts, stack) in profile.lines().skip(1).filter_map(|line| line.split_once('@')) {
            let (count, bytes) = counts.split('[').next().and_then(|held| held.split_once(':')).expect("counts");
            let [count, bytes] = [count, bytes].map(|number| number.trim().parse::<u64>().expect("a number"));
            if count > 0 && bytes == count * 100_000 {
                // Until what the program has opened is set up, a last step says that.
                let stack = stack.split_whitespace().map(address).filter(|address| address >> 56 != 4);
                *blocks.entry(stack.collect()).or_default() += count;
            }
        }
        let all: Vec<(Vec<u64>, u64)> = blocks.into_iter().collect();
        let [(stack, 300)] = &all[..] else { panic!("{value}: {all:x?}") };
        stack.clone()
    };
    let (with, without) = (stack("1"), stack(""));
    let is_function = |address: &u64| address >> 56 == 2;
    let functions: Vec<u64> = with.iter().copied().filter(is_function).collect();
    // inner, outer and the module.
    let are_different = functions.iter().collect::<BTreeSet<_>>().len() == functions.len();
    assert!(functions.len() == 3 && are_different, "{with:x?}");
    assert_eq!(with.len() - functions.len(), without.len(), "{with:x?} and {without:x?}");
    assert!(!without.iter().any(is_function), "{without:x?}");
}

fn refused(scratch: &Path, preload: &Path, word: &str, asked: bool) -> Outcome {
    let (include, library) = (paths::tree().join("include"), paths::tree().join("lib"));
    let [include, rpath] = [format!("-I{}", include.display()), format!("-Wl,-rpath,{}", library.display())];
    let library = library.join("libuunwind.so.0").display().to_string();
    let options = [&*include, &library, &rpath, "-lunwind", "-rdynamic"];
    let program = compile::gcc(scratch, "refused", &["compat/refused.c"], &options);
    let mut command = Command::new(program);
    command.arg(word).env("LD_PRELOAD", preload).env(VARIABLE, if asked { "1" } else { "" });
    process::run(&mut command, scratch, uu::LIMIT).expect_code(0)
}

/// Where no whole walk can be taken, the machine frames are there, and the last step says what is missing.
#[test]
fn what_is_missing_is_said() {
    let scratch = paths::scratch("compat-refused");
    for (word, function, why) in [
        ("inside", "main", "[frames of languages are missing: the thread is inside another walk"),
        ("other", "waits", "[frames of languages are missing: the stack may be another one"),
    ] {
        let [with, without] = [true, false].map(|asked| refused(&scratch, &object(), word, asked));
        let mut lines: Vec<&str> = with.stdout.lines().collect();
        assert!(lines.contains(&function), "{}", with.text());
        let said = lines.remove(lines.len() - 2);
        assert!(said.starts_with(why), "{}", with.text());
        assert_eq!(lines, without.stdout.lines().collect::<Vec<_>>(), "{word}");
    }
}

/// Without the object that sets up, stacks are as without the variable, and one line says why.
#[test]
fn without_a_set_up_it_is_said_once() {
    let scratch = paths::scratch("compat-no-setup");
    let folder = scratch.join("lib/uu");
    std::fs::create_dir_all(&folder).expect("scratch");
    let lonely = folder.join("libuunwind-compat.so");
    std::fs::copy(object(), &lonely).expect("a copy");
    let library = paths::tree().join("lib/libuunwind.so.0");
    std::fs::copy(library, scratch.join("lib/libuunwind.so.0")).expect("a copy");
    // Not by the program's path to the library, which has the set-up beside it.
    let program = compile::gcc(&scratch, "allocates", &["compat/allocates.c"], &[]);
    let run = |preload: &Path, program: &Path, value: &str| {
        let mut command = Command::new(program);
        command.arg("1").env("LD_PRELOAD", preload).env(VARIABLE, value);
        process::run(&mut command, &scratch, uu::LIMIT).expect_code(0)
    };
    let with = run(&lonely, &program, "1");
    let expected = "uu: no frames of languages: uu_setup_with() failed";
    assert!(with.stderr.lines().count() == 1 && with.stderr.starts_with(expected), "{}", with.text());
    // Only "1" asks for them.
    for value in ["", "0", "yes"] {
        assert_eq!(run(&lonely, &program, value).stderr, "", "{value}");
    }
}
