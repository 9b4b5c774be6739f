//! Captures of the same stack again, of stacks that share their outer part, and through libraries that are loaded and
//! unloaded at one address: the cache of a thread's last capture never changes a result.

use std::process::Command;
use std::time::Duration;
use uunwind_tests::{compile, paths, process, uu};

/// The library's slots grow with the threads that are alive, and with no others: a slot whose thread is gone is taken
/// over.
#[test]
fn any_number_of_threads_have_their_stacks() {
    let scratch = paths::scratch("many-captures");
    let program = compile::with_library(&scratch, "many_captures", &["-lpthread", "-fno-omit-frame-pointer"]);
    let run = |live: &str, gone: &str| {
        let out = process::run(Command::new(&program).args([live, gone]), &scratch, uu::LIMIT).expect_code(0).stdout;
        println!("{out}");
        let numbers: Vec<u64> = out.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        assert!(out.starts_with(&format!("live {live} gone {gone} wrong 0 ")), "{out}");
        numbers[3]
    };
    run("5000", "0");
    // More than three levels would hold.
    assert_eq!(run("0", "40000"), 0, "KiB were mapped for threads of which one was alive at a time");
}

#[test]
fn what_is_kept_of_the_last_capture_never_shows() {
    let scratch = paths::scratch("same-stack");
    let program = compile::with_library(&scratch, "same_stack", &[]);
    let part = |name: &str, room: &str, kind: &str| {
        let options = ["-shared", "-fPIC", &format!("-DROOM={room}"), kind];
        compile::gcc(&scratch, name, &["native/same_stack_lib.c"], &options)
    };
    let plain = "-fomit-frame-pointer";
    let libraries = [
        part("libsmall.so", "200", plain),
        part("liblarge.so", "600", plain),
        part("libframed.so", "900", "-fno-omit-frame-pointer"),
    ];
    let out = process::run(Command::new(&program).args(libraries), &scratch, uu::LIMIT).expect_code(0);
    println!("{}", out.stdout);
    let numbers: Vec<u64> = out.stdout.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    // 2,048 leaves with four captures each, and two of each library.
    assert_eq!(numbers[0], 2048 * 4 + 400, "{}", out.text());
    assert!(numbers[1] > 100, "the libraries are seldom at the same place: {}", out.text());
}

#[test]
fn captures_that_are_interrupted_anywhere_leave_nothing_wrong() {
    let scratch = paths::scratch("interrupted-captures");
    let program = compile::with_library(&scratch, "interrupted_captures", &["-pthread", "-mno-red-zone"]);
    // Number of threads; `UU_CAPTURES=N` for more.
    let threads = std::env::var("UU_CAPTURES").unwrap_or("400".to_owned());
    let threads: u64 = threads.parse().expect("UU_CAPTURES is a number");
    let limit = uu::LIMIT + Duration::from_millis(40 * threads);
    let out = process::run(Command::new(&program).arg(threads.to_string()), &scratch, limit).expect_code(0).stdout;
    println!("{out}");
    let numbers: Vec<u64> = out.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    // Each thread's first capture is interrupted, if it is long enough; and one at each of some hundred instructions.
    assert!(numbers[1] > threads && numbers[2] > 200, "little was interrupted: {out}");
}

/// From inside a handler, through the signal frame: whatever instruction was interrupted, and on whichever stack.
#[test]
fn captures_in_handlers_are_those_of_the_interrupted_stack() {
    let scratch = paths::scratch("captured-handlers");
    let program = compile::with_library(&scratch, "captured_handlers", &["-mno-red-zone"]);
    let out = process::run(&mut Command::new(&program), &scratch, uu::LIMIT).expect_code(0).stdout;
    println!("{out}");
    let numbers: Vec<u64> = out.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    assert!(numbers[1] > 2000 && numbers[0] == 4 * numbers[1], "{out}");
}
