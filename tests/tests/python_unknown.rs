//! A CPython of a version that is not known yet: one of this machine, whose file says that it is another one. Its
//! stacks are whole, of native frames, and one line says why.

use std::path::Path;
use uunwind_elf::{Image, Segment};
use uunwind_tests::interpreters::{self, Interpreter};
use uunwind_tests::samples::Frame;
use uunwind_tests::{executable, paths, skips, uu};

/// 3.16.0, as `PY_VERSION_HEX`.
const UNKNOWN: u32 = 0x0310_00f0;
/// What `_Py_DebugOffsets` begins with; the version follows.
const COOKIE: &[u8; 8] = b"xdebugpy";
/// `PT_LOAD`.
const LOADED: u32 = 1;
const PROGRAM: &str = "import signal\ndef work(): signal.raise_signal(signal.SIGPROF)\nwork()";

/// The newest interpreter that is one file, and that file.
fn newest() -> Option<(Interpreter, Vec<u8>, Image)> {
    let newest =
        interpreters::modern().into_iter().filter(|python| python.version.0 >= 13).max_by_key(|p| p.version)?;
    let image = Image::open(&newest.path).ok()?;
    image.symbol("Py_Version")?;
    let bytes = std::fs::read(&newest.path).ok()?;
    Some((newest, bytes, image))
}

/// Runs the file, and returns the reason that was given for its having no Python frames.
fn reason(python: &Interpreter, name: &str, bytes: &[u8]) -> String {
    let scratch = paths::scratch(name);
    let file = scratch.join("python3");
    executable::write(&file, bytes);
    // Where its standard library is: the file is not where it was.
    let home = python.path.parent().and_then(Path::parent).expect("PREFIX/bin/python");
    let configure = |command: &mut std::process::Command| {
        command.env("PYTHONHOME", home);
    };
    let program = [file.as_os_str(), "-c".as_ref(), PROGRAM.as_ref()];
    let recording = uu::record(&scratch, &["--explicit", "-r", "1"], configure, &program).expect_code(0);
    let samples = recording.samples();
    let sample = samples.iter().find(|sample| sample.kind == "explicit").expect("a sample");
    assert!(sample.complete(), "{}", sample.text());
    assert!(sample.frames.iter().all(|frame| !frame.is_python()), "{}", sample.text());
    let of_file = |frame: &&Frame| matches!(frame, Frame::Native { object, .. } if object.ends_with("/python3"));
    assert!(sample.frames.iter().filter(of_file).count() > 3, "{}", sample.text());
    let summary = recording.report("summary");
    let mut lines = summary.lines().filter(|line| line.contains("no Python frames"));
    let (line, further) = (lines.next().unwrap_or_default().to_owned(), lines.count());
    assert_eq!(further, 0, "{summary}");
    assert!(!line.is_empty(), "{summary}");
    line
}

#[test]
fn a_later_version_has_native_frames_and_a_reason() {
    let Some((python, bytes, image)) = newest() else {
        return skips::skipped(
            "an unknown version of CPython",
            "this machine has no CPython 3.13 or later in one file",
        );
    };
    let place = |symbol: &str| {
        let address = image.symbol(symbol).expect("an exported symbol").address;
        let holds = |segment: &&Segment| {
            segment.kind == LOADED && segment.address <= address && address + 16 <= segment.address + segment.file_size
        };
        let segment = image.segments().iter().find(holds).expect("initialised data");
        (address - segment.address + segment.offset) as usize
    };
    let (version, table) = (place("Py_Version"), place("_PyRuntime"));
    assert_eq!(&bytes[table..table + 8], COOKIE);
    let table = table + 8;

    let mut other = bytes.clone();
    other[table..table + 4].copy_from_slice(&UNKNOWN.to_le_bytes());
    let reason_of_table = reason(&python, "unknown-table", &other);
    assert!(reason_of_table.contains("whose table of offsets says version 0x31000f0"), "{reason_of_table}");

    other[version..version + 4].copy_from_slice(&UNKNOWN.to_le_bytes());
    let reason_of_version = reason(&python, "unknown-version", &other);
    assert!(reason_of_version.contains("this is CPython 3.16.0"), "{reason_of_version}");
}
