//! Every example in C compiles without a warning, runs, and does what it is an example of.

use std::path::Path;
use std::process::Command;
use uunwind_tests::{compile, paths, process, uu};

/// Compiles `examples/NAME/NAME.c` against the header and the library of the laid-out tree, and runs it.
fn run(name: &str) -> String {
    let scratch = paths::scratch(&format!("example-{name}"));
    let library = paths::tree().join("lib");
    std::os::unix::fs::symlink(library.join("libuu.so.0"), scratch.join("libuu.so")).expect("scratch");
    let options = [
        format!("-I{}", paths::tree().join("include").display()),
        format!("-L{}", scratch.display()),
        "-luu".to_owned(),
        format!("-Wl,-rpath,{}", library.display()),
        "-Werror".to_owned(),
        "-pedantic".to_owned(),
    ];
    let options: Vec<&str> = options.iter().map(|o| &**o).collect();
    let source = paths::root().join(format!("examples/{name}/{name}.c"));
    let program = compile::gcc_files(&scratch, name, &[source], &options);
    process::run(&mut Command::new(&program), &scratch, uu::LIMIT).expect_code(0).stdout
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
