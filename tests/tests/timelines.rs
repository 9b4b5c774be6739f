//! The formats that keep time and threads, each read by a parser that is not ours, and by its real reader where that is
//! installed.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use uunwind_tests::{compile, go, paths, process, readers, running, skips, uu};

const RATE: u64 = 999;

fn recording(scratch: &Path) -> uu::Recording {
    let program = compile::gcc(scratch, "family", &["native/family.c"], &[]);
    uu::record(scratch, &["-r", "999"], |_| {}, &[program.as_ref()]).expect_code(0)
}

fn periods(recording: &uu::Recording) -> u64 {
    recording.samples().iter().map(|s| s.weight).sum()
}

fn read(recording: &uu::Recording, format: &str) -> Value {
    serde_json::from_str(&recording.report(format)).expect("JSON")
}

fn list(value: &Value) -> &[Value] {
    value.as_array().expect("a list")
}

fn number(value: &Value) -> u64 {
    value.as_u64().expect("a number")
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a text")
}

#[test]
fn speedscope_has_a_profile_for_each_thread_in_order_of_time() {
    let scratch = paths::scratch("speedscope");
    let recording = recording(&scratch);
    let file = read(&recording, "speedscope");
    assert_eq!(file["$schema"], "https://www.speedscope.app/file-format-schema.json");
    let frames = list(&file["shared"]["frames"]);
    let mut weight = 0;
    let mut outermost_first = 0;
    for profile in list(&file["profiles"]) {
        assert_eq!((&profile["type"], &profile["unit"]), (&"sampled".into(), &"nanoseconds".into()));
        let (samples, weights) = (list(&profile["samples"]), list(&profile["weights"]));
        assert_eq!(samples.len(), weights.len());
        weight += weights.iter().map(number).sum::<u64>();
        for sample in samples {
            let names = list(sample).iter().map(|frame| text(&frames[number(frame) as usize]["name"]));
            let stack = names.collect::<Vec<_>>().join(";");
            outermost_first += u64::from(stack.contains("main;parent_work;burn"));
        }
    }
    let tids: std::collections::BTreeSet<u32> = recording.samples().iter().map(|s| s.tid).collect();
    assert_eq!(list(&file["profiles"]).len(), tids.len());
    assert_eq!(weight, periods(&recording) * (1_000_000_000 / RATE));
    assert!(outermost_first > 0, "{file}");
}

#[test]
fn the_slices_of_a_trace_nest_and_follow_each_other() {
    let scratch = paths::scratch("trace");
    let recording = recording(&scratch);
    let file = read(&recording, "trace");
    let mut open: BTreeMap<(u64, u64), Vec<&str>> = BTreeMap::new();
    let mut times: BTreeMap<(u64, u64), f64> = BTreeMap::new();
    let mut met = Vec::new();
    for event in list(&file["traceEvents"]) {
        let thread = (number(&event["pid"]), number(&event["tid"]));
        let (phase, name) = (text(&event["ph"]), text(&event["name"]));
        if phase == "M" {
            continue;
        }
        let time = event["ts"].as_f64().expect("a time");
        let before = times.insert(thread, time).unwrap_or(0.0);
        assert!(time >= before, "time goes back: {event}");
        let open = open.entry(thread).or_default();
        match phase {
            "B" => {
                open.push(name);
                met.push(open.join(";"));
            }
            "E" => assert_eq!(open.pop(), Some(name)),
            other => panic!("phase {other}"),
        }
    }
    assert!(open.values().all(Vec::is_empty), "{open:?}");
    for name in ["parent_work", "forked_work", "exec_work"] {
        assert!(met.iter().any(|stack| stack.ends_with(&format!("main;{name};burn"))), "{name}");
    }
}

#[test]
fn the_firefox_profile_has_consistent_tables() {
    let scratch = paths::scratch("firefox");
    let recording = recording(&scratch);
    let file = read(&recording, "firefox");
    let mut weight = 0;
    let mut names = Vec::new();
    for thread in list(&file["threads"]) {
        // Each column of a table has its length, and each index is one of the table that it leads to.
        for table in ["frameTable", "funcTable", "stackTable", "samples", "markers"] {
            let length = number(&thread[table]["length"]) as usize;
            for (name, column) in thread[table].as_object().expect("a table") {
                assert!(column.as_array().is_none_or(|column| column.len() == length), "{table}.{name}");
            }
        }
        for (table, column, to) in [
            ("samples", "stack", &thread["stackTable"]["length"]),
            ("stackTable", "prefix", &thread["stackTable"]["length"]),
            ("stackTable", "frame", &thread["frameTable"]["length"]),
            ("frameTable", "func", &thread["funcTable"]["length"]),
        ] {
            let indices = list(&thread[table][column]).iter().filter(|index| !index.is_null());
            assert!(indices.map(number).all(|index| index < number(to)), "{table}.{column}");
        }
        weight += list(&thread["samples"]["weight"]).iter().map(number).sum::<u64>();
        let texts = list(&thread["stringArray"]);
        names.extend(list(&thread["funcTable"]["name"]).iter().map(|name| text(&texts[number(name) as usize])));
    }
    assert_eq!(weight, periods(&recording));
    assert!(["parent_work", "forked_work", "exec_work"].iter().all(|name| names.contains(name)), "{names:?}");
    let path = scratch.join("x.firefox.json");
    std::fs::write(&path, recording.report("firefox")).expect("scratch");
    // The real reader: the command line of the Firefox Profiler.
    let cli = "node_modules/.bin/profiler-cli";
    let Some(cli) = readers::installed("firefox profile in its own reader", cli) else { return };
    let session = Session::open(cli, &scratch, &path);
    let threads = session.ask(&["thread", "list", "--json"]);
    let (mut weight, mut names) = (0, BTreeSet::new());
    for thread in list(&threads["threads"]) {
        assert!(text(&thread["processName"]).contains("family"), "{thread}");
        let handle = text(&thread["threadHandle"]);
        let functions = session.ask(&["thread", "functions", "--thread", handle, "--limit", "0", "--json"]);
        for function in list(&functions["functions"]) {
            weight += number(&function["selfSamples"]);
            names.insert(text(&function["name"]).to_owned());
        }
    }
    assert_eq!(weight, periods(&recording));
    assert!(["parent_work", "forked_work", "exec_work"].iter().all(|name| names.contains(*name)), "{names:?}");
}

/// A profile that is loaded in `profiler-cli`: a server, until it is stopped.
struct Session {
    cli: PathBuf,
    home: PathBuf,
    server: Child,
}

impl Session {
    /// Starts the server, as the command `load` does, which waits for half a second only.
    fn open(cli: PathBuf, home: &Path, profile: &Path) -> Session {
        let mut server = Command::new(&cli);
        server.arg("--daemon").arg(profile).args(["--session", "test"]).env("HOME", home);
        let server = server.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it runs");
        let session = Session { cli, home: home.to_owned(), server };
        // Not by its command `status`: it removes the files of a session that it does not find, and that of a server
        // which makes them meanwhile is lost. The log has this line after them.
        let log = || std::fs::read_to_string(home.join(".profiler-cli/test.log")).unwrap_or_default();
        running::wait_for("the loaded profile", || {
            assert!(!log().contains("Failed to load"), "{}", log());
            log().contains("Profile loaded successfully")
        });
        session
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.cli);
        command.args(arguments).args(["--session", "test"]).env("HOME", &self.home);
        command
    }

    fn ask(&self, arguments: &[&str]) -> Value {
        let said = process::run(&mut self.command(arguments), &self.home, uu::LIMIT).expect_code(0).stdout;
        serde_json::from_str(&said).unwrap_or_else(|e| panic!("{e}: {said}"))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// Each function's share of the whole, in percent, with what it calls; of functions whose names no other has.
fn shares(recording: &uu::Recording) -> BTreeMap<String, f64> {
    let mut shares: BTreeMap<String, f64> = BTreeMap::new();
    let whole = periods(recording) as f64;
    for line in recording.report("folded").lines() {
        let (stack, weight) = line.rsplit_once(' ').expect("a weight");
        let share = 100.0 * weight.parse::<f64>().expect("a number") / whole;
        for name in stack.split(';').collect::<BTreeSet<_>>() {
            *shares.entry(name.to_owned()).or_default() += share;
        }
    }
    shares
}

/// Writes a report into the scratch folder; the file.
fn written(recording: &uu::Recording, scratch: &Path, format: &str) -> PathBuf {
    let path = scratch.join(format!("profile.{format}"));
    let mut report = uu::command(scratch, &["report", "-f", format]);
    process::run(report.arg(&recording.file).arg("-o").arg(&path), scratch, uu::LIMIT).expect_code(0);
    path
}

/// speedscope reads all of these formats; with one profile of the whole, its shares are those of the samples.
#[test]
fn speedscope_opens_what_uu_writes() {
    let scratch = paths::scratch("in-speedscope");
    let recording = recording(&scratch);
    let shares = shares(&recording);
    let threads = recording.samples().iter().map(|s| s.tid).collect::<BTreeSet<u32>>().len();
    for format in ["pprof", "folded", "callgrind", "speedscope", "trace"] {
        let path = written(&recording, &scratch, format);
        let Some((profiles, rows)) = readers::speedscope(&scratch, &path) else { return };
        // Shown with two digits.
        let shown = |name: &str| rows.iter().find(|row| row.name == name).map_or(0.0, |row| row.with_callees);
        if matches!(format, "speedscope" | "trace") {
            // One of a thread each; that of the first thread is shown, which does its work once or is forked.
            assert_eq!(profiles.len(), threads, "{format}: {profiles:?}");
            assert!(shown("burn") > 50.0 && shown("main") >= shown("burn"), "{format}: {rows:?}");
            continue;
        }
        for name in ["main", "burn", "parent_work", "forked_work", "exec_work"] {
            let (shown, due) = (shown(name), shares[name]);
            assert!((shown - due).abs() <= 0.6, "{format}, {name}: {shown} % of {due}: {rows:?}");
        }
    }
}

#[test]
fn pprof_shows_what_was_sampled() {
    let scratch = paths::scratch("in-pprof");
    if !go::installed("pprof in its own reader") {
        return;
    }
    let recording = recording(&scratch);
    let path = written(&recording, &scratch, "pprof");
    let mut pprof = Command::new("go");
    pprof.args(["tool", "pprof", "-top", "-cum", "-nodecount=0", "-nodefraction=0"]).arg(&path).env("HOME", &scratch);
    let shown = process::run(&mut pprof, &scratch, uu::LIMIT).expect_code(0).stdout;
    let shares = shares(&recording);
    for name in ["main", "burn", "parent_work", "forked_work", "exec_work"] {
        // flat, its share, sum of shares, cumulative, its share, name
        let mut words = shown.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let line = words.find(|words| words.len() == 6 && words[5] == name);
        let line = line.unwrap_or_else(|| panic!("no {name}: {shown}"));
        let share = line[4].strip_suffix('%');
        let share: f64 = share.and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("{line:?}"));
        assert!((share - shares[name]).abs() <= 0.6, "{name}: {share} % of {}: {shown}", shares[name]);
    }
}

#[test]
fn callgrind_costs_add_up() {
    let scratch = paths::scratch("callgrind");
    let recording = recording(&scratch);
    let path = scratch.join("x.callgrind");
    std::fs::write(&path, recording.report("callgrind")).expect("scratch");
    let Ok(done) = Command::new("callgrind_annotate").args(["--threshold=100"]).arg(&path).output() else {
        skips::skipped("callgrind in its own reader", "callgrind_annotate is not installed");
        return;
    };
    let shown = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success(), "{shown} {}", String::from_utf8_lossy(&done.stderr));
    let cost = |end: &str| -> u64 {
        let line = shown.lines().find(|line| line.ends_with(end)).unwrap_or_else(|| panic!("{end}: {shown}"));
        line.split_whitespace().next().expect("a number").replace(',', "").parse().expect("a number")
    };
    let period = 1_000_000_000 / RATE;
    assert_eq!(cost("PROGRAM TOTALS"), periods(&recording) * period);
    let burn: u64 = recording.report("folded").lines().filter_map(|l| l.rsplit_once(' ')).fold(0, |sum, (stack, n)| {
        sum + if stack.ends_with(";burn") { n.parse::<u64>().expect("a weight") } else { 0 }
    });
    assert_eq!(cost(":burn"), burn * period);
}

#[test]
fn json_has_everything() {
    let scratch = paths::scratch("json");
    let recording = recording(&scratch);
    let file = read(&recording, "json");
    assert_eq!((&file["format"], &file["version"]), (&"uu profile".into(), &1.into()));
    let sum = |key: &str, field: &str| list(&file[key]).iter().map(|entry| number(&entry[field])).sum::<u64>();
    let samples = recording.samples();
    assert_eq!((sum("stacks", "samples"), sum("stacks", "weight")), (samples.len() as u64, periods(&recording)));
    assert_eq!(sum("samples", "weight"), periods(&recording));
    let times: Vec<u64> = list(&file["samples"]).iter().map(|sample| number(&sample["time"])).collect();
    assert!(times.is_sorted() && times.last().is_some_and(|last| *last <= number(&file["duration"])), "{times:?}");
    let (frames, threads) = (list(&file["frames"]), list(&file["threads"]));
    for stack in list(&file["stacks"]) {
        let process = number(&threads[number(&stack["thread"]) as usize]["process"]) as usize;
        assert!(text(&file["processes"][process]["exe"]).ends_with("/family"));
        assert!(list(&stack["frames"]).iter().all(|frame| frames[number(frame) as usize]["function"].is_string()));
    }
}

/// The reader: classes that protoc made from the published schema.
const READ_OTLP: &str = "
import sys
from opentelemetry.proto.profiles.v1development.profiles_pb2 import ProfilesData
data = ProfilesData.FromString(open(sys.argv[1], 'rb').read())
d = data.dictionary
for table in (d.mapping_table, d.location_table, d.function_table, d.link_table, d.attribute_table, d.stack_table):
    assert table[0] == type(table[0])(), table[0]
text = d.string_table
assert text[0] == '' and len(set(text)) == len(text)
for of_process in data.resource_profiles:
    pid = [a.value.int_value for a in of_process.resource.attributes if a.key == 'process.pid'][0]
    for profile in of_process.scope_profiles[0].profiles:
        assert (text[profile.sample_type.type_strindex], text[profile.sample_type.unit_strindex]) == ('cpu', 'nanoseconds')
        end = profile.time_unix_nano + profile.duration_nano
        for sample in profile.samples:
            assert len(sample.values) == len(sample.timestamps_unix_nano) > 0
            assert all(profile.time_unix_nano <= time <= end for time in sample.timestamps_unix_nano)
            of = {text[d.attribute_table[i].key_strindex]: d.attribute_table[i].value for i in sample.attribute_indices}
            names = []
            for location in d.stack_table[sample.stack_index].location_indices:
                for line in d.location_table[location].lines:
                    names.append(text[d.function_table[line.function_index].name_strindex])
            print(pid, of['thread.id'].int_value, sum(sample.values), ';'.join(reversed(names)))
";

#[test]
fn opentelemetry_profiles_are_read_by_their_schema() {
    let scratch = paths::scratch("otlp");
    let recording = recording(&scratch);
    let path = scratch.join("x.otlp");
    let mut report = uu::command(&scratch, &["report"]);
    assert!(report.arg(&recording.file).arg("-o").arg(&path).status().is_ok_and(|status| status.success()));
    let what = "OpenTelemetry profiles in their schema";
    let Some(python) = readers::installed(what, "python/bin/python3") else { return };
    let read = Command::new(python).args(["-c", READ_OTLP]).arg(&path).output().expect("it runs");
    assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
    let text = String::from_utf8_lossy(&read.stdout).into_owned();
    let mut threads: BTreeMap<(u32, u32), u64> = BTreeMap::new();
    for line in text.lines() {
        let mut words = line.splitn(4, ' ');
        let mut next = || words.next().and_then(|word| word.parse::<u64>().ok()).expect("a number");
        let (pid, tid, value) = (next() as u32, next() as u32, next());
        *threads.entry((pid, tid)).or_default() += value;
    }
    let mut expected: BTreeMap<(u32, u32), u64> = BTreeMap::new();
    for sample in recording.samples() {
        *expected.entry((sample.pid, sample.tid)).or_default() += sample.weight * (1_000_000_000 / RATE);
    }
    assert_eq!(threads, expected);
    for end in [";main;parent_work;burn", "forked_work;burn", "exec_work;burn"] {
        assert!(text.lines().any(|line| line.ends_with(end)), "{end}: {text}");
    }
}
