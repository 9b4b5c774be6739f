//! JavaScript stacks against the runtime's own view, and against the calls that a program can make, with each Node of
//! this machine, and those that `ci/nodes` has fetched.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;
use uunwind_tests::nodes::{self, Node};
use uunwind_tests::samples::{beside, Frame, Sample};
use uunwind_tests::{chance, compile, paths, pending, skips, uu};

/// A tick of the timer at the moment of an explicit signal would swallow it, so the rate is the lowest.
const EXPLICIT: &[&str] = &["--explicit", "-r", "1"];
/// Limit of the share of stacks in doubt.
const DOUBTFUL: f64 = 0.01;

/// The Nodes that are served; those that are missing are named as skipped.
fn nodes(what: &str) -> Vec<Node> {
    nodes::served(|major| skips::skipped(what, &format!("this machine has no Node {major}")))
}

/// A JavaScript frame: function, file, line.
type Place = (String, String, u32);

/// A sample's JavaScript frames, innermost first.
fn javascript(sample: &Sample) -> Vec<Place> {
    let frames = sample.frames.iter().filter_map(|frame| match frame {
        Frame::Other { plugin, name, file, line } if plugin == "javascript" => {
            Some((name.clone(), file.clone(), *line))
        }
        _ => None,
    });
    frames.collect()
}

/// Every tier that a function goes through, and all of them: options of Node. `--no-opt` leaves Maglev on.
const TIERS: [(&str, &[&str]); 3] = [
    ("interpreted", &["--no-opt", "--no-maglev", "--no-sparkplug"]),
    ("baseline", &["--no-opt", "--no-maglev", "--always-sparkplug"]),
    ("optimised", &["--always-sparkplug"]),
];
/// Where V8 has two compilers that optimise: the first one alone.
const FIRST_COMPILER: (&str, &[&str]) = ("first compiler", &["--always-sparkplug", "--maglev", "--no-turbofan"]);
/// Compilers that optimise, and the first Node that has them: the official Node 22 is built without Maglev.
const COMPILERS: [(&str, u32); 2] = [("turbofan", 0), ("maglev", 24)];

/// Those of a Node.
fn tiers(node: &Node) -> Vec<(&'static str, &'static [&'static str])> {
    let second = (node.major() >= 24).then_some(FIRST_COMPILER);
    TIERS.into_iter().chain(second).collect()
}

/// A run of Node with these options.
fn program<'a>(node: &'a Node, options: &'a [&str], script: &'a Path) -> Vec<&'a OsStr> {
    let options = options.iter().map(|option| OsStr::new(*option));
    [node.path.as_os_str()].into_iter().chain(options).chain([script.as_os_str()]).collect()
}

#[test]
fn places_are_those_of_the_runtime() {
    for node in nodes("JavaScript stacks") {
        for (tier, options) in tiers(&node) {
            places_of(&node, tier, "v8/places.js", options);
        }
    }
}

/// In code of each compiler, where functions are inlined, loops are copied, and code is given up.
#[test]
fn optimised_places_are_those_of_the_runtime() {
    for node in nodes("JavaScript stacks in optimised code") {
        for (compiler, _) in COMPILERS.iter().filter(|(_, first)| *first <= node.major()) {
            places_of(&node, compiler, "v8/optimised.js", &["--allow-natives-syntax"]);
        }
    }
}

/// `script` writes the stacks down, and is told the tier.
fn places_of(node: &Node, tier: &str, script: &str, options: &[&str]) {
    let name = Path::new(script).file_stem().and_then(OsStr::to_str).expect("a name");
    let scratch = paths::scratch(&format!("v8-{name}-{}-{}", node.version, tier.replace(' ', "-")));
    let oracle = scratch.join("oracle");
    let script = paths::source(script);
    let module = compile::shared(&scratch, "cap.node", &["v8/cap.c"]);
    let configure = |command: &mut Command| {
        command.env("UU_TEST_ORACLE", &oracle).env("UU_TEST_CAP", &module);
        command.env("UU_TEST_TIER", tier).env_remove("NODE_OPTIONS");
    };
    let program = program(node, options, &script);
    let samples = uu::record(&scratch, EXPLICIT, configure, &program).expect_code(0).samples();
    let expected = read(&oracle);
    let taken: Vec<&Sample> = samples.iter().filter(|sample| sample.kind == "explicit").collect();
    let tier = format!("Node {}, {tier}", node.version);
    if taken.len() != expected.len() || expected.len() < 20 {
        let leaf = |places: &Vec<Place>| format!("{:?}", places.first());
        let leaves: Vec<String> = expected.iter().map(leaf).collect();
        panic!("{tier}: {} samples for {}\n{}", taken.len(), expected.len(), beside(&leaves, &samples));
    }
    for (expected, sample) in expected.iter().zip(taken) {
        compare(expected, sample).unwrap_or_else(|why| panic!("{tier}: {why}\n{}", sample.text()));
    }
    eprintln!("{tier}: {} stacks, all complete and right", expected.len());
}

fn read(oracle: &Path) -> Vec<Vec<Place>> {
    let text = std::fs::read_to_string(oracle).unwrap_or_else(|e| panic!("{}: {e}", oracle.display()));
    let place = |place: &Value| {
        let text = |at: usize| place[at].as_str().expect("a text").to_owned();
        // What is evaluated has no name of its own.
        let name = if text(0) == "eval" { "(anonymous)".to_owned() } else { text(0) };
        (name, text(1), place[2].as_u64().expect("a line") as u32)
    };
    let line = |line: &str| {
        let places: Value = serde_json::from_str(line).expect("the oracle is JSON");
        places.as_array().expect("places").iter().map(place).collect()
    };
    text.lines().map(line).collect()
}

fn compare(expected: &[Place], sample: &Sample) -> Result<(), String> {
    let got = javascript(sample);
    let own = got.iter().position(|(name, ..)| name == "cap").ok_or("no frame of cap")?;
    let got = &got[own + 1..];
    if got != expected {
        let at = got.iter().zip(expected).take_while(|(got, want)| got == want).count();
        return Err(format!("frame {at} from cap: got {:?}, expected {:?}", got.get(at), expected.get(at)));
    }
    if !sample.complete() || !matches!(&*sample.flags, "-" | "" | "facts-pending") {
        return Err("the stack is not complete, or is flagged".into());
    }
    Ok(())
}

/// The calls that a program can make, by its source: `function NAME` and methods, which end at a `}` of the same
/// indentation; `//--> NAME, ...` lists what a line may call.
struct Program {
    file: String,
    /// First and last lines of functions, by their names.
    functions: BTreeMap<String, Vec<(u32, u32)>>,
    calls: BTreeMap<u32, BTreeSet<String>>,
}

impl Program {
    fn read(path: &Path) -> Program {
        let source = std::fs::read_to_string(path).expect("a program");
        let lines: Vec<&str> = source.lines().collect();
        let indentation = |line: &str| line.len() - line.trim_start().len();
        let mut functions: BTreeMap<String, Vec<(u32, u32)>> = BTreeMap::new();
        let mut calls: BTreeMap<u32, BTreeSet<String>> = BTreeMap::new();
        let mut class = String::new();
        for (at, line) in lines.iter().enumerate() {
            let number = at as u32 + 1;
            if let Some((_, names)) = line.split_once("//--> ") {
                calls.insert(number, names.split(", ").map(|name| name.trim().to_owned()).collect());
            }
            let text = line.trim_start();
            if let Some(rest) = text.strip_prefix("class ") {
                class = rest.split([' ', '{']).next().unwrap_or_default().to_owned();
            }
            let named = text.split_once("function ").or_else(|| text.split_once("function* ")).map(|(_, rest)| rest);
            let is_method =
                indentation(line) == 2 && text.ends_with(") {") && !KEYWORDS.iter().any(|word| text.starts_with(word));
            let Some(rest) = named.filter(|_| text.ends_with('{')).or(is_method.then_some(text)) else { continue };
            let name = rest.split('(').next().unwrap_or_default();
            let name = if name == "constructor" { class.clone() } else { name.to_owned() };
            let is_end = |l: &&str| indentation(l) == indentation(line) && l.trim_start().starts_with('}');
            let length = lines[at + 1..].iter().position(is_end).expect("the function ends") as u32 + 1;
            functions.entry(own(&name).to_owned()).or_default().push((number, number + length));
        }
        functions.insert("(anonymous)".to_owned(), vec![(1, lines.len() as u32)]);
        Program { file: path.to_string_lossy().into_owned(), functions, calls }
    }

    /// What a function may call.
    fn called_by(&self, name: &str) -> BTreeSet<&str> {
        let ranges = self.functions.get(name).into_iter().flatten();
        ranges
            .flat_map(|(first, last)| self.calls.range(first..=last))
            .flat_map(|(_, names)| names)
            .map(|name| own(name))
            .collect()
    }

    /// Whether a function calls another one, directly or through functions that the stack need not have.
    fn leads_to(&self, from: &str, to: &str) -> bool {
        let (mut known, mut waiting) = (BTreeSet::new(), vec![from]);
        while let Some(name) = waiting.pop() {
            for called in self.called_by(name) {
                if called == to {
                    return true;
                }
                if known.insert(called) {
                    waiting.push(called);
                }
            }
        }
        false
    }

    /// Checks a stack's JavaScript frames: each is called by the next one, at a line of that one. `gap`: the first of
    /// them may lack functions that it has called, or was inlined with. Returns their number; 0: it is none of the
    /// program's.
    fn check(&self, sample: &Sample, gap: bool) -> Result<usize, String> {
        let frames = javascript(sample);
        let own: Vec<&Place> = frames.iter().filter(|(_, file, _)| *file == self.file).collect();
        for (name, _, line) in &own {
            let ranges = self.functions.get(self::own(name)).ok_or_else(|| format!("there is no {name}"))?;
            if !ranges.iter().any(|(first, last)| (first..=last).contains(&line)) {
                return Err(format!("{name} has no line {line}: {ranges:?}"));
            }
        }
        for (at, pair) in own.windows(2).enumerate() {
            let [(callee, ..), (caller, _, line)] = pair else { continue };
            let (callee, caller) = (self::own(callee), self::own(caller));
            let exactly = self.calls.get(line).is_some_and(|calls| calls.iter().any(|call| self::own(call) == callee));
            let through_inlined = gap && at == 0 && self.leads_to(caller, callee);
            if !exactly && !through_inlined {
                return Err(format!("{caller} at line {line} does not call {callee}"));
            }
        }
        match own.last() {
            Some((name, ..)) if name != "(anonymous)" => Err(format!("{name} is outermost")),
            _ => Ok(own.len()),
        }
    }
}

const KEYWORDS: [&str; 4] = ["for ", "if ", "while ", "return "];

/// A function's own name: that of a getter without the word before it.
fn own(name: &str) -> &str {
    name.strip_prefix("get ").unwrap_or(name)
}

/// Interrupted at any instruction: every stack is one that the program can have. With one Node in each run; with all
/// of them in a campaign.
#[test]
fn any_instruction() {
    const WHAT: &str = "JavaScript stacks at any instruction";
    let script = paths::source("v8/graph.js");
    let calls = Program::read(&script);
    // More than half a second of CPU time, optimised, on a fast machine.
    let rounds = chance::seconds(3000.0) as u64;
    for (at, node) in nodes(WHAT).iter().enumerate() {
        if at > 0 && !skips::campaign(&format!("{WHAT} of Node {}", node.version)) {
            continue;
        }
        for (tier, options) in tiers(node) {
            let scratch = paths::scratch(&format!("v8-anywhere-{}-{}", node.version, tier.replace(' ', "-")));
            let configure = |command: &mut Command| {
                command.env("UU_TEST_ROUNDS", rounds.to_string()).env_remove("NODE_OPTIONS");
            };
            let program = program(node, options, &script);
            let recording = uu::record(&scratch, &["-r", "999"], configure, &program).expect_code(0);
            let samples = recording.samples();
            pending::few_faults(recording.faults(), &samples);
            are_possible(&format!("Node {}, {tier}", node.version), !options.contains(&"--no-opt"), &calls, &samples);
        }
    }
}

fn are_possible(tier: &str, gap: bool, program: &Program, samples: &[Sample]) {
    let main: Vec<&Sample> = samples.iter().filter(|sample| sample.pid == sample.tid).collect();
    let (mut right, mut doubtful) = (0, Vec::new());
    for sample in &main {
        if sample.flags.contains("desync") || !sample.complete() {
            doubtful.push(*sample);
            continue;
        }
        match program.check(sample, gap) {
            Ok(frames) => right += usize::from(frames > 0),
            Err(why) => panic!("{tier}: {why}\n{}", sample.text()),
        }
    }
    eprintln!("{tier}: {} samples, {right} of the program, {} in doubt", main.len(), doubtful.len());
    if let (true, Some(first)) = (chance::too_many(doubtful.len(), main.len(), DOUBTFUL), doubtful.first()) {
        panic!("{tier}: {} of {} stacks in doubt, such as\n{}", doubtful.len(), main.len(), first.text());
    }
    assert!(right >= 100 && right * 10 >= main.len() * 7, "{tier}: JavaScript in {right} of {} samples", main.len());
}
