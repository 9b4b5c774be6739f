//! Frames in words and numbers for stacks, in programs without a recorder.

use std::process::Command;
use uunwind_tests::crash_report::Report;
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

/// Nothing describes a library's functions: a walk leads on from them by rules made from their code, and says so.
#[test]
fn frames_of_code_that_nothing_describes_say_so() {
    let scratch = paths::scratch("describe-rows");
    // Stripped: .debug_frame would describe it, too.
    let without_rows = ["-shared", "-fPIC", "-s", "-fomit-frame-pointer", "-fno-asynchronous-unwind-tables"];
    let library = compile::gcc(&scratch, "libchain.so", &["native/chain_library.c"], &without_rows);
    let (folder, search) = (format!("-L{}", scratch.display()), format!("-Wl,-rpath,{}", scratch.display()));
    let program = compile::with_library(&scratch, "describe_rows", &[&folder, "-lchain", &search]);
    let mut command = Command::new(&program);
    let out = process::run(command.env("XDG_CACHE_HOME", scratch.join("cache")), &scratch, uu::LIMIT).expect_code(0);
    let mut of_library = 0;
    for line in out.stdout.lines() {
        let Some((path, mark)) = line.rsplit_once(' ').filter(|(path, _)| *path != "end") else {
            assert_eq!(line, "end 1", "complete: {}", out.text());
            continue;
        };
        let is_in_library = library == *path;
        assert_eq!(mark == "code", is_in_library, "{line}: {}", out.text());
        of_library += usize::from(is_in_library);
    }
    // Three functions of it, twice.
    assert_eq!(of_library, 6, "{}", out.text());
    let mut command = uu::command(&scratch, &["run", "--report-crashes", "--json", "--"]);
    let out = process::run(command.arg(&program).arg("crash"), &scratch, uu::LIMIT).expect_code(128 + libc::SIGSEGV);
    let report = Report::one(&out.stderr);
    let frames = &report.crashed().frames;
    let is_in_library = |frame: &&serde_json::Value| frame["object"].as_str().is_some_and(|path| library == *path);
    assert_eq!(frames.iter().filter(is_in_library).count(), 3, "{}", out.text());
    for frame in frames {
        assert_eq!(frame["by_code"], is_in_library(&frame), "{frame}: {}", out.text());
    }
}
