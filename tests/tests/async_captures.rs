//! Captures anywhere: a timer of 5 kHz in a deep, random chain of calls, prologues and epilogues included. All are
//! complete, and all are the chain, whether its rules are interpreted in place or come from tables. `UU_CAPTURES=N`
//! takes N of each.

use std::process::Command;
use std::time::Duration;
use uunwind_tests::{compile, paths, process, uu};

#[test]
fn every_capture_is_the_chain() {
    let scratch = paths::scratch("async");
    let program = compile::with_library(&scratch, "async", &["-Wno-clobbered"]);
    let captures = std::env::var("UU_CAPTURES").map_or(5000, |n| n.parse().expect("UU_CAPTURES is a number"));
    let mut command = Command::new(&program);
    command.arg(captures.to_string());
    command.env("XDG_CACHE_HOME", scratch.join("cache"));
    // Of each kind, 500 in a second at least: a tenth of what the timer asks for.
    let limit = uu::LIMIT + Duration::from_millis(4 * captures);
    let out = process::run(&mut command, &scratch, limit).expect_code(0).stdout;
    println!("{out}");
    let number = |line: &str, what: &str| -> u64 {
        let rest = line.split_once(what).expect("a number after it").1;
        rest.trim_start().split([',', ' ']).next().and_then(|n| n.parse().ok()).expect("a number")
    };
    for kind in ["in place: ", "tables: "] {
        let line = out.lines().find_map(|l| l.strip_prefix(kind)).expect("both kinds run");
        assert!(number(line, "in the chain ") * 10 > number(line, "captures ") * 8, "{out}");
        assert_eq!(number(line, "wrong "), 0, "{out}");
    }
}
