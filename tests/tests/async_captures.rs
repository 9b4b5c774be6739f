//! Captures anywhere: a timer of 5 kHz in a deep, random chain of calls, prologues and epilogues included. All are complete,
//! and all are the chain, whether its rules are interpreted in place or come from tables. `UU_CAPTURES=N` takes
//! N of each.

use std::process::Command;
use uunwind_tests::{compile, paths, process, uu};

#[test]
fn every_capture_is_the_chain() {
    let scratch = paths::scratch("async");
    let library = paths::tree().join("lib");
    let options = [
        format!("-I{}", paths::tree().join("include").display()),
        library.join("libuu.so.0").display().to_string(),
        format!("-Wl,-rpath,{}", library.display()),
        "-Wno-clobbered".to_owned(),
    ];
    let options: Vec<&str> = options.iter().map(|o| &**o).collect();
    let program = compile::gcc(&scratch, "async", &["native/async.c"], &options);
    let mut command = Command::new(&program);
    command.arg(std::env::var_os("UU_CAPTURES").unwrap_or_else(|| "5000".into()));
    command.env("XDG_CACHE_HOME", scratch.join("cache"));
    let out = process::run(&mut command, &scratch, uu::LIMIT).expect_code(0).stdout;
    println!("{out}");
    let number = |line: &str, what: &str| -> u64 {
        let rest = line.split_once(what).expect("told").1;
        rest.trim_start().split([',', ' ']).next().and_then(|n| n.parse().ok()).expect("a number")
    };
    for kind in ["in place: ", "tables: "] {
        let line = out.lines().find_map(|l| l.strip_prefix(kind)).expect("both kinds run");
        assert!(number(line, "in the chain ") * 10 > number(line, "captures ") * 8, "{out}");
        assert_eq!(number(line, "wrong "), 0, "{out}");
    }
}
