//! Programs of Go: a recording leaves them as they are, and tells the stacks that the Go runtime itself tells.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use uunwind_tests::samples::{Frame, Sample};
use uunwind_tests::{compile, go, paths, process, skips, uu};

/// A program that Debian has compiled with Go and cgo, so that it is dynamically linked.
const GRON: &str = "/usr/bin/gron";
/// One without cgo, statically linked.
const JID: &str = "/usr/bin/jid";

#[test]
fn stacks_without_room_for_a_signal_frame_are_left_alone() {
    let scratch = paths::scratch("goroutines");
    let program = compile::gcc(&scratch, "goroutines", &["native/goroutines.c"], &[]);
    for how in ["profile", "preempt"] {
        let words = [program.as_os_str(), how.as_ref(), "400".as_ref()];
        let recording = uu::record(&scratch, &["-r", "999"], |_| {}, &words).expect_code(0);
        assert_eq!(recording.outcome.stdout, "0 bytes below the stack were changed\n", "{how}");
        // The program uses 400 ms of CPU, nearly all of it there; kernels tick 100 times a second at least.
        let samples = recording.samples();
        let inside = samples.iter().filter(|s| s.frames.iter().any(|f| f.name() == "goroutine")).count();
        println!("{how}: {} samples, {inside} inside", samples.len());
        assert!(inside >= 10, "{how}: {inside} of {} samples are there", samples.len());
    }
}

/// JSON that takes a while, and makes the collector run.
fn input(folder: &Path) -> std::path::PathBuf {
    let path = folder.join("in.json");
    let one = |n: u32| format!("{{\"id\":{n},\"name\":\"n{n}\",\"values\":[{n},{},{}]}}", n / 2, n * 7);
    let all: Vec<String> = (0..40_000).map(one).collect();
    std::fs::write(&path, format!("[{}]", all.join(","))).expect("a file");
    path
}

/// Functions and return addresses of the main goroutine from `main.main` outwards, as the runtime tells them when it is asked
/// to quit.
fn told_by_the_runtime() -> Vec<(String, u64)> {
    let mut gron = Command::new(GRON)
        .env("GOTRACEBACK", "system")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("gron");
    let pid = gron.id();
    // It waits for its input, which is to be seen: SIGQUIT any earlier would find no goroutine.
    let begun = Instant::now();
    let waits = |task: &Path| {
        let wchan = std::fs::read_to_string(task.join("syscall")).unwrap_or_default();
        // read(0, ...)
        wchan.starts_with("0 0x0 ")
    };
    while !std::fs::read_dir(format!("/proc/{pid}/task")).expect("tasks").flatten().any(|task| waits(&task.path())) {
        assert!(begun.elapsed() < Duration::from_secs(60), "gron does not read its input");
        std::thread::sleep(Duration::from_millis(5));
    }
    // SAFETY: a signal to our own child, which is not yet waited for.
    assert_eq!(unsafe { libc::kill(pid as libc::pid_t, libc::SIGQUIT) }, 0);
    let mut said = String::new();
    gron.stderr.take().expect("a pipe").read_to_string(&mut said).expect("text");
    gron.wait().expect("it ends");
    let at = said.find("\nmain.main()").unwrap_or_else(|| panic!("no main.main: {said}"));
    let (main, _) = said[at..].trim_start().split_once("\n\n").expect("an end");
    // A function with its arguments; behind it its place.
    let lines: Vec<&str> = main.lines().collect();
    let frame = |pair: &[&str]| {
        let [function, place] = pair else { return None };
        let pc = u64::from_str_radix(place.rsplit_once(" pc=0x")?.1.trim(), 16).ok()?;
        Some((function.rsplit_once('(')?.0.to_owned(), pc))
    };
    lines.chunks(2).filter_map(frame).collect()
}

fn named_addresses(sample: &Sample) -> Vec<(String, u64)> {
    let address = |frame: &Frame| match frame {
        Frame::Native { address, .. } => Some((frame.name().to_owned(), *address)),
        _ => None,
    };
    sample.frames.iter().filter_map(address).collect()
}

#[test]
fn a_program_with_cgo_is_as_ever_and_its_stacks_are_those_of_the_runtime() {
    const NAME: &str = "go_programs::a_program_with_cgo_is_as_ever_and_its_stacks_are_those_of_the_runtime";
    if !Path::new(GRON).exists() {
        return skips::skipped(NAME, "gron, a program made with Go, is not here (package gron)");
    }
    let scratch = paths::scratch("go-programs");
    let input = input(&scratch);
    let plain = process::run(Command::new(GRON).arg(&input), &scratch, uu::LIMIT).expect_code(0);
    let words = [GRON.as_ref(), input.as_os_str()];
    let recording = uu::record(&scratch, &["-r", "999"], |_| {}, &words).expect_code(0);
    assert!(recording.outcome.stdout == plain.stdout, "another output than without uu");
    let truth = told_by_the_runtime();
    let [main, outer @ ..] = &*truth else { panic!("the runtime tells nothing") };
    assert_eq!(outer.len(), 2, "runtime.main and runtime.goexit: {truth:x?}");
    let samples = recording.samples();
    let mut of_main = 0;
    for sample in &samples {
        let frames = named_addresses(sample);
        // Where main.main itself calls the same function as in the trace.
        // Its symbols are stripped: names are those by which Go's runtime knows its functions.
        if let Some(at) = frames.iter().position(|(_, address)| *address == main.1) {
            of_main += 1;
            assert_eq!(frames[at].0, main.0, "{}", sample.text());
            assert_eq!(frames[at + 1..], *outer, "{}", sample.text());
            // Go's own code has frame pointers, and no unwind information.
            assert_eq!(sample.stop_text, "end-of-frame-pointer-chain", "{}", sample.text());
        }
    }
    println!("{} samples, {of_main} of the main goroutine", samples.len());
    assert!(of_main >= 5, "{of_main} of {} samples are of the main goroutine", samples.len());
}

/// Who calls whom in `stacks.go`.
const CALLERS: [(&str, &str); 8] = [
    ("main.leaf", "main.inner"),
    ("main.small", "main.inner"),
    ("main.inner", "main.outer"),
    ("main.outer", "main.main"),
    ("main.main", "runtime.main"),
    ("main.alloc", "main.main.func1"),
    ("main.clock", "main.main"),
    ("c_leaf", "c_work"),
];

/// Functions that call on another stack than their own.
const OTHER_STACK: [&str; 3] = ["runtime.systemstack.abi0", "runtime.mcall", "runtime.morestack.abi0"];

/// Where in a stack a call on another stack begins; what lies further out can only be guessed.
fn change_of_stacks(names: &[&str]) -> Option<usize> {
    let called = |at: &usize| at.checked_sub(1).and_then(|before| names.get(before)).copied();
    let changes = |at: &usize| match (names.get(*at), called(at)) {
        // Called before the change.
        (_, None | Some("gosave_systemstack_switch")) => false,
        (Some(&"runtime.asmcgocall.abi0"), Some(called)) => called.contains("_Cfunc_"),
        (Some(name), Some(_)) => OTHER_STACK.contains(name),
        (None, _) => false,
    };
    (0..names.len()).find(changes)
}

#[test]
fn with_its_unwind_information_each_caller_is_the_true_one() {
    const NAME: &str = "go_programs::with_its_unwind_information_each_caller_is_the_true_one";
    if !go::installed(NAME) {
        return;
    }
    let scratch = paths::scratch("go-callers");
    let program = go::build(&scratch, "stacks", "go/stacks.go", true, &[]);
    let recording = uu::record(&scratch, &["-r", "999"], |_| {}, &[program.as_os_str()]).expect_code(0);
    assert_eq!(recording.outcome.stdout, "done\n");
    let mut seen = [0; CALLERS.len()];
    let (mut whole, mut switched) = (0, 0);
    for sample in recording.samples() {
        let names: Vec<&str> = sample.frames.iter().map(Frame::name).collect();
        // A call that Go's runtime has put between two instructions: its return address is no call's, and where the stack pointer
        // has just been moved, the row before it is looked up.
        if names.contains(&"runtime.asyncPreempt.abi0") {
            continue;
        }
        for (count, (called, caller)) in seen.iter_mut().zip(CALLERS) {
            let Some(at) = names.iter().position(|name| *name == called) else { continue };
            assert_eq!(names.get(at + 1), Some(&caller), "{called}: {}", sample.text());
            *count += 1;
        }
        if let Some(at) = change_of_stacks(&names) {
            assert_eq!(at + 1, names.len(), "what lies behind is another stack's: {}", sample.text());
            switched += 1;
        }
        if names.last() == Some(&"runtime.goexit.abi0") {
            assert!(sample.complete(), "{}", sample.text());
            whole += 1;
        }
    }
    println!("{seen:?} calls, {whole} whole stacks, {switched} that end at a change of stacks");
    assert!(whole >= 10 && switched >= 3, "{whole} whole stacks, {switched} that end at a change of stacks");
    for (count, (called, _)) in seen.iter().zip(CALLERS) {
        // A tick is seldom in what is over at once, and the clock's reader is on another stack.
        assert!(*count > 0 || matches!(called, "main.small" | "main.clock"), "{called} was never seen");
    }
}

#[test]
fn stripped_functions_are_called_as_symbols_call_them() {
    const NAME: &str = "go_programs::stripped_functions_are_called_as_symbols_call_them";
    if !go::installed(NAME) {
        return;
    }
    let scratch = paths::scratch("go-names");
    for (name, source, cgo, options) in [
        ("static", "println", false, &[][..]),
        ("dynamic", "calls", true, &[][..]),
        ("pie", "calls", true, &["-buildmode=pie"][..]),
    ] {
        let program = go::build(&scratch, name, &format!("go/{source}.go"), cgo, options);
        let stripped = scratch.join(format!("{name}-stripped"));
        let done = Command::new("strip").arg("-o").args([&stripped, &program]).status().expect("strip (binutils)");
        assert!(done.success());
        let told = Command::new("nm").arg("--defined-only").arg(&program).output().expect("nm (binutils)");
        let told = String::from_utf8_lossy(&told.stdout).into_owned();
        let functions: Vec<(u64, &str)> = told
            .lines()
            .filter_map(|line| match line.split_whitespace().collect::<Vec<_>>()[..] {
                [address, "T" | "t", name] => Some((u64::from_str_radix(address, 16).ok()?, name)),
                _ => None,
            })
            .filter(|(_, name)| ["runtime.", "fmt.", "main.", "os."].iter().any(|package| name.starts_with(package)))
            // What the linker puts there, not functions.
            .filter(|(_, name)| !matches!(*name, "runtime.text" | "runtime.etext"))
            .collect();
        let addresses: Vec<u64> = functions.iter().map(|(address, _)| *address).collect();
        let ours = uunwind_report::symbolize::go::names(&stripped, &addresses).expect("a table of functions");
        assert_eq!(ours.len(), functions.len(), "{name}");
        let mut same = 0;
        for ((address, symbol), ours) in functions.iter().zip(&ours) {
            // The runtime leaves out by which convention an assembly function is called.
            let symbol = symbol.trim_end_matches(".abi0");
            let is_it = |(start, ours): &(u64, String)| start == address && ours.trim_end_matches(".abi0") == symbol;
            assert!(ours.as_ref().is_some_and(is_it), "{name}: {symbol} at {address:#x}: {ours:?}");
            same += 1;
        }
        println!("{name}: {same} functions have the same name");
        assert!(same > 500, "{name}: {same}");
    }
}

#[test]
fn a_static_program_is_refused_with_advice() {
    if !Path::new(JID).exists() {
        let name = "go_programs::a_static_program_is_refused_with_advice";
        return skips::skipped(name, "jid, a statically linked program made with Go, is not here (package jid)");
    }
    let scratch = paths::scratch("go-static");
    let recording = uu::record(&scratch, &[], |_| {}, &[JID.as_ref(), "-version".as_ref()]).expect_code(125);
    let said = &recording.outcome.stderr;
    assert!(said.contains("statically linked") && said.contains("CGO_ENABLED=1"), "{said}");
    assert_eq!(recording.outcome.stdout, "", "it did not run");
    assert!(!recording.file.exists(), "an empty recording");
}
