//! `uu top`: what is on the screen, and the terminal afterwards.

use std::path::{Path, PathBuf};
use std::process::Command;
use uunwind_tests::running::Running;
use uunwind_tests::terminal::{Screen, Terminal};
use uunwind_tests::{compile, interpreters, paths, process, skips, uu};

fn native(name: &str) -> (PathBuf, Running) {
    let scratch = paths::scratch(name);
    let program = compile::gcc(&scratch, "attached", &["native/attached.c"], &["-pthread"]);
    let running = Running::ready(&mut Command::new(&program));
    (scratch, running)
}

fn top(scratch: &Path, options: &[&str]) -> Terminal {
    let mut command = uu::command(scratch, &["top"]);
    Terminal::start(command.args(options), uu::LIMIT)
}

fn top_of(scratch: &Path, running: &Running) -> Terminal {
    let mut terminal = top(scratch, &["-p", &running.pid().to_string()]);
    terminal.wait_for("rows", |screen| !rows(screen).is_empty());
    terminal
}

/// A row: shares and seconds of own and total time, and the words after them.
type Row = ([f64; 4], Vec<String>);

/// The rows of the table, which is on the other screen; none while it is being drawn.
fn rows(screen: &Screen) -> Vec<Row> {
    let lines = screen.lines();
    // The last line has the keys.
    let lines = lines[3..lines.len() - 1].iter().take_while(|line| screen.other && !line.is_empty());
    let row = |line: &String| {
        let mut words = line.split_whitespace();
        let mut number = || words.next()?.parse().ok();
        let numbers = [number()?, number()?, number()?, number()?];
        Some((numbers, words.map(str::to_owned).collect()))
    };
    lines.map(row).collect::<Option<_>>().unwrap_or_default()
}

fn find(screen: &Screen, words: &[&str]) -> Option<[f64; 4]> {
    let found = rows(screen).into_iter().find(|(_, row)| words.iter().all(|word| row.iter().any(|r| r == word)));
    found.map(|(numbers, _)| numbers)
}

/// CPU time in seconds that each thread of a process has used.
fn used(pid: u32) -> Vec<(u32, f64)> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("a process");
    let one = |task: std::fs::DirEntry| {
        let used = std::fs::read_to_string(task.path().join("schedstat")).expect("a thread");
        let used = used.split(' ').next().and_then(|word| word.parse::<f64>().ok()).expect("a number");
        (task.file_name().to_str().and_then(|tid| tid.parse().ok()).expect("a thread's id"), used / 1e9)
    };
    tasks.map(|task| one(task.expect("a thread"))).collect()
}

#[test]
fn the_table_says_where_a_running_program_spends_its_time_and_obeys_keys() {
    let (scratch, running) = native("top-native");
    let before = used(running.pid());
    let mut terminal = top_of(&scratch, &running);
    // The kernel's account of the thread that spins is the oracle.
    terminal.wait_for("a second of spinning", |screen| find(screen, &["spins"]).is_some_and(|row| row[2] >= 1.0));
    let shown = find(&terminal.screen, &["spins"]).expect("the function");
    let now = used(running.pid());
    let spun = now.iter().zip(&before).map(|(now, before)| now.1 - before.1).fold(0.0, f64::max);
    assert!(shown[2] < spun + 0.05, "{shown:?} of {spun}");
    assert!((shown[0] - shown[1]).abs() < 0.01 && shown[2] == shown[3], "it calls nothing: {shown:?}");
    let caller = find(&terminal.screen, &["in_loop"]).expect("its caller");
    assert!(caller[0] == 0.0 && caller[3] == shown[3], "{caller:?} {shown:?}");
    let of_all: f64 = rows(&terminal.screen).iter().map(|row| row.0[0]).sum();
    assert!((of_all - 100.0).abs() < 1.0, "own shares add up to {of_all}");

    terminal.keys("/in_l");
    terminal.wait_for("the filter's row alone", |screen| rows(screen).len() == 1);
    assert!(find(&terminal.screen, &["in_loop"]).is_some());
    terminal.keys("\x1b");
    terminal.wait_for("all rows", |screen| rows(screen).len() > 1);
    terminal.keys("t");
    let is_by_total = |screen: &Screen| screen.lines()[1].starts_with("functions by total time");
    terminal.wait_for("the other order", is_by_total);
    let shares: Vec<f64> = rows(&terminal.screen).iter().map(|row| row.0[1]).collect();
    assert!(shares.is_sorted_by(|a, b| a >= b), "{shares:?}");

    terminal.keys("p");
    terminal.wait_for("a pause", |screen| screen.lines()[0].contains("[paused]"));
    let kept = terminal.screen.lines();
    terminal.keys("\t");
    terminal.wait_for("threads", |screen| screen.lines()[1].starts_with("threads by total time"));
    for (_, words) in rows(&terminal.screen) {
        let tid = words.last().and_then(|word| word.strip_suffix(')')?.parse::<u32>().ok()).expect("a thread's id");
        assert!(now.iter().any(|(known, _)| *known == tid), "{tid} in {now:?}");
    }
    terminal.keys("\t");
    terminal.wait_for("languages", |screen| find(screen, &["native"]).is_some());
    assert_eq!(find(&terminal.screen, &["native"]).expect("it")[..2], [100.0, 100.0]);
    terminal.keys("\t");
    terminal.wait_for("functions", is_by_total);
    assert_eq!(terminal.screen.lines(), kept, "nothing has changed in the pause");
    terminal.keys("p");
    terminal.wait_for("the end of the pause", |screen| !screen.lines()[0].contains("[paused]"));

    terminal.keys("q");
    assert_eq!(terminal.end_restored().code(), Some(0));
    let text = terminal.screen.text();
    assert!(text.contains("OWN s") && text.contains("spins"), "the last table stays: {text}");
    assert_eq!(running.end(), Some(0), "the program has noticed it");
}

#[test]
fn the_terminal_is_put_back_whatever_ends_it() {
    let (scratch, mut running) = native("top-ends");
    type Way = fn(&mut Terminal);
    let ways: [(&str, Way); 3] = [
        ("Ctrl-C", |terminal| terminal.keys("\x03")),
        ("SIGTERM", |terminal| terminal.signal(libc::SIGTERM)),
        ("SIGHUP", |terminal| terminal.signal(libc::SIGHUP)),
    ];
    for (way, end) in ways {
        let mut terminal = top_of(&scratch, &running);
        end(&mut terminal);
        assert_eq!(terminal.end_restored().code(), Some(0), "{way}");
    }
    // Nobody sees what happens to a terminal that is closed; but uu ends, and the program does not.
    let mut terminal = top_of(&scratch, &running);
    terminal.close();
    terminal.end();
    running.say("more");
    assert_eq!(running.line(), "done");
    let mut terminal = top_of(&scratch, &running);
    assert_eq!(running.end(), Some(0));
    assert_eq!(terminal.end_restored().code(), Some(0), "the program's end");
}

/// A shell stops it, has its terminal as it was, and continues it.
#[test]
fn ctrl_z_gives_the_terminal_back_until_it_is_continued() {
    let (scratch, running) = native("top-stops");
    let script = format!("\"$0\" top -p {}; echo stopped $?; read line; fg >/dev/null; echo ended $?", running.pid());
    let mut command = Command::new("bash");
    command.args(["--norc", "-m", "-c", &script]).arg(paths::uu()).env("HOME", &scratch).current_dir(&scratch);
    let mut terminal = Terminal::start(&mut command, uu::LIMIT);
    terminal.wait_for("rows", |screen| !rows(screen).is_empty());
    terminal.keys("\x1a");
    // 128 and SIGTSTP: the shell's number for a job that has stopped.
    terminal.wait_for("the shell", |screen| !screen.other && screen.text().contains("stopped 148"));
    terminal.keys("on\n");
    terminal.wait_for("rows again", |screen| !rows(screen).is_empty());
    terminal.keys("q");
    terminal.wait_for("the end", |screen| !screen.other && screen.text().contains("ended 0"));
    assert_eq!(terminal.end_restored().code(), Some(0));
    assert_eq!(running.end(), Some(0));
}

const PYTHON: &str = "\
import os, sys
def hot():
    return sum(i * i for i in range(20000))
def run(until):
    while not os.path.exists(until):
        hot()
print('said by the program', flush=True)
run(sys.argv[1])
print('read', repr(sys.stdin.read()))
sys.exit(7)
";

#[test]
fn a_program_runs_under_it_and_its_output_comes_at_the_end() {
    let Some(python) = interpreters::installed().pop() else {
        return skips::skipped("uu top of Python", "no interpreter");
    };
    let scratch = paths::scratch("top-python");
    let script = scratch.join("hot.py");
    std::fs::write(&script, PYTHON).expect("a script");
    let words = [python.path.as_os_str(), script.as_os_str()].map(|word| word.to_str().expect("text"));
    let seen = scratch.join("seen");
    let mut terminal = top(&scratch, &["--", words[0], words[1], seen.to_str().expect("text")]);
    let file = format!("({})", script.display());
    let has_rows = |screen: &Screen| {
        find(screen, &["python", "hot", &file]).is_some_and(|row| row[1] > 50.0)
            && find(screen, &["python", "run", &file]).is_some_and(|row| row[1] > 50.0)
    };
    terminal.keys("t");
    terminal.wait_for("functions of Python", has_rows);
    assert!(!terminal.screen.text().contains("said by the program"));
    std::fs::write(&seen, "").expect("a file");
    assert_eq!(terminal.end_restored().code(), Some(7), "the program's exit code");
    let text = terminal.screen.text();
    assert!(text.contains("said by the program") && text.contains("read ''"), "{text}");

    // A program that ends by q ends by SIGTERM.
    let mut terminal = top(&scratch, &["--", "sleep", "1000"]);
    terminal.wait_for("a table", |screen| screen.text().contains("no samples yet"));
    terminal.keys("q");
    assert_eq!(terminal.end_restored().code(), Some(128 + libc::SIGTERM));
}

#[test]
fn without_a_terminal_it_says_so() {
    let scratch = paths::scratch("top-none");
    let out = process::run(uu::command(&scratch, &["top", "--", "true"]).env("TERM", "xterm"), &scratch, uu::LIMIT);
    assert!(out.stderr.contains("standard output is none"), "{}", out.stderr);
    assert!(out.stderr.contains("`uu record -- PROGRAM`"), "what to do instead: {}", out.stderr);
    out.expect_code(125);
    let own = std::process::id();
    let mut command = uu::command(&scratch, &["top", "-p", &own.to_string()]);
    let out = process::run(&mut command, &scratch, uu::LIMIT);
    assert!(out.stderr.contains(&format!("`uu record -p {own} -d 10`")), "{}", out.stderr);
    out.expect_code(125);
    let mut command = uu::command(&scratch, &["top", "-p", "999999999"]);
    let mut terminal = Terminal::start(&mut command, uu::LIMIT);
    assert_eq!(terminal.end_restored().code(), Some(125));
    assert!(terminal.screen.text().contains("there is no process 999999999"), "{}", terminal.screen.text());
}
