//! Python stacks against the runtime's own view: every test program under every interpreter of this machine.

use libtest_mimic::Arguments;
use object::Object;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use uunwind_tests::interpreters::{self, Interpreter};
use uunwind_tests::samples::Sample;
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
];

type Check = Box<dyn Fn(&Interpreter) -> Result<(), String> + Send>;

fn main() {
    let arguments = Arguments::from_args();
    let found = interpreters::supported();
    for minor in interpreters::missing(&found) {
        skips::skipped(&format!("Python stacks on 3.{minor}"), "this machine has no such interpreter");
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
        add("too_deep", Box::new(too_deep));
        add("script_by_its_first_line", Box::new(script_by_its_first_line));
    }
    libtest_mimic::run(&arguments, trials).exit();
}

/// A tick of the timer at the moment of an explicit signal would swallow it: as few ticks as can be.
const EXPLICIT: &[&str] = &["--explicit", "-r", "1"];

/// What one run of a test program left behind.
struct Run {
    samples: Vec<Sample>,
    oracle: Vec<oracle::Expected>,
    recording: uu::Recording,
}

impl Run {
    /// The oracle's lines with their samples.
    fn pairs(&self) -> Result<Vec<(&oracle::Expected, &Sample)>, String> {
        oracle::pair(&self.oracle, &self.samples)
    }
}

fn record(name: &str, program: &[&OsStr]) -> Run {
    let scratch = paths::scratch(name);
    let cap = compile::shared(&scratch, "libcap.so", &["python/cap.c"]);
    let oracle = scratch.join("oracle");
    let environment = |command: &mut std::process::Command| {
        command.env("UU_TEST_CAP", &cap).env("UU_TEST_ORACLE", &oracle).env("PYTHONDONTWRITEBYTECODE", "1");
    };
    let recording = uu::record(&scratch, EXPLICIT, environment, program).expect_code(0);
    Run { samples: recording.samples(), oracle: oracle::read(&oracle), recording }
}

fn has_symbols(interpreter: &Path) -> bool {
    let data = std::fs::read(interpreter).expect("the interpreter can be read");
    object::File::parse(&*data).expect("an ELF file").section_by_name(".symtab").is_some()
}

fn compare(run: Run, symbols: bool) -> Result<(), String> {
    for (expected, sample) in run.pairs()? {
        let told = |e: String| format!("{e}\n{}", sample.text());
        oracle::compare_python(expected, sample, true).map_err(told)?;
        // "facts-pending" may come from an object that was just opened and turns out not to be an interpreter: all frames that
        // the runtime knows of were just compared.
        if !sample.complete() || !matches!(&*sample.flags, "-" | "" | "facts-pending") {
            return Err(told("the stack is not whole, or is flagged".into()));
        }
        let errors: Vec<String> = expected
            .shapes
            .iter()
            .map_while(|shape| oracle::compare_shape(shape, sample, symbols).err().map(|e| format!("{shape}\n  {e}")))
            .collect();
        if !expected.shapes.is_empty() && errors.len() == expected.shapes.len() {
            return Err(told(format!("no shape fits:\n{}", errors.join("\n"))));
        }
    }
    Ok(())
}

fn agrees(python: &Interpreter, program: &str) -> Result<(), String> {
    let source = paths::source(&format!("python/{program}.py"));
    let run = record(&format!("{program}-{}", python.label), &[python.path.as_os_str(), source.as_os_str()]);
    compare(run, has_symbols(&python.path))
}

/// More frames than are kept: those nearest the leaf are right, the sample says that it is cut, and so do the reports.
fn too_deep(python: &Interpreter) -> Result<(), String> {
    const KEPT: usize = 4096;
    let source = paths::source("python/too_deep.py");
    let run = record(&format!("too_deep-{}", python.label), &[python.path.as_os_str(), source.as_os_str()]);
    let folded = run.recording.report("folded");
    let pairs = run.pairs()?;
    let [(expected, sample)] = &pairs[..] else { return Err(format!("{} samples, expected 1", pairs.len())) };
    oracle::compare_python(expected, sample, false)?;
    if sample.frames.len() != KEPT || sample.stop != 10 {
        return Err(format!("{} frames, stop {} {}", sample.frames.len(), sample.stop, sample.stop_text));
    }
    let marked = folded.lines().any(|l| l.split(';').take(4).any(|f| f.contains("truncated")) && l.contains("rec ("));
    marked.then_some(()).ok_or_else(|| format!("no mark of the cut near the root: {:.300}", folded))
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
    compare(record(&format!("script-run-{}", python.label), &[script.as_os_str()]), has_symbols(&python.path))
}
