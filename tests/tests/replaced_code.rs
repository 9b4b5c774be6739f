//! Code that takes the place of a library that was unloaded: nothing that was cached of the library is used for it,
//! whether it is another library with the same headers, or a window, and in any link namespace.

use std::path::{Path, PathBuf};
use std::process::Command;
use uunwind_tests::samples::Frame;
use uunwind_tests::{compile, paths, process, uu};

/// No build-id; and one that does not follow from the contents.
const BUILD_IDS: [&str; 2] = ["-Wl,--build-id=none", "-Wl,--build-id=0x00112233445566778899aabbccddeeff00112233"];

/// Two libraries that differ in the size of one frame, with this option.
fn libraries(scratch: &Path, build_id: &str) -> [PathBuf; 2] {
    [("first", "300"), ("second", "600")].map(|(name, room)| {
        let options = ["-shared", "-fPIC", &format!("-DROOM={room}"), "-Wno-missing-prototypes", build_id];
        compile::gcc(scratch, &format!("lib{name}.so"), &["native/replaced_lib.c"], &options)
    })
}

fn program(scratch: &Path) -> PathBuf {
    let library = paths::tree().join("lib");
    let options = [
        format!("-I{}", paths::tree().join("include").display()),
        library.join("libuunwind.so.0").display().to_string(),
        format!("-Wl,-rpath,{}", library.display()),
    ];
    let options: Vec<&str> = options.iter().map(|option| &**option).collect();
    let options: Vec<&str> = options.into_iter().chain(["-fno-optimize-sibling-calls"]).collect();
    compile::gcc(scratch, "replaced", &["native/replaced.c"], &options)
}

/// How often the program says that code took another's place.
fn taken(stdout: &str) -> u32 {
    stdout.split_whitespace().last().and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("no number: {stdout}"))
}

#[test]
fn a_library_that_looks_like_the_one_before_it_has_its_own_rules() {
    let scratch = paths::scratch("replaced-library");
    let program = program(&scratch);
    for build_id in BUILD_IDS {
        let libraries = libraries(&scratch, build_id);
        for reads in ["guarded", "probed"] {
            let mut command = Command::new(&program);
            command.args([reads, "library"]).args(&libraries);
            let out = process::run(&mut command, &scratch, uu::LIMIT).expect_code(0);
            assert!(taken(&out.stdout) >= 15, "{build_id}, {reads}: other places were chosen: {}", out.text());
        }
    }
}

#[test]
fn a_window_where_a_library_was_has_its_own_rules_in_every_namespace() {
    let scratch = paths::scratch("replaced-by-window");
    let program = program(&scratch);
    let [library, _] = libraries(&scratch, BUILD_IDS[0]);
    let auditor = scratch.join("auditor.c");
    std::fs::write(&auditor, "unsigned la_version(unsigned version) { return version; }\n").expect("scratch");
    let auditor = compile::gcc_files(&scratch, "libauditor.so", &[auditor], &["-shared", "-fPIC"]);
    for reads in ["guarded", "probed"] {
        for (from, audit) in [("base", false), ("namespace", false), ("base", true)] {
            let mut command = Command::new(&program);
            command.args([reads, from]).arg(&library);
            if audit {
                command.env("LD_AUDIT", &auditor);
            }
            let out = process::run(&mut command, &scratch, uu::LIMIT).expect_code(0);
            assert_eq!(taken(&out.stdout), 1, "{reads}, {from}, audited {audit}: {}", out.text());
        }
    }
}

/// The sampler's walks, and the files that its samples are named by.
#[test]
fn samples_of_a_library_that_looks_like_the_one_before_it_are_whole_and_named_by_its_file() {
    let scratch = paths::scratch("replaced-recorded");
    let program = program(&scratch);
    let [first, second] = libraries(&scratch, BUILD_IDS[0]);
    let words = [program.as_os_str(), "signal".as_ref(), "library".as_ref(), first.as_os_str(), second.as_os_str()];
    let recording = uu::record(&scratch, &["--explicit", "-r", "1"], |_| {}, &words).expect_code(0);
    assert!(taken(&recording.outcome.stdout) >= 15, "other places were chosen: {}", recording.outcome.text());
    let samples = recording.samples();
    let mut through = [0, 0];
    for sample in samples.iter().filter(|sample| sample.frames.iter().any(|frame| frame.name() == "against_libgcc")) {
        let at = sample.frames.iter().position(|frame| frame.name() == "work");
        let at = at.unwrap_or_else(|| panic!("no frame of the library: {}", sample.text()));
        assert_eq!(sample.frames.get(at + 1).map(Frame::name), Some("hop"), "{}", sample.text());
        let Frame::Native { object, .. } = &sample.frames[at] else { panic!("{}", sample.text()) };
        through.iter_mut().zip(["libfirst.so", "libsecond.so"]).for_each(|(count, file)| {
            *count += u32::from(object.ends_with(file));
        });
    }
    assert_eq!(through, [100, 100], "samples through each library");
}

/// A file that somebody makes shorter while it is mapped (`cp` onto it does): what was read of it before is not read
/// again unasked, although no fault can be handled.
#[test]
fn a_library_whose_file_becomes_shorter_ends_no_program() {
    let scratch = paths::scratch("truncated");
    let options = ["-shared", "-fPIC", "-Wl,-z,separate-code", "-Wno-missing-prototypes"];
    let library = compile::gcc(&scratch, "libtruncated.so", &["native/truncated_lib.c"], &options);
    let bytes = std::fs::read(&library).expect("it was made");
    let file = object::File::parse(&*bytes).expect("ELF");
    let text = object::Object::section_by_name(&file, ".text").expect("code");
    let (at, len) = object::ObjectSection::file_range(&text).expect("code");
    let end = (at + len).next_multiple_of(4096);
    assert!(end < bytes.len() as u64, "nothing lies after the code");
    let program = compile::with_library(&scratch, "truncated", &[library.to_str().expect("text"), "-Wl,-z,now"]);
    let mut command = Command::new(&program);
    command.arg(&library).arg(end.to_string());
    let out = process::run(&mut command, &scratch, uu::LIMIT).expect_code(0).stdout;
    // Two frames at least (the handler of the call, the library's function), then a reason.
    let (first, again) = out.split_once('\n').expect("two lines");
    let stop: u32 = first.rsplit(' ').next().and_then(|n| n.parse().ok()).expect("a number");
    assert!(first.starts_with("before 1, after: frames ") && stop == 51, "{out}");
    assert_eq!(again, "again 1\n");
}
