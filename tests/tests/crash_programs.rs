//! `uu run --report-crashes`: programs that know nothing of it, and runtimes with handlers of their own.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use uunwind_tests::crash_report::{Report, Symbols};
use uunwind_tests::process::Outcome;
use uunwind_tests::{compile, interpreters, java, lua, luajit, paths, process, skips, uu};

const SIGSEGV: i32 = 11;

/// Runs `uu run --report-crashes OPTIONS -- PROGRAM`.
fn run<S: Into<OsString>>(scratch: &Path, options: &[&str], program: impl IntoIterator<Item = S>) -> Outcome {
    let mut words: Vec<OsString> = vec!["run".into(), "--report-crashes".into()];
    words.extend(options.iter().map(|option| option.into()));
    words.push("--".into());
    words.extend(program.into_iter().map(Into::into));
    process::run(&mut uu::command(scratch, &words), scratch, uu::LIMIT)
}

/// The line of a script that has this text.
fn line(script: &Path, text: &str) -> u64 {
    let content = std::fs::read_to_string(script).expect("a script");
    1 + content.lines().position(|line| line.contains(text)).expect("the text is there") as u64
}

#[test]
fn python_programs_show_their_functions_and_the_code_that_crashed() {
    let script = paths::source("python/crash.py");
    let file = script.to_str().expect("UTF-8").to_owned();
    let recursion = ("recursion".to_owned(), file.clone(), line(&script, "recursion(n - 1)"));
    let mut wanted = vec![("recursion".to_owned(), file.clone(), line(&script, "ctypes.string_at(0)"))];
    wanted.extend(vec![recursion; 3]);
    wanted.push(("Caller.method".to_owned(), file.clone(), line(&script, "recursion(3)")));
    wanted.push(("<module>".to_owned(), file.clone(), line(&script, "Caller().method()")));
    for python in interpreters::modern() {
        for handler in [&[][..], &["-X", "faulthandler"]] {
            let scratch = paths::scratch("crash-python");
            let report = scratch.join("report.json");
            let words = std::iter::once(python.path.clone().into_os_string())
                .chain(handler.iter().map(OsString::from))
                .chain([script.clone().into_os_string()]);
            let out = run(&scratch, &["--json", "-o", report.to_str().expect("UTF-8")], words);
            let label = format!("{} {handler:?}: {}", python.label, out.text());
            assert_eq!(out.code(), 128 + SIGSEGV, "{label}");
            let fatal = out.stderr.contains("Fatal Python error: Segmentation fault");
            assert_eq!(fatal, !handler.is_empty(), "{label}");
            let report = Report::one(&std::fs::read_to_string(&report).expect("a report"));
            let found = report.crashed().semantic();
            assert_eq!(found[0].0, "string_at", "{label}: {found:?}");
            assert_eq!(found[1..], wanted, "{label}");
            // The C function stands nearer the leaf, the interpreter towards the root.
            let frames = &report.crashed().frames;
            let first = frames.iter().position(|frame| frame["kind"] == "semantic").expect("they are there");
            let objects =
                |frames: &[serde_json::Value]| frames.iter().map(|f| f["object"].to_string()).collect::<String>();
            assert!(objects(&frames[..first]).contains("ctypes"), "{label}: {frames:?}");
            assert!(objects(&frames[first..]).contains("python"), "{label}: {frames:?}");
            // The handler of faulthandler repeats the signal, which has no address.
            assert_eq!(report.crash["address"] == "0x0", handler.is_empty(), "{label}");
            let waiting = &report.threads[1];
            assert!(waiting.semantic().iter().any(|(function, ..)| function == "waits"), "{label}: {waiting:?}");
            assert_eq!(report.threads.len(), 2, "{label}");
        }
    }
}

/// faulthandler in the same program, before us and after us. It has SA_NODEFER and sends the signal again.
#[test]
fn faulthandler_is_a_neighbour_in_both_orders() {
    let scratch = paths::scratch("crash-faulthandler");
    let library = paths::tree().join("lib/libuunwind.so.0");
    let script = "import ctypes, faulthandler, sys\n\
        library, flags, first = ctypes.CDLL(sys.argv[1]), int(sys.argv[2]), sys.argv[3]\n\
        if first == 'faulthandler': faulthandler.enable()\n\
        library.uu_setup()\n\
        assert library.uu_report_crashes(2, flags) == 0\n\
        if first == 'uu': faulthandler.enable()\n\
        ctypes.string_at(0)\n";
    let python = &interpreters::modern()[0];
    for (flags, first, reports) in [("1", "uu", 1), ("3", "uu", 1), ("3", "faulthandler", 1), ("1", "faulthandler", 0)]
    {
        let mut command = Command::new(&python.path);
        command.args(["-c", script]).arg(&library).args([flags, first]).env("XDG_CACHE_HOME", scratch.join("cache"));
        let out = process::run(&mut command, &scratch, uu::LIMIT).expect_code(128 + SIGSEGV);
        let found = Report::all(&out.stderr);
        assert_eq!(found.len(), reports, "{flags} {first}: {}", out.text());
        let is_whole = |report: &Report| report.complete && report.crashed().semantic()[0].0 == "string_at";
        assert!(found.iter().all(is_whole), "{flags} {first}: {}", out.text());
        assert!(out.stderr.contains("Fatal Python error: Segmentation fault"), "{flags} {first}: {}", out.text());
    }
}

#[test]
fn luajit_shows_its_functions_interpreted_and_compiled() {
    let Some(found) = luajit::all().into_iter().find(|found| found.kind == luajit::Kind::Interpreter) else {
        skips::skipped("crash reports of LuaJIT", "there is no luajit on this machine");
        return;
    };
    let script = paths::source("lua/crash_ffi.lua");
    for mode in ["interpreter", "trace"] {
        let scratch = paths::scratch("crash-luajit");
        let mut words = vec![found.ready().program.clone().into_os_string()];
        words.extend((mode == "interpreter").then(|| "-joff".into()));
        words.extend([script.clone().into_os_string(), mode.into()]);
        let out = run(&scratch, &["--json"], words);
        assert_eq!(out.code(), 128 + SIGSEGV, "{mode}: {}", out.text());
        let report = Report::one(&out.stderr);
        let lines: Vec<u64> = report.crashed().semantic().iter().map(|(_, _, line)| *line).collect();
        let wanted = [line(&script, "place[0] = 1"), line(&script, "    store(place)"), line(&script, "caller(i ==")];
        assert_eq!(lines, wanted, "{mode}: {}", out.text());
    }
}

#[test]
fn a_module_of_lua_that_crashes_has_lua_functions_above_it() {
    let Some(found) = lua::all().into_iter().find(|lua| lua.minor == 4 && lua.kind == lua::Kind::Interpreter) else {
        skips::skipped("crash reports of Lua", "there is no lua5.4 on this machine");
        return;
    };
    let scratch = paths::scratch("crash-lua");
    let module = compile::shared(&scratch, "crash_module.so", &["lua/crash_module.c"]);
    let script = paths::source("lua/crash_module.lua");
    let words = [found.ready().program.as_os_str(), script.as_os_str(), module.as_os_str()];
    let out = run(&scratch, &["--json"], words).expect_code(128 + SIGSEGV);
    let report = Report::one(&out.stderr);
    let functions = report.crashed().functions(&Symbols::of(&module));
    assert_eq!(functions, ["crash_in_module", "luaopen_crash_module"], "{}", out.text());
    let lines: Vec<u64> =
        report.crashed().semantic().iter().map(|(_, _, line)| *line).filter(|line| *line > 0).collect();
    let last = std::fs::read_to_string(&script).expect("a script").lines().count() as u64;
    assert_eq!(lines, [line(&script, "require("), line(&script, "    inner()"), last], "{}", out.text());
}

/// V8 and the JVM find their own errors by SIGSEGV: that is no crash.
#[test]
fn runtimes_that_handle_faults_are_left_alone() {
    if Command::new("node").arg("--version").output().is_ok() {
        let scratch = paths::scratch("crash-node");
        let script = paths::source("native/wasm_traps.js");
        let out = run(&scratch, &[], [OsString::from("node"), script.into()]);
        assert!(out.code() == 0 && out.stdout.contains("traps 100000"), "{}", out.text());
        assert!(!out.stderr.contains("crash report"), "{}", out.text());
        let out = run(&scratch, &["--json"], ["node", "-e", "process.abort()"]);
        assert_eq!(out.code(), 128 + 6, "{}", out.text());
        assert_eq!(Report::all(&out.stderr).len(), 1, "{}", out.text());
    } else {
        skips::skipped("Node with crash reports", "there is no node on this machine");
    }
    let scratch = paths::scratch("crash-java");
    if let Some(program) = java::null_checks(&scratch) {
        let out = run(&scratch, &[], program);
        assert_eq!((out.code(), &*out.stdout), (0, java::NULL_CHECKS_SAY), "{}", out.text());
        assert!(!out.stderr.contains("crash report"), "{}", out.text());
    }
}

#[test]
fn threads_of_unmodified_programs_report_a_stack_overflow() {
    let scratch = paths::scratch("crash-overflow");
    let source = scratch.join("overflow.c");
    let text = "#include <pthread.h>\n\
        __attribute__((noinline, noipa)) static int deep(int n) { volatile char room[9000]; room[n & 4095] = 1; return deep(n + 1) + room[0]; }\n\
        static void *worker(void *unused) { int n = deep(0); __asm__ volatile(\"\" ::: \"memory\"); return n ? unused : 0; }\n\
        int main(void) { pthread_t thread; pthread_create(&thread, 0, worker, 0); return pthread_join(thread, 0); }\n";
    std::fs::write(&source, text).expect("scratch");
    let program = compile::gcc_files(&scratch, "overflow", &[source], &["-pthread", "-Wno-infinite-recursion"]);
    let out = run(&scratch, &["--json"], [&program]).expect_code(128 + SIGSEGV);
    let report = Report::one(&out.stderr);
    let functions = report.crashed().functions(&Symbols::of(&program));
    assert_eq!(functions.last().map(|name| &**name), Some("worker"), "{}", out.text());
    assert!(functions.len() > 100 && functions.iter().rev().skip(1).all(|name| name == "deep"), "{}", out.text());
    assert_eq!(report.crash["overflow"], true);
}

#[test]
fn programs_keep_their_exit_code_and_wrong_calls_are_refused() {
    let scratch = paths::scratch("crash-run");
    let out = run(&scratch, &[], ["sh", "-c", "echo out; exit 7"]);
    assert_eq!((out.code(), &*out.stdout, &*out.stderr), (7, "out\n", ""));
    let out = run(&scratch, &["--json"], ["sh", "-c", "kill -SEGV $$"]);
    assert_eq!(
        (out.code(), Report::one(&out.stderr).crash["code"].as_i64()),
        (128 + SIGSEGV, Some(0)),
        "{}",
        out.text()
    );
    let out = run(&scratch, &[], ["no-such-program-here"]);
    assert_eq!(out.code(), 127, "{}", out.text());
    let out = run(&scratch, &["-o", "/no/such/folder/x"], ["true"]);
    assert!(out.code() == 125 && out.stderr.contains("/no/such/folder"), "{}", out.text());
    let out = process::run(&mut uu::command(&scratch, &["run", "--", "true"]), &scratch, uu::LIMIT);
    assert!(out.code() == 125 && out.stderr.contains("--report-crashes is missing"), "{}", out.text());
}
