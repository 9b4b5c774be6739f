//! `uu_setup()`: a program without a recorder gets rule tables.

use std::process::Command;
use uunwind_tests::{compile, paths, process, uu};

fn run(name: &str, options: &[&str]) -> String {
    let scratch = paths::scratch(&format!("setup-{name}"));
    let library = paths::tree().join("lib");
    std::os::unix::fs::symlink(library.join("libuunwind.so.0"), scratch.join("libuunwind.so")).expect("scratch");
    let own = [
        format!("-I{}", paths::tree().join("include").display()),
        format!("-L{}", scratch.display()),
        "-luunwind".to_owned(),
        format!("-Wl,-rpath,{}", library.display()),
    ];
    let all: Vec<&str> = own.iter().map(|o| &**o).chain(options.iter().copied()).collect();
    let program = compile::gcc(&scratch, name, &["native/setup.c"], &all);
    let cache = scratch.join("cache");
    let mut out = String::new();
    // The first run builds tables, the second one finds them on the disk.
    for _ in 0..2 {
        let mut command = Command::new(&program);
        command.env("XDG_CACHE_HOME", &cache);
        out = process::run(&mut command, &scratch, uu::LIMIT).expect_code(0).stdout;
    }
    let kept = std::fs::read_dir(cache.join("uu/tables/7")).expect("the cache").count();
    assert!(kept >= 2, "{kept} tables in the cache");
    out
}

const WHOLE: &str = "made tables\nagain the same\nafter 1\n";

#[test]
fn code_without_an_index_is_walked() {
    assert_eq!(run("no-index", &["-Wl,--no-eh-frame-hdr"]), format!("before 0\n{WHOLE}"));
}

#[test]
fn code_with_debug_frame_only_is_walked() {
    let out = run("debug-frame", &["-fno-asynchronous-unwind-tables", "-fno-unwind-tables"]);
    assert_eq!(out, format!("before 0\n{WHOLE}"));
}

#[test]
fn ordinary_code_is_walked_before_and_after() {
    assert_eq!(run("ordinary", &[]), format!("before 1\n{WHOLE}"));
}
