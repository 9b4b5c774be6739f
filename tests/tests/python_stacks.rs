//! Python stacks against the runtime's own view: every test program under every interpreter of this machine.

use libtest_mimic::Arguments;
use object::Object;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use uunwind_tests::interpreters::{self, Interpreter};
use uunwind_tests::own_walks::{self, Reads};
use uunwind_tests::samples::{self, Frame, Sample};
use uunwind_tests::{compile, evidence, executable, oracle, paths, skips, uu};

/// The programs in `targets/python`, one for each section of the test recipe.
const PROGRAMS: &[&str] = &[
    "recursion",
    "deep_recursion",
    "c_callback",
    "ctypes_callback",
    "generators",
    "threads",
    "exceptions",
    "without_gil",
    "exec_lambda",
    "hot_class",
    "sub_interpreters",
    "hot_loops",
    "interruptions",
];

/// The first version with a JIT that distributions build.
const FIRST_JIT: u32 = 14;
/// The versions with free-threaded builds.
const FREE_THREADED: std::ops::RangeInclusive<u32> = 13..=15;

/// Of these, those that are also run with a trampoline for each function, through which its activations are called.
const WITH_TRAMPOLINES: &[&str] = &["recursion", "c_callback", "generators", "threads", "exceptions", "exec_lambda"];

type Check = Box<dyn Fn(&Interpreter) -> Result<(), String> + Send>;

fn main() {
    let arguments = Arguments::from_args();
    let found = interpreters::supported();
    for minor in FREE_THREADED.filter(|minor| !found.iter().any(|i| i.version.0 == *minor && i.flags.contains('t'))) {
        skips::skipped(&format!("Python stacks on 3.{minor}t"), "this machine has no such interpreter");
    }
    let mut trials = Vec::new();
    for interpreter in found {
        let mut add = |name: &str, test: Check| {
            let mine = interpreter.clone();
            trials.push(evidence::trial(format!("{}::{name}", mine.label), move || test(&mine)));
        };
        for program in PROGRAMS {
            add(program, Box::new(|python| agrees(python, program)));
        }
        for reads in Reads::ALL {
            add(reads.suffix(), Box::new(move |python| agree_by_uu_walk(python, reads)));
        }
        let options = match interpreter.version.0 {
            ..12 => &[][..],
            12 => &["perf"],
            13.. => &["perf", "perf_jit"],
        };
        for (option, program) in options.iter().flat_map(|option| WITH_TRAMPOLINES.iter().map(move |p| (*option, *p))) {
            let name = format!("{program}_{option}");
            add(&name, Box::new(move |python| agrees_with_trampolines(python, option, program)));
        }
        if interpreter.version.0 >= FIRST_JIT {
            add("hot_loops_jit", Box::new(agrees_with_jit));
        }
        add("too_deep", Box::new(too_deep));
        add("script_by_its_first_line", Box::new(script_by_its_first_line));
    }
    libtest_mimic::run(&arguments, trials).exit();
}

/// An explicit signal is lost if a tick is pending at that moment, so the rate is as low as possible.
const EXPLICIT: &[&str] = &["--explicit", "-r", "1"];

/// The results of one run of a test program.
struct Run {
    samples: Vec<Sample>,
    oracle: Vec<oracle::Expected>,
    recording: uu::Recording,
}

/// The first version in which Python functions share an activation, as the shapes say that they do.
const SHARED_ACTIVATIONS: u32 = 11;

impl Run {
    /// Without shapes where each Python frame has its own activation.
    fn without_shapes(mut self, python: &Interpreter) -> Run {
        if python.version.0 < SHARED_ACTIVATIONS {
            self.oracle.iter_mut().for_each(|expected| expected.shapes.clear());
        }
        self
    }

    /// The oracle's lines with their samples.
    fn pairs(&self) -> Result<Vec<(&oracle::Expected, &Sample)>, String> {
        oracle::pair(&self.oracle, &self.samples)
    }
}

fn record(name: &str, program: &[&OsStr]) -> Run {
    record_with(name, &[], program)
}

/// With these variables in the program's environment.
fn record_with(name: &str, variables: &[(&str, &str)], program: &[&OsStr]) -> Run {
    let scratch = paths::scratch(name);
    let cap = compile::shared(&scratch, "libcap.so", &["python/cap.c"]);
    let oracle = scratch.join("oracle");
    let environment = |command: &mut std::process::Command| {
        command.env("UU_TEST_CAP", &cap).env("UU_TEST_ORACLE", &oracle).env("PYTHONDONTWRITEBYTECODE", "1");
        command.envs(variables.iter().copied());
    };
    let recording = uu::record(&scratch, EXPLICIT, environment, program).expect_code(0);
    Run { samples: recording.samples(), oracle: oracle::read(&oracle), recording }
}

fn has_symbols(interpreter: &Path) -> bool {
    let data = std::fs::read(interpreter).expect("the interpreter can be read");
    object::File::parse(&*data).expect("an ELF file").section_by_name(".symtab").is_some()
}

fn compare(run: Run, symbols: bool) -> Result<(), String> {
    compare_all(&run.pairs()?, symbols)
}

fn compare_all(pairs: &[(&oracle::Expected, &Sample)], symbols: bool) -> Result<(), String> {
    for (expected, sample) in pairs {
        let context = |e: String| format!("{e}\n{}", sample.text());
        oracle::compare_python(expected, sample, true).map_err(context)?;
        // "facts-pending" may come from an object that was just opened and turns out not to be an interpreter: all
        // frames that the runtime knows of were just compared.
        if !sample.complete() || !matches!(&*sample.flags, "-" | "" | "facts-pending") {
            return Err(context("the stack is not whole, or is flagged".into()));
        }
        let errors: Vec<String> = expected
            .shapes
            .iter()
            .map_while(|shape| oracle::compare_shape(shape, sample, symbols).err().map(|e| format!("{shape}\n  {e}")))
            .collect();
        if !expected.shapes.is_empty() && errors.len() == expected.shapes.len() {
            return Err(context(format!("no shape fits:\n{}", errors.join("\n"))));
        }
    }
    Ok(())
}

fn agrees(python: &Interpreter, program: &str) -> Result<(), String> {
    let source = paths::source(&format!("python/{program}.py"));
    let run = record(&format!("{program}-{}", python.label), &[python.path.as_os_str(), source.as_os_str()]);
    compare(run.without_shapes(python), has_symbols(&python.path))
}

/// The same programs without a recorder: the program's own handler calls uu_walk().
fn agree_by_uu_walk(python: &Interpreter, reads: Reads) -> Result<(), String> {
    let symbols = has_symbols(&python.path);
    for program in PROGRAMS {
        let scratch = paths::scratch(&format!("{program}-{}-{}", python.label, reads.suffix()));
        let cap = compile::shared(&scratch, "libcap.so", &["python/cap.c"]);
        let (oracle, source) = (scratch.join("oracle"), paths::source(&format!("python/{program}.py")));
        let environment = |command: &mut std::process::Command| {
            command.env("UU_TEST_CAP", &cap).env("UU_TEST_ORACLE", &oracle).env("PYTHONDONTWRITEBYTECODE", "1");
        };
        let words = [python.path.as_os_str(), source.as_os_str()];
        let walked = own_walks::explicit(&scratch, reads, environment, &words)?;
        let mut expected = oracle::read(&oracle);
        expected.iter_mut().for_each(oracle::Expected::without_code);
        if python.version.0 < SHARED_ACTIVATIONS {
            expected.iter_mut().for_each(|expected| expected.shapes.clear());
        }
        let pairs = oracle::pair(&expected, &walked.samples);
        pairs.and_then(|pairs| compare_all(&pairs, symbols)).map_err(|error| format!("{program}: {error}"))?;
    }
    Ok(())
}

/// With `-X perf` or `-X perf_jit`: the same frames. The trampolines stand among them, marked as the interpreter's.
fn agrees_with_trampolines(python: &Interpreter, option: &str, program: &str) -> Result<(), String> {
    let source = paths::source(&format!("python/{program}.py"));
    let name = format!("{program}-{option}-{}", python.label);
    let mut run = record(&name, &[python.path.as_os_str(), "-X".as_ref(), option.as_ref(), source.as_os_str()]);
    // Python frames do not share activations then.
    run.oracle.iter_mut().for_each(|expected| expected.shapes.clear());
    for sample in &run.samples {
        for file in [format!("/tmp/perf-{}.map", sample.pid), format!("/tmp/jit-{}.dump", sample.pid)] {
            let _ = std::fs::remove_file(file);
        }
    }
    // Only the samples that the program asked for: the timer may sample the interpreter before it has made its
    // trampolines.
    for (_, sample) in run.pairs()? {
        // In no object: without a name, or with the one that CPython writes down for it.
        let (mut trampolines, mut activations) = (0, 0);
        for frame in &sample.frames {
            match frame {
                Frame::Native { object, interpreter, .. } if matches!(&**object, "?" | "perf-map" | "jitdump") => {
                    trampolines += 1;
                    if !interpreter {
                        return Err(format!("{frame:?} is not marked as the interpreter's\n{}", sample.text()));
                    }
                }
                Frame::Native { interpreter: true, .. } => activations += 1,
                _ => {}
            }
        }
        if trampolines != activations {
            return Err(format!("{trampolines} trampolines, {activations} activations\n{}", sample.text()));
        }
    }
    compare(run, false)
}

/// With the JIT that the build has: the same frames, whole.
fn agrees_with_jit(python: &Interpreter) -> Result<(), String> {
    if !python.has_jit() {
        skips::skipped(&format!("{}::hot_loops_jit", python.label), "this build has no JIT");
        return Ok(());
    }
    let source = paths::source("python/hot_loops.py");
    // Not by env(1): uu prepares for the program that it starts, and this one takes its stacks within milliseconds.
    let program = [python.path.as_os_str(), source.as_os_str()];
    let run = record_with(&format!("hot_loops-jit-{}", python.label), &[("PYTHON_JIT", "1")], &program);
    let hosted = run.samples.iter().filter(|sample| sample.frames.iter().any(Frame::is_in_jit)).count();
    if hosted == 0 {
        return Err("no sample was taken below the JIT's code".into());
    }
    compare(run, has_symbols(&python.path))
}

/// More frames than are kept: the innermost and the outermost ones are right, and a frame between them has the number
/// that was left out.
fn too_deep(python: &Interpreter) -> Result<(), String> {
    let source = paths::source("python/too_deep.py");
    let run = record(&format!("too_deep-{}", python.label), &[python.path.as_os_str(), source.as_os_str()]);
    let folded = run.recording.report("folded");
    let pairs = run.pairs()?;
    let [(expected, sample)] = &pairs[..] else { return Err(format!("{} samples, expected 1", pairs.len())) };
    let shared = python.version.0 >= SHARED_ACTIVATIONS;
    // Where each frame has an activation, native frames are left out with them, and their number is not known.
    if shared {
        oracle::compare_python(expected, sample, true)?;
    }
    let omitted = sample.omitted();
    if !sample.complete() || omitted != Some(samples::KEPT) {
        return Err(format!("{omitted:?} frames around the omitted ones, stop {} {}", sample.stop, sample.stop_text));
    }
    let mark = if shared { ";[frames left out];rec (" } else { ";[frames left out];" };
    let marked = folded.lines().any(|l| l.contains("<module> (") && l.contains(mark));
    marked.then_some(()).ok_or_else(|| format!("no mark of the frames left out: {:.300}", folded))
}

/// The interpreter is found through the script's `#!` line and a symlink: its facts must be ready before it starts.
fn script_by_its_first_line(python: &Interpreter) -> Result<(), String> {
    use std::os::unix::fs::symlink;
    let scratch = paths::scratch(&format!("script-{}", python.label));
    let link: PathBuf = scratch.join("interpreter");
    symlink(&python.path, &link).map_err(|e| e.to_string())?;
    let script = scratch.join("script.py");
    let tools = paths::source("python/snap.py");
    let text = format!(
        "#!{}\nimport sys\nsys.path.insert(0, {:?})\nfrom snap import snap\nsnap('E{{<module> snap}} cap')\n",
        link.display(),
        tools.parent().expect("a folder")
    );
    executable::write(&script, text.as_bytes());
    let run = record(&format!("script-run-{}", python.label), &[script.as_os_str()]);
    compare(run.without_shapes(python), has_symbols(&python.path))
}
