//! Libraries that come and go while a program is sampled: every frame bears the name that the program itself knows, and
//! the program's own dlopen keeps its meaning.

use std::ffi::OsStr;
use std::path::Path;
use uunwind_tests::samples::{completeness, Frame, Sample};
use uunwind_tests::{compile, paths, uu};

const BUILD_ID: &str = "-Wl,--build-id=0x4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e";

/// Functions that the compiler's start files bring into every object, without unwind information: a stack ends there, and
/// says so.
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

/// Checks what is said of the numbered libraries: function, file and the program's own number agree. Returns how many
/// samples lay in a library's work, in constructors and in destructors.
#[track_caller]
fn check(samples: &[Sample]) -> [usize; 3] {
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
                seen[kind] += 1;
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
    let words = [program.as_os_str(), scratch.as_os_str(), OsStr::new(&count), OsStr::new("6")];
    let recording = uu::record(&scratch, &["--explicit", "-r", "999"], |_| {}, &words).expect_code(0);
    let samples = recording.samples();
    let reasons = completeness(&samples).1;
    let seen = check(&samples);
    println!("{} samples, {reasons:?}; {seen:?}; {}", samples.len(), recording.outcome.text());
    assert!(seen.iter().all(|n| *n >= 200), "work, constructors, destructors: {seen:?}");
    for cut in samples.iter().filter(|s| !s.complete()) {
        let outermost = cut.frames.last().map_or("", Frame::name);
        assert!(START_FILES.contains(&outermost), "not whole: {}", cut.text());
    }
}
