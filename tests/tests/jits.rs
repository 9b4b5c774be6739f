//! Code made at run time: its names, by each way in which JITs tell them, and its stacks.

use std::path::Path;
use std::process::Command;
use uunwind_tests::samples::{Frame, Sample};
use uunwind_tests::{compile, paths, uu};

/// The frames that are named by this way, with the samples that they are in.
fn named<'s>(samples: &'s [Sample], way: &str) -> Vec<(&'s Sample, &'s str, u64)> {
    let jit = |frame: &'s Frame| match frame {
        Frame::Native { symbol, object, address, .. } if object == way => Some((symbol.as_str(), *address)),
        _ => None,
    };
    samples.iter().flat_map(|s| s.frames.iter().filter_map(jit).map(move |(name, at)| (s, name, at))).collect()
}

/// Three functions, one after the other at the same place: each sample has the name that was right when it was taken.
#[track_caller]
fn names_of_their_epochs(way: &str) -> (uu::Recording, Vec<Sample>) {
    let scratch = paths::scratch(way);
    let program = compile::gcc(&scratch, "jit_names", &["native/jit_names.c"], &[]);
    let in_scratch = |c: &mut Command| {
        c.current_dir(&scratch);
    };
    let recording = uu::record(&scratch, &["--explicit"], in_scratch, &[program.as_ref(), way.as_ref()]).expect_code(0);
    let truth: Vec<(&str, u64)> = recording
        .outcome
        .stdout
        .lines()
        .filter_map(|l| l.split_once(' '))
        .filter_map(|(name, at)| Some((name, u64::from_str_radix(at.strip_prefix("0x")?, 16).ok()?)))
        .collect();
    assert_eq!(truth.len(), 3, "{}", recording.outcome.text());
    let samples: Vec<Sample> = recording.samples().into_iter().filter(|s| s.kind == "explicit").collect();
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
fn a_perf_map_names_until_something_else_is_told() {
    let (_, samples) = names_of_their_epochs("perf-map");
    let regions = named(&samples, "perf-map").into_iter().filter(|(_, name, _)| *name == "a region").count();
    assert_eq!((samples.len(), regions), (6, 3), "what is left of a region keeps its name");
}

#[test]
fn objects_of_gdbs_interface_are_told_apart_at_the_same_place() {
    let (_, samples) = names_of_their_epochs("gdb-jit");
    assert_eq!(samples.len(), 3);
}

/// Functions that node itself names in its own trace of what it optimises.
#[test]
fn node_with_a_perf_map() {
    let scratch = paths::scratch("node");
    let script = scratch.join("hot.js");
    let source = "function leaf(n) { let s = 0; for (let i = 0; i < n; i++) s += Math.sqrt(i) % 7; return s }\n\
        function middle(n) { let t = 0; for (let i = 0; i < n; i++) t += leaf(2000); return t }\n\
        let x = 0; const end = Date.now() + 1500; while (Date.now() < end) x += middle(20);\nconsole.log(x > 0);\n";
    std::fs::write(&script, source).expect("scratch");
    // Not inlined, so that each has a frame.
    let program = ["node", "--perf-basic-prof", "--no-turbo-inlining", "--interpreted-frames-native-stack"];
    let program: Vec<&std::ffi::OsStr> = program.iter().map(|w| (*w).as_ref()).chain([script.as_os_str()]).collect();
    let recording = uu::record(&scratch, &["-r", "499"], |_| {}, &program).expect_code(0);
    let samples = recording.samples();
    let is = |frame: &Frame, function: &str| is_function(frame, function, &script);
    let has = |s: &Sample| {
        let leaf = s.frames.iter().position(|f| is(f, "leaf"));
        leaf.is_some_and(|at| s.frames.get(at + 1).is_some_and(|f| is(f, "middle")))
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
    let told = symbol.trim_start_matches("JS:").trim_start_matches(['*', '~', '^', '+', '\'']);
    object == "perf-map"
        && told
            .split_once(' ')
            .is_some_and(|(name, place)| name == function && place.starts_with(&*script.to_string_lossy()))
}
