//! `uu_mark_interpreter(loop, 0)`: the whole function, compared with its size in the symbol table.

use std::process::Command;
use uunwind_tests::{compile, paths, process, uu};

fn run(name: &str, options: &[&str]) -> String {
    let scratch = paths::scratch(&format!("mark-{name}"));
    let program = compile::with_library(&scratch, "mark", &[&["-O1"], options].concat());
    let table = Command::new("nm").args(["-S", "--defined-only"]).arg(&program).output().expect("binutils").stdout;
    let table = String::from_utf8(table).expect("text");
    let row = table.lines().find(|row| row.ends_with(" T loop")).expect("in the symbol table");
    let size = u64::from_str_radix(row.split(' ').nth(1).expect("a size"), 16).expect("hexadecimal");
    let mut command = Command::new(&program);
    command.arg(size.to_string()).env("XDG_CACHE_HOME", scratch.join("cache"));
    process::run(&mut command, &scratch, uu::LIMIT).expect_code(0).stdout
}

const RIGHT: &str = "whole 0\nagain 1, first 1, last 1\nafter 0\nunmark 0 0\ninside 1, data 1, null 1, unowned 1\n";

#[test]
fn a_function_is_marked_by_its_unwind_information() {
    assert_eq!(run("eh-frame", &[]), RIGHT);
}

#[test]
fn a_function_with_debug_frame_only_is_marked_after_set_up() {
    let out = run("debug-frame", &["-fno-asynchronous-unwind-tables", "-fno-unwind-tables"]);
    assert_eq!(out, format!("before 1\n{RIGHT}"));
}
