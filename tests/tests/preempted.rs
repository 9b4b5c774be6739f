//! Captures that are interrupted and continue later or never: coroutines that a handler switches, tasks that share a
//! thread pointer, children of a fork, jumps. Each program compares its captures with its own list of return addresses.
//! `UU_CAPTURES=N` takes N captures of each kind, and N / 1,000 of those that are interrupted at each instruction.

use std::process::Command;
use std::time::Duration;
use uunwind_tests::{compile, paths, process, uu};

/// Runs a program of the tests, and returns what it prints.
fn run(name: &str, arguments: &[&str], limit: Duration) -> String {
    let scratch = paths::scratch(name);
    let program = compile::with_library(&scratch, name, &["-pthread"]);
    let out = process::run(Command::new(&program).args(arguments), &scratch, uu::LIMIT + limit).expect_code(0).stdout;
    println!("{out}");
    out
}

fn captures(usual: u64) -> u64 {
    std::env::var("UU_CAPTURES").map_or(usual, |n| n.parse().expect("UU_CAPTURES is a number"))
}

/// The numbers of a line.
fn numbers(line: &str) -> Vec<i64> {
    line.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

#[test]
fn a_capture_that_another_coroutine_interrupts_is_right_and_so_are_all_others() {
    let rounds = captures(300_000) / 1000;
    let out = run("preempted", &["stepped", &rounds.to_string()], Duration::from_millis(50 * rounds));
    for line in out.lines() {
        let [captures, switches, wrong] = numbers(line)[..] else { panic!("{out}") };
        assert_eq!(wrong, 0, "{out}");
        assert!(captures > switches && switches >= rounds as i64 / 3, "little was interrupted: {out}");
    }
    assert_eq!(out.lines().count(), 2, "each stack is above the other once");
}

#[test]
fn coroutines_that_a_timer_switches_have_their_own_stacks() {
    let wanted = captures(1_000_000);
    let out = run("preempted", &["timer", &wanted.to_string()], Duration::from_micros(20 * wanted));
    for line in out.lines() {
        let [captures, switches, wrong] = numbers(line)[..] else { panic!("{out}") };
        assert_eq!(wrong, 0, "{out}");
        assert!(captures >= wanted as i64 && switches > 0, "{out}");
    }
    assert_eq!(out.lines().count(), 2, "each stack is above the other once");
}

#[test]
fn tasks_that_share_a_thread_pointer_have_their_own_stacks() {
    let wanted = captures(1_000_000);
    let out = run("shared_pointer", &[&wanted.to_string()], Duration::from_micros(20 * wanted));
    let [parents, childs, wrong, wrong_too, status] = numbers(&out)[..] else { panic!("{out}") };
    assert_eq!((wrong, wrong_too, status), (0, 0, 0), "{out}");
    assert!(parents.min(childs) >= wanted as i64, "{out}");
}

#[test]
fn the_child_of_a_fork_amid_captures_has_its_own_stacks() {
    let children = captures(100_000) / 1000;
    let out = run("forked", &[&children.to_string()], Duration::from_millis(100 * children));
    let [forked, failed, captures, wrong, wrong_too] = numbers(&out)[..] else { panic!("{out}") };
    assert_eq!((forked, failed, wrong, wrong_too), (children as i64, 0, 0, 0), "{out}");
    // Each makes 46 chains of calls, and a capture at least at the end of each.
    assert!(captures >= 46 * forked, "{out}");
}

/// Windows that a capture may read stay mapped until it has ended, or until the program declares it abandoned.
#[test]
fn grace_periods_wait_for_suspended_captures_and_not_for_abandoned_ones() {
    const ETIMEDOUT: i64 = -110;
    let out = run("left_captures", &[], Duration::ZERO);
    let left = "left: elsewhere 0 deeper 0\n";
    let suspended = |order: u32| {
        format!(
            "order {order}\nthe first is suspended: {ETIMEDOUT}\ncapture 1: whole\nthe second is suspended: {ETIMEDOUT}\n\
             capture 2: whole\nboth are over: 0\n"
        )
    };
    assert_eq!(out, format!("{left}{}{}{left}", suspended(0), suspended(1)));
}
