//! Every example in C compiles without a warning, runs, and does what it demonstrates.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use uunwind_tests::own_walks::{self, Reads};
use uunwind_tests::samples::{Frame, Sample};
use uunwind_tests::{compile, paths, process, uu};

/// Compiles `examples/NAME/NAME.c` against the header and the library of the laid-out tree, and runs it.
fn run(name: &str) -> String {
    let scratch = paths::scratch(&format!("example-{name}"));
    let program = build(name, &scratch);
    process::run(&mut Command::new(&program), &scratch, uu::LIMIT).expect_code(0).stdout
}

fn build(name: &str, scratch: &Path) -> PathBuf {
    build_from(name, &[paths::root().join(format!("examples/{name}/{name}.c"))], scratch)
}

fn build_from(name: &str, sources: &[PathBuf], scratch: &Path) -> PathBuf {
    let library = paths::tree().join("lib");
    std::os::unix::fs::symlink(library.join("libuunwind.so.0"), scratch.join("libuunwind.so")).expect("scratch");
    let options = [
        format!("-I{}", paths::tree().join("include").display()),
        format!("-L{}", scratch.display()),
        "-luunwind".to_owned(),
        format!("-Wl,-rpath,{}", library.display()),
        "-Werror".to_owned(),
        "-pedantic".to_owned(),
    ];
    let options: Vec<&str> = options.iter().map(|o| &**o).collect();
    compile::gcc_files(scratch, name, sources, &options)
}

/// The lines of `uu.h` that README.md shows.
#[test]
fn readme() {
    let scratch = paths::scratch("example-readme");
    let page = std::fs::read_to_string(paths::root().join("README.md")).expect("README.md");
    let shown = page.split("```c\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a block of C");
    let source = scratch.join("readme.c");
    let main = "\nint main(void) {\n    print_stack();\n    return 0;\n}\n";
    std::fs::write(&source, [shown, main].concat()).expect("scratch");
    let program = build_from("readme", &[source], &scratch);
    let out = process::run(&mut Command::new(&program), &scratch, uu::LIMIT).expect_code(0).stdout;
    let (frames, stop) = out.trim_end().rsplit_once('\n').expect("frames and the reason");
    // main, what calls it in the C library, and _start.
    assert!(frames.lines().count() >= 3 && frames.lines().all(|line| line.starts_with("0x")), "{out}");
    assert_eq!(stop, "stop reason 1");
}

#[test]
fn capture() {
    let out = run("capture");
    assert!(out.contains("sum 6") && out.contains("stop 1"), "{out}");
    let objects: Vec<&str> = out.lines().filter_map(|l| l.strip_prefix("frame ")?.split(' ').nth(1)).collect();
    let exact = out.lines().filter(|l| l.ends_with(" exact")).count();
    assert_eq!(exact, 1, "only the interrupted frame is exact: {out}");
    // The compiler may turn the recursion into a loop; sum, main and _start are there in any case.
    let own = |object: &&str| Path::new(object).file_name().is_some_and(|n| n == "capture");
    assert!(objects.iter().filter(|o| own(o)).count() >= 3, "{out}");
}

#[test]
fn window() {
    let out = run("window");
    let wanted = ["register 0", "again -17", "frames in the window 1, stop 1", "unregister 0", "unknown -2"];
    assert_eq!(out.lines().collect::<Vec<_>>(), wanted);
}

/// Windows of every kind, filled, copied, swapped and wiped, under captures by hand and by a timer.
#[test]
fn jit() {
    let out = run("jit");
    let kinds = if paths::tree().join("include/uu_plugin.h").exists() { 5 } else { 4 };
    assert_eq!(out, format!("{kinds} kinds, 601 stacks, 0 wrong\n"));
}

/// The same program, recorded: each frame has the name that its function had in its epoch.
#[test]
fn jit_recorded() {
    let scratch = paths::scratch("example-jit-recorded");
    let program = build("jit", &scratch);
    let arguments = [program.as_os_str(), OsStr::new("signal")];
    let recording = uu::record(&scratch, &["--explicit", "-r", "1"], |_| {}, &arguments).expect_code(0);
    are_of_their_epochs(&recording.outcome, &recording.samples());
    // The same addresses may belong to another function later: reports must also distinguish the epochs.
    let folded = recording.report("folded");
    assert!((0..4).all(|epoch| folded.contains(&format!("jit_1_0_epoch_{epoch};"))), "{folded}");
}

/// The same without a recorder: the program's own handler calls uu_walk(), and the frames are named when it ends.
#[test]
fn jit_by_uu_walk() {
    for reads in Reads::ALL {
        let scratch = paths::scratch(&format!("example-jit-{}", reads.suffix()));
        let program = build("jit", &scratch);
        let arguments = [program.as_os_str(), OsStr::new("signal")];
        let walked = own_walks::explicit(&scratch, reads, |_| {}, &arguments).expect("it runs");
        are_of_their_epochs(&walked.outcome, &walked.samples);
    }
}

/// Each stack that the program printed is the one of the sample that it asked for.
#[track_caller]
fn are_of_their_epochs(outcome: &process::Outcome, samples: &[Sample]) {
    let printed = outcome.stdout.lines().filter_map(|line| line.strip_prefix("stack "));
    let wanted: Vec<Vec<&str>> = printed.map(|stack| stack.split(' ').collect()).collect();
    let of_jit = |sample: &Sample| {
        let jit = sample.frames.iter().filter(|f| matches!(f, Frame::Jit { by_frame_pointer: false, .. }));
        jit.map(|f| f.name().to_owned()).collect::<Vec<_>>()
    };
    let explicit: Vec<&Sample> = samples.iter().filter(|s| s.kind == "explicit").collect();
    assert!(wanted.len() == 9 && explicit.iter().all(|s| s.complete()), "{}", outcome.text());
    assert_eq!(explicit.into_iter().map(of_jit).collect::<Vec<_>>(), wanted);
}
