//! docs/troubleshooting.md quotes messages as uu prints them: each is in the sources. docs/design/what-holds-what.md
//! names tests: each is there.

use std::process::Command;
use uunwind_tests::paths;

/// Text of what is shipped, with strings as the compiler joins them.
fn sources() -> String {
    let listed = Command::new("git").args(["ls-files", "-z", "*.rs", "*.js"]).current_dir(paths::root()).output();
    let listed = listed.expect("git lists the project's files");
    assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
    let names = String::from_utf8(listed.stdout).expect("text");
    let outside = |name: &str| ["tests/", "bench/", "fuzz/", "examples/"].iter().any(|top| name.starts_with(top));
    let mut all = String::new();
    for name in names.split('\0').filter(|name| !name.is_empty() && !outside(name) && !name.contains("/tests")) {
        joined(&std::fs::read_to_string(paths::root().join(name)).unwrap_or_else(|e| panic!("{name}: {e}")), &mut all);
    }
    squeezed(&all)
}

/// Without a backslash, the end of its line and the spaces that follow; with `\"` as it is printed.
fn joined(text: &str, all: &mut String) {
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        all.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(next) = rest.strip_prefix('\n') {
            rest = next.trim_start();
        } else if !rest.starts_with('"') {
            all.push('\\');
        }
    }
    all.push_str(rest);
    all.push('\n');
}

/// One space instead of several, with which tables are aligned.
fn squeezed(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    text.chars().for_each(|c| {
        if c != ' ' || !out.ends_with(' ') {
            out.push(c);
        }
    });
    out
}

/// The parts of a quoted message between what differs: words of capitals, numbers, three dots, punctuation.
fn parts(message: &str) -> Vec<String> {
    let differs = |word: &str| {
        let capitals = word.trim_matches(|c: char| !c.is_ascii_uppercase());
        matches!(word, "..." | "N" | "X")
            || ["LD_", "UU_", "NAME", "N s", "0x"].iter().any(|name| word.starts_with(name))
            || (capitals.len() >= 4 && capitals.chars().all(|c| c.is_ascii_uppercase()))
    };
    let mut parts = Vec::new();
    for piece in message.split(['(', ')', ':', ',', '"', '[', ']']) {
        let words: Vec<&str> = piece.split_whitespace().collect();
        parts.extend(words.split(|word| differs(word)).map(|run| run.join(" ")));
    }
    parts.retain(|part| part.len() > 3);
    parts
}

/// Quoted messages, in the first column of tables, of which the sources do not have every part.
fn unknown(document: &str, sources: &str) -> Vec<String> {
    let first = |line: &str| line.strip_prefix("| ").and_then(|rest| rest.split(" |").next().map(str::to_owned));
    let mut wrong = Vec::new();
    for cell in document.lines().filter_map(first) {
        for message in cell.split('`').skip(1).step_by(2) {
            if let Some(part) = parts(message).into_iter().find(|part| !sources.contains(part.as_str())) {
                wrong.push(format!("{message:?}: no {part:?}"));
            }
        }
    }
    wrong
}

#[test]
fn a_message_that_uu_does_not_print_is_found() {
    let mut sources = String::new();
    joined("format!(\"cannot read {path} \\\n    twice: \\\"{x}\\\" failed\")", &mut sources);
    assert_eq!(sources, "format!(\"cannot read {path} twice: \"{x}\" failed\")\n");
    let document =
        "| message | meaning |\n| `cannot read FILE twice`, `failed` | |\n| `cannot write FILE` | `not looked at` |";
    assert_eq!(unknown(document, &sources), ["\"cannot write FILE\": no \"cannot write\""]);
    assert_eq!(parts("plugin \"X\" failed N times in process N"), ["plugin", "failed", "times in process"]);
}

#[test]
fn every_quoted_message_is_printed() {
    let document = std::fs::read_to_string(paths::root().join("docs/troubleshooting.md")).expect("the document");
    assert!(document.lines().filter(|line| line.starts_with("| `")).count() > 50);
    let wrong = unknown(&document, &sources());
    assert!(wrong.is_empty(), "docs/troubleshooting.md quotes what uu does not print:\n{}", wrong.join("\n"));
}

/// The tests that a document names, `file::function`, which are not there.
fn missing_tests(document: &str) -> Vec<String> {
    let quoted = document.split('`').skip(1).step_by(2);
    let is_missing = |(file, function): (&str, &str)| {
        let file = if file.contains('/') { file.to_owned() } else { format!("tests/tests/{file}.rs") };
        let text = std::fs::read_to_string(paths::root().join(file)).unwrap_or_default();
        !text.contains(&format!("fn {function}("))
    };
    let missing = quoted.filter(|name| name.split_once("::").is_some_and(is_missing));
    missing.map(str::to_owned).collect()
}

#[test]
fn every_test_that_is_named_is_there() {
    assert_eq!(missing_tests("`documents::every_test_that_is_named_is_there`, `no`"), [""; 0]);
    let gone = missing_tests("| `documents::no_test` | `nowhere::a_test` | `tests/src/no.rs::a_test` |");
    assert_eq!(gone, ["documents::no_test", "nowhere::a_test", "tests/src/no.rs::a_test"]);
    let document = std::fs::read_to_string(paths::root().join("docs/design/what-holds-what.md")).expect("the document");
    assert!(document.matches("::").count() > 100);
    assert_eq!(missing_tests(&document), [""; 0]);
}
