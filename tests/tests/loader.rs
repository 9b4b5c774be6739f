//! Libraries that are loaded and unloaded while a program is sampled: every frame has the name that the program itself
//! determines, and the program's own dlopen keeps its meaning.

use std::ffi::OsStr;
use std::path::Path;
use uunwind_tests::pair::both;
use uunwind_tests::samples::{completeness, Frame, Sample};
use uunwind_tests::{compile, paths, skips, uu};

const BUILD_ID: &str = "-Wl,--build-id=0x4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e";

/// Functions that the compiler's start files bring into every object, without unwind information: a stack ends there,
/// and says so.
const START_FILES: &[&str] =
    &["_init", "_fini", "frame_dummy", "register_tm_clones", "deregister_tm_clones", "__do_global_dtors_aux"];

/// Compiles the library that stands for all numbers.
#[track_caller]
fn template(scratch: &Path, options: &[&str]) -> Vec<u8> {
    let options = [&["-shared", "-fPIC", "-g0"], options].concat();
    let path = compile::gcc(scratch, "template.so", &["native/loader_lib.c"], &options);
    std::fs::read(path).expect("it was just made")
}

/// Makes the library with this number.
fn number(template: &[u8], number: usize, path: &Path) {
    let digits = format!("{number:04}").into_bytes();
    let mut bytes = template.to_vec();
    let places: Vec<usize> = (0..bytes.len() - 4).filter(|at| bytes[*at..].starts_with(b"NNNN")).collect();
    let mut next = 0;
    for at in places.into_iter().filter(|at| {
        let first = *at >= next;
        next = if first { at + 4 } else { next };
        first
    }) {
        bytes[at..at + 4].copy_from_slice(&digits);
    }
    std::fs::write(path, bytes).expect("scratch");
}

/// The number that the program put on its stack (digits.h), where the stack says that it is at work on one.
fn on_stack(sample: &Sample) -> Option<usize> {
    let names = sample.native_names();
    let visit = names.iter().position(|name| *name == "visit")?;
    let digits = names[visit..].iter().filter_map(|name| name.strip_prefix('d')?.parse::<usize>().ok());
    Some(digits.take(4).zip([1, 10, 100, 1000]).map(|(digit, power)| digit * power).sum())
}

/// Checks the frames of the numbered libraries: function, file and the program's own number must agree. Returns the
/// weight of the samples in libraries' functions, constructors and destructors: milliseconds, at 999 Hz.
#[track_caller]
fn check(samples: &[Sample]) -> [u64; 3] {
    let mut seen = [0; 3];
    for sample in samples {
        for frame in &sample.frames {
            let Frame::Native { symbol, object, .. } = frame else { continue };
            let file = object.rsplit('/').next().unwrap_or("");
            let Some(of_file) = file.strip_prefix("lib").and_then(|f| f.strip_suffix(".so")?.parse::<usize>().ok())
            else {
                continue;
            };
            let kinds = ["work_", "begin_", "end_"];
            let kind = kinds.iter().position(|kind| symbol.starts_with(kind));
            let of_name = kind.and_then(|kind| symbol.strip_prefix(kinds[kind])?.parse::<usize>().ok());
            if sample.complete() || !START_FILES.contains(&&**symbol) {
                assert_eq!(Some(of_file), on_stack(sample), "another library's file: {}", sample.text());
            }
            if let (Some(kind), Some(of_name)) = (kind, of_name) {
                assert_eq!(of_name, of_file, "another library's name: {}", sample.text());
                seen[kind] += sample.weight;
            }
        }
    }
    seen
}

#[test]
fn five_hundred_libraries_come_and_go_under_a_storm() {
    const COUNT: usize = 500;
    let scratch = paths::scratch("loader-storm");
    let template = template(&scratch, &[BUILD_ID]);
    (0..COUNT).for_each(|i| number(&template, i, &scratch.join(format!("lib{i:04}.so"))));
    let program = compile::gcc(&scratch, "storm", &["native/loader_storm.c"], &["-pthread", "-ldl"]);
    let count = COUNT.to_string();
    let words = [program.as_os_str(), scratch.as_os_str(), OsStr::new(&count), OsStr::new("3")];
    let recording = uu::record(&scratch, &["--explicit", "-r", "999"], |_| {}, &words).expect_code(0);
    let samples = recording.samples();
    let reasons = completeness(&samples).1;
    let seen = check(&samples);
    println!("{} samples, {reasons:?}; {seen:?}; {}", samples.len(), recording.outcome.text());
    assert!(seen.iter().all(|n| *n >= 200), "work, constructors, destructors: {seen:?}");
    whole(&samples);
}

/// Two libraries, and the program that opens them in many ways.
struct Ways {
    scratch: std::path::PathBuf,
    program: std::path::PathBuf,
}

impl Ways {
    #[track_caller]
    fn new(name: &str, options: [&[&str]; 2]) -> Ways {
        let scratch = paths::scratch(name);
        for (i, options) in options.into_iter().enumerate() {
            number(&template(&scratch, options), i + 1, &scratch.join(format!("lib{:04}.so", i + 1)));
        }
        let program = compile::gcc(&scratch, "loader", &["native/loader.c"], &["-ldl"]);
        Ways { scratch, program }
    }

    /// Records one mode of the program.
    #[track_caller]
    fn record(&self, mode: &str) -> (uu::Recording, Vec<Sample>) {
        let words = [self.program.as_os_str(), OsStr::new(mode), self.scratch.as_os_str()];
        let recording = uu::record(&self.scratch, &["-r", "999"], |_| {}, &words).expect_code(0);
        let samples = recording.samples();
        (recording, samples)
    }

    /// Records one mode in which the libraries are at work: all samples whole, and named as the program has it.
    #[track_caller]
    fn named(&self, mode: &str) -> uu::Recording {
        let (recording, samples) = self.record(mode);
        whole(&samples);
        let [work, ..] = check(&samples);
        println!("{mode}: {} samples, {work} ms at work", samples.len());
        assert!(work >= 100, "{mode}: only {work} ms in the libraries, {} samples", samples.len());
        let of_second = weight(samples.iter().filter(|s| s.native_names().contains(&"work_0002")));
        assert!(of_second >= 40, "{mode}: {of_second} ms in the second library");
        recording
    }
}

fn weight<'s>(samples: impl Iterator<Item = &'s Sample>) -> u64 {
    samples.map(|s| s.weight).sum()
}

#[track_caller]
fn whole(samples: &[Sample]) {
    for cut in samples.iter().filter(|s| !s.complete()) {
        let outermost = cut.frames.last().map_or("", Frame::name);
        assert!(START_FILES.contains(&outermost), "not whole: {}", cut.text());
    }
}

/// The program says how often the second library lay where the first had been.
#[track_caller]
fn same_place(recording: &uu::Recording, at_least: usize) {
    let said = recording.outcome.stdout.split("same place ").nth(1).and_then(|t| t.split(' ').next()?.parse().ok());
    assert!(said.is_some_and(|n: usize| n >= at_least), "the loader chose other places: {}", recording.outcome.text());
}

#[test]
fn a_library_where_another_was_a_moment_ago_is_the_new_one() {
    let ways = Ways::new("loader-swap", [&[BUILD_ID], &[BUILD_ID]]);
    same_place(&ways.named("swap"), 30);
}

/// Libraries with the same layout and without build-ids, but with different frame sizes at the same addresses.
#[test]
fn libraries_without_a_build_id_are_distinguished() {
    let plain: &[&str] = &["-Wl,--build-id=none", "-DFRAME=300"];
    let ways = Ways::new("loader-no-id", [plain, &["-Wl,--build-id=none", "-DFRAME=600"]]);
    same_place(&ways.named("swap"), 30);
}

/// Libraries that a constructor opened before the sampler began can be unloaded, unlike those loaded at start.
#[test]
fn what_was_opened_before_us_may_go_away() {
    let mut ways = Ways::new("loader-early", [&[BUILD_ID, "-DFRAME=300"], &[BUILD_ID, "-DFRAME=600"]]);
    let early = compile::shared(&ways.scratch, "libearly.so", &["native/loader_early.c"]);
    let options = ["-ldl", "-Wl,--no-as-needed", early.to_str().expect("UTF-8")];
    ways.program = compile::gcc(&ways.scratch, "early", &["native/loader.c"], &options);
    let words = [ways.program.as_os_str(), OsStr::new("early"), ways.scratch.as_os_str()];
    let opened = ways.scratch.join("lib0001.so");
    let environment = |command: &mut std::process::Command| {
        command.env("UU_TEST_EARLY", &opened);
    };
    let recording = uu::record(&ways.scratch, &["-r", "999"], environment, &words).expect_code(0);
    let samples = recording.samples();
    same_place(&recording, 1);
    whole(&samples);
    let [work, ..] = check(&samples);
    assert!(work >= 100, "{work} ms, {} samples", samples.len());
}

#[test]
fn every_way_to_open_a_library_is_known() {
    let ways = Ways::new("loader-ways", [&[BUILD_ID], &[BUILD_ID]]);
    for mode in ["local", "global", "nodelete", "namespace", "itself"] {
        ways.named(mode);
    }
}

#[test]
fn a_library_in_a_memory_file_is_named() {
    let ways = Ways::new("loader-memory", [&[BUILD_ID], &[BUILD_ID]]);
    for mode in ["memory", "closed-memory"] {
        // SAFETY: geteuid always succeeds.
        if mode == "closed-memory" && unsafe { libc::geteuid() } != 0 {
            skips::skipped("names of an object whose file has no name left", "needs CAP_CHECKPOINT_RESTORE");
            continue;
        }
        let (_, samples) = ways.record(mode);
        whole(&samples);
        let mut work = 0;
        for sample in &samples {
            for name in sample.native_names() {
                if let Some(number) = name.strip_prefix("work_") {
                    assert_eq!(number.parse().ok(), on_stack(sample), "{}", sample.text());
                    work += sample.weight;
                }
            }
        }
        assert!(work >= 200, "{mode}: {work} ms are named, {} samples", samples.len());
    }
}

/// Unowned code: its caller is found by the frame pointer or proved by the stack, and marked as such, or the stack ends
/// there with the reason.
#[test]
fn raw_code_in_a_memory_file_is_never_guessed_through() {
    let ways = Ways::new("loader-code", [&[BUILD_ID], &[BUILD_ID]]);
    let (_, samples) = ways.record("code");
    let mut seen = [0; 2];
    for sample in &samples {
        let frames = &sample.frames;
        let Some(at) = frames.iter().position(|f| f.name() == "called_back") else { continue };
        let outer: Vec<&str> = frames[at + 1..].iter().map(Frame::name).collect();
        match on_stack(sample) {
            // By the frame pointer; or, where it keeps none, by the call and its first instructions.
            Some(kind @ (1 | 2)) => {
                assert_eq!(outer[..2], ["?", "visit"], "{}", sample.text());
                let guessed = frames.iter().any(|f| matches!(f, Frame::Native { by_frame_pointer: true, .. }));
                assert!(guessed, "not marked: {}", sample.text());
                seen[kind - 1] += sample.weight;
            }
            Some(_) => panic!("a frame was guessed: {}", sample.text()),
            None => {
                assert_eq!((outer, sample.stop), (vec!["?"], 20), "{}", sample.text());
                seen[1] += sample.weight;
            }
        }
    }
    assert!(seen.iter().all(|n| *n >= 100), "with a frame pointer, without: {seen:?} ms, {} samples", samples.len());
}

/// iconv's modules are loaded and unloaded inside libc, without a call of dlclose.
#[test]
fn modules_that_libc_loads_and_unloads_by_itself_are_named() {
    let ways = Ways::new("loader-libc", [&[BUILD_ID], &[BUILD_ID]]);
    let (_, samples) = ways.record("iconv");
    whole(&samples);
    let mut seen = [0; 2];
    // A stack that ends in a start file's code, which has no unwind data, does not show the caller of the loader;
    // `whole` has checked those.
    for sample in samples.iter().filter(|s| s.complete()) {
        for frame in &sample.frames {
            let Frame::Native { object, .. } = frame else { continue };
            let Some(module) = object.split("/gconv/").nth(1) else { continue };
            // libc closes a module later, while others are let go: its destructors run below another's iconv_close.
            let closes = sample.native_names().contains(&"_dl_close");
            match (on_stack(sample), module) {
                (Some(1 | 2), "KOI8-R.so" | "CP1255.so") if closes => {}
                (Some(1), "KOI8-R.so") => seen[0] += sample.weight,
                (Some(2), "CP1255.so") => seen[1] += sample.weight,
                (Some(_), "UTF-32.so") => {}
                _ => panic!("another character set's module: {}", sample.text()),
            }
        }
    }
    assert!(seen.iter().all(|n| *n >= 100), "KOI8-R, CP1255: {seen:?} ms, {} samples", samples.len());
    let (_, samples) = ways.record("nss");
    whole(&samples);
    let inside = weight(samples.iter().filter(|s| s.native_names().contains(&"_nss_compat_getpwnam_r")));
    assert!(inside >= 200, "{inside} ms, {} samples lie below libnss_compat's function", samples.len());
}

/// RUNPATH of the caller, errors, scopes and namespaces are as without `uu`, with callers that are not optimised.
#[test]
fn dlopen_keeps_its_meaning() {
    let scratch = paths::scratch("dl-caller");
    let private = scratch.join("private");
    std::fs::create_dir(&private).expect("scratch");
    let object = ["-O0", "-shared", "-fPIC"];
    let source = ["native/dl_caller.c"];
    compile::gcc(&private, "libprivate.so", &source, &[&object[..], &["-DPRIVATE"]].concat());
    let run_path = format!("-Wl,--enable-new-dtags,-rpath,{}", private.display());
    let caller = compile::gcc(&scratch, "libcaller.so", &source, &[&object[..], &["-DCALLER", &run_path]].concat());
    let here = format!("-Wl,--enable-new-dtags,-rpath,{}", scratch.display());
    let caller_path = caller.to_str().expect("UTF-8");
    let program = compile::gcc(&scratch, "dl_caller", &source, &["-O0", "-rdynamic", caller_path, &here]);
    let plain = scratch.join("plain.txt");
    std::fs::write(&plain, "no object").expect("scratch");
    let words = [program.as_os_str(), plain.as_os_str(), caller.as_os_str()];
    let pair = both("dl-caller", &["-r", "999"], |_| {}, &words).same();
    let said = &pair.plain.stdout;
    assert!(pair.plain.code == 0 && said.contains("by the library: there") && said.contains("value 42"), "{said}");
    assert!(said.contains("by the program: not there") && said.contains("own sigaction 1"), "{said}");
}
