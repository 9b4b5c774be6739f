//! Completions and manual pages, by the programs that use them.

use std::path::Path;
use std::process::Command;
use uunwind_tests::{paths, process, skips, uu};

fn installed(tool: &str) -> bool {
    Command::new(tool).arg("--version").output().is_ok_and(|done| done.status.success())
}

/// The script for a shell, in a file.
fn script(shell: &str, scratch: &Path) -> std::path::PathBuf {
    let made = process::run(Command::new(paths::uu()).args(["completions", shell]), scratch, uu::LIMIT).expect_code(0);
    let path = scratch.join(shell);
    std::fs::write(&path, made.stdout).expect("scratch");
    path
}

/// What bash offers when TAB is pressed at the end of these words, the last of which may be empty.
fn offered(words: &[&str]) -> Vec<String> {
    let scratch = paths::scratch("bash");
    let script = script("bash", &scratch);
    // As bash itself does: the function that the script has registered for `uu` gets command, word and the one before
    // it.
    let press = "source \"$1\"; shift
        registered=$(complete -p uu); function=${registered#*-F }; function=${function%% *}
        COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); COMP_LINE=\"$*\"; COMP_POINT=${#COMP_LINE}
        \"$function\" uu \"${COMP_WORDS[COMP_CWORD]}\" \"${COMP_WORDS[COMP_CWORD-1]}\"
        printf '%s\\n' \"${COMPREPLY[@]}\"";
    let mut bash = Command::new("bash");
    bash.args(["--norc", "-c", press, "bash"]).arg(&script).args(words);
    let done = process::run(&mut bash, &scratch, uu::LIMIT).expect_code(0);
    assert_eq!(done.stderr, "", "{words:?}");
    done.stdout.lines().map(str::to_owned).collect()
}

#[test]
fn bash_completes_commands_options_and_values() {
    assert_eq!(offered(&["uu", "rec"]), ["record"]);
    assert_eq!(offered(&["uu", "sframe", "ma"]), ["make"]);
    assert_eq!(offered(&["uu", "completions", "f"]), ["fish"]);
    assert_eq!(offered(&["uu", "record", "--native-frames", "sh"]), ["show"]);
    assert_eq!(offered(&["uu", "report", "-f", "sp"]), ["speedscope"]);
    assert_eq!(offered(&["uu", "man", "sn"]), ["snapshot"]);
    let options = offered(&["uu", "record", "--no-"]);
    assert!(["--no-keep", "--no-children"].iter().all(|option| options.iter().any(|o| o == option)), "{options:?}");
    let all = offered(&["uu", ""]);
    for command in ["record", "report", "view", "diff", "dump", "doctor", "man"] {
        assert!(all.iter().any(|word| word == command), "no {command} in {all:?}");
    }
}

#[test]
fn zsh_and_fish_take_their_scripts() {
    for shell in ["zsh", "fish"] {
        if !installed(shell) {
            skips::skipped(&format!("completions in {shell}"), &format!("{shell} is not here"));
            continue;
        }
        let scratch = paths::scratch(shell);
        let script = script(shell, &scratch);
        process::run(Command::new(shell).arg("-n").arg(&script), &scratch, uu::LIMIT).expect_code(0);
    }
}

/// What fish offers at the end of a line, without descriptions.
fn offered_by_fish(script: &Path, scratch: &Path, line: &str) -> Vec<String> {
    let mut fish = Command::new("fish");
    // It completes programs that it finds only.
    let path = format!("{}:/usr/bin:/bin", paths::uu().parent().expect("a folder").display());
    fish.args(["--no-config", "-c", "source $argv[1]; complete -C $argv[2]"]).arg(script).arg(line);
    fish.env("PATH", path).env("HOME", scratch).current_dir(scratch);
    let done = process::run(&mut fish, scratch, uu::LIMIT).expect_code(0);
    done.stdout.lines().map(|line| line.split('\t').next().unwrap_or_default().to_owned()).collect()
}

#[test]
fn fish_completes_commands_options_values_and_arguments() {
    if !installed("fish") {
        return skips::skipped("what fish offers", "fish is not here");
    }
    let scratch = paths::scratch("fish-offers");
    let script = script("fish", &scratch);
    std::fs::write(scratch.join("x.uu"), "").expect("scratch");
    let offered = |line: &str| offered_by_fish(&script, &scratch, line);
    assert_eq!(offered("uu rec"), ["record"]);
    assert_eq!(offered("uu record --mode "), ["alloc", "cpu", "lock", "wall"]);
    assert_eq!(offered("uu report -f sp"), ["speedscope"]);
    assert_eq!(offered("uu report x"), ["x.uu"]);
    assert_eq!(offered("uu completions "), ["bash", "fish", "zsh"]);
    assert_eq!(offered("uu man sn"), ["snapshot"]);
    // A number, no file.
    assert_eq!(offered("uu dump -p "), Vec::<String>::new());
}

#[test]
fn manual_pages_are_right_for_their_readers() {
    let scratch = paths::scratch("pages");
    let pages = scratch.join("man1");
    std::fs::create_dir(&pages).expect("scratch");
    let mut make = Command::new(paths::uu());
    process::run(make.args(["man", "--all"]).arg(&pages), &scratch, uu::LIMIT).expect_code(0);
    let (groff, mandoc) = (installed("groff"), Command::new("mandoc").arg("-V").output().is_ok());
    if !groff {
        skips::skipped("warnings of groff for manual pages", "groff is not here");
    }
    if !mandoc {
        skips::skipped("warnings of mandoc for manual pages", "mandoc is not here");
    }
    let mut count = 0;
    for page in std::fs::read_dir(&pages).expect("the pages") {
        let page = page.expect("a page").path();
        count += 1;
        if groff {
            let mut lint = Command::new("groff");
            let said = process::run(lint.args(["-man", "-Tutf8", "-ww", "-z"]).arg(&page), &scratch, uu::LIMIT);
            assert!(said.code() == 0 && said.stderr.is_empty(), "{}: {}", page.display(), said.text());
        }
        if mandoc {
            let mut lint = Command::new("mandoc");
            process::run(lint.args(["-Tlint", "-Werror"]).arg(&page), &scratch, uu::LIMIT).expect_code(0);
        }
    }
    assert!(count >= 14, "{count} pages");
    if !installed("man") {
        return skips::skipped("a manual page shown by man", "man is not here");
    }
    let mut man = Command::new("man");
    man.arg("-l").arg(pages.join("uu-record.1")).env("LC_ALL", "C.UTF-8").env("MANPAGER", "cat").env("MANWIDTH", "100");
    let shown = process::run(&mut man, &scratch, uu::LIMIT).expect_code(0).stdout;
    // Lines are aligned on both sides.
    let shown = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    for text in ["uu-record - Runs a program", "--native-frames <MODE>", "-p, --pid <PID>"] {
        assert!(shown.contains(text), "no {text:?} in {shown}");
    }
}
