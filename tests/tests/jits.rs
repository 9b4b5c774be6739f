//! Code generated at run time: its names, by each interface through which JITs report them, and its stacks.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use uunwind_tests::own_walks::{self, Reads};
use uunwind_tests::samples::{Frame, Sample};
use uunwind_tests::{compile, interpreters, packages, paths, skips, uu};

/// The frames that are named by this way, with the samples that they are in.
fn named<'s>(samples: &'s [Sample], way: &str) -> Vec<(&'s Sample, &'s str, u64)> {
    let jit = |frame: &'s Frame| match frame {
        Frame::Native { symbol, object, address, .. } if object == way => Some((symbol.as_str(), *address)),
        _ => None,
    };
    samples.iter().flat_map(|s| s.frames.iter().filter_map(jit).map(move |(name, at)| (s, name, at))).collect()
}

/// Three functions, one after the other at the same address: each sample has the name that was valid when it was taken.
#[track_caller]
fn names_of_their_epochs(way: &str) -> (uu::Recording, Vec<Sample>) {
    let scratch = paths::scratch(way);
    let program = compile::gcc(&scratch, "jit_names", &["native/jit_names.c"], &[]);
    let in_scratch = |c: &mut Command| {
        c.current_dir(&scratch);
    };
    let file = scratch.join("recording.uu");
    let words = [program.as_os_str(), way.as_ref(), file.as_os_str()];
    let recording = uu::record(&scratch, &["--explicit"], in_scratch, &words).expect_code(0);
    let truth: Vec<(&str, u64)> = recording
        .outcome
        .stdout
        .lines()
        .filter_map(|l| l.split_once(' '))
        .filter_map(|(name, at)| Some((name, u64::from_str_radix(at.strip_prefix("0x")?, 16).ok()?)))
        .collect();
    assert_eq!(truth.len(), 3, "{}", recording.outcome.text());
    let taken = |s: &Sample| s.kind == "explicit" && !s.native_names().contains(&"wait_to_be_seen");
    let samples: Vec<Sample> = recording.samples().into_iter().filter(taken).collect();
    let found: Vec<_> = named(&samples, way)
        .into_iter()
        .map(|(_, name, at)| (name, at))
        .filter(|(name, _)| name.starts_with("epoch"))
        .collect();
    // The return address of the callback lies 6 bytes into the function.
    let expected: Vec<_> = truth.iter().map(|(name, at)| (*name, at + 6)).collect();
    assert_eq!(found, expected, "{}", samples.iter().map(Sample::text).collect::<String>());
    (recording, samples)
}

#[test]
fn jitdump_names_hold_from_their_own_times() {
    let (recording, samples) = names_of_their_epochs("jitdump");
    assert_eq!(samples.len(), 3);
    // Every format has them; those with lines have the lines.
    for format in ["folded", "svg", "summary", "pb"] {
        let report = recording.report(format);
        for name in ["epoch_1", "epoch_2", "epoch_3"] {
            assert!(report.contains(name), "{format} has no {name}: {report}");
        }
    }
    assert!(recording.report("pb").contains("a.jit"));
}

#[test]
fn a_perf_maps_name_holds_until_another_one_is_reported() {
    let (_, samples) = names_of_their_epochs("perf-map");
    let regions = named(&samples, "perf-map").into_iter().filter(|(_, name, _)| *name == "a region").count();
    assert_eq!((samples.len(), regions), (6, 3), "what is left of a region keeps its name");
}

#[test]
fn objects_of_gdbs_interface_are_distinguished_at_the_same_place() {
    let (_, samples) = names_of_their_epochs("gdb-jit");
    assert_eq!(samples.len(), 3);
}

/// Without a recorder: names come from recorders only, but the stacks are whole, by the functions' frame pointers, and
/// say so.
#[test]
fn stacks_of_each_interface_by_uu_walk() {
    for (way, reads) in ["perf-map", "jitdump", "gdb-jit"].into_iter().flat_map(|way| Reads::ALL.map(|r| (way, r))) {
        let scratch = paths::scratch(&format!("{way}-{}", reads.suffix()));
        let program = compile::gcc(&scratch, "jit_names", &["native/jit_names.c"], &[]);
        let in_scratch = |c: &mut Command| {
            c.current_dir(&scratch);
        };
        let walked = own_walks::explicit(&scratch, reads, in_scratch, &[program.as_ref(), way.as_ref()]).expect(way);
        let address = |line: &str| u64::from_str_radix(line.split_once(" 0x")?.1, 16).ok();
        let truth: Vec<u64> = walked.outcome.stdout.lines().filter_map(address).collect();
        // A perf map has a function more in each epoch, half a page further.
        let further = if way == "perf-map" { vec![0, 2048] } else { vec![0] };
        let expected: Vec<u64> = truth.iter().flat_map(|at| further.iter().map(move |more| at + more + 6)).collect();
        assert!(truth.len() == 3 && walked.samples.len() == expected.len(), "{way}: {}", walked.outcome.text());
        for (sample, expected) in walked.samples.iter().zip(expected) {
            assert!(sample.complete() && !sample.flags.contains("desync"), "{way}: {}", sample.text());
            assert_eq!(sample.addresses()[1], expected, "{way}: {}", sample.text());
            let [call_back, _, main, ..] = &sample.frames[..] else { panic!("{way}: {}", sample.text()) };
            assert_eq!((call_back.name(), main.name()), ("call_back", "main"), "{way}: {}", sample.text());
            assert!(matches!(main, Frame::Native { by_frame_pointer: true, .. }), "{way}: {}", sample.text());
            assert_eq!(sample.frames.last().map(Frame::name), Some("_start"), "{way}: {}", sample.text());
        }
    }
}

/// Without a recorder, nothing sees what is registered with the compiler's runtime: code without a frame pointer ends
/// the stack, which does not claim to be complete, or the stack itself proves its caller.
#[test]
fn registered_code_is_not_seen_by_uu_walk() {
    let scratch = paths::scratch("jit-frames-walk");
    let program = compile::gcc(&scratch, "jit_frames", &["native/jit_frames.c"], &[]);
    for reads in Reads::ALL {
        let walked = own_walks::explicit(&scratch, reads, |_| {}, &[program.as_ref(), "frame".as_ref()]);
        let walked = walked.expect("it runs");
        let range = range_of_code(&walked.outcome.stdout);
        assert_eq!(walked.samples.len(), 2, "{}", walked.outcome.text());
        for (sample, caller) in walked.samples.iter().zip(["run", "main"]) {
            assert!(is_cut_or_right(sample, caller), "{}", sample.text());
            assert!(range.contains(&sample.addresses()[1]), "{}", sample.text());
        }
    }
}

/// Whether the stack of code that nothing describes ends there, or goes on with its caller, which it may prove.
fn is_cut_or_right(sample: &Sample, caller: &str) -> bool {
    let is_cut = !sample.complete() && sample.frames.len() == 2;
    is_cut || sample.frames.get(2).is_some_and(|frame| frame.name() == caller)
}

/// What `jit_frames` prints of its code: from and to.
#[track_caller]
fn range_of_code(stdout: &str) -> std::ops::Range<u64> {
    let line = stdout.lines().find_map(|l| l.strip_prefix("jit ")).expect("the program prints its range");
    let mut ends = line.split(' ').filter_map(|n| u64::from_str_radix(n.strip_prefix("0x")?, 16).ok());
    let (start, end) = (ends.next(), ends.next());
    start.zip(end).map(|(start, end)| start..end).expect("two numbers")
}

/// The sample in the code has a complete stack, through a frame without frame pointer; the one after the deregistration
/// ends there.
#[track_caller]
fn registered(program: &Path, scratch: &Path, way: &str) {
    let recording = uu::record(scratch, &["--explicit"], |_| {}, &[program.as_ref(), way.as_ref()]).expect_code(0);
    let stdout = &recording.outcome.stdout;
    let range = range_of_code(stdout);
    assert!(!stdout.contains("same object: 0"), "{way}: the real function's result is returned: {stdout}");
    let samples: Vec<Sample> = recording.samples().into_iter().filter(|s| s.kind == "explicit").collect();
    let [inside, gone @ ..] = &samples[..] else { panic!("{way}: no samples") };
    let names: Vec<&str> = inside.frames.iter().map(Frame::name).take(4).collect();
    assert!(inside.complete(), "{way}: {}", inside.text());
    assert_eq!((names[0], names[2], names[3]), ("call_back", "run", "main"), "{way}: {}", inside.text());
    let in_code = matches!(&inside.frames[1], Frame::Jit { address, generation, .. } if range.contains(address) && *generation > 0);
    assert!(in_code, "{way}: {}", inside.text());
    if stdout.contains("gone") {
        let [gone] = gone else { panic!("{way}: {} samples", samples.len()) };
        assert!(is_cut_or_right(gone, "main"), "{way}: {}", gone.text());
    }
    assert!(!recording.report("summary").contains("could not be used"), "{way}");
}

#[test]
fn every_function_of_the_compilers_interface() {
    let scratch = paths::scratch("jit-frames");
    let program = compile::gcc(&scratch, "jit_frames", &["native/jit_frames.c"], &[]);
    for way in ["frame", "info", "bases", "table", "info-table", "table-bases", "early"] {
        registered(&program, &scratch, way);
    }
}

#[test]
fn one_fde_where_the_functions_are_llvms() {
    let scratch = paths::scratch("jit-llvm");
    let library = compile::shared(&scratch, "libllvmlike.so", &["native/llvm_like.c"]);
    let place = format!("-Wl,-rpath,{}", scratch.display());
    let library = library.to_str().expect("UTF-8");
    let program = compile::gcc(&scratch, "jit_frames", &["native/jit_frames.c"], &[library, &place]);
    registered(&program, &scratch, "one");
}

/// On deregistration of data that was never registered libgcc calls abort(3), with `uu` as without.
#[test]
fn the_real_functions_abort_as_ever() {
    let scratch = paths::scratch("jit-abort");
    let program = compile::gcc(&scratch, "jit_frames", &["native/jit_frames.c"], &[]);
    let mut plain = Command::new(&program);
    let plain = uunwind_tests::process::run(plain.arg("unknown"), &scratch, uu::LIMIT);
    let recorded = uu::record(&scratch, &[], |_| {}, &[program.as_ref(), "unknown".as_ref()]);
    assert_eq!(plain.code(), 134, "{}", plain.text());
    assert_eq!(recorded.outcome.code(), plain.code(), "{}", recorded.outcome.text());
}

/// The thread that registers is the one that is sampled: in libgcc, under its lock, in our interposer, in our registry.
/// Where a walk asked libgcc for unwind data, it would wait here for a lock that its own thread holds.
#[test]
fn registration_flat_out_on_the_sampled_thread() {
    let scratch = paths::scratch("jit-flat-out");
    let program = compile::gcc(&scratch, "jit_frames", &["native/jit_frames.c"], &[]);
    let program = [program.as_ref(), "flat-out".as_ref(), "3".as_ref()];
    let recording = uu::record(&scratch, &["-r", "999"], |_| {}, &program).expect_code(0);
    let samples = recording.samples();
    let within = |s: &&Sample| s.frames.iter().any(is_registration);
    let (inside, whole) = (samples.iter().filter(within).count(), samples.iter().filter(|s| s.complete()).count());
    println!(
        "flat out: {} samples, {inside} in registrations, {whole} whole; {}",
        samples.len(),
        recording.outcome.stdout.trim()
    );
    assert!(inside > 100, "{inside} of {} samples met a registration", samples.len());
    assert!(whole * 100 >= samples.len() * 99, "{whole} of {} are whole", samples.len());
}

/// Of the interposers, or of what they call.
fn is_registration(frame: &Frame) -> bool {
    let inside = |object: &str| object.ends_with("/libuunwind-preload.so");
    matches!(frame, Frame::Native { symbol, object, .. } if inside(object) || symbol.contains("register_frame"))
}

/// A virtual environment with numba, made once. `None`, and named as skipped: it cannot be had here.
fn numba() -> Option<&'static Path> {
    static MADE: OnceLock<Option<PathBuf>> = OnceLock::new();
    MADE.get_or_init(|| packages::environment("numba", &NUMBA)).as_deref()
}

/// Those of its versions that the tests were written for.
const NUMBA: [&str; 3] = ["numba==0.68.1", "llvmlite==0.50.0", "numpy==2.4.6"];

/// Whether these functions are in a stack in this order, leaf first.
fn in_order(sample: &Sample, functions: &[&str]) -> bool {
    let mut rest = sample.frames.iter();
    functions.iter().all(|function| rest.any(|frame| frame.name().contains(function)))
}

#[test]
fn python_to_numba_to_c_to_python() {
    let Some(python) = numba() else { return };
    let scratch = paths::scratch("numba");
    let library = compile::shared(&scratch, "libjitcallback.so", &["native/jit_callback.c"]);
    let script = paths::source("python/jit_callback.py");
    let program = [python.as_os_str(), script.as_os_str(), library.as_os_str(), "4".as_ref()];
    let recording = uu::record(&scratch, &["-r", "499"], |_| {}, &program).expect_code(0);
    let samples = recording.samples();
    let inside: Vec<&Sample> =
        samples.iter().filter(|s| s.frames.iter().any(|f| f.name() == "back_in_python")).collect();
    let right = |s: &&&Sample| {
        s.complete()
            && in_order(
                s,
                &[
                    "back_in_python",
                    "through_c",
                    "__main__::jit_outer(",
                    "cpython::__main__::jit_outer(",
                    "main",
                    "<module>",
                    "_start",
                ],
            )
    };
    let whole = inside.iter().filter(right).count();
    println!("numba: {} samples, {} in the callback, {whole} of them whole and in order", samples.len(), inside.len());
    assert!(inside.len() > 100, "{} samples in the callback: {}", inside.len(), recording.outcome.text());
    let wrong = inside.iter().find(|s| !right(s)).map(|s| s.text()).unwrap_or_default();
    assert!(whole * 1000 >= inside.len() * 995, "{whole} of {}; one of the others:\n{wrong}", inside.len());
}

/// Modules are loaded and unloaded; each sample has the name and the unwind data of the module that was there at its
/// time.
#[test]
fn modules_of_llvm_come_and_go() {
    let Some(python) = numba() else { return };
    let scratch = paths::scratch("llvm-reload");
    let library = compile::shared(&scratch, "libcap.so", &["python/cap.c"]);
    let script = paths::source("python/llvm_reload.py");
    let file = scratch.join("recording.uu");
    let program = [python.as_os_str(), script.as_os_str(), library.as_os_str(), file.as_os_str()];
    let recording = uu::record(&scratch, &["--explicit"], |_| {}, &program).expect_code(0);
    assert_eq!(recording.file, file);
    let samples: Vec<Sample> = recording.samples().into_iter().filter(|s| s.kind == "explicit").collect();
    assert_eq!(samples.len(), 10, "{}", recording.outcome.text());
    // The others are only there to wait for the recorder.
    for (epoch, sample) in (1..).zip(samples.iter().skip(2).step_by(3)) {
        let name = format!("epoch_{epoch}");
        let line = recording.outcome.stdout.lines().find_map(|l| l.strip_prefix(&format!("{name} 0x")));
        let start = u64::from_str_radix(line.expect("the program prints its addresses"), 16).expect("a number");
        let right = |frame: &Frame| match frame {
            Frame::Jit { name: shown, address, offset, .. } => *shown == name && address - offset == start,
            _ => false,
        };
        assert!(sample.complete() && sample.frames.get(1).is_some_and(right), "{name}: {}", sample.text());
        assert!(in_order(sample, &["cap", &name, "<module>", "_start"]), "{name}: {}", sample.text());
    }
}

/// CPython's own JIT reports its code by the same interfaces, from 3.15 on.
#[test]
fn cpython_with_its_own_jit() {
    let has_jit = |python: &interpreters::Interpreter| {
        let asked = "import sys; sys.exit(not (hasattr(sys, '_jit') and sys._jit.is_available()))";
        Command::new(&python.path).args(["-c", asked]).status().is_ok_and(|status| status.success())
    };
    let Some(python) = interpreters::all().into_iter().find(has_jit) else {
        skips::skipped("CPython's own JIT", "no interpreter that has it is installed");
        return;
    };
    let scratch = paths::scratch("cpython-jit");
    let source = "def f(n):\n s = 0\n for i in range(n): s += i % 7\n return s\nfor _ in range(300): f(40000)\n";
    let program = [python.path.as_os_str(), "-c".as_ref(), source.as_ref()];
    let jit = |c: &mut Command| {
        c.env("PYTHON_JIT", "1");
    };
    let samples = uu::record(&scratch, &["-r", "499"], jit, &program).expect_code(0).samples();
    let (whole, reasons) = uunwind_tests::samples::completeness(&samples);
    println!(
        "CPython {} with its JIT (reported only): {:.1} % of {} whole; {reasons:?}",
        python.label,
        whole * 100.0,
        samples.len()
    );
}

/// LuaJIT registers its code areas, with FDEs that describe no frames: its plugin steps over them.
#[test]
fn code_areas_of_luajit() {
    if Command::new("luajit").arg("-v").output().is_err() {
        skips::skipped("LuaJIT's code areas", "luajit is not installed");
        return;
    }
    let scratch = paths::scratch("luajit-areas");
    let script = scratch.join("hot.lua");
    let source = "local function leaf(n) local s = 0 for i = 1, n do s = s + i % 7 end return s end\n\
        local x = 0 while os.clock() < 1 do x = x + leaf(100000) end\n";
    std::fs::write(&script, source).expect("scratch");
    let program = ["luajit".as_ref(), script.as_os_str()];
    let samples = uu::record(&scratch, &["-r", "499"], |_| {}, &program).expect_code(0).samples();
    let whole = samples.iter().filter(|s| s.complete()).count();
    let named = samples.iter().filter(|s| s.frames.iter().any(|f| f.name() == "leaf")).count();
    println!("luajit: {} samples, {whole} whole, {named} in leaf", samples.len());
    assert!(named > 50, "{named} of {} samples are in leaf", samples.len());
    assert!(whole * 100 >= samples.len() * 99, "{whole} of {} are whole", samples.len());
}

/// A runtime that handles traps by signals is still sampled afterwards, although its handler never returns, so that the
/// mask that it ran with stays.
#[test]
fn traps_that_are_left_by_longjmp() {
    let scratch = paths::scratch("left-by-longjmp");
    let program = compile::gcc(&scratch, "left_by_longjmp", &["native/left_by_longjmp.c"], &["-pthread"]);
    let recording = uu::record(&scratch, &["-r", "499"], |_| {}, &[program.as_ref()]).expect_code(0);
    let line = recording.outcome.stdout.lines().find_map(|l| l.strip_prefix("cpu ")?.strip_suffix(" traps 100"));
    let used: f64 = line.and_then(|ms| ms.parse().ok()).expect("the program prints its CPU time");
    let sampled = recording.samples().iter().map(|s| s.weight).sum::<u64>() as f64 * 1000.0 / 499.0;
    println!("{sampled:.0} ms sampled of {used:.0} ms");
    assert!(sampled > used * 0.9, "{sampled:.0} ms sampled of {used:.0} ms");
}

/// WebAssembly under wasmtime, which takes some minutes to build: only where UU_WASMTIME is set.
#[test]
fn wasmtime_guests() {
    if std::env::var_os("UU_WASMTIME").is_none() {
        skips::skipped("wasmtime", "its build takes minutes; set UU_WASMTIME=1");
        return;
    }
    let scratch = paths::scratch("wasmtime");
    let target = paths::target().join("uu-tests/wasmtime");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build.args(["build", "--locked", "--release", "--manifest-path"]).arg(paths::source("wasmtime/Cargo.toml"));
    let done = build.arg("--target-dir").arg(&target).output().expect("cargo runs");
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr);
        skips::skipped("wasmtime", &format!("it could not be built: {}", said.lines().next_back().unwrap_or("")));
        return;
    }
    let program = target.join("release/wasm-guest");
    let program = [program.as_os_str(), "6".as_ref(), "perfmap".as_ref()];
    let recording = uu::record(&scratch, &["-r", "499"], |_| {}, &program).expect_code(0);
    assert!(recording.outcome.stdout.contains("traps"), "{}", recording.outcome.text());
    let samples = recording.samples();
    let in_host: Vec<&Sample> =
        samples.iter().filter(|s| s.frames.iter().any(|f| f.name().contains("guest_inner"))).collect();
    let right = in_host
        .iter()
        .filter(|s| s.complete() && in_order(s, &["guest_inner", "guest_outer", "main", "_start"]))
        .count();
    let looping = samples.iter().filter(|s| s.frames.iter().any(|f| f.name().contains("guest_loop"))).count();
    let whole = samples.iter().filter(|s| s.complete()).count();
    println!(
        "wasmtime: {} samples, {whole} whole, {looping} in the loop, {} through guests, {right} in order",
        samples.len(),
        in_host.len()
    );
    assert!(looping > 50 && in_host.len() > 20, "{looping} and {}", in_host.len());
    assert!(whole * 100 >= samples.len() * 99, "{whole} of {} are whole", samples.len());
    assert!(right * 100 >= in_host.len() * 99, "{right} of {} are in order", in_host.len());
}

/// Functions that node itself names in its own trace of what it optimises.
#[test]
fn node_with_a_perf_map() {
    let scratch = paths::scratch("node");
    let script = scratch.join("hot.js");
    let source = "function leaf(n) { let s = 0; for (let i = 0; i < n; i++) s += Math.sqrt(i) % 7; return s }\n\
        function middle(n) { let t = 0; for (let i = 0; i < n; i++) t += leaf(2000); return t }\n\
        let x = 0; while (process.cpuUsage().user < 1500000) x += middle(20);\nconsole.log(x > 0);\n";
    std::fs::write(&script, source).expect("scratch");
    // Not inlined, so that each has a frame.
    let program = ["node", "--perf-basic-prof", "--no-turbo-inlining", "--interpreted-frames-native-stack"];
    let program: Vec<&std::ffi::OsStr> = program.iter().map(|w| (*w).as_ref()).chain([script.as_os_str()]).collect();
    // It leaves a log in its folder.
    let in_scratch = |c: &mut Command| {
        c.current_dir(&scratch);
    };
    let recording = uu::record(&scratch, &["-r", "499"], in_scratch, &program).expect_code(0);
    let samples = recording.samples();
    let is = |frame: &Frame, function: &str| is_function(frame, function, &script);
    // The machine's frames: where the plugin for V8 knows the version, its functions stand between them.
    let has = |s: &Sample| {
        let machine: Vec<&Frame> = s.frames.iter().filter(|frame| frame.is_native()).collect();
        let leaf = machine.iter().position(|f| is(f, "leaf"));
        leaf.is_some_and(|at| machine.get(at + 1).is_some_and(|f| is(f, "middle")))
    };
    let busy: Vec<&Sample> = samples.iter().filter(|s| s.frames.iter().any(|f| is(f, "leaf"))).collect();
    let right = busy.iter().filter(|s| has(s)).count();
    println!("node: {} samples, {} in leaf, {right} with leaf called by middle", samples.len(), busy.len());
    assert!(busy.len() * 2 > samples.len(), "{} of {} samples are in leaf", busy.len(), samples.len());
    // A function that was called a moment ago has no frame of its own yet: its caller then looks like its caller's.
    assert!(right * 100 >= busy.len() * 98, "{right} of {}", busy.len());
    let whole = busy.iter().filter(|s| s.complete()).count();
    assert!(whole * 100 >= busy.len() * 98, "{whole} of {} are whole", busy.len());
}

fn is_function(frame: &Frame, function: &str, script: &Path) -> bool {
    // JS:*leaf /path/hot.js:1:14
    let Frame::Native { symbol, object, .. } = frame else { return false };
    let shown = symbol.trim_start_matches("JS:").trim_start_matches(['*', '~', '^', '+', '\'']);
    object == "perf-map"
        && shown
            .split_once(' ')
            .is_some_and(|(name, place)| name == function && place.starts_with(&*script.to_string_lossy()))
}
