//! Captures at every instruction while control abandons frames or switches to another stack: each complete one is
//! right, whether rules are interpreted in place or come from tables, and each ends where its stack does.

use std::process::Command;
use uunwind_tests::{compile, paths, process, uu};

/// The scenarios, and of how many of their steps at most, in a thousand, no caller needs to be determined.
const SCENARIOS: [(&str, u64); 7] =
    [("longjmp", 0), ("panic", 0), ("clone", 0), ("swapcontext", 0), ("null", 0), ("function", 0), ("label", 0)];

#[track_caller]
fn each_capture_is_right(mode: &[&str]) {
    let scratch = paths::scratch("transfers");
    let library = paths::tree().join("lib");
    let routine = compile::rustc(&scratch, "libtransfers.a", "native/transfers.rs", &["-C", "overflow-checks=off"]);
    let options = [
        format!("-I{}", paths::tree().join("include").display()),
        routine.display().to_string(),
        library.join("libuunwind.so.0").display().to_string(),
        format!("-Wl,-rpath,{}", library.display()),
        "-Wl,-z,now".to_owned(),
        "-Wno-clobbered".to_owned(),
        "-lgcc_s".to_owned(),
        "-lm".to_owned(),
        "-ldl".to_owned(),
        "-pthread".to_owned(),
    ];
    let options: Vec<&str> = options.iter().map(|o| &**o).collect();
    let program = compile::gcc(&scratch, "transfers", &["native/transfers.c"], &options);
    let mut command = Command::new(&program);
    command.args(mode).env("XDG_CACHE_HOME", scratch.join("cache"));
    let out = process::run(&mut command, &scratch, uu::LIMIT).expect_code(0);
    println!("{}", out.text());
    for (name, in_transit) in SCENARIOS {
        let line = out.stdout.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
        let line = line.unwrap_or_else(|| panic!("{name} did not run: {}", out.text()));
        let count = |what: &str| -> u64 {
            let part = line.split(", ").find_map(|part| part.strip_suffix(what));
            part.and_then(|n| n.trim().parse().ok()).unwrap_or_else(|| panic!("no number of '{what}' in: {line}"))
        };
        let (steps, complete) = (count("steps"), count("complete"));
        assert_eq!(count("wrong"), 0, "{}", out.text());
        assert!(steps > 50 && count("in transit") * 1000 <= steps * in_transit, "{line}");
        assert_eq!(complete + count("in transit") + count("at a base"), steps, "{line}");
    }
}

#[test]
fn stacks_left_and_taken_in_place() {
    each_capture_is_right(&[]);
}

#[test]
fn stacks_left_and_taken_by_tables() {
    each_capture_is_right(&["tables"]);
}

/// Boost.Context's switches, by their instructions: nothing describes them. At each instruction the caller is that of
/// the stack that rsp is on.
#[cfg(target_arch = "x86_64")]
#[test]
fn switches_of_contexts_have_their_callers() {
    let scratch = paths::scratch("fcontext");
    let program = compile::with_library(&scratch, "fcontext", &["-O2"]);
    let out = process::run(&mut Command::new(program), &scratch, uu::LIMIT).expect_code(0);
    let counts: Vec<u32> = out.stdout.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [whole, others] = counts[..] else { panic!("{}", out.text()) };
    assert!(whole >= 200 && others == 0, "{}", out.text());
}
