//! `uu report -f samples` shows inlined functions as addr2line does, and tail calls as gdb does.

use std::path::{Path, PathBuf};
use std::process::Command;
use uunwind_tests::{compile, paths, skips, uu};

fn program(scratch: &Path) -> PathBuf {
    let library = compile::shared(scratch, "libtail.so", &["native/tail_library.c"]);
    let rpath = format!("-Wl,-rpath,{}", scratch.display());
    compile::gcc(scratch, "tail", &["native/tail_calls.c"], &["-no-pie", library.to_str().expect("UTF-8"), &rpath])
}

/// The frames of each sample from `leaf` to main as the report has them, without their first two words' indentation.
fn blocks(report: &str) -> Vec<Vec<String>> {
    let explicit = report.split("\n\n").filter(|block| block.contains(" kind explicit "));
    let frames = |block: &str| {
        let lines = block.lines().map(|line| line.trim().to_owned());
        let from = lines.skip_while(|line| !line.starts_with("native leaf+"));
        let mut done = false;
        from.take_while(|line| !std::mem::replace(&mut done, line.starts_with("native main+"))).collect()
    };
    explicit.map(frames).collect()
}

/// The kind and name of a line: `native leaf`, `inlined x`, or a note on a tail call as it is.
fn short(line: &str) -> String {
    match line.split_once(['+', ' ']) {
        Some(("native", rest)) => format!("native {}", rest.split('+').next().unwrap_or_default()),
        Some(("inlined", rest)) => format!("inlined {}", rest.split(" (").next().unwrap_or_default()),
        _ => line.to_owned(),
    }
}

fn recorded(name: &str) -> (PathBuf, Vec<Vec<String>>) {
    let scratch = paths::scratch(name);
    let program = program(&scratch);
    let recording = uu::record(&scratch, &["--explicit", "-r", "1"], |_| {}, &[program.as_ref()]).expect_code(0);
    (program, blocks(&recording.report("samples")))
}

#[test]
fn a_tail_call_is_noted_where_the_code_shows_it_and_nowhere_else() {
    let (_, blocks) = recorded("tail-calls");
    let kinds: Vec<Vec<String>> = blocks.iter().map(|lines| lines.iter().map(|line| short(line)).collect()).collect();
    let note = |name: &str| format!("(tail call: called {name}, which jumped here)");
    let expected: [&[&str]; 8] = [
        &["native leaf", &note("first"), "inlined inlined_one", "inlined inlined_two", "native main"],
        &["native leaf", "native main"],
        &["native leaf", "native tail_library", &note("leaves"), "native main"],
        // Where a register holds the target, nothing is known.
        &["native leaf", "native main"],
        &["native leaf", "native split", "native main"],
        &["native leaf", "native rarely", "native split.cold", "native main"],
        &["native leaf", "native split.cold", "native main"],
        &["native leaf", "native split", "native main"],
    ];
    assert_eq!(kinds.len(), 5 * expected.len(), "{blocks:#?}");
    for (kinds, expected) in kinds.iter().zip(expected.iter().cycle()) {
        assert_eq!(kinds, expected);
    }
}

#[test]
fn gdb_has_the_same_tail_calls() {
    let (program, blocks) = recorded("tail-calls-gdb");
    let commands = ["set debuginfod enabled off", "set confirm off", "break raise", "run", "bt", "kill"];
    let mut gdb = Command::new("gdb");
    gdb.args(["-q", "-batch", "-nx"]);
    gdb.args(commands.iter().flat_map(|command| ["-ex", command]));
    let Ok(done) = gdb.arg(&program).output() else { return skips::skipped("tail_calls::gdb", "gdb is not installed") };
    let said = String::from_utf8_lossy(&done.stdout);
    // #3  0x0000000000401234 in first (n=...) at ...
    let name = |line: &str| {
        let (_, rest) = line.strip_prefix('#')?.split_once(' ')?;
        let rest = rest.trim();
        let rest =
            rest.split_once(" in ").filter(|(address, _)| address.starts_with("0x")).map_or(rest, |(_, rest)| rest);
        Some(rest.split(' ').next()?.to_owned())
    };
    let names: Vec<String> = said.lines().filter_map(name).skip_while(|name| name != "leaf").collect();
    // leaf, then the functions without a frame of their own, the last of which main called, then those inlined.
    assert_eq!(names, ["leaf", "middle", "first", "inlined_one", "inlined_two", "main"], "{said}");
    let lines: Vec<String> = blocks[0].iter().map(|line| short(line)).collect();
    assert_eq!(lines[1], format!("(tail call: called {}, which jumped here)", names[2]), "{lines:?}");
}

#[test]
fn inlined_functions_are_those_of_addr2line() {
    let (program, blocks) = recorded("tail-calls-inlined");
    let (main, inlined) = blocks[0].split_last().expect("frames");
    let address = main.rsplit_once(") 0x").expect("an address").1.split(' ').next().expect("an address");
    // A return address: the call lies before it.
    let address = u64::from_str_radix(address, 16).expect("hexadecimal") - 1;
    let done = Command::new("addr2line").args(["-f", "-i", "-e"]).arg(&program).arg(format!("{address:#x}")).output();
    let said = String::from_utf8(done.expect("addr2line (binutils)").stdout).expect("UTF-8");
    let lines: Vec<&str> = said.lines().collect();
    let place =
        |place: &str| place.split(" (").next().unwrap_or_default().rsplit('/').next().unwrap_or_default().to_owned();
    let theirs: Vec<_> = lines.chunks(2).map(|pair| (pair[0].to_owned(), place(pair[1]))).collect();
    let ours: Vec<_> = inlined
        .iter()
        .filter_map(|line| line.strip_prefix("inlined ")?.strip_suffix(')')?.split_once(" ("))
        .map(|(name, at)| (name.to_owned(), place(at)))
        .collect();
    assert_eq!(ours.len(), 2, "{inlined:?}");
    let (outer, inner) = theirs.split_last().expect("functions");
    assert_eq!(ours, inner);
    assert_eq!(outer.0, "main");
}
