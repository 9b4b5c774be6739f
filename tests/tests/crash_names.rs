//! `uu run --report-crashes`: the names and lines that uu adds to a report when it is written, compared with binutils'
//! addr2line and with Python's own; and that nothing else changes.

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use uunwind_tests::crash_report::Report;
use uunwind_tests::process::Outcome;
use uunwind_tests::{compile, interpreters, paths, process, uu};

const SIGSEGV: i32 = 11;

fn run(scratch: &Path, options: &[&str], configure: impl FnOnce(&mut Command), program: &[&str]) -> Outcome {
    let mut words = vec!["run", "--report-crashes"];
    words.extend(options);
    words.push("--");
    words.extend(program);
    let mut command = uu::command(scratch, &words);
    configure(&mut command);
    process::run(&mut command, scratch, uu::LIMIT)
}

/// Functions, each with its file and line, innermost first, as addr2line has them.
fn by_addr2line(object: &str, address: u64) -> Vec<(String, String)> {
    let done = Command::new("addr2line").args(["-C", "-f", "-i", "-e", object, &format!("{address:#x}")]).output();
    let said = String::from_utf8(done.expect("addr2line (binutils)").stdout).expect("UTF-8");
    let lines: Vec<&str> = said.lines().collect();
    let place = |text: &str| text.split(" (discriminator").next().unwrap_or(text).to_owned();
    lines.chunks(2).map(|pair| (pair[0].to_owned(), place(pair[1]))).collect()
}

fn functions(named: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let all = named["functions"].as_array().expect("functions").iter();
    all.map(|f| (text(&f["function"]), format!("{}:{}", text(&f["file"]), f["line"]))).collect()
}

#[test]
fn native_frames_have_the_functions_and_lines_of_addr2line() {
    let scratch = paths::scratch("crash-names");
    let options = ["-pthread", "-D_FORTIFY_SOURCE=2", "-fstack-protector-all", "-lm"];
    let program = compile::gcc(&scratch, "kinds", &["native/crash_kinds.c"], &options);
    let path = program.canonicalize().expect("it exists").to_str().expect("UTF-8").to_owned();
    for kind in ["callback", "read-only", "detached", "tree"] {
        let out = run(&scratch, &["--json"], |_| {}, &[&path, kind]).expect_code(128 + SIGSEGV);
        let report = Report::one(&out.stderr);
        let mut compared = 0;
        for frame in report.threads.iter().flat_map(|thread| &thread.frames).filter(|frame| frame["object"] == *path) {
            let hexadecimal = frame["file_address"].as_str().expect("an address").trim_start_matches("0x");
            let address = u64::from_str_radix(hexadecimal, 16).expect("hexadecimal");
            let oracle = by_addr2line(&path, address - u64::from(frame["exact"] != true));
            // What the C library adds to a program has no lines.
            if oracle.iter().any(|(_, place)| place.starts_with("??")) {
                continue;
            }
            let is_it = |named: &&Value| named["tid"] == frame["tid"] && named["index"] == frame["index"];
            let named = report.names.iter().find(is_it).unwrap_or_else(|| panic!("{frame}: {}", out.text()));
            assert_eq!(functions(named), oracle, "{frame}");
            compared += 1;
        }
        assert!(compared >= 2, "{kind}: {}", out.text());
    }
    // For people: after the report, which is whole without.
    let out = run(&scratch, &[], |_| {}, &[&path, "read-only"]).expect_code(128 + SIGSEGV);
    let (raw, names) = out.stderr.split_once("\nend of the crash report\n").expect("a whole report");
    assert!(raw.starts_with("uu crash report: SIGSEGV"), "{}", out.text());
    let source = paths::source("native/crash_kinds.c");
    let first = names.lines().find(|line| line.starts_with("    ")).expect("a frame");
    let wanted = format!("    crash_read_only ({}:", source.display());
    assert!(first.starts_with(&wanted), "{first}: {}", out.text());
    assert!(names.ends_with("end of the names\n"), "{}", out.text());
}

/// In the kernel's 15 bytes, or before CPython 3.14 with the process's name only, it would be another one.
#[test]
fn threads_have_the_names_that_python_gives_them() {
    let scratch = paths::scratch("crash-names-python");
    let script = paths::source("python/crash_names.py");
    for python in interpreters::modern() {
        let words = [python.path.to_str().expect("UTF-8"), script.to_str().expect("UTF-8")];
        let out = run(&scratch, &["--json"], |_| {}, &words).expect_code(128 + SIGSEGV);
        let mut wanted: BTreeMap<u64, String> = serde_json::from_str(&out.stdout).expect("ids and names");
        // The first thread has the program's name everywhere.
        wanted.retain(|_, name| name != "MainThread");
        let report = Report::one(&out.stderr);
        let named = report.names.iter().filter(|line| line["type"] == "thread_name");
        let found: BTreeMap<u64, String> = named
            .map(|line| (line["tid"].as_u64().expect("an id"), line["name"].as_str().expect("a name").to_owned()))
            .collect();
        assert_eq!(found, wanted, "{}: {}", python.label, out.text());
        let out = run(&scratch, &[], |_| {}, &words).expect_code(128 + SIGSEGV);
        let names = out.stderr.split_once("\nend of the crash report\n").expect("a whole report").1;
        let titles: Vec<&str> = names.lines().filter(|line| line.starts_with("thread")).collect();
        assert!(titles[0].ends_with(", crashed"), "{names}");
        for name in ["\"reads the queue, long\"", "\"writer\""] {
            assert!(titles[1..].iter().any(|title| title.contains(name)), "{names}");
        }
        let is_glue = |line: &str| line.contains("PyEval_EvalFrame") || line.contains("_PyEval_Vector");
        assert!(!names.lines().any(is_glue), "interpreter's frames are hidden: {names}");
    }
}

/// The file has the report first, whoever adds names to it; and where that one cannot be run, or fails, the report and
/// nothing else.
#[test]
fn a_report_is_whole_whatever_becomes_of_its_names() {
    let scratch = paths::scratch("crash-names-fail");
    let program = compile::gcc(&scratch, "kinds", &["native/crash_kinds.c"], &["-pthread", "-lm"]);
    let path = program.to_str().expect("UTF-8");
    let file = scratch.join("report");
    let options = ["--json", "-o", file.to_str().expect("UTF-8")];
    run(&scratch, &options, |_| {}, &[path, "read-only"]).expect_code(128 + SIGSEGV);
    assert!(!Report::one(&std::fs::read_to_string(&file).expect("a report")).names.is_empty());
    let object = paths::tree().join("lib/uu/libuunwind-crash.so");
    for namer in ["/no/such/program", "/bin/false", "/", "/dev/null", "relative", ""] {
        let mut command = Command::new(path);
        command.arg("read-only").env("LD_PRELOAD", &object).env("UU_REPORT_CRASHES", "2");
        command.env("UU_REPORT_CRASHES_FORMAT", "json").env("UU_REPORT_CRASHES_NAMER", namer);
        let out = process::run(&mut command, &scratch, uu::LIMIT).expect_code(128 + SIGSEGV);
        assert!(Report::one(&out.stderr).names.is_empty(), "{namer}: {}", out.text());
    }
}

/// A program that waits for all its children meets none of ours, and gets no signal of their ends.
#[test]
fn the_program_has_no_child_more() {
    let scratch = paths::scratch("crash-names-children");
    let source = scratch.join("waits.c");
    let text = r#"
        #include <errno.h>
        #include <pthread.h>
        #include <signal.h>
        #include <stdio.h>
        #include <stdlib.h>
        #include <sys/wait.h>
        #include <unistd.h>
        static void on_child(int signal) { (void)signal; write(1, "SIGCHLD\n", 8); }
        static void *waits(void *unused) {
            for (;;) {
                if (wait(NULL) > 0) write(1, "a child\n", 8);
                if (errno != ECHILD) abort();
            }
            return unused;
        }
        int main(void) {
            signal(SIGCHLD, on_child);
            pthread_t thread;
            pthread_create(&thread, NULL, waits, NULL);
            raise(SIGSEGV);
            return 0;
        }"#;
    std::fs::write(&source, text).expect("scratch");
    let program = compile::gcc_files(&scratch, "waits", &[source], &["-pthread", "-Wno-unused-result"]);
    let out = run(&scratch, &["--json"], |_| {}, &[program.to_str().expect("UTF-8")]).expect_code(128 + SIGSEGV);
    assert_eq!(out.stdout, "", "{}", out.text());
    assert!(!Report::one(&out.stderr).names.is_empty(), "{}", out.text());
}
