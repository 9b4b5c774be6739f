//! `uu dump`: the stacks of a running process, from outside, beside what its threads say of themselves.

use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use uunwind_tests::dumps::{expect_names, functions, threads};
use uunwind_tests::running::{all_sleep, wait_for, Running};
use uunwind_tests::{compile, held, interpreters, paths, process, registered, skips, uu};

fn native(name: &str, options: &[&str]) -> (PathBuf, PathBuf) {
    let scratch = paths::scratch(name);
    let options: Vec<&str> = ["-pthread"].iter().chain(options).copied().collect();
    let program = compile::gcc(&scratch, "dumped", &["native/dumped.c"], &options);
    (scratch, program)
}

fn dump(scratch: &Path, pid: u32, options: &[&str]) -> Value {
    let mut command = uu::command(scratch, &["dump", "--json", "-p"]);
    command.arg(pid.to_string()).args(options);
    let out = process::run(&mut command, scratch, uu::LIMIT).expect_code(0);
    serde_json::from_str(&out.stdout).unwrap_or_else(|why| panic!("{why}: {}", out.text()))
}

/// The thread with this function, whose known functions must be this chain.
fn expect_chain(dump: &Value, chain: &[&str]) -> Value {
    let of = threads(dump).iter().find(|thread| functions(thread).contains(&chain[0]));
    let thread = of.unwrap_or_else(|| panic!("no thread in {}: {dump:#}", chain[0]));
    let known: Vec<&str> = functions(thread).into_iter().filter(|function| chain.contains(function)).collect();
    assert_eq!(known, chain, "{thread:#}");
    assert_eq!(thread["complete"], Value::Bool(true), "{thread:#}");
    thread.clone()
}

fn expect_all(dump: &Value) {
    assert_eq!(threads(dump).len(), 4, "{dump:#}");
    let events = expect_chain(dump, &["waits_for_events", "in_events"]);
    assert_eq!((&events["state"], &events["system_call"]), (&"waiting".into(), &"epoll_wait".into()));
    let bytes = expect_chain(dump, &["waits_for_bytes", "in_bytes"]);
    assert_eq!((&bytes["state"], &bytes["system_call"]), (&"waiting".into(), &"read".into()));
    let main = expect_chain(dump, &["waits_for_the_end", "main"]);
    assert_eq!(main["system_call"], "read");
    expect_chain(dump, &["spins", "in_loop"]);
}

/// Thirty looks, of which none ends a system call in which a thread waits.
#[test]
fn threads_of_a_program_are_shown_and_do_not_notice_it() {
    let (scratch, program) = native("dump-native", &[]);
    let mut running = Running::start(&mut Command::new(&program));
    assert_eq!(running.line(), "ready");
    for _ in 0..30 {
        let dump = dump(&scratch, running.pid(), &[]);
        expect_all(&dump);
        let spins = threads(&dump).iter().find(|thread| functions(thread).contains(&"spins")).expect("the loop");
        assert_eq!(spins["state"], "running", "{spins:#}");
    }
    assert_eq!(running.end(), Some(0), "no call was interrupted");
}

/// Forty kinds of waits and more, those among them that any stop ends with EINTR: none notices ten looks.
#[test]
fn no_wait_notices_a_look() {
    let scratch = paths::scratch("dump-waits");
    let program = compile::gcc(&scratch, "waits", &["native/waits.c"], &["-pthread"]);
    let mut running = Running::start(&mut Command::new(&program));
    let count: usize = running.line().strip_prefix("ready ").expect("ready").parse().expect("a number");
    assert!(count > 40, "{count}");
    for look in 0..10 {
        // After a look, each thread goes back to its call.
        while !all_sleep(running.pid()) {
            std::thread::yield_now();
        }
        let dump = dump(&scratch, running.pid(), &[]);
        let waiting: Vec<&Value> = threads(&dump).iter().skip(1).collect();
        assert_eq!(waiting.len(), count, "{dump:#}");
        for thread in waiting {
            assert_eq!(thread["state"], "waiting", "{thread:#}");
            // The kernel goes on with a call that has a time limit by another one (restart_syscall(2)).
            let call = thread["system_call"].as_str().expect("a call");
            let name = thread["name"].as_str().expect("a name");
            let has_limit = ["nanosleep", "clock_nanosleep", "poll", "futex"].contains(&name);
            assert!(call == name || look > 0 && has_limit && call == "restart_syscall", "{thread:#}");
            assert_eq!(thread["complete"], true, "{thread:#}");
        }
    }
    assert_eq!(running.end(), Some(0), "some call was interrupted");
}

/// Of its own parent and the children of that, uu shows all but itself.
#[test]
fn uu_does_not_show_itself() {
    let scratch = paths::scratch("dump-parent");
    let dump = uu::command(&scratch, &["dump", "--json", "-s", "-p"]);
    let mut shell = Command::new("sh");
    shell.arg("-c").arg("\"$@\" $$; exit $?").arg("sh").arg(dump.get_program()).args(dump.get_args());
    process::environment_of(&dump, &mut shell);
    let out = process::run(&mut shell, &scratch, uu::LIMIT).expect_code(0);
    assert_eq!((out.stdout.lines().count(), &*out.stderr), (1, ""), "{}", out.stdout);
}

/// The children of a process, which wait in it for two of its threads, each in a line of its own.
#[test]
fn children_are_shown_if_that_is_wanted() {
    let scratch = paths::scratch("dump-children");
    let program = compile::gcc(&scratch, "waits", &["native/waits.c"], &["-pthread"]);
    let mut running = Running::start(&mut Command::new(&program));
    assert!(running.line().starts_with("ready "));
    let shown = |options: &[&str]| -> Vec<Value> {
        let mut command = uu::command(&scratch, &["dump", "--json", "-p"]);
        command.arg(running.pid().to_string()).args(options);
        let out = process::run(&mut command, &scratch, uu::LIMIT).expect_code(0);
        out.stdout.lines().map(|line| serde_json::from_str(line).expect("an object")).collect()
    };
    assert_eq!(shown(&[]).len(), 1);
    let all = shown(&["-s"]);
    let names: BTreeSet<&str> = all.iter().skip(1).filter_map(|dump| threads(dump)[0]["name"].as_str()).collect();
    assert_eq!(names, BTreeSet::from(["wait4", "waitid"]), "{all:#?}");
    for child in &all[1..] {
        let [thread] = threads(child) else { panic!("{child:#}") };
        assert_eq!((&thread["system_call"], &thread["complete"]), (&"pause".into(), &true.into()), "{thread:#}");
        assert!(functions(thread).contains(&"waits"), "{thread:#}");
    }
    assert_eq!(running.end(), Some(0), "some call was interrupted");
}

#[test]
fn static_programs_are_shown() {
    let (scratch, program) = native("dump-static", &["-static"]);
    let mut running = Running::start(&mut Command::new(&program));
    assert_eq!(running.line(), "ready");
    expect_all(&dump(&scratch, running.pid(), &[]));
    assert_eq!(running.end(), Some(0));
}

/// A stopped process is shown, and stays stopped.
#[test]
fn stopped_programs_are_shown_and_stay_stopped() {
    let (scratch, program) = native("dump-stopped", &[]);
    let mut running = Running::start(&mut Command::new(&program));
    assert_eq!(running.line(), "ready");
    let pid = running.pid();
    let state = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("stat");
        stat.rsplit(')').next().and_then(|rest| rest.chars().nth(1))
    };
    // SAFETY: plain system call; the child is not waited for yet.
    unsafe { libc::kill(pid as libc::pid_t, libc::SIGSTOP) };
    while state() != Some('T') {
        std::thread::yield_now();
    }
    let dump = dump(&scratch, pid, &[]);
    assert!(threads(&dump).iter().all(|thread| thread["state"] == "stopped"), "{dump:#}");
    expect_chain(&dump, &["waits_for_bytes", "in_bytes"]);
    expect_chain(&dump, &["spins", "in_loop"]);
    while state() != Some('T') {
        std::thread::yield_now();
    }
    // SAFETY: as above.
    unsafe { libc::kill(pid as libc::pid_t, libc::SIGCONT) };
    let code = running.end();
    assert!(matches!(code, Some(0 | 1)), "SIGSTOP itself ends epoll_wait: {code:?}");
}

/// Who holds what others wait for: each kind of mutex, reader-writer locks, the end of a thread; and nothing where the
/// word that a thread waits on is not proved to be a lock of glibc's, or its holder is not in this process.
#[test]
fn the_thread_that_others_wait_for_is_named() {
    let scratch = paths::scratch("dump-held");
    for (name, options) in [("held", &["-pthread"][..]), ("held-static", &["-pthread", "-static"])] {
        let program = compile::gcc(&scratch, name, &["native/held.c"], options);
        let mut running = Running::start(&mut Command::new(&program));
        let said = held::said(&mut running);
        // After a look, each thread goes back to its call, some of them as restart_syscall(2).
        for look in ["first", "second"] {
            let dump = dump(&scratch, running.pid(), &[]);
            held::expect(&dump, &said, |tid| tid, &format!("{name}, {look} look"));
            while !all_sleep(running.pid()) {
                std::thread::yield_now();
            }
        }
        let mut command = uu::command(&scratch, &["dump", "-p"]);
        let shown = process::run(command.arg(running.pid().to_string()), &scratch, uu::LIMIT).expect_code(0).stdout;
        for text in [
            "waiting in futex, waits for a mutex that thread ",
            "waits for a mutex that it holds itself",
            "waits for a read-write lock that thread ",
            " holds for writing",
            "waits for a read-write lock that 2 threads hold for reading",
            "waits for the end of thread ",
            "deadlock: threads wait for each other in a circle: ",
            "deadlock: thread ",
        ] {
            assert!(shown.contains(text), "{text}: {shown}");
        }
        assert_eq!(running.end(), Some(0), "{name}");
    }
}

/// Code that is registered at run time is walked by its unwind data, which is read from the process's memory: windows
/// of `uu.h`, what libgcc keeps, objects of GDB's interface.
#[test]
fn code_registered_at_run_time_is_walked_by_its_rules() {
    let scratch = paths::scratch("dump-registered");
    for (program, ways) in registered::programs(&scratch) {
        let mut running = Running::start(&mut Command::new(&program));
        let captured: Vec<usize> = ways.iter().map(|(name, _)| captured(&running.line(), name)).collect();
        assert_eq!(running.line(), "ready");
        while !all_sleep(running.pid()) {
            std::thread::yield_now();
        }
        registered::expect(&dump(&scratch, running.pid(), &[]), ways, &captured);
        assert_eq!(running.end(), Some(0));
    }
}

/// What other versions of libgcc keep, each in its way, is read, too: those of other suites (trees since GCC 13), and
/// the one in a static program.
#[test]
fn registrations_are_found_in_other_versions_of_libgcc() {
    let scratch = paths::scratch("dump-libgcc");
    let [_, (program, ways)] = registered::programs(&scratch);
    let mut commands = vec![Command::new(registered::static_program(&scratch))];
    let others = registered::other_libgccs();
    if others.is_empty() {
        skips::skipped("registrations in a newer libgcc", "ci/interpreters has fetched none");
    }
    for libgcc in others {
        let mut command = Command::new(&program);
        command.env("LD_PRELOAD", libgcc);
        commands.push(command);
    }
    for mut command in commands {
        let mut running = Running::start(&mut command);
        ways.iter().for_each(|(name, _)| assert_eq!(captured(&running.line(), name), 0));
        assert_eq!(running.line(), "ready");
        while !all_sleep(running.pid()) {
            std::thread::yield_now();
        }
        registered::expect(&dump(&scratch, running.pid(), &[]), ways, &[0; 4]);
        assert_eq!(running.end(), Some(0));
    }
}

/// The number in a line that a thread of this name has printed.
fn captured(line: &str, name: &str) -> usize {
    line.strip_prefix(name).and_then(|rest| rest.trim().parse().ok()).unwrap_or_else(|| panic!("{name}: {line:?}"))
}

/// Python's own frames with their lines, in every thread.
#[test]
fn threads_of_python_are_as_it_says_itself() {
    let found = interpreters::modern();
    assert!(!found.is_empty(), "no interpreter");
    for python in found {
        let scratch = paths::scratch("dump-python");
        let mut running = Running::start(Command::new(&python.path).arg(paths::source("python/dumped.py")));
        let said: Vec<Value> = (0..5).map(|_| serde_json::from_str(&running.line()).expect("a stack")).collect();
        // The last one has said its stack, and may not be waiting yet: the lines are the same.
        let dump = dump(&scratch, running.pid(), &[]);
        expect_names(&said, &dump, &python.label);
        let mut shown: Vec<Vec<(String, u64)>> = threads(&dump).iter().map(python_frames).collect();
        for said in said {
            let expected: Vec<(String, u64)> = said[1]
                .as_array()
                .expect("frames")
                .iter()
                .map(|frame| (frame[0].as_str().expect("a name").to_owned(), frame[1].as_u64().expect("a line")))
                .collect();
            let found = shown.iter().position(|shown| shown.ends_with(&expected));
            let found = found.unwrap_or_else(|| panic!("{}: {expected:?} is not in {dump:#}", python.label));
            shown.swap_remove(found);
        }
        assert!(threads(&dump).iter().all(|thread| thread["complete"] == true), "{}: {dump:#}", python.label);
        expect_waits_of_functions(&scratch, running.pid(), &python.label);
    }
}

/// A thread that waits in a call of its language begins with the function that called: how the interpreter came from
/// there into the system call is shown on request.
#[track_caller]
fn expect_waits_of_functions(scratch: &Path, pid: u32, what: &str) {
    let innermost = |thread: &Value| thread["frames"][0]["kind"].as_str().expect("a frame").to_owned();
    while !all_sleep(pid) {
        std::thread::yield_now();
    }
    let hidden = dump(scratch, pid, &[]);
    let waiting = |thread: &&Value| thread["state"] == "waiting";
    assert!(threads(&hidden).iter().filter(waiting).count() > 3, "{what}: {hidden:#}");
    for thread in threads(&hidden).iter().filter(waiting) {
        assert_eq!(innermost(thread), "interpreted", "{what}: {thread:#}");
    }
    let shown = dump(scratch, pid, &["--native-frames", "show"]);
    for thread in threads(&shown).iter().filter(waiting) {
        assert_ne!(innermost(thread), "interpreted", "{what}: {thread:#}");
    }
}

/// Who holds the GIL, who waits for it and who needs it not, where the program decides it: the first thread keeps it in
/// a call that lasts, the second wants to go on with Python's code, the third sleeps without it.
#[test]
fn the_holder_of_the_gil_is_shown_and_who_waits_for_it() {
    let found = interpreters::modern();
    assert!(!found.is_empty(), "no interpreter");
    for python in found {
        let scratch = paths::scratch("dump-gil");
        let mut command = Command::new(&python.path);
        let running = Running::ready(command.arg(paths::source("python/gil_kept.py")));
        let begun = std::time::Instant::now();
        loop {
            let dump = dump(&scratch, running.pid(), &[]);
            let of = |function: &str| {
                let thread = threads(&dump).iter().find(|thread| functions(thread).contains(&function));
                thread.unwrap_or_else(|| panic!("{}: nobody is in {function}: {dump:#}", python.label))
            };
            let (kept, wanted, without) = (of("keeps"), of("wants"), of("sleeps"));
            if kept["system_call"] == "pause" {
                assert_eq!((&kept["lock"], &without["lock"]), (&"held".into(), &"none".into()), "{}", python.label);
                // Up to 3.14, it is not known of the microseconds between two rounds of waiting.
                assert!(wanted["lock"] == "waiting" || wanted["lock"].is_null(), "{}: {wanted:#}", python.label);
                if wanted["lock"] == "waiting" {
                    let waits = &wanted["waits_for"];
                    assert_eq!((&waits["what"], &waits["holder"]), (&"gil".into(), &kept["tid"]), "{}", python.label);
                    break;
                }
            }
            assert!(begun.elapsed() < uu::LIMIT, "{}: {dump:#}", python.label);
        }
        let mut command = uu::command(&scratch, &["dump", "-p"]);
        let out = process::run(command.arg(running.pid().to_string()), &scratch, uu::LIMIT).expect_code(0);
        assert!(out.stdout.contains("waiting in pause, holds the GIL"), "{}", out.stdout);
    }
}

/// Python's recursive locks say who has them, its others do not.
#[test]
fn the_holder_of_a_recursive_lock_of_python_is_named() {
    let found = interpreters::modern();
    assert!(!found.is_empty(), "no interpreter");
    for python in found {
        let scratch = paths::scratch("dump-rlock");
        let mut running = Running::start(Command::new(&python.path).arg(paths::source("python/rlock.py")));
        let said: Value = serde_json::from_str(&running.line()).expect("who waits");
        while !all_sleep(running.pid()) {
            std::thread::yield_now();
        }
        let dump = dump(&scratch, running.pid(), &[]);
        for waits in said.as_array().expect("threads") {
            let thread = threads(&dump).iter().find(|thread| thread["tid"] == waits[1]).expect("a thread");
            let found = &thread["waits_for"];
            assert_eq!((&found["what"], &found["holder"]), (&waits[0], &waits[2]), "{}: {thread:#}", python.label);
        }
        let mut command = uu::command(&scratch, &["dump", "-p"]);
        let out = process::run(command.arg(running.pid().to_string()), &scratch, uu::LIMIT).expect_code(0);
        assert!(out.stdout.contains("waits for a recursive lock that thread "), "{}", out.stdout);
        running.end();
    }
}

/// Threads that wait for each other in a circle: of Python's locks, and of one of both worlds. That of two mutexes is
/// in `the_thread_that_others_wait_for_is_named`.
#[test]
fn deadlocks_of_python_are_found() {
    for python in interpreters::modern() {
        for (what, second) in [("rlocks", "recursive lock"), ("mixed", "mutex")] {
            let scratch = paths::scratch("dump-deadlock");
            let mut command = Command::new(&python.path);
            let mut running = Running::start(command.arg(paths::source("python/deadlocked.py")).arg(what));
            let said = running.line();
            let mut said: Vec<u64> = said.split(' ').map(|id| id.parse().expect("an id")).collect();
            let mut shown = Value::Null;
            // They may still be on their way to the locks.
            wait_for("a deadlock", || {
                shown = dump(&scratch, running.pid(), &[]);
                shown["deadlocks"] != Value::Array(Vec::new())
            });
            let mut circles: Vec<Vec<u64>> = serde_json::from_value(shown["deadlocks"].clone()).expect("lists of ids");
            circles.iter_mut().for_each(|circle| circle.sort_unstable());
            let [one, two] = said[..] else { panic!("{said:?}") };
            said.sort_unstable();
            assert_eq!(circles, [said], "{}, {what}: {shown:#}", python.label);
            let mut command = uu::command(&scratch, &["dump", "-p"]);
            let text = process::run(command.arg(running.pid().to_string()), &scratch, uu::LIMIT).expect_code(0).stdout;
            let line = |tid: u64| {
                let begin = format!("    thread {tid} ");
                let found = text.lines().find(|line| line.starts_with(&begin));
                found.unwrap_or_else(|| panic!("{}, {what}: {text}", python.label)).to_owned()
            };
            for (tid, holds, waits) in [(one, "recursive lock", second), (two, second, "recursive lock")] {
                let line = line(tid);
                let (has, wants) = line.split_once(" and waits for the ").unwrap_or_else(|| panic!("{line}"));
                let is_right = has.contains(&format!(" holds the {holds} 0x")) && wants.starts_with(waits);
                assert!(is_right, "{}, {what}: {line}", python.label);
            }
            running.end();
        }
    }
}

/// Functions that a JIT has made have their names: by its plugin, or where that does not know its version, as the JIT's
/// perf map gives them.
#[test]
fn functions_of_a_jit_have_their_names() {
    if !Command::new("node").arg("--version").output().is_ok_and(|out| out.status.success()) {
        return skips::skipped("a dump of node", "node is not installed");
    }
    let scratch = paths::scratch("dump-node");
    let script = scratch.join("hot.js");
    let text = "function inner() { for (let n = 0;; n++) Math.sqrt(n); }\nfunction outer() { inner(); return 1; }\n\
                console.log('ready');\nouter();\n";
    std::fs::write(&script, text).expect("a script");
    let options = ["--perf-basic-prof", "--no-turbo-inlining", "--interpreted-frames-native-stack"];
    let running = Running::ready(Command::new("node").args(options).arg(&script).current_dir(&scratch));
    let begun = std::time::Instant::now();
    loop {
        let dump = dump(&scratch, running.pid(), &[]);
        let is_of = |frame: &&Value, name: &str| {
            let function = frame["function"].as_str().unwrap_or_default();
            (frame["kind"] == "jit" || frame["kind"] == "interpreted")
                && function.split([' ', ':', '*', '~', '^']).any(|word| word == name)
        };
        let frames = threads(&dump)[0]["frames"].as_array().expect("frames");
        let at = |name: &str| frames.iter().position(|frame| is_of(&frame, name));
        if at("inner").zip(at("outer")).is_some_and(|(inner, outer)| inner < outer) {
            break;
        }
        assert!(begun.elapsed() < uu::LIMIT, "{dump:#}");
    }
    let _ = std::fs::remove_file(format!("/tmp/perf-{}.map", running.pid()));
}

/// The functions with their lines, innermost first, without the qualifying part of their names.
fn python_frames(thread: &Value) -> Vec<(String, u64)> {
    let frames = thread["frames"].as_array().expect("frames");
    let python = frames.iter().filter(|frame| frame["kind"] == "interpreted");
    let unqualified = |name: &str| name.rsplit('.').next().unwrap_or(name).to_owned();
    python.map(|f| (unqualified(f["function"].as_str().expect("a name")), f["line"].as_u64().unwrap_or(0))).collect()
}

#[test]
fn what_cannot_be_shown_is_refused_with_its_reason() {
    let scratch = paths::scratch("dump-refused");
    let refused = |pid: &str| {
        let out = process::run(uu::command(&scratch, &["dump", "-p"]).arg(pid), &scratch, uu::LIMIT).expect_code(125);
        out.stderr
    };
    assert!(refused("0").contains("a process id is a whole number above 0"));
    assert!(refused("cat").contains("whole number") && refused("99999999999").contains("whole number"));
    // No system has this many processes (PID_MAX_LIMIT of linux/threads.h is 4 Mi).
    assert!(refused("2000000000").contains("there is no process 2000000000"));
    // A number in the place of a core file is a process that was meant.
    let mut core = uu::command(&scratch, &["dump", "2000000000"]);
    let said = process::run(&mut core, &scratch, uu::LIMIT).expect_code(125).stderr;
    assert!(said.contains("there is no core file 2000000000") && said.contains("`uu dump -p 2000000000`"), "{said}");

    let mut ended = Command::new("true").spawn().expect("true");
    // SAFETY: zeroed memory is a valid siginfo; the child is left to be waited for.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        libc::waitid(libc::P_PID, ended.id(), &raw mut info, libc::WEXITED | libc::WNOWAIT);
    }
    assert!(refused(&ended.id().to_string()).contains("is a zombie"));
    ended.wait().expect("its end");
}
