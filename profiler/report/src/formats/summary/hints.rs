//! What to do about what the summary cannot show: time of waiting, code of runtimes that must be asked for names.

use super::{percent, Style};
use crate::stacks::{Kind, Profile};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use uunwind_recording::Recording;

/// Share of the time that must be unnamed, or spent in a runtime, to be worth a hint; in percent.
const MUCH: f64 = 10.0;
/// Share of its time that a program must wait, and the shortest such time, to be worth a hint.
const WAITED: (f64, f64) = (0.9, 1.0);

/// A runtime that makes code at run time, and names it only when asked.
struct Runtime {
    /// The file name of its library, or of its executable.
    files: &'static [&'static str],
    /// An option that asks for names; empty: none does. An option may be in a variable of the environment, too
    /// (`NODE_OPTIONS`, `JAVA_TOOL_OPTIONS`), which no recording holds: names that came are the other sign of it.
    asked: &'static str,
    hint: &'static str,
}

const RUNTIMES: [Runtime; 4] = [
    Runtime {
        files: &["libjvm.so"],
        asked: "-XX:+DumpPerfMapAtExit",
        hint:
            "Java's functions have names if java is run with -XX:+UnlockDiagnosticVMOptions -XX:+PreserveFramePointer \
               -XX:+DumpPerfMapAtExit (JDK 17 and later)",
    },
    Runtime {
        files: &["node", "nodejs"],
        asked: "--perf-basic-prof",
        hint: "JavaScript's functions have names if node is run with --perf-basic-prof",
    },
    Runtime {
        files: &["beam.smp"],
        // As erl passes it on.
        asked: "-JPperf",
        hint: "Erlang's functions have names if erl is run with +JPperf true (OTP 24 and later; elixir --erl '+JPperf \
               true')",
    },
    Runtime {
        files: &["libcoreclr.so"],
        asked: "",
        hint: ".NET's functions have names if it is run with DOTNET_PerfMapEnabled=1",
    },
];

// Writing to a String cannot fail, so the results of `writeln!` below are dropped.

pub fn render(recording: &Recording, profile: &Profile, style: Style, out: &mut String) {
    let found = waiting(recording).into_iter().chain(runtimes(recording, profile));
    for hint in found.chain(stripped(recording, profile)) {
        let _ = writeln!(out, "{}", style.alert(&format!("  hint       {hint}")));
    }
}

/// That the program waited nearly all of its time, which is in no sample.
fn waiting(recording: &Recording) -> Option<String> {
    if crate::formats::is_wall(recording) || recording.is_alloc() || recording.is_lock() {
        return None;
    }
    let end = recording.end.as_ref()?;
    let (share, shortest) = WAITED;
    let wall = end.time.saturating_sub(recording.settings.start_monotonic) as f64 / 1e9;
    // Beside other load, a program that computes waits, too, and has no place where it does.
    let delay = recording.counters.iter().fold(0u64, |sum, (_, counters)| sum.saturating_add(counters.run_delay));
    let waited = 1.0 - end.cpu_used.saturating_add(delay) as f64 / 1e9 / wall;
    // Recordings that were made from outside do not say how much of it is that.
    let for_what = if delay == 0 { ", for something or for a CPU" } else { "" };
    (wall >= shortest && waited >= share).then(|| {
        format!(
            "the program waited {:.0} % of the time{for_what}, and this is a picture of its CPU time: `uu record --mode \
             wall` shows where it waits",
            // 100 % would say that it did nothing.
            (waited * 100.0).min(99.0)
        )
    })
}

/// Runtimes whose code at run time takes much of the time and has no names.
fn runtimes<'a>(recording: &'a Recording, profile: &'a Profile) -> impl Iterator<Item = String> + 'a {
    let (mut all, mut unknown) = (0, BTreeMap::<u32, u64>::new());
    for stack in &profile.stacks {
        all += stack.weight;
        let mut lines = stack.lines.iter().filter_map(|line| profile.lines.get(*line as usize));
        if lines.any(|line| !line.named && line.object.is_none() && line.kind != Kind::Semantic) {
            let process = recording.threads.get(stack.thread as usize).map_or(0, |thread| thread.process);
            *unknown.entry(process).or_default() += stack.weight;
        }
    }
    let name = |path: &[u8]| String::from_utf8_lossy(path).rsplit('/').next().unwrap_or_default().to_owned();
    let mut present: BTreeMap<u32, BTreeSet<String>> = BTreeMap::new();
    for (index, process) in (0..).zip(&recording.processes) {
        present.entry(index).or_default().insert(name(&process.exe));
    }
    for object in &recording.objects {
        present.entry(object.process).or_default().insert(name(&object.path));
    }
    let named: BTreeSet<u32> =
        recording.jit.places.iter().filter(|place| place.code.is_some()).map(|place| place.process).collect();
    RUNTIMES.iter().filter_map(move |runtime| {
        let has = |process: &u32| {
            let files = present.get(process);
            let is_here = files.is_some_and(|files| runtime.files.iter().any(|file| files.contains(*file)));
            let words = recording.processes.get(*process as usize).map_or(&[][..], |process| &process.command);
            // What such a program still has without names is code of the runtime itself.
            let has_asked = words.iter().any(|word| is_option(word, runtime.asked)) || named.contains(process);
            is_here && !has_asked
        };
        let weight = unknown.iter().filter(|(process, _)| has(process)).map(|(_, weight)| weight).sum();
        let share = percent(weight, all);
        (share >= MUCH).then(|| format!("{share:.0} % of the time is in unknown code. {}", runtime.hint))
    })
}

/// Whether a word of a command line is this option. Node's engine takes `_` for `-` within options (`NormalizeChar` in
/// its flags.cc), and has variants of this one (`--perf-basic-prof-only-functions`) that name functions as well.
fn is_option(word: &[u8], option: &str) -> bool {
    let same = |(a, b): (&u8, u8)| *a == b || (*a == b'_' && b == b'-');
    !option.is_empty() && word.len() >= option.len() && word.iter().zip(option.bytes()).all(same)
}

/// Files whose functions have no names and take much of the time.
fn stripped<'a>(recording: &'a Recording, profile: &'a Profile) -> impl Iterator<Item = String> + 'a {
    let (mut all, mut unnamed) = (0, BTreeMap::<u32, u64>::new());
    for stack in &profile.stacks {
        all += stack.weight;
        let line = stack.lines.first().and_then(|line| profile.lines.get(*line as usize));
        if let Some(object) = line.filter(|line| !line.named).and_then(|line| line.object) {
            *unnamed.entry(object).or_default() += stack.weight;
        }
    }
    let much = unnamed.into_iter().filter(move |(_, weight)| percent(*weight, all) >= MUCH);
    much.filter_map(move |(object, weight)| {
        let path = String::from_utf8_lossy(&recording.objects.get(object as usize)?.path).into_owned();
        let path = crate::formats::printable(&path);
        let share = percent(weight, all);
        let package = package(&path).map_or(String::new(), |package| {
            // glibc's are in a package of their own, with another name.
            let names = if package == "libc6" { "libc6-dbg".to_owned() } else { format!("{package}-dbgsym") };
            format!(". It is of the package {package}; Debian and Ubuntu have the names in {names}")
        });
        Some(format!(
            "{share:.0} % of the time is in functions of {path} without names: it is stripped, and no debug file of it was \
             found{package}"
        ))
    })
}

/// Folder in which dpkg(1) keeps the list of each package's files, one path a line.
const PACKAGES: &str = "/var/lib/dpkg/info";

/// The Debian package that has installed a file.
fn package(path: &str) -> Option<String> {
    if !path.starts_with('/') {
        return None;
    }
    let names = std::fs::read_dir(PACKAGES).ok()?.flatten().map(|entry| entry.file_name());
    let lists = names.filter(|name| name.as_bytes().ends_with(b".list")).filter_map(|name| name.into_string().ok());
    package_among(path, lists.collect(), |name| std::fs::read(Path::new(PACKAGES).join(name)).ok())
}

/// The same, by the names of lists and what is in them. There may be thousands of lists, with megabytes: first come
/// those of packages that are named as the file is (libfoo.so.6: libfoo6).
fn package_among(path: &str, mut names: Vec<String>, read: impl Fn(&str) -> Option<Vec<u8>>) -> Option<String> {
    // /lib is a link to /usr/lib on merged systems; packages, and the dynamic loader, may have either path.
    let paths = [path, path.strip_prefix("/usr").unwrap_or(path), &format!("/usr{path}")];
    let has =
        |list: &[u8]| list.split(|byte| *byte == b'\n').any(|line| paths.iter().any(|path| path.as_bytes() == line));
    let file = path.rsplit('/').next().unwrap_or(path);
    let alike = |name: &String| name.bytes().zip(file.bytes()).take_while(|(a, b)| a == b).count();
    names.sort_by_cached_key(|name| Reverse(alike(name)));
    let mut packages = names.iter().filter_map(|name| Some((name, name.strip_suffix(".list")?)));
    let (_, package) = packages.find(|(name, _)| read(name).is_some_and(|list| has(&list)))?;
    package.split(':').next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stacks::{Line, Stack};
    use uunwind_recording::{Counters, End, JitNames, JitPlace, Object, Process, Thread};

    const STYLE: Style = super::super::PLAIN;

    fn hints(recording: &Recording, profile: &Profile) -> String {
        let mut out = String::new();
        render(recording, profile, STYLE, &mut out);
        out
    }

    /// A process with this object, of whose time `unknown` percent are in unknown code, and `stripped` in the object.
    fn of(path: &str, shares: [u64; 2]) -> String {
        called(&[path], path, shares)
    }

    /// The same, with this command line.
    fn called(words: &[&str], path: &str, shares: [u64; 2]) -> String {
        with_names(words, path, shares, &[])
    }

    /// The same, with these places of code made at run time.
    fn with_names(words: &[&str], path: &str, [unknown, stripped]: [u64; 2], places: &[JitPlace]) -> String {
        let command = words.iter().map(|word| word.as_bytes().to_vec()).collect();
        let recording = Recording {
            processes: vec![Process { exe: b"/usr/bin/prog".to_vec(), command, ..Process::default() }],
            threads: vec![Thread::default()],
            objects: vec![Object { path: path.as_bytes().to_vec(), ..Object::default() }],
            jit: JitNames { places: places.to_vec(), ..JitNames::default() },
            ..Recording::default()
        };
        let line = |named, object| Line { kind: Kind::Native, named, object, ..Line::marker("x".to_owned()) };
        let stack = |line, weight| Stack { thread: 0, lines: [line].into(), labels: 0, samples: 1, weight };
        let stacks = vec![stack(0, unknown), stack(1, stripped), stack(2, 100 - unknown - stripped)];
        hints(
            &recording,
            &Profile {
                lines: vec![line(false, None), line(false, Some(0)), line(true, Some(0))],
                stacks,
                ..Profile::default()
            },
        )
    }

    #[test]
    fn runtimes_and_stripped_files_have_a_hint_where_they_matter() {
        assert!(of("/usr/lib/jvm/libjvm.so", [60, 0]).contains("60 % of the time is in unknown code. Java"));
        assert!(of("/usr/bin/node", [30, 0]).contains("--perf-basic-prof"));
        assert_eq!(of("/usr/bin/node", [5, 5]), "");
        let beam = "/usr/lib/erlang/erts-13.1.5/bin/beam.smp";
        assert!(of(beam, [60, 0]).contains("erl is run with +JPperf true"));
        assert_eq!(called(&["beam.smp", "-JPperf", "true", "--", "-root"], beam, [60, 0]), "");
        // What has been done is not advised.
        assert_eq!(called(&["node", "--perf-basic-prof", "x.js"], "/usr/bin/node", [30, 0]), "");
        let words = ["java", "-XX:+UnlockDiagnosticVMOptions", "-XX:+DumpPerfMapAtExit", "Work"];
        assert_eq!(called(&words, "/usr/lib/jvm/libjvm.so", [60, 0]), "");
        for option in ["--perf_basic_prof", "--perf-basic-prof-only-functions", "--perf_basic-prof"] {
            assert_eq!(called(&["node", option, "x.js"], "/usr/bin/node", [30, 0]), "", "{option}");
        }
        for option in ["--perf-basic", "--no-perf-basic-prof", "perf_basic_prof"] {
            assert_ne!(called(&["node", option, "x.js"], "/usr/bin/node", [30, 0]), "", "{option}");
        }
        // Asked for in the environment: names have come, here or in another process.
        let place = |process, code| JitPlace { process, code, ..JitPlace::default() };
        let node = |places: &[_]| with_names(&["node", "x.js"], "/usr/bin/node", [30, 0], places);
        assert_eq!(node(&[place(0, Some(0))]), "");
        assert!(node(&[place(0, None), place(1, Some(0))]).contains("--perf-basic-prof"));
        assert_eq!(of("/usr/bin/other", [60, 0]), "");
        assert!(of("/usr/bin/sqlite3", [0, 40])
            .contains("40 % of the time is in functions of /usr/bin/sqlite3 without names"));
    }

    /// dpkg is the oracle.
    #[test]
    fn a_file_leads_to_its_package() {
        let output = std::process::Command::new("dpkg").args(["-S", "/usr/bin/dpkg"]).output();
        let said = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
        let owner = said.split(':').next().filter(|owner| !owner.is_empty()).map(str::to_owned);
        assert_eq!(package("/usr/bin/dpkg"), owner);
        assert_eq!(package("/bin/dpkg"), owner);
        assert_eq!(package("/no/such/file"), None);
    }

    #[test]
    fn a_program_that_waits_is_told_apart_from_one_that_works() {
        for (used, wall, said) in [(1, 20, "waited 95 %"), (19, 20, ""), (0, 20, "waited 99 %")] {
            let end = End { time: wall * 100_000_000, cpu_used: used * 100_000_000, ..End::default() };
            let recording = Recording { end: Some(end), ..Recording::default() };
            let hints = hints(&recording, &Profile::default());
            assert!(hints.contains(said) && hints.is_empty() == said.is_empty(), "{hints}");
        }
        // It could have run, and had no processor, for some of the time.
        for (delay, said) in [(2, "waited 94 % of the time, and"), (11, ""), (900, "")] {
            let end = End { time: 20 * 100_000_000, cpu_used: 100_000_000, ..End::default() };
            let counters = Counters { run_delay: delay * 10_000_000, ..Counters::default() };
            let recording = Recording { end: Some(end), counters: vec![(0, counters)], ..Recording::default() };
            let hints = hints(&recording, &Profile::default());
            assert!(hints.contains(said) && hints.is_empty() == said.is_empty(), "{hints}");
        }
    }

    #[test]
    fn the_list_of_a_package_named_as_the_file_is_read_first() {
        use std::cell::RefCell;
        let others = (0..100).map(|n| format!("other{n}.list"));
        let names: Vec<String> =
            others.chain(["prog.md5sums", "prog-tools.list", "libfoo6:amd64.list"].map(str::to_owned)).collect();
        let looked = |path: &str| {
            let read = RefCell::new(Vec::new());
            let list = |name: &str| {
                read.borrow_mut().push(name.to_owned());
                let text: &[u8] = match name {
                    "prog-tools.list" => b"/.\n/usr/bin/prog1\n/usr/bin/prog\n",
                    "libfoo6:amd64.list" => b"/lib/libfoo.so.6\n",
                    "other7.list" => b"/opt/else\n",
                    _ => b"/.\n",
                };
                Some(text.to_vec())
            };
            (package_among(path, names.clone(), list), read.into_inner())
        };
        assert_eq!(looked("/usr/bin/prog"), (Some("prog-tools".to_owned()), vec!["prog-tools.list".to_owned()]));
        // A merged system has both paths of a library.
        assert_eq!(looked("/usr/lib/libfoo.so.6"), (Some("libfoo6".to_owned()), vec!["libfoo6:amd64.list".to_owned()]));
        assert_eq!(looked("/opt/else").0, Some("other7".to_owned()), "named otherwise");
        assert_eq!(looked("/opt/none").0, None);
    }
}
