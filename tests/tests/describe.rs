//! Frames in words and numbers for stacks, in programs without a recorder.

use std::process::Command;
use uunwind_tests::{compile, paths, process, uu};

#[test]
fn native_frames_are_described_as_the_loader_describes_them() {
    let scratch = paths::scratch("describe");
    let program = compile::with_library(&scratch, "describe", &[]);
    let out = process::run(&mut Command::new(program), &scratch, uu::LIMIT).expect_code(0);
    let objects = |line: &str| line.rsplit_once(" in ")?.1.split(' ').next()?.parse::<u32>().ok();
    let described: Vec<u32> = out.stdout.lines().filter_map(objects).collect();
    assert!(out.stdout.ends_with("ok\n") && described.len() == 2, "{}", out.text());
    assert!(described.iter().all(|objects| *objects >= 2), "the program and libc: {}", out.text());
}

#[test]
fn a_stack_has_one_id_whoever_asks_and_wherever() {
    let scratch = paths::scratch("stack-ids");
    let program = compile::with_library(&scratch, "stack_ids", &["-pthread"]);
    process::run(&mut Command::new(program), &scratch, uu::LIMIT).expect_code(0);
}

#[test]
fn ids_of_very_many_stacks_agree_with_their_order() {
    let scratch = paths::scratch("stack-map");
    let program = compile::with_library(&scratch, "stack_map", &["-pthread"]);
    let out = process::run(&mut Command::new(program), &scratch, uu::LIMIT).expect_code(0);
    println!("{}", out.stdout);
}

#[test]
fn frames_are_described_where_faults_cannot_be_handled() {
    let scratch = paths::scratch("describe-unmapped");
    let program = compile::with_library(&scratch, "describe_unmapped", &[]);
    let out = process::run(&mut Command::new(program), &scratch, uu::LIMIT).expect_code(0);
    assert_eq!(out.stdout, "ok\n");
}
