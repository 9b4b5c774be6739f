//! A program behaves under `uu` as it does without: same exit code, output and signals. The documented differences are
//! LD_PRELOAD and two UU_ variables in its environment, and a few mappings.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::Command;
use uunwind_tests::pair::{both, without_addresses, Pair};
use uunwind_tests::{compile, interpreters, paths, process, skips, uu};

fn words<'a>(program: &'a [&'a str]) -> Vec<&'a OsStr> {
    program.iter().map(OsStr::new).collect()
}

fn native(name: &str, source: &str) -> PathBuf {
    compile::gcc(&paths::scratch(name), name, &[source], &["-pthread"])
}

#[track_caller]
fn short(program: &[&str], expected: i32) {
    let pair = both("short", &["-r", "999"], |_| {}, &words(program));
    assert_eq!(pair.plain.code, expected);
    pair.same();
}

#[test]
fn exit_codes_are_the_programs() {
    short(&["true"], 0);
    short(&["false"], 1);
    short(&["sh", "-c", "echo out; echo err >&2; exit 7"], 7);
    short(&["sh", "-c", "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; exit 200"], 200);
    short(&["sh", "-c", "kill -TERM $$"], 143);
    short(&["sh", "-c", "kill -KILL $$"], 137);
    short(&["sh", "-c", "kill -SEGV $$"], 139);
    short(&["env", "-i", "/bin/sh", "-c", "echo $LD_PRELOAD; exit 3"], 3);
}

#[test]
fn the_programs_state_is_the_same() {
    let program = native("state", "native/state.c");
    let program = [program.as_os_str(), OsStr::new("a b"), OsStr::new("")];
    let documented = |text: &str| {
        let kept = |line: &&str| {
            let name = line.strip_prefix("environment: ").and_then(|e| e.split('=').next());
            !matches!(
                name,
                Some(
                    "LD_PRELOAD"
                        | "UU_SESSION"
                        | "UU_SESSION_OBJECTS"
                        | "UU_SESSION_SOCKET"
                        | "_"
                        | "XDG_CACHE_HOME"
                        | "XDG_CONFIG_HOME"
                )
            )
        };
        text.lines().filter(kept).collect::<Vec<_>>().join("\n")
    };
    let pair = both("state", &["-r", "99"], |_| {}, &program);
    assert!(pair.recorded.stdout.contains("LD_PRELOAD=") && pair.plain.stdout.contains("threads: 1"));
    pair.same_after(documented);
}

#[test]
fn a_preload_of_the_users_own_is_kept() {
    let scratch = paths::scratch("own-preload");
    let watch = compile::shared(&scratch, "own.so", &["native/watch_calls.c"]);
    let pair = both(
        "own-preload",
        &["-r", "99"],
        |c| {
            c.env("LD_PRELOAD", &watch);
        },
        &words(&["sh", "-c", "echo $LD_PRELOAD; exit 5"]),
    );
    assert!(
        pair.recorded.stdout.contains("own.so")
            && ["preload", "alloc", "lock"]
                .iter()
                .any(|name| pair.recorded.stdout.contains(&format!("libuunwind-{name}.so")))
    );
    assert_eq!((pair.plain.code, pair.recorded.code), (5, 5));
}

/// A program that uses signals itself, by SIGPROF.
#[track_caller]
fn signals(mode: &str) {
    signals_with(mode, libc::SIGPROF);
}

/// The same, by the sampler's own signal.
#[track_caller]
fn signals_by_ours(mode: &str) {
    signals_with(mode, libc::SIGSTKFLT);
}

#[track_caller]
fn signals_with(mode: &str, number: i32) {
    let (program, number) = (native("signals", "native/signals.c"), number.to_string());
    let words = [program.as_os_str(), OsStr::new(mode), OsStr::new(&number)];
    let pair = both(&format!("signals-{mode}-{number}"), &["-r", "999"], |_| {}, &words);
    assert_eq!(pair.plain.code, 0, "{:?}", pair.plain);
    pair.same();
}

#[test]
fn waiting_for_all_signals_does_not_see_ours() {
    signals("wait");
    signals_by_ours("wait");
}

/// A signal that is sent to the process is not taken by a thread that blocked it before there was a handler, and that
/// thread is not interrupted.
#[test]
fn a_signal_that_all_threads_block_waits_for_the_first_that_does_not() {
    signals("waits_its_turn");
    signals_by_ours("waits_its_turn");
}

/// The program's own signal is not dropped because a tick with the same signal number is pending.
#[test]
fn a_signal_sent_while_it_is_blocked_is_not_merged_with_a_tick() {
    signals("merged");
}

#[test]
fn blocking_calls_are_not_interrupted() {
    signals("interrupts");
}

#[test]
fn the_programs_own_profiling_timer_works() {
    signals("itimer");
}

/// With little stack: a signal that is sent again must not arrive before the handler that sends it has returned.
#[test]
fn signals_that_the_program_blocks_wait_as_they_were() {
    signals("held");
    signals_by_ours("held");
}

#[test]
fn the_programs_own_signals_arrive_unchanged_after_a_walk() {
    signals("flood");
    signals_by_ours("flood");
}

#[test]
fn write_barriers_by_page_faults_work() {
    signals("barrier");
}

#[test]
fn dispositions_are_reported_as_they_were_set() {
    signals("dispositions");
}

#[test]
fn an_ignored_sampling_signal_stays_ignored() {
    signals("ignored");
    signals_by_ours("ignored");
}

/// The program finds what uu was started with: signals that are ignored, as systemd ignores SIGPIPE, and standard files
/// that are closed.
#[test]
fn ignored_signals_and_closed_files_are_inherited() {
    let scratch = paths::scratch("inherited");
    let looks =
        "for file in 0 1 2; do [ -e /proc/$$/fd/$file ] && echo $file; done >&7; grep SigIgn /proc/$$/status >&7";
    let found = |setting: &str, command: &[&str]| {
        let file = scratch.join("found");
        let script = format!("exec 7>\"$1\"; shift; {setting}; exec \"$@\"");
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", &script, "sh"]).arg(&file).args(command).args(["/bin/sh", "-c", looks]);
        process::run(&mut shell, &scratch, uu::LIMIT);
        let text = std::fs::read_to_string(file).expect("what it found");
        let (files, ignored) = text.split_once("SigIgn:").expect("a line of its status");
        // posix_spawn(3) of glibc leaves its own two signals, 32 and 33, ignored.
        let ignored = u64::from_str_radix(ignored.trim(), 16).expect("a number") & !0x1_8000_0000;
        (files.to_owned(), ignored)
    };
    let uu = paths::uu();
    let uu = uu.to_str().expect("UTF-8");
    let recording = scratch.join("recording.uu");
    let recording = recording.to_str().expect("UTF-8");
    for setting in [":", "trap '' PIPE TERM HUP", "exec <&-", "exec >&- 2>&-", "trap '' PIPE; exec <&- >&-"] {
        let alone = found(setting, &[]);
        let ignored = alone.1 >> (libc::SIGPIPE - 1) & 1 != 0;
        assert!(ignored || !setting.starts_with("trap"), "{setting}");
        let recorded = found(setting, &[uu, "record", "-q", "-o", recording, "--"]);
        assert_eq!(recorded, alone, "recorded, {setting}");
        let run = found(setting, &[uu, "run", "--report-crashes", "--"]);
        assert_eq!(run, alone, "run, {setting}");
    }
}

#[test]
fn threads_cancelled_inside_the_handler_do_no_harm() {
    signals("cancel");
}

/// PTRACE_TRACEME makes a parent the tracer, which uu is without having asked: the ticks must not stop the program.
#[test]
fn programs_that_ask_to_be_traced_run_on() {
    if std::env::var("UU_MODE").is_ok_and(|mode| mode == "wall") {
        skips::skipped("programs that ask to be traced", "--mode wall does not detach from them (docs/limits.md)");
        return;
    }
    if std::env::var("UU_MODE").is_ok_and(|mode| mode == "lock") {
        skips::skipped(
            "programs that ask to be traced",
            "they wait for no lock, so that --mode lock has no ticks and no samples",
        );
        return;
    }
    let program = native("traceme", "native/traceme.c");
    for who in ["main", "child"] {
        let program = [program.as_os_str(), OsStr::new(who)];
        let pair = both(&format!("traceme-{who}"), &["-r", "999"], |_| {}, &program).same();
        assert!(!pair.recording.samples().is_empty(), "{who}");
    }
    // Alone, the first is stopped by the SIGTRAP of its exec, and a parent must wait for the others' threads, too.
    for who in ["exec", "thread", "short"] {
        let program = [program.as_os_str(), OsStr::new(who)];
        let recording = uu::record(&paths::scratch(&format!("traceme-{who}")), &["-r", "999"], |_| {}, &program);
        assert_eq!(recording.expect_code(5).outcome.stdout, "burnt\n", "{who}");
    }
}

/// Node finds out-of-bounds accesses of WebAssembly by SIGSEGV. Completeness is reported, not demanded.
#[test]
fn node_with_wasm_traps_lives() {
    if Command::new("node").arg("--version").output().is_err() {
        skips::skipped("Node with WebAssembly that traps", "there is no node on this machine");
        return;
    }
    let script = paths::source("native/wasm_traps.js");
    let pair = both("node", &["-r", "999"], |_| {}, &[OsStr::new("node"), script.as_os_str()]).same();
    assert!(pair.plain.stdout.contains("traps 100000"));
    let samples = pair.recording.samples();
    let (whole, reasons) = uunwind_tests::samples::completeness(&samples);
    println!("node: {} samples, {:.1} % whole, others {reasons:?}", samples.len(), whole * 100.0);
}

fn python(name: &str, interpreter: &std::path::Path, arguments: &[&str]) -> Pair {
    let mut program = vec![interpreter.as_os_str()];
    program.extend(arguments.iter().map(OsStr::new));
    both(name, &["-r", "999"], |_| {}, &program)
}

/// A real segmentation fault, with and without faulthandler: same report, same end.
#[test]
fn a_real_segfault_is_reported_as_without_us() {
    let crash =
        "import ctypes\ndef f(n):\n    if n: return f(n - 1)\n    ctypes.string_at(0)\nsum(range(3000000)); f(5)";
    for interpreter in interpreters::modern() {
        for options in [&["-X", "faulthandler", "-c", crash][..], &["-c", crash]] {
            let pair = python("segfault", &interpreter.path, options).same_after(without_addresses);
            assert_eq!(pair.plain.code, 139, "{}", interpreter.label);
            let reported = pair.recorded.stderr.contains("Fatal Python error: Segmentation fault");
            assert_eq!(reported, options.len() == 4, "{}: {}", interpreter.label, pair.recorded.stderr);
        }
    }
}

/// Python 3.12 and later warn when a process with threads forks. uu starts no threads in the program.
#[test]
fn fork_under_python_warns_of_nothing() {
    let program =
        "import os, sys\nsum(range(3000000))\npid = os.fork()\nif pid == 0:\n    sum(range(2000000)); os._exit(3)\n\
                   print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), sys.version_info[:2])";
    let mut count = 0;
    for interpreter in interpreters::modern() {
        let pair = python("fork", &interpreter.path, &["-W", "error", "-c", program]).same();
        assert!(pair.recorded.stdout.starts_with("3 ("), "{}: {}", interpreter.label, pair.recorded.stdout);
        assert_eq!(pair.recorded.stderr, "", "{}", interpreter.label);
        count += usize::from(interpreter.version.0 >= 12);
    }
    if count == 0 {
        skips::skipped("fork under Python 3.12 and later", "this machine has no such interpreter");
    }
}

#[test]
fn pools_of_processes_and_threads_work() {
    let program = "import concurrent.futures as c, multiprocessing as m, signal, subprocess\n\
        def f(n): return sum(i * i for i in range(n))\n\
        if __name__ == '__main__':\n\
        \x20   with m.Pool(2) as p: print(sum(p.map(f, [100000] * 8)))\n\
        \x20   with c.ThreadPoolExecutor(8) as t: print(sum(t.map(f, [50000] * 8)))\n\
        \x20   print(subprocess.run(['sh', '-c', 'echo child; exit 4'], capture_output=True))\n\
        \x20   print(signal.getsignal(signal.SIGPROF), signal.getsignal(signal.SIGSEGV))\n";
    for interpreter in interpreters::modern() {
        let scratch = paths::scratch("pools");
        let file = scratch.join("pools.py");
        std::fs::write(&file, program).expect("scratch");
        let pair = python("pools", &interpreter.path, &[file.to_str().expect("UTF-8")]).same();
        assert_eq!(pair.plain.code, 0, "{:?}", pair.plain);
    }
}
