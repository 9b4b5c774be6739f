//! `uu record --unwind offline`: stacks that are walked from copies are those that the live walk finds; what is missing
//! ends a stack, with its reason.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use uunwind_tests::samples::Sample;
use uunwind_tests::{compile, interpreters, paths, skips, uu};

const EXPLICIT: [&str; 5] = ["--explicit", "-r", "1", "--unwind", "offline"];

/// How often the workloads are repeated.
fn rounds() -> u32 {
    if std::env::var_os("UU_CAMPAIGNS").is_some() {
        40
    } else {
        1
    }
}

/// Records a program whose samples are both walked and copied, and compares. `least`: number of samples, which are
/// returned.
#[track_caller]
fn both(scratch: &Path, program: &[&OsStr], least: u64) -> Vec<Sample> {
    let recording = uu::record(scratch, &["-r", "999", "--unwind", "both"], |_| {}, program).expect_code(0);
    let summary = recording.report("summary");
    let line = summary.lines().find_map(|line| line.trim().strip_prefix("note")?.trim().strip_suffix(FOUND));
    let Some((equal, all)) = line.and_then(|line| line.split_once(" of ")) else { panic!("no comparison: {summary}") };
    println!("{program:?}: {equal} of {all}");
    assert_eq!(equal, all, "{summary}");
    assert!(all.parse::<u64>().is_ok_and(|all| all >= least), "{all} samples: {summary}");
    // What stands beside samples counts for nothing.
    let samples = recording.samples();
    assert_eq!(samples.len().to_string(), all, "a copy for each sample, and no more");
    samples
}

const FOUND: &str = " copies of stacks lead to the machine frames that the live walk found";

const PYTHON: &str = "
import json, re, sys
def fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)
for _ in range(int(sys.argv[1])):
    d = {str(i): list(range(20)) for i in range(50)}
    for i in range(60):
        json.loads(json.dumps(d))
        sorted(d, key=lambda k: int(k))
        re.sub('[0-9]+', lambda m: m.group()[::-1], str(d))
    fib(17)
";

#[test]
fn copies_of_python_lead_to_the_live_stacks() {
    let Some(python) = interpreters::modern().into_iter().next() else {
        return skips::skipped("Copies of CPython's stacks", "this machine has no CPython of 3.11 or later");
    };
    let repeats = (4 * rounds()).to_string();
    let program = [python.path.as_os_str(), "-c".as_ref(), PYTHON.as_ref(), repeats.as_ref()];
    both(&paths::scratch("offline-python"), &program, 5);
}

#[test]
fn copies_of_a_compiler_lead_to_the_live_stacks() {
    let scratch = paths::scratch("offline-cc1");
    let source = scratch.join("many.c");
    let function = |n: u32| {
        format!("int f{n}(int x){{int s=0;for(int i=0;i<x;i++){{s+=i*{n};switch(s%7){{case 0:s++;break;case 3:s-=x;}}}}return s;}}\n")
    };
    std::fs::write(&source, (0..200 * rounds()).map(function).collect::<String>()).expect("scratch");
    let program =
        ["gcc".as_ref(), "-O2".as_ref(), "-S".as_ref(), "-o".as_ref(), "/dev/null".as_ref(), source.as_os_str()];
    both(&scratch, &program, 5);
}

#[test]
fn copies_of_rust_lead_to_the_live_stacks() {
    let scratch = paths::scratch("offline-rust");
    let program = compile::rustc(&scratch, "sorted", "native/sorted.rs", &[]);
    let repeats = (20 * rounds()).to_string();
    both(&scratch, &[program.as_os_str(), repeats.as_ref()], 5);
}

/// A function's frame pointer may lie below the stack pointer of the function that it has called.
/// Runs until samples of each place have come, of which one mostly suffices.
const RUNS: usize = 50;

#[test]
fn copies_have_what_lies_in_the_red_zone() {
    let scratch = paths::scratch("offline-red-zone");
    let program = compile::gcc(&scratch, "red_zone", &["native/red_zone.c"], &["-O1", "-fno-omit-frame-pointer"]);
    let repeats = (10 * rounds()).to_string();
    // On a busy machine a run meets few ticks: samples are taken until each place has one.
    let mut missing = vec![("popped", false), ("popped", true), ("saved", false), ("saved", true)];
    for _ in 0..RUNS {
        let samples = both(&scratch, &[program.as_os_str(), repeats.as_ref()], 1);
        missing.retain(|(function, handled)| {
            !samples.iter().any(|sample| {
                let names = sample.native_names();
                let at = names.iter().position(|name| name == function);
                let caller = at.and_then(|at| names.get(at + 1)).copied();
                names.contains(&"on_signal") == *handled
                    && caller.and_then(|c| c.strip_prefix("calls_")) == Some(function)
            })
        });
        if missing.is_empty() {
            return;
        }
    }
    panic!("in {RUNS} runs there was no sample of (function, whether a handler interrupts it): {missing:?}");
}

#[test]
fn copies_of_a_database_lead_to_the_live_stacks() {
    let query = format!(
        "with recursive c(x) as (select 1 union all select x + 1 from c where x < {}) \
         select count(*), sum(length(printf('%d-%d', x, x * x))) from c order by 1;",
        150_000 * rounds()
    );
    if !Path::new("/usr/bin/sqlite3").is_file() {
        return skips::skipped("Copies of sqlite3's stacks", "it is not installed");
    }
    let program: Vec<&OsStr> = ["/usr/bin/sqlite3", ":memory:", &query].into_iter().map(OsStr::new).collect();
    both(&paths::scratch("offline-sqlite"), &program, 5);
}

/// The explicit samples of `native/copied.c`, in their order.
fn copied(scratch: &Path) -> (uu::Recording, PathBuf, Vec<Sample>) {
    let program = compile::gcc(scratch, "copied", &["native/copied.c"], &["-pthread", "-Wl,--build-id"]);
    let recording = uu::record(scratch, &EXPLICIT, |_| {}, &[program.as_os_str()]).expect_code(0);
    let samples = explicit(&recording);
    (recording, program, samples)
}

fn explicit(recording: &uu::Recording) -> Vec<Sample> {
    let mut samples: Vec<_> = recording.samples().into_iter().filter(|sample| sample.kind == "explicit").collect();
    samples.sort_by_key(|sample| sample.time);
    samples
}

/// The program's own functions in a stack, leaf first, each once where it calls itself.
fn own(sample: &Sample) -> Vec<&str> {
    const OWN: [&str; 7] = ["sample_me", "deep", "on_signal", "interrupted", "in_thread", "in_context", "main"];
    let mut names: Vec<_> = sample.native_names().into_iter().filter(|name| OWN.contains(name)).collect();
    names.dedup();
    names
}

#[test]
fn every_stack_of_a_thread_is_copied_and_a_cut_is_said() {
    let (_, _, samples) = copied(&paths::scratch("offline-copied"));
    let [deep, alternate, thread, context] = &samples[..] else { panic!("{} samples", samples.len()) };
    assert_eq!(own(deep), ["sample_me", "deep"], "{}", deep.text());
    assert_eq!((deep.stop, deep.native_names().len() > 200), (53, true), "{}", deep.text());
    assert_eq!(own(alternate), ["sample_me", "on_signal", "interrupted", "main"], "{}", alternate.text());
    assert_eq!(own(thread), ["sample_me", "in_thread"], "{}", thread.text());
    assert_eq!(own(context), ["sample_me", "in_context"], "{}", context.text());
    for sample in [alternate, thread, context] {
        assert!(sample.complete(), "{}", sample.text());
    }
}

#[test]
fn a_report_without_the_files_names_them_and_guesses_nothing() {
    let scratch = paths::scratch("offline-elsewhere");
    let (recording, program, here) = copied(&scratch);
    let folder = scratch.join("files");
    std::fs::create_dir(&folder).expect("scratch");
    std::fs::rename(&program, folder.join("renamed")).expect("scratch");
    let away = explicit(&recording);
    for (away, here) in away.iter().zip(&here) {
        // The leaf lies in the program.
        assert_eq!((away.stop, away.addresses()), (31, here.addresses()[..1].to_vec()), "{}", away.text());
    }
    let summary = recording.report("summary");
    assert!(summary.contains("4 stacks end in ") && summary.contains("copied (build-id "), "{summary}");
    std::fs::rename(folder.join("renamed"), folder.join("copied")).expect("scratch");
    let text = recording.report_with("samples", &["--debug-dir", folder.to_str().expect("UTF-8")]);
    let mut again = uunwind_tests::samples::parse(&text).expect("samples");
    again.retain(|sample| sample.kind == "explicit");
    again.sort_by_key(|sample| sample.time);
    for (again, here) in again.iter().zip(&here) {
        assert_eq!(
            (again.stop, again.addresses(), own(again)),
            (here.stop, here.addresses(), own(here)),
            "{}",
            again.text()
        );
    }
}
