//! The readers of recordings in `examples/`, which know nothing but docs/recording-format.md: they find what
//! `uu report` finds, and refuse files that are cut or damaged.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use uunwind_tests::process::{run, Outcome};
use uunwind_tests::samples::{Frame, Sample};
use uunwind_tests::uu::Recording;
use uunwind_tests::{compile, paths, uu};

/// The readers in C, with sanitizers, and in Rust.
fn readers(scratch: &Path) -> [PathBuf; 2] {
    let (in_rust, source) = (scratch.join("reader-rust"), paths::root().join("examples/reader-rust/reader.rs"));
    let mut rustc = Command::new("rustc");
    rustc.args(["--edition", "2021", "-D", "warnings", "-C", "overflow-checks", "-o"]).arg(&in_rust).arg(source);
    run(&mut rustc, scratch, uu::LIMIT).expect_code(0);
    [in_c(scratch), in_rust]
}

fn in_c(scratch: &Path) -> PathBuf {
    let source = paths::root().join("examples/reader-c/reader.c");
    let options = ["-Werror", "-fsanitize=address,undefined", "-fno-sanitize-recover"];
    compile::gcc_files(scratch, "reader", &[source], &options)
}

fn read(reader: &Path, file: &Path, scratch: &Path) -> Outcome {
    run(Command::new(reader).arg(file), scratch, uu::LIMIT)
}

/// A frame as the readers name it.
fn named(frame: &Frame) -> String {
    let text = match frame {
        Frame::Native { symbol, object, address, .. } if symbol == "?" && object == "?" => format!("{address:#x}"),
        Frame::Native { symbol, offset, object, .. } if symbol == "?" => format!("{object}+{offset:#x}"),
        Frame::Jit { name, address, .. } if name == "?" => format!("{address:#x}"),
        Frame::Omitted { frames } => format!("[{frames} frames omitted]"),
        frame => frame.name().to_owned(),
    };
    text.replace(';', ":")
}

fn folded(sample: &Sample) -> String {
    let frames: Vec<String> = sample.frames.iter().rev().map(named).collect();
    if frames.is_empty() {
        "[no frames]".to_owned()
    } else {
        frames.join(";")
    }
}

/// Compares what both readers print with the reports of `uu`. What the one in C printed.
#[track_caller]
fn agree(readers: &[PathBuf; 2], recording: &Recording, scratch: &Path) -> String {
    agrees(&readers[1], recording, scratch);
    agrees(&readers[0], recording, scratch)
}

#[track_caller]
fn agrees(reader: &Path, recording: &Recording, scratch: &Path) -> String {
    let samples: Vec<Sample> = recording.samples().into_iter().filter(|sample| sample.kind != "fatal").collect();
    assert!(!samples.is_empty(), "nothing was sampled");
    let said = read(reader, &recording.file, scratch).expect_code(0).stdout;
    let (head, stacks) = said.split_once("\n\n").expect("two parts");
    let mut wanted: BTreeMap<String, u64> = BTreeMap::new();
    let mut by_pid: BTreeMap<u32, u64> = BTreeMap::new();
    for sample in &samples {
        *wanted.entry(folded(sample)).or_default() += 1;
        *by_pid.entry(sample.pid).or_default() += 1;
    }
    let found = stacks.lines().map(|line| line.rsplit_once(' ').expect("a count"));
    let found: BTreeMap<String, u64> =
        found.map(|(at, count)| (at.to_owned(), count.parse().expect("a count"))).collect();
    assert_eq!(found, wanted);
    let numbers = |line: &str| -> Vec<u64> { line.split([' ', ':']).filter_map(|word| word.parse().ok()).collect() };
    let mut lines = head.lines();
    let totals = numbers(lines.next().expect("totals"));
    let (mut images, mut threads) = (0, 0);
    let mut found: BTreeMap<u32, u64> = BTreeMap::new();
    for of in lines.map(numbers) {
        images += 1;
        threads += of[1];
        *found.entry(of[0] as u32).or_default() += of[2];
    }
    found.retain(|_, samples| *samples > 0);
    assert_eq!(totals, [images, threads, samples.len() as u64], "{head}");
    assert_eq!(found, by_pid, "{head}");
    said
}

/// An example of the library, built with the tree's header and library.
fn example(scratch: &Path, source: &str, options: &[&str]) -> PathBuf {
    let include = format!("-I{}", paths::tree().join("include").display());
    let library = paths::tree().join("lib");
    let (file, run) = (library.join("libuunwind.so.0"), format!("-Wl,-rpath,{}", library.display()));
    let all = [&[&*include, file.to_str().expect("text"), &run], options].concat();
    compile::gcc_files(scratch, "program", &[paths::root().join("examples").join(source)], &all)
}

#[test]
fn an_embedded_interpreter() {
    let scratch = paths::scratch("reader-embedder");
    let program = example(&scratch, "embedder/embedder.c", &["-pthread", "-ldl"]);
    let recording = uu::record(&scratch, &["--explicit"], |_| {}, &[program.as_os_str()]).expect_code(0);
    let said = agree(&readers(&scratch), &recording, &scratch);
    assert!(said.contains("leaf") && said.contains("main"), "{said}");
}

#[test]
fn code_that_is_mapped_again() {
    let scratch = paths::scratch("reader-second-mapping");
    let options = ["-fno-omit-frame-pointer", "-O0", "-pthread"];
    let program = compile::gcc(&scratch, "second_mapping", &["native/second_mapping.c"], &options);
    let words = [program.as_os_str(), OsStr::new("burn")];
    let recording = uu::record(&scratch, &["-r", "499"], |_| {}, &words).expect_code(0);
    let said = agree(&readers(&scratch), &recording, &scratch);
    assert!(said.contains("in_thread;outer;inner"), "{said}");
}

#[test]
fn windows() {
    let scratch = paths::scratch("reader-windows");
    let program = example(&scratch, "jit/jit.c", &[]);
    let words = [program.as_os_str(), OsStr::new("signal")];
    let recording = uu::record(&scratch, &["--explicit"], |_| {}, &words).expect_code(0);
    agree(&readers(&scratch), &recording, &scratch);
    assert!(recording.samples().iter().any(|s| s.frames.iter().any(|f| matches!(f, Frame::Jit { .. }))));
}

#[test]
fn processes_and_python() {
    let scratch = paths::scratch("reader-python");
    if Command::new("python3").arg("--version").output().is_err() {
        return uunwind_tests::skips::skipped("a recording of Python for the reader", "python3 is not installed");
    }
    let script = "import os\ndef work(n): return sum(i * i for i in range(n))\nchild = os.fork()\n\
                  for i in range(40): work(100000)\nchild and os.wait()\n";
    let words = ["python3", "-c", script].map(OsStr::new);
    let recording = uu::record(&scratch, &["-r", "499"], |_| {}, &words).expect_code(0);
    let said = agree(&readers(&scratch), &recording, &scratch);
    assert!(said.contains("work;"), "{said}");
}

#[test]
fn threads_that_wait() {
    let scratch = paths::scratch("reader-wall");
    let program = compile::gcc(&scratch, "wall", &["native/wall.c"], &["-pthread"]);
    let words = [program.as_os_str(), OsStr::new("0.4")];
    let recording = uu::record(&scratch, &["--mode", "wall"], |_| {}, &words).expect_code(0);
    let said = agree(&readers(&scratch), &recording, &scratch);
    assert!(said.contains("in_recv;") && said.contains(";recvfrom "), "{said}");
}

/// A cut in each of many places, and a changed byte, is an error that names the place, and no fault
/// that the sanitizers find. With the checksum made right again the reader meets the damage itself.
#[test]
fn files_that_are_cut_or_damaged() {
    let scratch = paths::scratch("reader-damage");
    let program = example(&scratch, "embedder/embedder.c", &["-pthread", "-ldl"]);
    let recording = uu::record(&scratch, &["--explicit"], |_| {}, &[program.as_os_str()]).expect_code(0);
    let (readers, whole) = (readers(&scratch), std::fs::read(&recording.file).expect("a recording"));
    let bad = scratch.join("bad.uu");
    let look = |bytes: &[u8]| {
        std::fs::write(&bad, bytes).expect("scratch");
        let [in_c, in_rust] = readers.each_ref().map(|reader| read(reader, &bad, &scratch));
        assert_eq!(in_c.code(), in_rust.code(), "{}\n{}", in_c.text(), in_rust.text());
        in_c
    };
    let refused = |bytes: &[u8]| {
        let outcome = look(bytes);
        assert_eq!(outcome.code(), 1, "{}", outcome.text());
        assert!(outcome.stderr.contains("bad.uu, byte ") && outcome.stdout.is_empty(), "{}", outcome.text());
        assert!(!outcome.stderr.contains("Sanitizer"), "{}", outcome.text());
    };
    // Symbols follow the end section, so a file that is cut between two sections after it is whole: one byte less.
    let sections = sections(&whole);
    for part in 0..20 {
        let at = whole.len() * part / 20;
        let between = sections.iter().any(|(from, _)| *from == at);
        let outcome = look(&whole[..at - usize::from(between && at > 0)]);
        assert!(outcome.code() == 1 && outcome.stderr.contains("byte "), "{}", outcome.text());
    }
    refused(&whole[..whole.len() - 1]);
    for part in 0..20 {
        let mut damaged = whole.clone();
        damaged[whole.len() * part / 20] ^= 0x40;
        refused(&damaged);
    }
    for (number, (from, len)) in sections.iter().enumerate() {
        for word in 0..(len / 4).min(12) {
            let mut damaged = whole.clone();
            let at = from + 8 + 4 * word;
            damaged[at..at + 4].copy_from_slice(&[0xfe, 0xff, 0xff, 0xff]);
            let sum = checksum(&damaged[*from..from + 8 + len]);
            damaged[from + 8 + len..][..4].copy_from_slice(&sum.to_le_bytes());
            if (number + word) % 4 == 0 {
                let outcome = look(&damaged);
                assert!(matches!(outcome.code(), 0 | 1), "{}", outcome.text());
                assert!(
                    !outcome.stderr.contains("Sanitizer") && !outcome.stderr.contains("runtime error"),
                    "{}",
                    outcome.text()
                );
            }
        }
    }
}

/// Offset and payload's length of each section.
fn sections(file: &[u8]) -> Vec<(usize, usize)> {
    let mut out = Vec::new();
    let mut at = 16;
    while at < file.len() {
        let len = u32::from_le_bytes(file[at + 4..at + 8].try_into().expect("four bytes")) as usize;
        out.push((at, len));
        at += len + 12;
    }
    out
}

/// CRC-32 of IEEE 802.3, bit by bit.
fn checksum(bytes: &[u8]) -> u32 {
    let step = |sum: u32| (sum >> 1) ^ if sum & 1 == 1 { 0xedb8_8320 } else { 0 };
    !bytes.iter().fold(!0, |sum, byte| (0..8).fold(sum ^ u32::from(*byte), |sum, _| step(sum)))
}
