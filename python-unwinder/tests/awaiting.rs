//! What awaits the running task, in each version that keeps links, and with links that lead nowhere.

mod world;

use uunwind_core::plugin::OVERLAY_INTERPRETER;
use world::host::{loop_frame, Walk};
use world::python::{Process, Version, COROUTINE_TYPE, GENERATOR, PYTHON_3_14, PYTHON_3_15, STACK, THREAD};

const OUTER: u64 = STACK - 0x1000;
const INNER: u64 = STACK - 0x3000;
const SIZE: u64 = 0x200;
const GENERATOR_TYPE: u64 = COROUTINE_TYPE + 0x1000;
const ASYNC_GENERATOR_TYPE: u64 = COROUTINE_TYPE + 0x2000;
const SENDING_TYPE: u64 = COROUTINE_TYPE + 0x3000;
const VERSIONS: [&Version; 2] = [&PYTHON_3_14, &PYTHON_3_15];

/// The loop (<module> -> run) runs a task whose coroutine `work` called `f`. Returns the task.
fn running(p: &mut Process) -> u64 {
    let [module, run, work, f] = ["<module>", "run", "work", "f"].map(|name| p.code(name, "/a.py", 7, 100));
    p.activate(OUTER);
    p.call(module, 20, THREAD);
    p.call(run, 40, THREAD);
    p.activate(INNER);
    let frame = p.call(work, 60, GENERATOR);
    let coroutine = frame - u64::from(p.version.facts.asyncio.frame);
    p.memory.put64(coroutine + 8, world::python::BIAS + COROUTINE_TYPE);
    p.call(f, 80, THREAD);
    let task = p.task(coroutine);
    p.run_task(task);
    task
}

/// A task whose outer coroutine is `{name}.0`, which awaits `{name}.1`, and so on.
fn waiting(p: &mut Process, name: &str, coroutines: usize) -> u64 {
    let mut awaited = p.task(0);
    for nth in (0..coroutines).rev() {
        let code = p.code(&format!("{name}.{nth}"), "/a.py", 7, 100);
        awaited = p.suspended(COROUTINE_TYPE, code, 10, awaited);
    }
    p.task(awaited)
}

fn names(p: &Process, awaiting: bool) -> Vec<Vec<String>> {
    let natives = [loop_frame(INNER, SIZE, false), loop_frame(OUTER, SIZE, false)];
    let natives: Vec<_> = natives.iter().map(|native| (*native, p.version)).collect();
    let mut walk = Walk::new(&p.memory);
    walk.awaiting = awaiting;
    let shown = walk.show(&natives);
    // What awaits never makes a stack doubtful.
    assert!(shown.iter().all(|shown| shown.answer == OVERLAY_INTERPRETER), "{shown:?}");
    shown.into_iter().map(|shown| shown.frames.into_iter().map(|(name, _)| name).collect()).collect()
}

/// The frames of the inner activation after its own.
#[track_caller]
fn awaiting(p: &Process) -> Vec<String> {
    let mut shown = names(p, true);
    assert_eq!(shown[1], ["run", "<module>"]);
    let rest = shown[0].split_off(2);
    assert_eq!(shown[0], ["f", "work"]);
    assert_eq!(names(p, false), [["f", "work"], ["run", "<module>"]]);
    rest
}

#[test]
fn coroutines_of_tasks_that_wait_stand_innermost_first() {
    for version in VERSIONS {
        let mut p = Process::new(version);
        let task = running(&mut p);
        let (inner, future, outer) = (waiting(&mut p, "a", 2), p.task(0), waiting(&mut p, "b", 1));
        p.awaited_by(task, inner, false);
        p.awaited_by(inner, future, false);
        p.awaited_by(future, outer, false);
        assert_eq!(awaiting(&p), ["await a.1", "await a.0", "await b.0"]);
    }
}

#[test]
fn long_chains_of_coroutines_are_whole() {
    for (version, count) in VERSIONS.into_iter().zip([40, 1024]) {
        let mut p = Process::new(version);
        let task = running(&mut p);
        let many = waiting(&mut p, "c", count);
        p.awaited_by(task, many, false);
        let expected: Vec<String> = (0..count).rev().map(|nth| format!("await c.{nth}")).collect();
        assert_eq!(awaiting(&p), expected);
    }
}

#[test]
fn more_coroutines_than_are_followed_are_a_remark() {
    for version in VERSIONS {
        let mut p = Process::new(version);
        let task = running(&mut p);
        let many = waiting(&mut p, "c", 1025);
        p.awaited_by(task, many, false);
        let shown = awaiting(&p);
        assert_eq!(shown.len(), 1025);
        let some = [&shown[0], &shown[1], &shown[1024]];
        assert_eq!(some, ["await (further coroutines)", "await c.1023", "await c.0"]);
    }
}

/// A program can do that: none of them ever ends.
#[test]
fn tasks_that_await_each_other_are_shown_once() {
    let lengths = [0, 1, 2, 5].into_iter().flat_map(|before| [1, 2, 3, 7, 8, 64].map(|around| (before, around)));
    for ((before, around), version) in lengths.zip(VERSIONS.into_iter().cycle()) {
        let mut p = Process::new(version);
        let task = running(&mut p);
        let tasks: Vec<u64> = (0..before + around).map(|nth| waiting(&mut p, &format!("t{nth}"), 1)).collect();
        let mut last = task;
        for next in &tasks {
            p.awaited_by(last, *next, false);
            last = *next;
        }
        p.awaited_by(last, tasks[before], false);
        let mut expected: Vec<String> = (0..tasks.len()).map(|nth| format!("await t{nth}.0")).collect();
        expected.push("await (tasks that await each other)".to_owned());
        assert_eq!(awaiting(&p), expected, "{before} {around}");
        // The running one is part of the circle.
        p.awaited_by(last, task, false);
        assert_eq!(awaiting(&p), expected, "{before} {around}");
    }
}

#[test]
fn generators_are_followed_like_coroutines() {
    for version in VERSIONS {
        let mut p = Process::new(version);
        let task = running(&mut p);
        let [outer, numbers, wait] = ["outer", "numbers", "wait"].map(|name| p.code(name, "/a.py", 7, 100));
        let wait = p.suspended(GENERATOR_TYPE, wait, 10, 0);
        let numbers = p.suspended(ASYNC_GENERATOR_TYPE, numbers, 10, wait);
        let sending = p.allocate(40);
        p.memory.put64(sending + 8, world::python::BIAS + SENDING_TYPE);
        p.memory.put64(sending + 16, numbers);
        let outer = p.suspended(COROUTINE_TYPE, outer, 10, sending);
        let waiting = p.task(outer);
        p.awaited_by(task, waiting, false);
        assert_eq!(awaiting(&p), ["await wait", "await numbers", "await outer"]);
    }
}

#[test]
fn several_tasks_are_a_remark_and_one_in_a_set_is_not() {
    for version in VERSIONS {
        let mut p = Process::new(version);
        let task = running(&mut p);
        let (a, b) = (waiting(&mut p, "a", 1), waiting(&mut p, "b", 1));
        for (used, entries, expected) in [
            (2, [[0, 0], [a, 5], [b, 6], [0, 0]], "await (several tasks)"),
            (1, [[0, 0], [b, u64::MAX], [a, 5], [0, 0]], "await a.0"),
            (1, [[0, 0], [3, 7], [0, 0], [0, 0]], "await (unreadable)"),
            (1, [[0, 0]; 4], "await (unreadable)"),
        ] {
            let set = p.set(used, &entries);
            p.awaited_by(task, set, true);
            assert_eq!(awaiting(&p), [expected]);
        }
        let set = p.set(0, &[[0, 0]]);
        p.awaited_by(task, set, true);
        assert_eq!(awaiting(&p), [""; 0]);
    }
}

#[test]
fn links_that_lead_nowhere_are_a_remark() {
    for version in VERSIONS {
        let asyncio = version.facts.asyncio;
        let mut p = Process::new(version);
        let task = running(&mut p);
        let waits = waiting(&mut p, "a", 2);
        p.awaited_by(task, 0x10, false);
        assert_eq!(awaiting(&p), ["await (unreadable)"]);
        p.awaited_by(task, waits + 4, false);
        assert_eq!(awaiting(&p), ["await (unreadable)"]);
        p.awaited_by(task, waits, false);
        p.memory.put(waits + u64::from(asyncio.is_task), &[7]);
        assert_eq!(awaiting(&p), ["await (unreadable)"]);
        p.memory.put(waits + u64::from(asyncio.is_task), &[1]);
        // A coroutine that awaits itself, as no program can make one.
        let code = p.code("self", "/a.py", 7, 100);
        let coroutine = p.suspended(COROUTINE_TYPE, code, 10, 8);
        let again = p.suspended(COROUTINE_TYPE, code, 10, coroutine);
        p.awaits(coroutine, again);
        let circle = p.task(coroutine);
        p.awaited_by(task, circle, false);
        assert_eq!(awaiting(&p), ["await (unreadable)"]);
        p.awaited_by(task, waits, false);
        // One whose coroutine is of a kind without a frame.
        let other = p.allocate(64);
        p.memory.put64(waits + u64::from(asyncio.coroutine), other);
        p.awaited_by(waits, 0, false);
        assert_eq!(awaiting(&p), ["await (a coroutine without a Python frame)"]);
    }
}

#[test]
fn a_task_that_this_activation_does_not_run_is_not_shown() {
    for version in VERSIONS {
        let mut p = Process::new(version);
        let task = running(&mut p);
        let waits = waiting(&mut p, "a", 1);
        p.awaited_by(task, waits, false);
        let other = waiting(&mut p, "other", 1);
        p.awaited_by(other, waits, false);
        p.run_task(other);
        assert_eq!(awaiting(&p), [""; 0]);
        p.run_task(0);
        assert_eq!(awaiting(&p), [""; 0]);
    }
}
