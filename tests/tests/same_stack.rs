//! Captures of the same stack again, of stacks that share their outer part, and through libraries that come and go at one place: what
//! is kept of a thread's last capture never shows.

use std::process::Command;
use uunwind_tests::{compile, paths, process, uu};

#[test]
fn what_is_kept_of_the_last_capture_never_shows() {
    let scratch = paths::scratch("same-stack");
    let library = paths::tree().join("lib");
    let options = [
        format!("-I{}", paths::tree().join("include").display()),
        library.join("libuu.so.0").display().to_string(),
        format!("-Wl,-rpath,{}", library.display()),
    ];
    let options: Vec<&str> = options.iter().map(|option| &**option).collect();
    let program = compile::gcc(&scratch, "same_stack", &["native/same_stack.c"], &options);
    let part = |name: &str, room: &str| {
        compile::gcc(&scratch, name, &["native/same_stack_lib.c"], &["-shared", "-fPIC", &format!("-DROOM={room}")])
    };
    let (small, large) = (part("libsmall.so", "200"), part("liblarge.so", "600"));
    let out = process::run(Command::new(&program).arg(small).arg(large), &scratch, uu::LIMIT).expect_code(0);
    println!("{}", out.stdout);
    let numbers: Vec<u64> = out.stdout.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    // 2,048 leaves with four captures each, and two of each library.
    assert_eq!(numbers[0], 2048 * 4 + 400, "{}", out.text());
    assert!(numbers[1] > 100, "the libraries are seldom at the same place: {}", out.text());
}
