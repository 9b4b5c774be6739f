//! `uu record --kernel`, and rates above the kernel's tick: perf events time the samples, and leave the program as it
//! is alone.

use std::ffi::OsStr;
use uunwind_tests::running::{wait_for, Running};
use uunwind_tests::samples::{Frame, Sample};
use uunwind_tests::uu::Recording;
use uunwind_tests::{compile, interpreters, paths, skips, uu};

/// Seconds of each kind of work in `kernel_work.c`.
const SECONDS: f64 = 0.6;

/// Records `kernel_work.c`. `None`: the machine does not allow it, which is reported.
fn work(name: &str, options: &[&str], threads: usize) -> Option<(Recording, f64)> {
    let scratch = paths::scratch(name);
    let program = compile::gcc(&scratch, "work", &["native/kernel_work.c"], &["-pthread"]);
    let (seconds, threads) = (SECONDS.to_string(), threads.to_string());
    let words = [program.as_os_str(), OsStr::new(&seconds), OsStr::new(&threads)];
    let recording = uu::record(&scratch, options, |_| {}, &words).expect_code(0);
    let used = recording.outcome.stdout.trim().parse().expect("the CPU time");
    (!is_refused(&recording)).then_some((recording, used))
}

fn is_refused(recording: &Recording) -> bool {
    let why = recording.outcome.stderr.lines().find(|line| line.contains("no perf events ("));
    if let Some(why) = why {
        skips::skipped("perf events that signal", why.trim());
    }
    why.is_some()
}

fn is_apart(sample: &Sample) -> bool {
    sample.flags.contains("apart")
}

/// Whether a sample without a user stack was in uu's handler: in its code, in what that calls of libc and the vDSO
/// (this program copies and clears nothing, and reads the clock seldom), or on the way back from it.
fn is_in_handler(sample: &Sample) -> bool {
    let is_own = |frame: &Frame| match frame {
        Frame::Native { symbol, object, .. } => {
            object.contains("/libuunwind")
                || symbol.starts_with("__mem")
                || symbol == "__restore_rt"
                || object == "[vdso]"
        }
        _ => false,
    };
    sample.frames.iter().any(is_own)
}

fn in_kernel(sample: &Sample) -> bool {
    matches!(sample.frames.first(), Some(Frame::Kernel { .. }))
}

fn weight<'a>(samples: impl IntoIterator<Item = &'a Sample>) -> u64 {
    samples.into_iter().map(|sample| sample.weight).sum()
}

/// Frames of the kernel stand above all others, and nowhere else.
#[track_caller]
fn expect_order(samples: &[Sample]) {
    for sample in samples {
        let kernel = |frame: &Frame| matches!(frame, Frame::Kernel { .. });
        let first = sample.frames.iter().take_while(|frame| kernel(frame)).count();
        assert_eq!(first, sample.frames.iter().filter(|frame| kernel(frame)).count(), "{}", sample.text());
        assert!(is_apart(sample) || sample.complete(), "{}", sample.text());
    }
}

#[test]
fn each_period_is_a_sample_and_nearly_all_have_their_user_stack() {
    for (name, options, rate) in [
        ("kernel-999", &["--kernel", "-r", "999"][..], 999.0),
        ("kernel-4999", &["--kernel", "-r", "4999"], 4999.0),
        ("high-4999", &["-r", "4999"], 4999.0),
    ] {
        let Some((recording, used)) = work(name, options, 2) else { return };
        let samples = recording.samples();
        expect_order(&samples);
        let (found, due) = (weight(&samples) as f64, used * rate);
        // Events are exact; what the threads use before the recorder knows them is counted at the kernel's ticks.
        assert!((found - due).abs() < due * 0.03 + 40.0, "{name}: {found} of {due:.0} periods");
        // In user mode, each period has a sample of its own, whatever the kernel's tick is.
        let spins = |sample: &&Sample| sample.native_names().contains(&"spins") && sample.weight == 1;
        let single = samples.iter().filter(spins).count() as f64;
        assert!(single > SECONDS * 2.0 * rate * 0.9, "{name}: {single} samples of one period");
        let apart = weight(samples.iter().filter(|sample| is_apart(sample))) as f64;
        // Where a hypervisor takes the CPU away from uu's handler, events fall into it: those have no user stack.
        let outside = weight(samples.iter().filter(|sample| is_apart(sample) && !is_in_handler(sample))) as f64;
        println!("{name}: {found} periods of {due:.0}, {apart} apart, {outside} outside of uu's handler");
        assert!(apart < found * 0.01 + 2.0, "{name}: {apart} of {found} periods have no user stack");
        assert!(outside < found * 0.001 + 1.0, "{name}: {outside} of {found} periods do not agree");
        assert_eq!(samples.iter().any(in_kernel), options.contains(&"--kernel"));
    }
}

/// At a high rate on a deep stack, uu walks for a part of the time: it is shown as uu's, and the program's functions
/// have the shares that they have alone. How many samples are in the handler depends on the machine; `stacks.rs` of the
/// reports has a recording with some.
#[test]
fn time_in_the_handler_is_no_functions_of_the_program() {
    let scratch = paths::scratch("kernel-shares");
    let options = ["-O1", "-g", "-fno-optimize-sibling-calls"];
    let program = compile::gcc(&scratch, "shares", &["native/deep_shares.c"], &options);
    let words = [program.as_os_str(), "1".as_ref(), "300".as_ref()];
    let recording = uu::record(&scratch, &["--kernel", "--no-replay", "-r", "10000"], |_| {}, &words).expect_code(0);
    if is_refused(&recording) {
        return;
    }
    let folded = recording.report("folded");
    let count = |wanted: &dyn Fn(&str) -> bool| -> f64 {
        let lines = folded.lines().filter_map(|line| line.rsplit_once(' ')).filter(|(stack, _)| wanted(stack));
        lines.map(|(_, weight)| weight.parse::<f64>().expect("a weight")).sum()
    };
    let (most, rest) =
        (count(&|stack| stack.contains(";three_quarters")), count(&|stack| stack.contains(";one_quarter")));
    let share = most / (most + rest);
    let own = count(&|stack| stack.contains("[uu's handler]"));
    println!("{share:.3} of the time in the one function; {own} periods in uu's handler");
    assert!((share - 0.75).abs() < 0.02, "{share}: {}", recording.outcome.text());
    assert_eq!(
        own,
        count(&|stack| stack == "_start;[uu's handler]" || stack == "[uu's handler]"),
        "with other functions"
    );
    let is_own = |sample: &&Sample| {
        let in_uu = |frame: &Frame| matches!(frame, Frame::Native { object, .. } if object.contains("/libuunwind"));
        is_apart(sample) && sample.frames.iter().any(in_uu)
    };
    assert_eq!(own, weight(recording.samples().iter().filter(is_own)) as f64);
}

/// A recording of stacks that are deeper than what is kept of one, with frames of the kernel on them, is read back.
#[test]
fn frames_of_the_kernel_stand_on_the_deepest_stacks() {
    let scratch = paths::scratch("kernel-deepest");
    let options = ["-O1", "-g", "-fno-optimize-sibling-calls"];
    let program = compile::gcc(&scratch, "deepest", &["native/deep_shares.c"], &options);
    let words = [program.as_os_str(), "1".as_ref(), "8000".as_ref()];
    // A slow machine is in the handler for longer than such a period: the program goes on all the same.
    let recording = uu::record(&scratch, &["--kernel", "-r", "10000"], |_| {}, &words).expect_code(0);
    let said = &recording.outcome.stderr;
    assert!(is_refused(&recording) || said.contains(" complete (") && !said.contains("read back"), "{said}");
}

#[test]
fn kernel_frames_stand_on_the_call_that_led_there() {
    let Some((recording, _)) = work("kernel-stacks", &["--kernel", "-r", "999"], 1) else { return };
    let samples = recording.samples();
    // Interrupts come in reads and elsewhere, as many as the machine has to do besides.
    let is_interrupt = |frame: &Frame| frame.name().starts_with("asm_") || frame.name().starts_with("irqentry_");
    let outside = samples.iter().filter(|sample| !sample.frames.iter().any(is_interrupt));
    let outside: Vec<_> = outside.filter(|sample| !is_apart(sample)).collect();
    let kernel: Vec<_> = outside.iter().copied().filter(|sample| in_kernel(sample)).collect();
    let mut reads = 0;
    for sample in &kernel {
        let names: Vec<&str> = sample.frames.iter().map(Frame::name).collect();
        if names.contains(&"ksys_read") {
            assert!(names.contains(&"reads") && names.contains(&"main"), "{}", sample.text());
            reads += 1;
        }
    }
    // The others are at the edge of the kernel, or read the clock.
    assert!(reads * 10 > kernel.len() * 9 && reads > 400, "{reads} of {} kernel stacks", kernel.len());
    // Half of the time is in reads, all but all of it in the kernel.
    let share = weight(kernel.iter().copied()) as f64 / weight(outside.iter().copied()) as f64;
    assert!((0.42..0.55).contains(&share), "{share:.3} in the kernel");
    let folded = recording.report("folded");
    assert!(folded.lines().any(|line| line.contains(";reads;") && line.contains("ksys_read [k]")), "{folded}");
}

#[test]
fn kernel_frames_stand_on_python_ones() {
    let Some(python) = interpreters::supported().into_iter().next() else {
        return skips::skipped("kernel frames on Python's", "no interpreter");
    };
    let scratch = paths::scratch("kernel-python");
    let script = paths::source("python/reads.py");
    let words = [python.path.as_os_str(), script.as_os_str(), OsStr::new("0.8")];
    let recording = uu::record(&scratch, &["--kernel", "-r", "999"], |_| {}, &words).expect_code(0);
    if is_refused(&recording) {
        return;
    }
    let samples = recording.samples();
    let is_read = |sample: &&Sample| sample.frames.iter().any(|frame| frame.name() == "ksys_read");
    let inside: Vec<_> = samples.iter().filter(|sample| in_kernel(sample)).filter(is_read).collect();
    let on_python = |sample: &&&Sample| {
        let names: Vec<&str> = sample.frames.iter().filter(|f| f.is_python()).map(Frame::name).collect();
        names == ["inner", "reads", "main", "<module>"]
    };
    let right = inside.iter().filter(on_python).count();
    assert!(right > 300 && right * 100 >= inside.len() * 99, "{right} of {} reads", inside.len());
}

fn is_campaign() -> bool {
    std::env::var_os("UU_CAMPAIGNS").is_some()
}

#[test]
fn a_program_that_executes_another_is_not_killed() {
    let scratch = paths::scratch("kernel-exec");
    let program = compile::gcc(&scratch, "storm", &["native/exec_storm.c"], &["-pthread"]);
    let rounds: usize = if is_campaign() { 5000 } else { 60 };
    let rounds_text = rounds.to_string();
    let words = [program.as_os_str(), OsStr::new(&rounds_text)];
    let recording = uu::record(&scratch, &["--kernel", "-r", "9999"], |_| {}, &words).expect_code(0);
    assert_eq!(recording.outcome.stdout, "done\n");
    if is_refused(&recording) {
        return;
    }
    // Most of the programs were timed by events.
    let samples = recording.samples();
    let by_events = samples.iter().filter(|sample| in_kernel(sample)).count();
    assert!(by_events > rounds * 4, "{by_events} of {} samples in the kernel", samples.len());
}

/// The recorder is killed while its events signal: the program goes on, also in another program.
#[test]
fn the_program_survives_its_recorder() {
    let scratch = paths::scratch("kernel-killed");
    let program = compile::gcc(&scratch, "survives", &["native/survives.c"], &[]);
    let words = [program.as_os_str(), OsStr::new("again")];
    if is_refused(&uu::record(&scratch, &["--kernel"], |_| {}, &words).expect_code(0)) {
        return;
    }
    for round in 0..if is_campaign() { 200 } else { 5 } {
        let file = scratch.join(format!("{round}.uu"));
        let mut command = uu::command(&scratch, &["record", "-q", "--kernel", "-r", "9999", "-o"]);
        command.arg(&file).arg("--").arg(&program);
        let mut running = Running::ready(&mut command);
        wait_for_event(running.pid());
        running.kill();
        assert_eq!(running.line(), "lives", "round {round}");
    }
}

/// Waits until the recorder has a perf event. It has made one before that, to try, and closed it before the program
/// began.
fn wait_for_event(recorder: u32) {
    let has_event = || {
        let files = std::fs::read_dir(format!("/proc/{recorder}/fd")).expect("the recorder lives");
        let mut links = files.filter_map(|file| std::fs::read_link(file.ok()?.path()).ok());
        links.any(|link| link.as_os_str() == "anon_inode:[perf_event]")
    };
    wait_for("the recorder's event", has_event);
}
