//! Calls of null and wild pointers show their caller; an address without code is never a frame; and a capture that
//! interrupts another one during the recovery of a failed read is complete.

use std::process::Command;
use uunwind_tests::{compile, paths, process, uu};

#[test]
fn addresses_that_are_no_code() {
    let scratch = paths::scratch("wild-calls");
    let program = compile::with_library(&scratch, "wild_calls", &["-Wno-clobbered"]);
    let out = process::run(&mut Command::new(&program), &scratch, uu::LIMIT).expect_code(0);
    println!("{}", out.text());
    assert_eq!(out.stdout.lines().count(), 19, "{}", out.text());
}
