//! The commands of docs/tutorial.md run as written, in this order, and show what it says that they show.

use std::process::Command;
use uunwind_tests::{executable, paths, process, skips, uu};

/// The lines in blocks of shell commands.
fn commands(document: &str) -> Vec<&str> {
    let blocks = document.split("```sh\n").skip(1).map(|rest| rest.split("```").next().expect("a block's end"));
    blocks.flat_map(str::lines).filter(|line| !line.is_empty()).collect()
}

#[test]
fn only_blocks_of_shell_commands_are_run() {
    assert_eq!(commands("a\n```sh\nx -y\n\nz\n```\n```python\nno\n```\n```sh\nw\n```\n"), ["x -y", "z", "w"]);
}

/// The share of a function in one of the summary's tables, in percent; 0 if it is not there.
fn share(summary: &str, table: &str, function: &str) -> f64 {
    let rows = summary.split(table).nth(1).unwrap_or_else(|| panic!("no table {table:?} in {summary}"));
    let rows = rows.split("\n\n").next().expect("a table");
    let row = rows.lines().find(|row| row.contains(function));
    row.map_or(0., |row| row.split_whitespace().next().and_then(|n| n.parse().ok()).expect("a share"))
}

#[test]
fn the_tutorial_finds_the_bottleneck() {
    if !std::path::Path::new("/usr/bin/python3").exists() {
        return skips::skipped("the tutorial", "no /usr/bin/python3");
    }
    let scratch = paths::scratch("tutorial");
    executable::copy(&paths::root().join("examples/tutorial/orders.py"), &scratch.join("orders.py"));
    let document = std::fs::read_to_string(paths::root().join("docs/tutorial.md")).expect("the tutorial");
    // What it finds is on the line that it prints.
    assert!(document.contains("        if customer not in self.customers:\n"));
    let path = format!("{}:/usr/bin:/bin", paths::tree().join("bin").display());
    let outputs: Vec<(&str, process::Outcome)> = commands(&document)
        .into_iter()
        .map(|line| {
            let mut shell = Command::new("sh");
            shell.args(["-c", line]).current_dir(&scratch).env("PATH", &path).env("BROWSER", "true");
            (line, process::run(&mut shell, &scratch, uu::LIMIT).expect_code(0))
        })
        .collect();
    let output = |number: usize, begins: &str| {
        let (line, outcome) = &outputs[number];
        assert!(line.starts_with(begins), "{line}");
        outcome
    };
    let lines = "Hottest lines of Python, with the native code that they call\n";
    let before = output(0, "uu record -o before.uu");
    assert!(before.stdout.contains(" customers, "), "{}", before.text());
    assert!(share(&before.stderr, lines, "orders.py:18)") > 50., "{}", before.text());
    assert_eq!(output(1, "sed -n 18p orders.py").stdout, "        if customer not in self.customers:\n");
    let row = before.stderr.lines().find(|l| l.contains("orders.py:18)"));
    assert!(row.is_some_and(|l| l.contains("Report.add")), "{}", before.text());
    let focus = output(3, "uu report before.uu --focus");
    assert!(
        focus.stdout.lines().count() > 0 && focus.stdout.lines().all(|l| l.contains("Report.add")),
        "{}",
        focus.text()
    );
    let after = output(5, "uu record -o after.uu");
    assert_eq!(before.stdout, after.stdout, "the mended program says the same");
    let diff = output(6, "uu diff before.uu after.uu");
    let seconds = |name: &str| -> f64 {
        let after = diff.stdout.split(name).nth(1).and_then(|rest| rest.split(" s of CPU time").next());
        after.and_then(|number| number.trim().parse().ok()).unwrap_or_else(|| panic!("{name}: {}", diff.text()))
    };
    assert!(seconds("after.uu:") < seconds("before.uu:") / 2., "{}", diff.text());
    let fell =
        |row: &str| row.split_whitespace().next().and_then(|change| change.parse().ok()).is_some_and(|c: f64| c < -20.);
    assert!(diff.stdout.lines().any(fell), "{}", diff.text());
    assert!(output(7, "uu diff after.uu before.uu").stdout.ends_with("slower\n"));
    assert_eq!(outputs.len(), 8);
}
