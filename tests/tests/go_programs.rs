//! Go programs: a recording does not disturb them, and its stacks are those that the Go runtime itself reports.

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

/// Functions and return addresses of the main goroutine from `main.main` towards the root, as the runtime prints them
/// on SIGQUIT.
fn reported_by_the_runtime() -> Vec<(String, u64)> {
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
        assert!(begun.elapsed() < uu::LIMIT, "gron does not read its input");
        std::thread::sleep(Duration::from_millis(5));
    }
    // SAFETY: a signal to our own child, which is not yet waited for.
    assert_eq!(unsafe { libc::kill(pid as libc::pid_t, libc::SIGQUIT) }, 0);
    let mut said = String::new();
    gron.stderr.take().expect("a pipe").read_to_string(&mut said).expect("text");
    gron.wait().expect("it ends");
    let at = said.find("\nmain.main()").unwrap_or_else(|| panic!("no main.main: {said}"));
    let (main, _) = said[at..].trim_start().split_once("\n\n").expect("an end");
    // A function with its arguments; its file and line follow.
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
    let truth = reported_by_the_runtime();
    let [main, outer @ ..] = &*truth else { panic!("the runtime reports nothing") };
    assert_eq!(outer.len(), 2, "runtime.main and runtime.goexit: {truth:x?}");
    let samples = recording.samples();
    let (mut of_main, mut doubtful) = (0, 0);
    for sample in &samples {
        let frames = named_addresses(sample);
        // Where main.main itself calls the same function as in the trace.
        // Its symbols are stripped: names are those by which Go's runtime knows its functions.
        if let Some(at) = frames.iter().position(|(_, address)| *address == main.1) {
            of_main += 1;
            assert_eq!(frames[at].0, main.0, "{}", sample.text());
            assert_eq!(frames[at + 1..], *outer, "{}", sample.text());
            // Go's own code has frame pointers, and no unwind information. Where a function was interrupted that
            // returns in several places, it is not known whether another one follows, which has no frame of its own.
            let is_doubtful = sample.stop_text == "doubtful-(callers-may-be-missing)";
            assert!(is_doubtful || sample.stop_text == "end-of-frame-pointer-chain", "{}", sample.text());
            doubtful += usize::from(is_doubtful);
        }
    }
    println!("{} samples, {of_main} of the main goroutine, {doubtful} doubtful", samples.len());
    assert!(of_main - doubtful >= 5, "{of_main} of {} samples are of the main goroutine", samples.len());
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

/// Functions that the system stack begins with: whoever called them is on a goroutine's, and is not returned to, or
/// only the runtime has its stack pointer.
const BASES: [&str; 3] = ["runtime.systemstack.abi0", "runtime.mcall", "runtime.morestack.abi0"];

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
    let (mut whole, mut switched, mut in_c) = (0, 0, 0);
    for sample in recording.samples() {
        let names: Vec<&str> = sample.frames.iter().map(Frame::name).collect();
        // A call that Go's runtime has put between two instructions: its return address is no call's, and where the
        // stack pointer has just been moved, the row before it is looked up.
        if names.contains(&"runtime.asyncPreempt.abi0") {
            continue;
        }
        for (count, (called, caller)) in seen.iter_mut().zip(CALLERS) {
            let Some(at) = names.iter().position(|name| *name == called) else { continue };
            assert_eq!(names.get(at + 1), Some(&caller), "{called}: {}", sample.text());
            *count += 1;
        }
        // At one instruction, where it has moved the stack pointer and not yet made its call, a base is the only frame,
        // and Go's row for it is that of the stack before: the walk ends there and says that it is not whole.
        if !sample.complete() && matches!(&names[..], [base] if BASES.contains(base)) {
            continue;
        }
        assert!(sample.complete(), "{}", sample.text());
        // The clock is read, and C is called, on another stack, from where the walk comes back.
        if names.contains(&"c_work") {
            assert!(names.ends_with(&["main.main", "runtime.main", "runtime.goexit.abi0"]), "{}", sample.text());
            in_c += 1;
        }
        match names.last() {
            Some(&"runtime.goexit.abi0") => whole += 1,
            Some(last) if BASES.contains(last) => switched += 1,
            _ => {}
        }
    }
    println!("{seen:?} calls, {whole} goroutines, {in_c} of them in C, {switched} that end at a change of stacks");
    assert!(whole >= 10 && in_c >= 3, "{whole} goroutines, {in_c} of them in C");
    for (count, (called, _)) in seen.iter().zip(CALLERS) {
        // A tick is seldom in what is over at once.
        assert!(*count > 0 || called == "main.small", "{called} was never seen");
    }
}

/// A line of `callbacks.go`: return addresses of the goroutine's functions, as the runtime reports them.
fn reported(line: &str) -> Vec<u64> {
    let addresses = line.strip_prefix("callers ").into_iter().flat_map(str::split_whitespace);
    addresses.map(|address| u64::from_str_radix(address, 16).expect("an address")).collect()
}

#[test]
fn c_and_go_that_call_each_other_have_the_runtimes_goroutine_and_all_of_c_between() {
    const NAME: &str = "go_programs::c_and_go_that_call_each_other_have_the_runtimes_goroutine_and_all_of_c_between";
    if !go::installed(NAME) {
        return;
    }
    let scratch = paths::scratch("go-callbacks");
    // A program with tables; and one whose Go has frame pointers alone, without unwind information and without a
    // build-id.
    let pointers = ["-ldflags=-w -extldflags=-Wl,--build-id=none"];
    for (name, options) in [("tables", &[][..]), ("pointers", &pointers[..])] {
        let program = go::build(&scratch, name, "go/callbacks.go", true, options);
        let words = [program.as_os_str()];
        let recording = uu::record(&scratch, &["--explicit", "-r", "1"], |_| {}, &words).expect_code(0);
        let expected: Vec<Vec<u64>> = recording.outcome.stdout.lines().map(reported).collect();
        let samples = recording.samples();
        // A tick of the timer may come there, too.
        let is_asked = |sample: &&Sample| {
            sample.kind == "explicit" && sample.frames.iter().any(|frame| frame.name() == "c_sample")
        };
        let mut inside: Vec<&Sample> = samples.iter().filter(is_asked).collect();
        // Goroutines run in several threads, one after the other.
        inside.sort_by_key(|sample| sample.time);
        assert_eq!((inside.len(), expected.len()), (60, 60), "{name}");
        for (number, (sample, expected)) in inside.iter().zip(&expected).enumerate() {
            let frames = named_addresses(sample);
            let at = |name: &str| frames.iter().filter(|(found, _)| found == name).count();
            let counts = ["c_sample", "c_back", "goCall", "crosscall2"].map(at);
            // One level of calls more each time, from Go to C and back.
            let depth = number % 4;
            // Frame pointers that C has kept meanwhile lead to where the stack was before it was moved. Where nothing
            // else proves the caller, the stack ends there.
            let ends_early = name == "pointers" && number >= 30 && sample.stop_text == "no-unwind-information";
            assert!(ends_early || counts == [1, depth + 1, depth + 1, depth + 1], "{name}: {}", sample.text());
            // From where both go on. The runtime sees no C, and leaves out what it has between two calling conventions.
            let first = frames.iter().position(|(name, _)| name == "main.goCall").expect("what calls C");
            let is_go = |name: &str| {
                let is_ours = name.starts_with("main.") || name.starts_with("_cgoexp_");
                let is_glue = matches!(name, "runtime.asmcgocall.abi0" | "runtime.cgocallbackg.abi0");
                is_ours || name.starts_with("runtime.") && !is_glue
            };
            let of_go: Vec<u64> =
                frames[first + 1..].iter().filter(|(name, _)| is_go(name)).map(|(_, address)| *address).collect();
            // Where it called C, it has an address in what stands for the change of stacks, which follows
            // `cgocallback`'s.
            let calls_back = frames.iter().find(|(name, _)| name == "runtime.cgocallback.abi0").expect("a call back").1;
            let mut before = 0;
            let is_frame = |address: &u64| std::mem::replace(&mut before, *address) != calls_back;
            let expected: Vec<u64> = expected.iter().copied().filter(is_frame).collect();
            let (stop, last) = (&*sample.stop_text, &*frames.last().expect("frames").0);
            if ends_early {
                assert!(expected.starts_with(&of_go), "{name}: {}", sample.text());
                assert_eq!((stop, last), ("no-unwind-information", "runtime.cgocall"), "{name}: {}", sample.text());
                continue;
            }
            assert_eq!(of_go, expected, "{name}: {}", sample.text());
            let stops = if name == "tables" { "complete" } else { "end-of-frame-pointer-chain" };
            assert_eq!(stop, stops, "{name}: {}", sample.text());
        }
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
        let listed = Command::new("nm").arg("--defined-only").arg(&program).output().expect("nm (binutils)");
        let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
        let functions: Vec<(u64, &str)> = listed
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
        let ours = uunwind_symbolize::go::names(&stripped, &addresses).expect("a table of functions");
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
