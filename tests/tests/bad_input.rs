//! For every kind of invalid input `uu` prints one clear message that names it, and exits with a code other than 0; it
//! never crashes or hangs. What can be saved of a run is saved.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use uunwind_tests::process::{run, Outcome};
use uunwind_tests::{compile, executable, interpreters, paths, samples, skips, uu};

const LIMIT: Duration = Duration::from_secs(30);

/// Runs `uu` with these words.
#[track_caller]
fn uu_says(words: &[&OsStr]) -> Outcome {
    let scratch = paths::scratch("bad-input");
    run(uu::command(&scratch, words).current_dir(&scratch), &scratch, LIMIT)
}

/// Fails unless `uu` ended with `code`, and said all of `parts` on standard error, in a message and not in a panic.
#[track_caller]
fn refused(outcome: Outcome, code: i32, parts: &[&str]) -> Outcome {
    let outcome = outcome.expect_code(code);
    for part in parts {
        assert!(outcome.stderr.contains(part), "{part:?} was not said: {}", outcome.text());
    }
    assert!(!outcome.stderr.contains("panicked"), "{}", outcome.text());
    outcome
}

fn burn(options: &[&str]) -> (PathBuf, PathBuf) {
    let scratch = paths::scratch("burn");
    (compile::gcc(&scratch, "burn", &["native/burn.c"], options), scratch)
}

fn record_words<'a>(file: &'a Path, program: &[&'a OsStr]) -> Vec<&'a OsStr> {
    let mut words = vec![OsStr::new("record"), OsStr::new("-o"), file.as_os_str(), OsStr::new("--")];
    words.extend(program);
    words
}

#[test]
fn unknown_program() {
    let file = paths::scratch("unknown").join("x.uu");
    refused(uu_says(&record_words(&file, &["no-such-program-anywhere".as_ref()])), 127, &["no-such-program-anywhere"]);
    refused(uu_says(&record_words(&file, &["/no/such/program".as_ref()])), 127, &["/no/such/program"]);
    assert!(!file.exists(), "an output was left");
}

#[test]
fn not_executable() {
    let scratch = paths::scratch("not-executable");
    let script = scratch.join("script");
    std::fs::write(&script, "#!/bin/sh\n").expect("scratch");
    refused(uu_says(&record_words(&scratch.join("x.uu"), &[script.as_ref()])), 126, &["script", "not executable"]);
    refused(uu_says(&record_words(&scratch.join("x.uu"), &[scratch.as_ref()])), 126, &[]);
    // An executable file of no known format: the kernel refuses it.
    let garbage = scratch.join("garbage");
    executable::write(&garbage, &[0x7f, b'E', b'L', b'F', 9, 9, 9, 9]);
    refused(uu_says(&record_words(&scratch.join("x.uu"), &[garbage.as_ref()])), 126, &["garbage"]);
}

#[test]
fn static_program() {
    let (program, scratch) = burn(&["-static"]);
    let outcome = uu_says(&record_words(&scratch.join("x.uu"), &[program.as_ref(), "0.2".as_ref()]));
    assert_ne!(outcome.code(), 0, "{}", outcome.text());
    assert!(outcome.stderr.contains("static"), "{}", outcome.text());
}

/// A program whose dynamic loader is not installed, as one of musl is on most systems: which one, is said.
#[test]
fn program_without_its_loader() {
    let (program, scratch) = burn(&["-Wl,--dynamic-linker=/lib/ld-none-x86_64.so.1"]);
    let outcome = uu_says(&record_words(&scratch.join("x.uu"), &[program.as_ref(), "0.2".as_ref()]));
    assert_ne!(outcome.code(), 0, "{}", outcome.text());
    assert!(outcome.stderr.contains("/lib/ld-none-x86_64.so.1"), "{}", outcome.text());
}

#[test]
fn set_user_id_program() {
    // SAFETY: plain system call.
    if unsafe { libc::geteuid() } != 0 {
        skips::skipped("set-user-ID program", "needs root, to make a file of another user's");
        return;
    }
    let (program, scratch) = burn(&[]);
    std::os::unix::fs::chown(&program, Some(65534), None).expect("root may give files away");
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o4755)).expect("root may set the bit");
    let outcome = uu_says(&record_words(&scratch.join("x.uu"), &[program.as_ref(), "0.2".as_ref()]));
    assert_ne!(outcome.code(), 0, "{}", outcome.text());
    let said = outcome.stderr.to_lowercase();
    assert!(["set-user-id", "set-uid", "setuid"].iter().any(|w| said.contains(w)), "{}", outcome.text());
}

#[test]
fn install_path_with_space_and_colon() {
    let (program, scratch) = burn(&[]);
    for name in ["with space", "with:colon", "with both: here"] {
        let tree = scratch.join(name);
        executable::copy(&paths::tree(), &tree);
        let file = scratch.join("x.uu");
        let words = record_words(&file, &[program.as_ref(), "0.3".as_ref()]);
        let mut command = Command::new(tree.join("bin/uu"));
        let outcome = run(command.args(&words).env("XDG_CACHE_HOME", scratch.join("cache")), &scratch, LIMIT);
        assert!(outcome.expect_code(0).stdout.contains("burnt 1"), "{name}");
        std::fs::remove_file(&file).unwrap_or_else(|e| panic!("{name}: no recording: {e}"));
    }
}

#[test]
fn a_part_of_the_install_is_missing() {
    let (program, scratch) = burn(&[]);
    for part in ["lib/libuunwind.so.0", "lib/uu/libuunwind-preload.so"] {
        let tree = scratch.join(part.replace('/', "-"));
        executable::copy(&paths::tree(), &tree);
        std::fs::remove_file(tree.join(part)).expect("it was copied");
        let words = record_words(Path::new("x.uu"), &[program.as_ref()]);
        let outcome = run(Command::new(tree.join("bin/uu")).args(&words).current_dir(&scratch), &scratch, LIMIT);
        refused(outcome, 125, &[part.rsplit('/').next().expect("a name")]);
    }
}

#[test]
fn address_sanitizer_program() {
    let (program, scratch) = burn(&["-fsanitize=address"]);
    let recording = uu::record(&scratch, &["-r", "999"], |_| {}, &[program.as_ref(), "1".as_ref()]).expect_code(0);
    assert!(recording.outcome.stdout.contains("burnt 1"), "{}", recording.outcome.text());
    let samples = recording.samples();
    let (whole, reasons) = samples::completeness(&samples);
    assert!(samples.len() > 50 && whole >= 0.99, "{} samples, {reasons:?}", samples.len());
}

#[test]
fn unwritable_output_is_found_out_before_the_program_runs() {
    let (program, scratch) = burn(&[]);
    let ran = scratch.join("ran");
    for output in ["/no/such/folder/x.uu", "/no/such/folder/x.svg", "/proc/x.uu"] {
        let program = [program.as_os_str(), "0.1".as_ref(), "0".as_ref(), ran.as_os_str()];
        refused(uu_says(&record_words(Path::new(output), &program)), 125, &[output]);
        assert!(!ran.exists(), "the program ran, though {output} cannot be written");
    }
}

/// A file system of one page, in a separate mount namespace: it has room for some seventy samples, a fifth of what is
/// recorded. The exit code is the program's.
#[test]
fn full_disk() {
    let (program, scratch) = burn(&[]);
    let disk = scratch.join("disk");
    std::fs::create_dir(&disk).expect("scratch");
    let script = "mount -t tmpfs -o size=4k none \"$1\" && cd \"$1\" && shift && exec \"$@\"";
    let mut shell = Command::new("unshare");
    shell.args(["-r", "-m", "sh", "-c", script, "sh"]).arg(&disk);
    let mut probe = Command::new("unshare");
    probe.args(["-r", "-m", "sh", "-c", script, "sh"]).arg(&disk).arg("true");
    if !probe.output().is_ok_and(|o| o.status.success()) {
        skips::skipped("full disk", "a mount in a user namespace is not allowed here");
        return;
    }
    let words = record_words(Path::new("x.uu"), &[program.as_ref(), "1.5".as_ref()]);
    shell.arg(paths::uu()).args(["record", "-r", "999"]).args(&words[1..]);
    let outcome = run(shell.env("XDG_CACHE_HOME", scratch.join("cache")), &scratch, LIMIT);
    assert_eq!(outcome.code(), 0, "{}", outcome.text());
    assert!(outcome.stdout.contains("burnt 1"), "the program's run was lost: {}", outcome.text());
    assert!(outcome.stderr.contains("No space left") && !outcome.stderr.contains("panicked"), "{}", outcome.text());
}

#[test]
fn unknown_format_lists_the_known() {
    let (program, scratch) = burn(&[]);
    let ran = scratch.join("ran");
    let known = ["nosuch", "folded", "svg", "pprof"];
    let program = [program.as_os_str(), "0.1".as_ref(), "0".as_ref(), ran.as_os_str()];
    let mut words: Vec<&OsStr> = ["record", "-f", "nosuch", "--"].map(OsStr::new).to_vec();
    words.extend(program);
    refused(uu_says(&words), 125, &known);
    refused(uu_says(&record_words(&scratch.join("x.nosuch"), &program)), 125, &known);
    assert!(!ran.exists(), "the program ran, though the format is unknown");
    let recording = uu::record(&scratch, &[], |_| {}, &[program[0], "0.1".as_ref()]).expect_code(0);
    let words = [OsStr::new("report"), recording.file.as_os_str(), "-f".as_ref(), "nosuch".as_ref()];
    refused(uu_says(&words), 125, &known);
}

#[test]
fn wrong_arguments() {
    for words in [
        &["record"][..],
        &["record", "-r", "abc", "--", "true"],
        &["record", "-r", "0", "--", "true"],
        &["record", "-d", "-1", "--", "true"],
        &["record", "--no-such-option", "--", "true"],
        &["no-such-command"],
        &["report"],
    ] {
        let words: Vec<&OsStr> = words.iter().map(OsStr::new).collect();
        let outcome = uu_says(&words);
        let fine = outcome.code() != 0 && outcome.code() < 128 && !outcome.stderr.is_empty();
        assert!(fine && !outcome.stderr.contains("panicked"), "{words:?}: {}", outcome.text());
    }
}

#[test]
fn nothing_sampled() {
    let scratch = paths::scratch("nothing");
    let outcome = uu_says(&record_words(&scratch.join("x.uu"), &["true".as_ref()]));
    assert!(outcome.code() == 0 && outcome.stderr.contains("nothing was sampled"), "{}", outcome.text());
}

#[test]
fn foreign_and_missing_recordings() {
    let scratch = paths::scratch("foreign");
    let cases: [(&str, &[u8]); 5] = [
        ("empty", b""),
        ("text", b"not a recording\n"),
        ("zeros", &[0; 5000]),
        ("elf", b"\x7fELF\x02\x01\x01"),
        ("short", b"uu"),
    ];
    for (name, bytes) in cases {
        let file = scratch.join(format!("{name}.uu"));
        std::fs::write(&file, bytes).expect("scratch");
        for format in ["folded", "samples", "svg"] {
            let outcome = uu_says(&["report".as_ref(), file.as_os_str(), "-f".as_ref(), format.as_ref()]);
            refused(outcome, 125, &[&format!("{name}.uu")]);
        }
    }
    let missing = scratch.join("missing.uu");
    refused(uu_says(&["report".as_ref(), missing.as_os_str()]), 125, &["missing.uu"]);
    refused(uu_says(&["report".as_ref(), scratch.as_os_str()]), 125, &[]);
}

/// No result is written over what it is made of, or over another one.
#[test]
fn results_in_one_place() {
    let (program, scratch) = burn(&[]);
    let recording = uu::record(&scratch, &["-r", "199"], |_| {}, &[program.as_ref(), "0.1".as_ref()]).expect_code(0);
    let (file, link) = (recording.file.as_os_str(), scratch.join("link.svg"));
    let whole = std::fs::read(file).expect("the recording");
    std::os::unix::fs::symlink(file, &link).expect("a link");
    let says = "this is the recording that is read";
    for words in [
        &["report".as_ref(), file, "-o".as_ref(), file][..],
        &["report".as_ref(), file, "-o".as_ref(), link.as_os_str()],
        &["diff".as_ref(), file, file, "-o".as_ref(), link.as_os_str()],
    ] {
        refused(uu_says(words), 125, &[says, "another name"]);
    }
    assert_eq!(std::fs::read(file).expect("the recording"), whole);
    for (stream, output) in [("x.uu", "x.uu"), ("./x.svg", "x.svg"), ("x.uu", "x.svg")] {
        let words = ["record", "--stream", stream, "-o", output, "--", "true"].map(OsStr::new);
        refused(uu_says(&words), 125, &[&format!("--stream {stream}: "), "another place"]);
    }
    for condition in ["thread=", "process=", "function=", "module="] {
        let words = ["report".as_ref(), file, "--filter".as_ref(), OsStr::new(condition)];
        refused(uu_says(&words), 125, &[&format!("--filter {condition}: "), "has no value"]);
    }
}

/// What a result takes the place of stays whole, and keeps its permissions and the link that leads to it.
#[test]
fn a_result_that_finds_no_space() {
    let (program, scratch) = burn(&[]);
    let recording = uu::record(&scratch, &["-r", "199"], |_| {}, &[program.as_ref(), "0.1".as_ref()]).expect_code(0);
    let (result, link) = (scratch.join("result.json"), scratch.join("link.json"));
    std::fs::write(&result, "older").expect("scratch");
    std::fs::set_permissions(&result, std::fs::Permissions::from_mode(0o640)).expect("scratch");
    std::os::unix::fs::symlink("result.json", &link).expect("a link");
    let words = ["report".as_ref(), recording.file.as_os_str(), "-o".as_ref(), link.as_os_str()];
    let mut shell = Command::new("sh");
    // A file of more than 512 bytes is refused, as on a full disk.
    shell.args(["-c", "trap '' XFSZ; ulimit -f 1; exec \"$@\"", "sh"]).arg(paths::uu()).args(words);
    refused(run(&mut shell, &scratch, LIMIT), 125, &["cannot write", "link.json", "File too large"]);
    assert_eq!(std::fs::read_to_string(&result).expect("the older one"), "older");
    refused(uu_says(&words), 0, &[]);
    assert!(std::fs::read(&result).expect("the result").starts_with(b"{"));
    let mode = std::fs::metadata(&result).expect("the result").permissions().mode();
    assert!(mode & 0o777 == 0o640 && link.is_symlink(), "{mode:o}");
    let others = std::fs::read_dir(&scratch).expect("the folder");
    let others = others.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    assert_eq!(others.filter(|name| name.starts_with('.')).count(), 0, "a temporary file");
}

/// Cut anywhere, or with bytes changed anywhere: an error, or what could be read; never a crash or a hang.
#[test]
fn damaged_recordings() {
    let (program, scratch) = burn(&[]);
    let recording = uu::record(&scratch, &["-r", "999"], |_| {}, &[program.as_ref(), "0.3".as_ref()]).expect_code(0);
    let whole = std::fs::read(&recording.file).expect("the recording");
    let file = scratch.join("damaged.uu");
    let check = |what: &str, bytes: &[u8]| {
        std::fs::write(&file, bytes).expect("scratch");
        let outcome = uu_says(&["report".as_ref(), file.as_os_str(), "-f".as_ref(), "samples".as_ref()]);
        let fine = outcome.code() == 0 || outcome.code() == 125 && outcome.stderr.contains("damaged.uu");
        assert!(fine && !outcome.stderr.contains("panicked"), "{what}: {}", outcome.text());
        outcome
    };
    for part in 1..25 {
        let cut = whole.len() * part / 25;
        let outcome = check(&format!("cut to {cut} of {} bytes", whole.len()), &whole[..cut]);
        assert!(!outcome.stderr.is_empty(), "a recording cut to {cut} bytes was taken for whole");
    }
    // Its last section, the names, is left out.
    let length = |at: usize| 12 + u32::from_le_bytes(whole[at + 4..at + 8].try_into().expect("four bytes")) as usize;
    let mut last = uunwind_recording::HEADER_BYTES;
    while last + length(last) < whole.len() {
        last += length(last);
    }
    let outcome = check("without names", &whole[..last]);
    assert!(outcome.stderr.contains("has no section of names"), "{}", outcome.text());
    let mut seed = 1u64;
    for round in 0..60 {
        let mut bytes = whole.clone();
        for _ in 0..=round % 8 {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let at = (seed >> 20) as usize % bytes.len();
            bytes[at] = (seed >> 50) as u8;
        }
        check(&format!("round {round}"), &bytes);
    }
}

/// A CPython version that the plugin does not support: native frames are recorded, and one line says why there are no
/// Python frames.
#[test]
fn unsupported_python() {
    let all = interpreters::all();
    let Some(old) = all.iter().find(|i| !interpreters::served().contains(&i.version.0)) else {
        skips::skipped("unsupported CPython", "every Python of this machine is supported");
        return;
    };
    let scratch = paths::scratch("unsupported");
    let program = [old.path.as_os_str(), "-c".as_ref(), "print(sum(i * i for i in range(5000000)))".as_ref()];
    let recording = uu::record(&scratch, &["-r", "999"], |_| {}, &program).expect_code(0);
    let samples = recording.samples();
    assert!(samples.len() > 20 && samples.iter().all(|s| s.frames.iter().all(|f| !f.is_python())));
    let (whole, reasons) = samples::completeness(&samples);
    assert!(whole >= 0.99, "{reasons:?}");
    let lines: Vec<&str> = recording.outcome.stderr.lines().chain(recording.outcome.stdout.lines()).collect();
    let version = format!("3.{}", old.version.0);
    let said = lines.iter().filter(|l| l.contains("no Python frames") && l.contains(&version)).count();
    assert_eq!(said, 1, "{}", recording.outcome.text());
}

/// For a shell: waits until the program has begun, which then makes the file `ran` in this folder, and has used some
/// CPU time.
const BEGUN: &str = "until [ -e ran ]; do sleep 0.1; done; sleep 1.5";

/// SIGTERM to `uu` reaches the program, the file is written, and the exit code is the program's.
#[test]
fn sigterm_writes_the_file() {
    let (program, scratch) = burn(&[]);
    let file = scratch.join("x.uu");
    let words = record_words(&file, &[program.as_ref(), "60".as_ref(), "0".as_ref(), "ran".as_ref()]);
    let mut shell = Command::new("sh");
    let script = format!("\"$@\" & me=$!; {BEGUN}; kill -TERM $me; wait $me");
    shell.args(["-c", &script, "sh"]).arg(paths::uu()).args(&words).current_dir(&scratch);
    run(&mut shell, &scratch, LIMIT).expect_code(143);
    let recording =
        run(&mut uu::command(&scratch, &["report".as_ref(), file.as_os_str()]), &scratch, LIMIT).expect_code(0);
    assert!(recording.stdout.contains("burn"), "{}", recording.text());
}

/// Ctrl-C on a terminal reaches the whole group: the program ends by it, the file is written, and the exit code says
/// so.
#[test]
fn ctrl_c_writes_the_file() {
    let (program, scratch) = burn(&[]);
    let file = scratch.join("x.uu");
    let script = format!("\"$@\" & me=$!; {BEGUN}; kill -INT -$$; wait $me; code=$?; trap - INT; exit $code");
    let mut shell = Command::new("setsid");
    // The shell survives the signal; what it starts has the default action back, as under a terminal's shell.
    let wrapper =
        "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])";
    shell.args(["-w", "sh", "-c", &format!("trap : INT; {script}"), "sh", "/usr/bin/env", "python3", "-c", wrapper]);
    shell.arg(paths::uu()).current_dir(&scratch);
    shell.args(record_words(&file, &[program.as_ref(), "60".as_ref(), "0".as_ref(), "ran".as_ref()]));
    let outcome = run(&mut shell, &scratch, LIMIT).expect_code(130);
    assert!(!outcome.stderr.contains("panicked"), "{}", outcome.text());
    let report =
        run(&mut uu::command(&scratch, &["report".as_ref(), file.as_os_str()]), &scratch, LIMIT).expect_code(0);
    assert!(report.stdout.contains("burn"), "{}", report.text());
}

/// `-d` ends the recording, not the program.
#[test]
fn the_duration_ends_the_recording() {
    let (program, scratch) = burn(&[]);
    let recording =
        uu::record(&scratch, &["-r", "500", "-d", "0.5"], |_| {}, &[program.as_ref(), "2.0".as_ref(), "9".as_ref()]);
    let recording = recording.expect_code(9);
    assert!(recording.outcome.stdout.contains("burnt 1"), "{}", recording.outcome.text());
    let ticks: u64 = recording.samples().iter().map(|s| s.weight).sum();
    // 0.5 s of the clock: 250 ticks of CPU time, fewer on a busy machine, more where the recorder waits for a CPU
    // itself. The whole run has 1,000.
    assert!((1..=600).contains(&ticks), "{ticks} ticks");
}

#[test]
fn a_reader_that_goes_away_is_no_error_report() {
    let (program, scratch) = burn(&[]);
    let recording = uu::record(&scratch, &["-r", "999"], |_| {}, &[program.as_ref(), "0.5".as_ref()]).expect_code(0);
    let mut shell = Command::new("sh");
    shell.args(["-c", "\"$1\" report \"$2\" -f samples -o - | head -1", "sh"]).arg(paths::uu()).arg(&recording.file);
    let outcome = run(&mut shell, &scratch, LIMIT).expect_code(0);
    assert!(outcome.stdout.starts_with("sample ") && !outcome.stderr.contains("panicked"), "{}", outcome.text());
}

/// A result is not written over its own recording.
#[test]
fn a_result_with_the_recordings_name_is_refused() {
    let scratch = paths::scratch("same-name");
    let file = scratch.join("q.uu");
    let words = ["record", "-f", "folded", "-o"].map(OsStr::new);
    let command =
        &mut uu::command(&scratch, &[&words[..], &[file.as_os_str(), "--".as_ref(), "true".as_ref()]].concat());
    let outcome = run(command, &scratch, uu::LIMIT).expect_code(125);
    assert!(outcome.stderr.contains("is the recording's name"), "{}", outcome.stderr);
    assert!(!file.exists());
}
