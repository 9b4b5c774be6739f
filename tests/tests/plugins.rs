//! Plugins that misbehave, in every way that can be contained: the program's results are unchanged, native stacks stay
//! complete, the plugin is named in the report and switched off after three failures, and another plugin continues to
//! work.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use uunwind_core::plugin::installed::FAILURE_LIMIT;
use uunwind_core::stop_reason::StopReason;
use uunwind_tests::samples::{completeness, Frame, Sample};
use uunwind_tests::{compile, faces, paths, process, uu};

/// Least share of whole stacks.
const WHOLE: f64 = 0.99;
const RATE: &str = "999";
/// How much each of the host's two threads has to compute: about a second.
const SECONDS: &str = "4";
/// Samples without which the test says nothing: a second of CPU time has 250 at kernels' usual tick, and machines
/// differ.
const LEAST: usize = 50;

/// The programs and libraries, compiled once.
struct Built {
    host: PathBuf,
    bad: PathBuf,
    good: PathBuf,
    /// The host's output without a recording.
    output: String,
}

fn built() -> &'static Built {
    static BUILT: OnceLock<Built> = OnceLock::new();
    BUILT.get_or_init(|| {
        let dir = paths::scratch("faces");
        let (bad, good) = (faces::bad(&dir), faces::good(&dir));
        faces::library(&dir);
        let folder = dir.display().to_string();
        let options = ["-rdynamic", "-pthread", &format!("-L{folder}"), "-lfaces", &format!("-Wl,-rpath,{folder}")];
        let host = compile::gcc(&dir, "host", &["native/faces_host.c"], &options);
        let output =
            process::run(std::process::Command::new(&host).arg(SECONDS), &dir, uu::LIMIT).expect_code(0).stdout;
        Built { host, bad, good, output }
    })
}

struct Recorded {
    samples: Vec<Sample>,
    /// The messages of `uu record`.
    said: String,
}

/// Records the host with both plugins, the bad one with this face. What holds for every face is checked here.
#[track_caller]
fn record(face: &str) -> Recorded {
    let built = built();
    let scratch = paths::scratch(&format!("face-{face}"));
    let listed = std::env::join_paths([&built.bad, &built.good]).expect("no colons");
    let environment = |command: &mut std::process::Command| {
        command.env("UU_PLUGINS", listed).env("UU_FACE", face);
    };
    let recording =
        uu::record(&scratch, &["-r", RATE], environment, &[built.host.as_ref(), SECONDS.as_ref()]).expect_code(0);
    let said = recording.outcome.stderr.clone();
    assert_eq!(recording.outcome.stdout, built.output, "{face}: the program computed something else");
    let samples = recording.samples();
    let (share, reasons) = completeness(&samples);
    assert!(samples.len() >= LEAST, "{face}: only {} samples: {said}", samples.len());
    assert!(share >= WHOLE, "{face}: {:.2} % whole: {reasons:?}\n{said}", share * 100.0);
    for sample in samples.iter().filter(|s| s.complete()) {
        // The program's own calls stand in every stack, in order, whatever plugins do with the frames between them.
        let names: Vec<&str> = sample.native_names().into_iter().filter(|n| CALLS.contains(n)).collect();
        let order: Vec<&str> = CALLS.into_iter().filter(|n| names.contains(n)).collect();
        assert_eq!(names, order, "{face}: {}", sample.text());
    }
    Recorded { samples, said }
}

/// The host's functions, leaf first.
const CALLS: [&str; 4] = ["work", "through_bad", "outer", "run"];

fn emitted(sample: &Sample, name: &str) -> usize {
    sample.frames.iter().filter(|f| matches!(f, Frame::Other { name: n, .. } if n == name)).count()
}

/// Share of the samples inside the program's own calls in which the good plugin's frames stand.
fn good_share(samples: &[Sample]) -> f64 {
    let inside: Vec<&Sample> = samples.iter().filter(|s| s.native_names().contains(&"outer")).collect();
    let with = inside.iter().filter(|s| emitted(s, "good frame") >= 2).count();
    with as f64 / inside.len().max(1) as f64
}

/// A face whose calls fail: for this reason, and at most three times.
#[track_caller]
fn fails(face: &str, reason: StopReason) {
    fails_for(face, &[reason]);
}

/// The same, where more than one limit may end it: the last time, it was one of these.
#[track_caller]
fn fails_for(face: &str, reasons: &[StopReason]) {
    let Recorded { samples, said } = record(face);
    let line = said.lines().find(|l| l.contains("plugin \"bad\" failed")).unwrap_or_else(|| panic!("{face}: {said}"));
    println!("{face}: {} samples; {line}", samples.len());
    let word = line.split("failed ").nth(1).and_then(|t| t.split(' ').next()).unwrap_or_default();
    let times = if word == "once" { 1 } else { word.parse().unwrap_or(0) };
    // A rule is asked for once for each address, so one that fails may never reach the limit.
    let least = if face.starts_with("rule") { 1 } else { FAILURE_LIMIT };
    // Two threads may both be inside a call when the last allowed failure is counted.
    assert!((least..=FAILURE_LIMIT + 1).contains(&times), "{face}: {line}");
    assert_eq!(line.contains("switched off"), times >= FAILURE_LIMIT, "{face}: {line}");
    assert!(reasons.iter().any(|reason| line.contains(&format!("last: {}", reason.text()))), "{face}: {line}");
    let taken_back = samples.iter().all(|s| emitted(s, "bad frame") == 0);
    assert!(taken_back || face.starts_with("rule"), "{face}: what it emitted is taken back");
    assert!(good_share(&samples) >= WHOLE, "{face}: good frames in {:.3}", good_share(&samples));
    assert!(!said.contains("\"good\" failed"), "{face}: {said}");
}

/// Their number is limited, and so is the CPU time of a call: a slow machine comes to the second limit first.
#[test]
fn frames_without_end() {
    fails_for("endless", &[StopReason::PluginNonsense, StopReason::Watchdog]);
}

macro_rules! faces {
    ($($name:ident $face:literal $reason:ident;)*) => {$(
        #[test]
        fn $name() {
            fails($face, StopReason::$reason);
        }
    )*};
}

faces! {
    a_null_read "null-read" Fault;
    a_wild_read "wild-read" Fault;
    a_write_to_nowhere "wild-write" Fault;
    a_wild_jump "wild-jump" Fault;
    a_jump_to_no_address "far-jump" Fault;
    a_trap "trap" Fault;
    a_division_by_zero "divide" Fault;
    destroyed_registers_and_a_fault "registers-fault" Fault;
    a_destroyed_stack_pointer "stack-pointer" Fault;
    the_direction_flag_and_a_fault "direction-fault" Fault;
    a_stack_overflow "recursion" Fault;
    a_stack_overflow_in_a_function_of_the_host "recursion-in-host" Fault;
    an_endless_loop "loop" Watchdog;
    a_nonsense_answer "nonsense" PluginNonsense;
    a_step_backwards "backwards" PluginNonsense;
    a_step_to_where_it_stands "stands-still" PluginNonsense;
    a_fault_in_a_rule "rule-fault" Fault;
    a_rule_that_is_none "rule-lie" PluginNonsense;
    an_answer_for_a_rule_that_is_none "rule-nonsense" PluginNonsense;
}

/// A call that destroys registers and returns normally is not detected, and does no harm.
#[test]
fn calls_that_come_back_with_destroyed_registers_do_no_harm() {
    for face in ["registers", "direction", "reads"] {
        let Recorded { samples, said } = record(face);
        assert!(!said.contains("\"bad\" failed"), "{face}: {said}");
        assert!(good_share(&samples) >= WHOLE, "{face}: good frames in {:.3}", good_share(&samples));
        let shown = samples.iter().filter(|s| emitted(s, "bad frame") == 1).count();
        assert_eq!(shown > samples.len() / 2, face != "reads", "{face}: {shown} of {}", samples.len());
    }
}

/// Plugins that cannot be used, or whose analyse half fails, are named with the reason; the other one works.
#[test]
fn plugins_that_cannot_be_used_are_named() {
    let cases = [
        ("declines", "says that it cannot serve plugin interface"),
        ("other-abi", "was built for plugin interface 99"),
        ("small-table", "has a table of 16 bytes"),
        ("no-name", "has no name"),
        ("analyse-crash", "plugin \"bad\" could not analyse"),
        ("analyse-crash", "it crashed (signal 4)"),
        ("analyse-exit", "it ended its process (exit code 0)"),
        ("analyse-liar", "its analyse half answered nonsense"),
        ("analyse-memory", "it crashed (signal 11)"),
        ("analyse-refuses", "plugin \"bad\": a version that is not known"),
    ];
    for face in cases.iter().map(|(face, _)| *face).collect::<BTreeSet<_>>() {
        let Recorded { samples, said } = record(face);
        for (_, text) in cases.iter().filter(|(f, _)| *f == face) {
            assert!(said.contains(text), "{face}: no {text:?} in: {said}");
        }
        assert!(good_share(&samples) >= WHOLE, "{face}: good frames in {:.3}", good_share(&samples));
        assert!(samples.iter().all(|s| emitted(s, "bad frame") == 0), "{face}");
        // Where its analysis has failed, nobody knows whether the plugin would have had frames there.
        let failed = ["analyse-crash", "analyse-exit", "analyse-liar", "analyse-memory"].contains(&face);
        let met: Vec<_> = samples.iter().filter(|s| s.native_names().contains(&"through_bad")).collect();
        assert!(!met.is_empty(), "{face}: {said}");
        assert!(!failed || said.contains(" not known yet"), "{face}: {said}");
        for sample in met {
            assert_eq!(sample.flags.contains("facts-pending"), failed, "{face}: {}", sample.text());
        }
    }
}

#[test]
fn a_hang_in_analyse_or_on_opening_costs_its_time_and_nothing_else() {
    for (face, text) in
        [("analyse-hang", "it took more than 5 s"), ("open-hang", "cannot be opened: it took more than 5 s")]
    {
        let Recorded { samples, said } = record(face);
        assert!(said.contains(text), "{face}: {said}");
        assert!(good_share(&samples) >= WHOLE, "{face}: good frames in {:.3}", good_share(&samples));
    }
}

/// A file that both plugins claim belongs to the first one, and a message says so.
#[test]
fn the_first_claim_holds() {
    let built = built();
    let dir = paths::scratch("claims");
    let again = dir.join("again.so");
    let include = format!("-I{}", paths::root().join("ffi/include").display());
    let source: &Path = &paths::source("native/faces.c");
    let text = std::fs::read_to_string(source)
        .expect("the plugin")
        .replace("#define NAME \"good\"", "#define NAME \"better\"");
    let copy = dir.join("faces.c");
    std::fs::write(&copy, text).expect("scratch");
    let targets = format!("-I{}", source.parent().expect("a folder").display());
    compile::gcc_files(&dir, "again.so", &[copy], &["-DGOOD", "-shared", "-fPIC", "-Wl,-z,now", &include, &targets]);
    let listed = std::env::join_paths([&built.good, &again]).expect("no colons");
    let recording = uu::record(
        &dir,
        &["-r", RATE],
        |command| {
            command.env("UU_PLUGINS", listed);
        },
        &[built.host.as_ref(), SECONDS.as_ref()],
    )
    .expect_code(0);
    let said = &recording.outcome.stderr;
    assert!(
        said.contains("is claimed by the plugins \"good\" and \"better\"; \"good\", found first, has it"),
        "{said}"
    );
    let samples = recording.samples();
    assert!(good_share(&samples) >= WHOLE && samples.iter().all(|s| emitted(s, "better frame") == 0));
}
