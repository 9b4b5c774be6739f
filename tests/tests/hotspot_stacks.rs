//! Java stacks against the runtime's own view, and against the only order in which a program's methods call each other,
//! with the JVMs of this machine.

use serde_json::Value;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use uunwind_tests::jvms::{self, Jvm};
use uunwind_tests::running::Running;
use uunwind_tests::samples::{beside, Frame, Sample};
use uunwind_tests::{attached, builds, chance, compile, cores, dumps, java, paths, pending, process, skips, uu};

/// A tick of the timer at the moment of an explicit signal would swallow it, so the rate is the lowest.
const EXPLICIT: &[&str] = &["--explicit", "-r", "1"];
/// Limit of the share of stacks in doubt, or that end early.
const DOUBTFUL: f64 = 0.02;

/// A Java frame: class and method, file, line.
type Place = (String, String, u32);

/// The JVMs of this machine that are served.
fn served(what: &str) -> Vec<Jvm> {
    jvms::served(|version| skips::skipped(what, &format!("this machine has no JDK {version}")))
}

/// Compiles a program for a JVM into a folder.
fn build(jvm: &Jvm, scratch: &Path, source: &str) {
    let mut javac = java::javac(jvm).expect("a compiler: ci/setup installs JDK 17's");
    let done = javac.arg("-d").arg(scratch).arg(paths::source(source)).status();
    assert!(done.expect("javac runs").success(), "{source}: not compiled");
}

/// The command that runs a class.
fn command(jvm: &Jvm, scratch: &Path, options: &[&str], class: &str) -> Vec<OsString> {
    let mut command = vec![jvm.home.join("bin/java").into_os_string()];
    command.extend(options.iter().map(OsString::from));
    command.extend([OsString::from("-cp"), scratch.into(), class.into()]);
    command
}

fn words(command: &[OsString]) -> Vec<&OsStr> {
    command.iter().map(OsString::as_os_str).collect()
}

/// That the runtime's own stacks have hidden methods, too.
const HIDDEN: [&str; 2] = ["-XX:+UnlockDiagnosticVMOptions", "-XX:+ShowHiddenFrames"];

/// How methods are run.
const TIERS: [(&str, &[&str]); 4] = [
    ("interpreted", &["-Xint"]),
    ("client", &["-XX:TieredStopAtLevel=1", "-Xcomp"]),
    ("server", &["-XX:-TieredCompilation", "-Xcomp"]),
    ("any", &[]),
];

/// A sample's Java frames, innermost first.
fn methods(sample: &Sample) -> Vec<Place> {
    let frames = sample.frames.iter().filter_map(|frame| match frame {
        Frame::Other { plugin, name, file, line } if plugin == "java" => Some((name.clone(), file.clone(), *line)),
        _ => None,
    });
    frames.collect()
}

/// Makes a trial of each of these JVMs in each tier, a few at the same time: they wait, and compile in other threads.
/// For each change it makes half of the trials, among which is each JVM and each tier.
fn each(what: &str, jvms: &[Jvm], together: usize, trial: impl Fn(&Jvm, &str, &[&str]) + Sync) {
    let is_tried = |(place, tier): (usize, &str)| {
        let is_tried = builds::every() || place % 2 == 0;
        if !is_tried {
            let why = "others of this version and of this kind are tried; ci/nightly tries all (UU_EVERY_BUILD=1)";
            skips::skipped(&format!("{what}: {tier}"), why);
        }
        is_tried
    };
    let trials = jvms.iter().enumerate().flat_map(|(row, jvm)| {
        TIERS.iter().enumerate().filter_map(move |(column, (tier, options))| {
            let tier = format!("{} {tier}", jvm.version);
            is_tried((row + column, &tier)).then_some((jvm, tier, *options))
        })
    });
    let trials = Mutex::new(trials);
    let next = || trials.lock().ok()?.next();
    std::thread::scope(|scope| {
        for _ in 0..together {
            scope.spawn(|| {
                while let Some((jvm, tier, options)) = next() {
                    trial(jvm, &tier, options);
                }
            });
        }
    });
}

#[test]
fn places_are_those_of_the_runtime() {
    let what = "Java stacks";
    each(what, &served(what), 4, places);
}

fn places(jvm: &Jvm, tier: &str, options: &[&str]) {
    for (expected, sample) in at_places(jvm, tier, options, "Places") {
        compare(&expected, &sample).unwrap_or_else(|why| panic!("{tier}: {why}\n{}", sample.text()));
    }
}

/// The stacks that a class writes down, each with its sample.
fn at_places(jvm: &Jvm, tier: &str, options: &[&str], class: &str) -> Vec<(Vec<Place>, Sample)> {
    let scratch = paths::scratch(&format!("hotspot-{}-{}", class.to_lowercase(), tier.replace(' ', "-")));
    let oracle = scratch.join("oracle");
    let library = compile::shared(&scratch, "libcap.so", &["hotspot/cap.c"]);
    build(jvm, &scratch, &format!("hotspot/{class}.java"));
    let command = command(jvm, &scratch, &[&HIDDEN[..], options].concat(), class);
    let configure = |command: &mut Command| {
        command.env("UU_TEST_ORACLE", &oracle).env("UU_TEST_CAP", &library);
        command.env_remove("JAVA_TOOL_OPTIONS").env_remove("_JAVA_OPTIONS");
    };
    let mut samples = uu::record(&scratch, EXPLICIT, configure, &words(&command)).expect_code(0).samples();
    samples.retain(|sample| sample.kind == "explicit");
    samples.sort_by_key(|sample| sample.time);
    let mut expected = read(&oracle);
    if jvm.version == 8 {
        expected.iter_mut().flatten().for_each(of_jdk_8);
    }
    if samples.len() != expected.len() {
        let leaf = |places: &Vec<Place>| format!("{:?}", places.first());
        let leaves: Vec<String> = expected.iter().map(leaf).collect();
        panic!("{tier}: {} samples for {}\n{}", samples.len(), expected.len(), beside(&leaves, &samples));
    }
    // Until the JVM's file has been looked at, nothing is known of Java.
    let all = expected.len();
    let pairs = expected.into_iter().zip(samples).skip_while(|(_, sample)| methods(sample).is_empty());
    let pairs: Vec<_> = pairs.collect();
    assert!(all >= 30 && pairs.len() * 2 >= all, "{tier}: Java in {} of {all} samples", pairs.len());
    pairs
}

/// A frame a line: name, file and line; an empty line ends a stack.
fn read(oracle: &Path) -> Vec<Vec<Place>> {
    let text = std::fs::read_to_string(oracle).unwrap_or_else(|e| panic!("{}: {e}", oracle.display()));
    let place = |line: &str| {
        let mut fields = line.split('\t').map(str::to_owned);
        let mut field = || fields.next().expect("three fields");
        let (name, file, number) = (field(), field(), field());
        (name, if file == "null" { String::new() } else { file }, number.parse().expect("a line"))
    };
    let stack = |stack: &str| stack.lines().map(place).collect();
    text.split("\n\n").filter(|stack| !stack.is_empty()).map(stack).collect()
}

/// JDK 8 names a class that has no name of its own by a number that its tables do not lead to, and shows hidden methods
/// with the file "<Unknown>" and their bytecode's index, from a million on, as the line.
fn of_jdk_8(place: &mut Place) {
    let (name, file, line) = place;
    if let Some((class, method)) = name.rsplit_once('.') {
        if let Some((own, number)) = class.rsplit_once('/') {
            if number.bytes().all(|byte| byte.is_ascii_digit()) {
                *name = format!("{own}.{method}");
            }
        }
    }
    if file == "<Unknown>" {
        file.clear();
    }
    if *line >= 1_000_000 {
        *line = 0;
    }
}

/// The frames from the caller of the method that samples on: the runtime's own frames are those of its walk.
fn from_cap(places: &[Place]) -> Option<&[Place]> {
    let own = places.iter().position(|(name, ..)| name.ends_with(".cap"))?;
    places.get(own + 1..)
}

fn compare(expected: &[Place], sample: &Sample) -> Result<(), String> {
    let got = methods(sample);
    let (got, expected) = (from_cap(&got).ok_or("no frame of cap")?, from_cap(expected).ok_or("no cap expected")?);
    if got != expected {
        let at = got.iter().zip(expected).take_while(|(got, want)| got == want).count();
        return Err(format!("frame {at} from cap: got {:?}, expected {:?}", got.get(at), expected.get(at)));
    }
    if !sample.complete() || !matches!(&*sample.flags, "-" | "" | "facts-pending") {
        return Err("the stack is not complete, or is flagged".into());
    }
    Ok(())
}

/// A virtual thread stands on the stack of its carrier, whole, until it waits. Then it goes on with its innermost
/// frames: the stack ends where the others are in the heap, and says that it is cut.
#[test]
fn virtual_threads_are_whole_or_cut() {
    let what = "stacks of virtual threads";
    let jvms: Vec<Jvm> = served(what).into_iter().filter(|jvm| jvm.version >= 21).collect();
    each(what, &jvms, 4, |jvm, tier, options| {
        let pairs = at_places(jvm, tier, options, "Virtual");
        let wholes: Vec<bool> = pairs
            .iter()
            .map(|(expected, sample)| {
                is_whole(expected, sample).unwrap_or_else(|why| panic!("{tier}: {why}\n{}", sample.text()))
            })
            .collect();
        let whole = wholes.iter().filter(|whole| **whole).count();
        println!("{tier}: {whole} of {} are whole", wholes.len());
        assert!(whole >= 3 && whole < wholes.len(), "{tier}: {whole} are whole");
    });
}

/// Whether the stack of a virtual thread is whole.
fn is_whole(expected: &[Place], sample: &Sample) -> Result<bool, String> {
    const LOST: u16 = 28;
    let got = methods(sample);
    let (got, expected) = (from_cap(&got).ok_or("no frame of cap")?, from_cap(expected).ok_or("no cap expected")?);
    match got.strip_prefix(expected) {
        Some(carrier) if sample.complete() && sample.flags == "-" => {
            let runs = carrier.iter().any(|(name, ..)| name == "java.lang.VirtualThread.runContinuation");
            runs.then_some(true).ok_or("the carrier's frames are missing".into())
        }
        None if sample.stop == LOST && !got.is_empty() && expected.starts_with(got) => Ok(false),
        _ => Err("the stack is neither whole nor cut".into()),
    }
}

/// A running JVM, from outside: recorded, dumped, and its core file.
#[test]
fn from_outside() {
    let what = "Java stacks from outside";
    let jvms = served(what);
    // The oldest one and the newest, for each change.
    let ends = [jvms.first(), jvms.last()];
    for jvm in jvms.iter().filter(|jvm| builds::every() || ends.iter().flatten().any(|end| end.version == jvm.version))
    {
        let scratch = paths::scratch(&format!("hotspot-outside-{}", jvm.version));
        build(jvm, &scratch, "hotspot/Waits.java");
        // A small core file.
        let options =
            ["-Xmx32m", "-XX:+UseSerialGC", "-XX:ReservedCodeCacheSize=16m", "-XX:CompressedClassSpaceSize=16m"];
        let words = command(jvm, &scratch, &options, "Waits");
        let mut program = Command::new(&words[0]);
        let mut running = Running::ready(program.args(&words[1..]).env_remove("JAVA_TOOL_OPTIONS"));
        let pid = running.pid();
        // On a busy machine much of it passes until the sampler is inside.
        let (_, samples, said) = attached::record_cpu(&scratch, pid, 1.0, &[]);
        let works = samples.iter().filter(|sample| {
            let names: Vec<String> = methods(sample).into_iter().map(|(name, ..)| name).collect();
            sample.complete() && names.iter().any(|name| name == "Waits.works")
        });
        assert!(works.count() >= 10, "{}: {said}", jvm.version);
        assert!(said.contains("Hottest lines of Java"), "{}: {said}", jvm.version);
        let dump = |from: &[&str]| -> Value {
            let options = [&["dump"], from, &["--json"]].concat();
            let out = process::run(&mut uu::command(&scratch, &options), &scratch, uu::LIMIT).expect_code(0);
            serde_json::from_str(&out.stdout).expect("JSON")
        };
        waits(&dump(&["-p", &pid.to_string()])).unwrap_or_else(|e| panic!("{} running: {e}", jvm.version));
        if cores::has_gcore() {
            let core = cores::gcore_with_losses(pid, &scratch).expect("a core file");
            let dump = dump(&[core.path.to_str().expect("a path")]);
            match waits(&dump) {
                Err(_) if dumps::threads(&dump).iter().any(|thread| core.lacks_stack_of(thread)) => {
                    skips::skipped(
                        "a core file of a JVM",
                        "gdb has left out a stack: guard pages of glibc 2.42 are in it",
                    );
                }
                checked => checked.unwrap_or_else(|e| panic!("{} core: {e}", jvm.version)),
            }
            std::fs::remove_file(core.path).expect("a core file");
        } else {
            skips::skipped("a core file of a JVM", "there is no gcore on this machine");
        }
        running.kill();
    }
}

/// One thread of `Waits` waits, and its stack is whole.
fn waits(dump: &Value) -> Result<(), String> {
    let mut threads = dumps::threads(dump).iter();
    let thread = threads.find(|thread| dumps::functions(thread).contains(&"Waits.waits"));
    let thread = thread.ok_or_else(|| format!("no thread waits: {dump}"))?;
    let functions = dumps::functions(thread);
    let has = |name: &str| functions.contains(&name);
    let is_whole = thread["complete"] == true && has("java.lang.Thread.run") && has("java.lang.Object.wait");
    is_whole.then_some(()).ok_or_else(|| thread.to_string())
}

/// Interrupted at any instruction: every whole stack has the methods in the order in which they call each other.
#[test]
fn any_instruction() {
    let what = "Java stacks at any instruction";
    each(what, &served(what), 2, anywhere);
}

fn anywhere(jvm: &Jvm, tier: &str, options: &[&str]) {
    let scratch = paths::scratch(&format!("hotspot-anywhere-{}", tier.replace(' ', "-")));
    let library = compile::shared(&scratch, "libcap.so", &["hotspot/cap.c"]);
    build(jvm, &scratch, "hotspot/Chain.java");
    let command = command(jvm, &scratch, options, "Chain");
    let rounds = chance::seconds(1.0) as u64;
    // Enough for a hundred samples on a fast machine.
    let rounds = if options == ["-Xint"] { rounds * 5000 } else { rounds * 60_000 };
    let configure = |command: &mut Command| {
        command.env("UU_TEST_ROUNDS", rounds.to_string()).env("UU_TEST_CAP", &library);
        command.env_remove("JAVA_TOOL_OPTIONS").env_remove("_JAVA_OPTIONS");
    };
    let recording = uu::record(&scratch, &["-r", "999"], configure, &words(&command)).expect_code(0);
    let samples = recording.samples();
    pending::few_faults(recording.faults(), &samples);
    are_possible(tier, &samples);
}

/// Frames of the interpreter that were made a moment ago, instead of a frame of compiled code, hold what was on the
/// stack before: they are in doubt, and those around them are right.
#[test]
fn frames_that_are_replaced_are_in_doubt() {
    let what = "Java frames that are replaced";
    // In JDK 8 the stack is cut there.
    let first = if builds::every() { 11 } else { 17 };
    for jvm in served(what).iter().filter(|jvm| jvm.version >= first) {
        let scratch = paths::scratch(&format!("hotspot-replaced-{}", jvm.version));
        let library = compile::shared(&scratch, "libcap.so", &["hotspot/cap.c"]);
        let preloaded = compile::shared(&scratch, "replaced.so", &["hotspot/replaced.c"]);
        build(jvm, &scratch, "hotspot/Chain.java");
        let command = command(jvm, &scratch, &[], "Chain");
        let configure = |command: &mut Command| {
            command.env("UU_TEST_ROUNDS", "20000").env("UU_TEST_CAP", &library).env("LD_PRELOAD", &preloaded);
            command.env_remove("JAVA_TOOL_OPTIONS").env_remove("_JAVA_OPTIONS");
        };
        // Until the JVM's file has been looked at, nothing is known of Java: the next recording finds its table.
        let mut recorded = (0..4).map(|_| {
            let recording = uu::record(&scratch, EXPLICIT, configure, &words(&command)).expect_code(0);
            // Without any sample, there is no file.
            let mut samples = if recording.file.exists() { recording.samples() } else { Vec::new() };
            samples.retain(|sample| sample.kind == "explicit" && levels(sample).is_some());
            samples
        });
        let samples = recorded.find(|samples| samples.len() >= 5).unwrap_or_default();
        for sample in &samples {
            let names: Vec<String> = methods(sample).into_iter().map(|(name, ..)| name).collect();
            assert!(sample.flags.contains("desync"), "{}: nothing in doubt\n{}", jvm.version, sample.text());
            assert!(sample.complete(), "{}: {names:?}\n{}", jvm.version, sample.text());
            // What is in doubt is left out, at the top.
            check(sample).unwrap_or_else(|why| panic!("{}: {why}\n{}", jvm.version, sample.text()));
        }
        println!("{}: {} samples", jvm.version, samples.len());
        assert!(samples.len() >= 5, "{}: {} samples", jvm.version, samples.len());
    }
}

/// The numbers of the methods `Chain.level0` and so on in a stack, outermost first; `None`: it is not of the program.
fn levels(sample: &Sample) -> Option<Vec<u32>> {
    let frames = methods(sample);
    frames.iter().any(|(name, ..)| name == "Chain.main").then(|| {
        let numbers = frames.iter().filter_map(|(name, ..)| name.strip_prefix("Chain.level")?.parse().ok());
        numbers.rev().collect()
    })
}

fn check(sample: &Sample) -> Result<bool, String> {
    let Some(levels) = levels(sample) else { return Ok(false) };
    let frames = methods(sample);
    if frames.last().is_none_or(|(name, ..)| name != "Chain.main") {
        return Err("main is not outermost".into());
    }
    let first = levels.first().copied().unwrap_or(0);
    if first != 0 {
        return Err(format!("level{first} is outermost"));
    }
    for pair in levels.windows(2) {
        let [outer, inner] = pair else { continue };
        let recurs = (*outer, *inner) == (8, 8);
        if *inner != outer + 1 && !recurs {
            return Err(format!("level{outer} does not call level{inner}"));
        }
    }
    Ok(true)
}

fn are_possible(tier: &str, samples: &[Sample]) {
    let (mut right, mut doubtful, mut own) = (0, Vec::new(), 0);
    for sample in samples {
        if levels(sample).is_none() && methods(sample).is_empty() && !sample.flags.contains("desync") {
            continue;
        }
        own += 1;
        if sample.flags.contains("desync") || !sample.complete() {
            doubtful.push(sample);
            continue;
        }
        match check(sample) {
            Ok(is_own) => right += usize::from(is_own),
            Err(why) => panic!("{tier}: {why}\n{}", sample.text()),
        }
    }
    eprintln!("{tier}: {own} samples of Java, {right} of the program, {} in doubt", doubtful.len());
    if let (true, Some(first)) = (chance::too_many(doubtful.len(), own, DOUBTFUL), doubtful.first()) {
        panic!("{tier}: {} of {own} stacks in doubt, such as\n{}", doubtful.len(), first.text());
    }
    assert!(right >= 100 && right * 10 >= own * 6, "{tier}: the program in {right} of {own} samples");
}
