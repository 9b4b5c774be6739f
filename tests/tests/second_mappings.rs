//! A program that maps its own code a second time, at another address, and runs there: the code has its names.

use serde_json::Value;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use uunwind_core::stop_reason::StopReason;
use uunwind_recording::{CompleteTimes, Recording};
use uunwind_tests::attached::{known, used_by_threads, Attached};
use uunwind_tests::dumps::{functions, threads};
use uunwind_tests::running::{wait_for, Running};
use uunwind_tests::samples::{Frame, Sample};
use uunwind_tests::{compile, paths, process, uu};

const CHAIN: [&str; 3] = ["inner", "outer", "in_thread"];

fn program(name: &str) -> (PathBuf, PathBuf) {
    let scratch = paths::scratch(name);
    let options = ["-fno-omit-frame-pointer", "-O0", "-pthread"];
    let program = compile::gcc(&scratch, "second_mapping", &["native/second_mapping.c"], &options);
    (scratch, program)
}

/// The samples of the thread that runs in the second mapping: all of it has names and its file, and those of times that
/// are known are complete, the others in doubt.
#[track_caller]
fn expect_named(samples: &[Sample], program: &Path, least: usize, is_known: &dyn Fn(u64) -> bool) {
    let of: Vec<&Sample> = samples.iter().filter(|sample| sample.native_names().contains(&"in_thread")).collect();
    let inner: Vec<&&Sample> = of.iter().filter(|sample| known(sample, &CHAIN) == CHAIN).collect();
    // Before it is there, the thread maps it.
    assert!(inner.len() >= least && inner.len() + 2 >= of.len(), "{} of {}: {}", inner.len(), of.len(), of[0].text());
    for sample in &inner {
        let Some(Frame::Native { symbol, object, .. }) = sample.frames.first() else { panic!("{}", sample.text()) };
        assert_eq!((&**symbol, Path::new(object)), ("inner", program), "{}", sample.text());
        assert!(sample.complete() || sample.stop == StopReason::Doubtful.number(), "{}", sample.text());
        assert_eq!(sample.complete(), is_known(sample.time), "{}", sample.text());
    }
    assert!(inner.iter().any(|sample| sample.complete()), "none is complete");
}

#[test]
fn it_has_names_in_a_recording_however_it_is_unwound() {
    for way in ["live", "offline"] {
        let (scratch, program) = program(&format!("second-mapping-{way}"));
        let words: [&OsStr; 2] = [program.as_os_str(), "burn".as_ref()];
        let recording = uu::record(&scratch, &["-r", "499", "--unwind", way], |_| {}, &words).expect_code(0);
        // Of the first and last milliseconds, nobody knows whether copies have all return addresses of new code.
        let known = CompleteTimes::new(&Recording::read(&recording.file).expect("a recording").complete_maps);
        expect_named(&recording.samples(), &program, 20, &|time| way == "live" || known.has(0, time));
        for format in ["folded", "json", "pb"] {
            assert!(recording.report(format).contains("inner"), "{format}");
        }
    }
}

#[test]
fn it_has_names_in_a_running_program() {
    let (scratch, program) = program("second-mapping-attach");
    let running = Running::ready(Command::new(&program).arg("spin"));
    let dump = || {
        let mut command = uu::command(&scratch, &["dump", "--json", "-p"]);
        let out = process::run(command.arg(running.pid().to_string()), &scratch, uu::LIMIT).expect_code(0);
        serde_json::from_str::<Value>(&out.stdout).unwrap_or_else(|why| panic!("{why}: {}", out.text()))
    };
    // The thread says nothing when it is there.
    let is_there = |dump: &Value| {
        threads(dump).iter().any(|thread| {
            let of = functions(thread);
            of.iter().filter(|name| CHAIN.contains(name)).eq(CHAIN.iter())
        })
    };
    wait_for("a dump with the names", || is_there(&dump()));
    let attached = Attached::begin(&scratch, running.pid(), &[]);
    let before = used_by_threads(running.pid())[1];
    wait_for("half a second of the thread", || used_by_threads(running.pid())[1] > before + 0.5);
    attached.signal(libc::SIGINT);
    let (recording, samples, _) = attached.end();
    assert_eq!(recording.second_mappings.len(), 1, "{:x?}", recording.second_mappings);
    expect_named(&samples, &program, 10, &|_| true);
    assert_eq!(running.end(), Some(0));
}

#[test]
fn other_code_at_its_address_has_not_its_names() {
    let (scratch, program) = program("second-mapping-replaced");
    let file = scratch.join("recording.uu");
    let words = [program.as_os_str(), "replace".as_ref(), file.as_os_str()];
    let recording = uu::record(&scratch, &["--explicit"], |_| {}, &words).expect_code(0);
    let place = recording.outcome.stdout.trim().trim_start_matches("0x");
    let place = u64::from_str_radix(place, 16).expect("an address");
    let samples = recording.samples();
    // The second frame, called `inner`.
    let callers: Vec<(&str, &str)> = samples
        .iter()
        .filter(|sample| sample.kind == "explicit" && !sample.native_names().contains(&"wait_to_be_seen"))
        .map(|sample| match &sample.frames[1] {
            Frame::Native { symbol, object, address, .. } if (place..place + 64).contains(address) => {
                (&**symbol, &**object)
            }
            _ => panic!("{}", sample.text()),
        })
        .collect();
    let shown = program.to_str().expect("a path");
    assert_eq!(callers, [("outer", shown), ("?", "?"), ("outer", shown)]);
    let found = Recording::read(&file).expect("a recording").second_mappings;
    let kinds: Vec<bool> = found.iter().map(|mapping| mapping.original != 0).collect();
    assert_eq!(kinds, [true, false, true], "{found:x?}");
}

/// Node has V8's builtins near the code of its JIT by mapping its own file again, where it can.
#[test]
fn nodes_builtins_have_names() {
    let scratch = paths::scratch("second-mapping-node");
    // uu looks for such mappings less and less often, and on a busy machine later: a program that lives longer has
    // them.
    for seconds in [1, 2, 4, 8, 16] {
        if have_names_after(&scratch, seconds) {
            return;
        }
    }
    panic!("node maps its file again, as far as is known, and uu has not seen it in 16 s of CPU time");
}

/// Whether the builtins were found in a run of this CPU time; then they have names.
fn have_names_after(scratch: &Path, seconds: u32) -> bool {
    let source = "let x = 0; while (process.cpuUsage().user < SECONDS * 1000000)\n\
        x += JSON.stringify(Array.from(new Array(5000).keys()).map(String).sort().reverse()).length;\n\
        const maps = require('fs').readFileSync('/proc/self/maps', 'utf8');\n\
        console.log(maps.split('\\n').filter(line => line.endsWith(process.execPath) && line.includes(' r-xp ')).length);";
    let source = source.replace("SECONDS", &seconds.to_string());
    let words: [&OsStr; 3] = ["node".as_ref(), "-e".as_ref(), source.as_ref()];
    let recording = uu::record(scratch, &["-r", "999"], |_| {}, &words).expect_code(0);
    let samples = recording.samples();
    let all = Recording::read(&scratch.join("recording.uu")).expect("a recording").second_mappings;
    let inside = |address: u64| all.iter().any(|m| m.original != 0 && (m.start..m.end).contains(&address));
    let leaves: Vec<(&Sample, &str, u64)> = samples
        .iter()
        .filter_map(|sample| match sample.frames.first()? {
            Frame::Native { symbol, address, .. } => Some((sample, &**symbol, *address)),
            _ => None,
        })
        .filter(|(.., address)| inside(*address))
        .collect();
    println!("{:x?}; {} of {} samples; maps: {}", all, leaves.len(), samples.len(), recording.outcome.stdout);
    if all.is_empty() {
        return false;
    }
    assert!(leaves.len() * 20 > samples.len(), "{} of {}", leaves.len(), samples.len());
    for (sample, symbol, _) in leaves {
        assert!(symbol.starts_with("Builtins_"), "{}", sample.text());
    }
    true
}
