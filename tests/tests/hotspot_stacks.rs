//! Java stacks against the runtime's own view, and against the only order in which a program's methods call each other,
//! with the JVMs of this machine.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use uunwind_tests::samples::{beside, Frame, Sample};
use uunwind_tests::{chance, compile, paths, skips, uu};

/// A tick of the timer at the moment of an explicit signal would swallow it, so the rate is the lowest.
const EXPLICIT: &[&str] = &["--explicit", "-r", "1"];
/// The versions that are served.
const SERVED: [&str; 2] = ["17", "25"];
/// Limit of the share of stacks in doubt, or that end early.
const DOUBTFUL: f64 = 0.02;

/// A Java frame: class and method, file, line.
type Place = (String, String, u32);

/// A JVM, by its version, and where its `bin` is.
struct Jvm {
    version: String,
    home: PathBuf,
}

/// The JVMs of this machine that are served, with a compiler.
fn jvms(what: &str) -> Vec<Jvm> {
    let mut found: BTreeMap<String, PathBuf> = BTreeMap::new();
    for folder in std::fs::read_dir("/usr/lib/jvm").into_iter().flatten().flatten() {
        let home = folder.path();
        let release = std::fs::read_to_string(home.join("release")).unwrap_or_default();
        let version = release.lines().find_map(|line| line.strip_prefix("JAVA_VERSION=\""));
        let Some(version) = version.and_then(|version| version.split(['.', '"']).next()) else { continue };
        if home.join("bin/javac").exists() && SERVED.contains(&version) {
            found.entry(version.to_owned()).or_insert(home);
        }
    }
    if found.is_empty() {
        skips::skipped(what, &format!("this machine has no JDK {}", SERVED.join(" or ")));
    }
    found.into_iter().map(|(version, home)| Jvm { version, home }).collect()
}

impl Jvm {
    /// Compiles a program into a folder.
    fn compile(&self, scratch: &Path, source: &str) {
        let mut javac = Command::new(self.home.join("bin/javac"));
        let done = javac.arg("-d").arg(scratch).arg(paths::source(source)).status();
        assert!(done.expect("javac runs").success(), "{source}: not compiled");
    }

    /// The command that runs a class.
    fn command(&self, scratch: &Path, options: &[&str], class: &str) -> Vec<OsString> {
        let mut command = vec![self.home.join("bin/java").into_os_string()];
        command.extend(options.iter().map(OsString::from));
        command.extend([OsString::from("-cp"), scratch.into(), class.into()]);
        command
    }
}

fn words(command: &[OsString]) -> Vec<&OsStr> {
    command.iter().map(OsString::as_os_str).collect()
}

/// How methods are run.
const TIERS: [(&str, &[&str]); 4] = [
    ("interpreted", &["-Xint"]),
    ("client", &["-XX:TieredStopAtLevel=1", "-Xcomp"]),
    ("server", &["-XX:-TieredCompilation", "-Xcomp"]),
    ("any", &[]),
];

/// A sample's Java frames, innermost first.
fn java(sample: &Sample) -> Vec<Place> {
    let frames = sample.frames.iter().filter_map(|frame| match frame {
        Frame::Other { plugin, name, file, line } if plugin == "java" => Some((name.clone(), file.clone(), *line)),
        _ => None,
    });
    frames.collect()
}

/// Makes a trial of each served JVM in each tier, a few at the same time: they wait, and compile in other threads.
fn each(what: &str, together: usize, trial: impl Fn(&Jvm, &str, &[&str]) + Sync) {
    let jvms = jvms(what);
    let trials =
        jvms.iter().flat_map(|jvm| TIERS.map(|(tier, options)| (jvm, format!("{} {tier}", jvm.version), options)));
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
    each("Java stacks", 4, places);
}

fn places(jvm: &Jvm, tier: &str, options: &[&str]) {
    let scratch = paths::scratch(&format!("hotspot-places-{}", tier.replace(' ', "-")));
    let oracle = scratch.join("oracle");
    let library = compile::shared(&scratch, "libcap.so", &["hotspot/cap.c"]);
    jvm.compile(&scratch, "hotspot/Places.java");
    let command = jvm.command(&scratch, options, "Places");
    let configure = |command: &mut Command| {
        command.env("UU_TEST_ORACLE", &oracle).env("UU_TEST_CAP", &library);
        command.env_remove("JAVA_TOOL_OPTIONS").env_remove("_JAVA_OPTIONS");
    };
    let samples = uu::record(&scratch, EXPLICIT, configure, &words(&command)).expect_code(0).samples();
    let expected = read(&oracle);
    let taken: Vec<&Sample> = samples.iter().filter(|sample| sample.kind == "explicit").collect();
    if taken.len() != expected.len() || expected.len() < 60 {
        let leaf = |places: &Vec<Place>| format!("{:?}", places.first());
        let leaves: Vec<String> = expected.iter().map(leaf).collect();
        panic!("{tier}: {} samples for {}\n{}", taken.len(), expected.len(), beside(&leaves, &samples));
    }
    // Until the JVM's file has been looked at, nothing is known of Java.
    let pairs = expected.iter().zip(taken).skip_while(|(_, sample)| java(sample).is_empty());
    let pairs: Vec<_> = pairs.collect();
    assert!(pairs.len() >= 60, "{tier}: Java in {} of {} samples", pairs.len(), expected.len());
    for (expected, sample) in pairs {
        compare(expected, sample).unwrap_or_else(|why| panic!("{tier}: {why}\n{}", sample.text()));
    }
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

fn compare(expected: &[Place], sample: &Sample) -> Result<(), String> {
    let got = java(sample);
    // From the caller of the method that samples on: the runtime's own frames are those of its walk.
    let from_cap = |places: &[Place]| {
        let own = places.iter().position(|(name, ..)| name == "Places.cap")?;
        Some(places[own + 1..].to_vec())
    };
    let (got, expected) = (from_cap(&got).ok_or("no frame of cap")?, from_cap(expected).ok_or("no cap expected")?);
    if got != expected {
        let at = got.iter().zip(&expected).take_while(|(got, want)| got == want).count();
        return Err(format!("frame {at} from cap: got {:?}, expected {:?}", got.get(at), expected.get(at)));
    }
    if !sample.complete() || !matches!(&*sample.flags, "-" | "" | "facts-pending") {
        return Err("the stack is not complete, or is flagged".into());
    }
    Ok(())
}

/// Interrupted at any instruction: every whole stack has the methods in the order in which they call each other.
#[test]
fn any_instruction() {
    each("Java stacks at any instruction", 2, anywhere);
}

fn anywhere(jvm: &Jvm, tier: &str, options: &[&str]) {
    let scratch = paths::scratch(&format!("hotspot-anywhere-{}", tier.replace(' ', "-")));
    let library = compile::shared(&scratch, "libcap.so", &["hotspot/cap.c"]);
    jvm.compile(&scratch, "hotspot/Chain.java");
    let command = jvm.command(&scratch, options, "Chain");
    let rounds = chance::seconds(1.0) as u64;
    let rounds = if options == ["-Xint"] { rounds * 2500 } else { rounds * 20_000 };
    let configure = |command: &mut Command| {
        command.env("UU_TEST_ROUNDS", rounds.to_string()).env("UU_TEST_CAP", &library);
        command.env_remove("JAVA_TOOL_OPTIONS").env_remove("_JAVA_OPTIONS");
    };
    let samples = uu::record(&scratch, &["-r", "999"], configure, &words(&command)).expect_code(0).samples();
    are_possible(tier, &samples);
}

/// The numbers of the methods `Chain.level0` and so on in a stack, outermost first; `None`: it is not of the program.
fn levels(sample: &Sample) -> Option<Vec<u32>> {
    let frames = java(sample);
    frames.iter().any(|(name, ..)| name == "Chain.main").then(|| {
        let numbers = frames.iter().filter_map(|(name, ..)| name.strip_prefix("Chain.level")?.parse().ok());
        numbers.rev().collect()
    })
}

fn check(sample: &Sample) -> Result<bool, String> {
    let Some(levels) = levels(sample) else { return Ok(false) };
    let frames = java(sample);
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
        if levels(sample).is_none() && java(sample).is_empty() {
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
