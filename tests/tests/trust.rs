//! Other users, and the objects of a recorded program, cannot harm `uu`.

use std::ffi::CString;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use uunwind_tests::{compile, executable, paths, process, skips, uu};

/// Links with a library in the scratch folder.
fn against(scratch: &Path, libraries: &[&str]) -> Vec<String> {
    let mut options = vec![format!("-L{0}", scratch.display()), format!("-Wl,-rpath,{}", scratch.display())];
    options.push("-Wl,--no-as-needed".to_owned());
    options.extend(libraries.iter().map(|name| format!("-l:{name}")));
    options
}

/// The frames of the one sample from `leaf` on.
fn stack(scratch: &Path, program: &Path) -> (bool, Vec<String>) {
    let recording = uu::record(scratch, &["--explicit"], |_| {}, &[program.as_ref()]).expect_code(0);
    let samples = recording.samples();
    let found = samples.iter().find(|sample| sample.frames.iter().any(|frame| frame.name() == "leaf"));
    let sample = found.unwrap_or_else(|| panic!("no sample of leaf among {samples:#?}"));
    let names = sample.frames.iter().map(|frame| frame.name().to_owned()).skip_while(|name| name != "leaf");
    (sample.complete(), names.take(4).collect())
}

/// A library with the build-id of another one does not change the stacks through that one, in the same recording or in
/// a later one.
#[test]
fn a_build_id_that_lies_gives_no_false_caller() {
    let scratch = paths::scratch("liar");
    let id = "-Wl,--build-id=0xfeedfacefeedfacefeedfacefeedfacefeedface";
    compile::gcc(&scratch, "honest.so", &["native/honest.c"], &["-shared", "-fPIC", id]);
    compile::gcc(&scratch, "liar.so", &["native/liar.c"], &["-shared", "-fPIC", id]);
    let program = |name: &str, libraries: &[&str], options: &[&str]| -> PathBuf {
        let own = against(&scratch, libraries);
        let all: Vec<&str> = options.iter().copied().chain(own.iter().map(String::as_str)).collect();
        compile::gcc(&scratch, name, &["native/through.c"], &all)
    };
    let with_liar = program("with-liar", &["liar.so", "honest.so"], &["-DLIAR"]);
    let alone = program("alone", &["honest.so"], &[]);
    let expected = (true, ["leaf", "honest", "through", "main"].map(str::to_owned).to_vec());
    assert_eq!(stack(&scratch, &with_liar), expected, "in the liar's own recording");
    assert_eq!(stack(&scratch, &alone), expected, "in a later recording with the same cache");
}

/// A set-user-ID program that calls `uu_setup()` writes nothing where its user's environment says, and reads nothing
/// there.
#[test]
fn a_set_user_id_program_has_no_cache() {
    const OTHER: u32 = 65534;
    // SAFETY: geteuid has no preconditions.
    if unsafe { libc::geteuid() } != 0 {
        return skips::skipped("a set-user-ID program", "only root can make one that is another user's");
    }
    let scratch = paths::scratch("set-user-id");
    let library = paths::tree().join("lib");
    let include = format!("-I{}", paths::tree().join("include").display());
    let (search, path) = (format!("-L{}", library.display()), format!("-Wl,-rpath,{}", library.display()));
    let program = compile::gcc(&scratch, "setup", &["native/setup.c"], &[&include, &search, "-luunwind", &path]);
    let cache = scratch.join("cache");
    for (mode, made) in [(0o4755, false), (0o755, true)] {
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(mode)).expect("own file");
        let _ = std::fs::remove_dir_all(&cache);
        std::fs::create_dir(&cache).expect("scratch");
        // The user who starts it may do anything in this folder.
        std::fs::set_permissions(&cache, std::fs::Permissions::from_mode(0o1777)).expect("own folder");
        let mut command = Command::new(&program);
        command.env("XDG_CACHE_HOME", &cache).uid(OTHER).gid(OTHER);
        let outcome = process::run(&mut command, &scratch, uu::LIMIT);
        if !outcome.stdout.contains("made tables") {
            return skips::skipped("a set-user-ID program", "another user cannot reach the scratch folder");
        }
        assert_eq!(cache.join("uu").exists(), made, "mode {mode:o}: {}", outcome.text());
    }
}

fn fifo(path: &Path) {
    let path = CString::new(path.as_os_str().as_bytes()).expect("no NUL");
    // SAFETY: a NUL-terminated path.
    assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0, "{path:?}");
}

/// Opening a FIFO waits for its other end, which is never opened in these tests.
#[test]
fn a_fifo_in_an_objects_place_ends_nothing() {
    let scratch = paths::scratch("fifo-object");
    let library = compile::gcc(&scratch, "honest.so", &["native/honest.c"], &["-shared", "-fPIC"]);
    let program = compile::gcc(&scratch, "special", &["native/special.c"], &["-ldl"]);
    let words = [program.as_ref(), library.as_ref()];
    let samples = uu::record(&scratch, &["--explicit"], |_| {}, &words).expect_code(0).samples();
    assert!(samples.iter().any(|sample| sample.frames.iter().any(|frame| frame.name() == "main")), "{samples:#?}");
}

#[test]
fn a_recording_that_the_program_removes_or_replaces_is_not_lost() {
    let scratch = paths::scratch("replaced");
    let program = scratch.join("point");
    compile::gcc(&scratch, "honest.so", &["native/honest.c"], &["-shared", "-fPIC"]);
    let own = against(&scratch, &["honest.so"]);
    let own: Vec<&str> = own.iter().map(String::as_str).collect();
    compile::gcc(&scratch, "point", &["native/through.c"], &own);
    for (script, left) in [("rm \"$1\"", "recording.uu"), ("rm \"$1\"; mkfifo \"$1\"", "recording.2.uu")] {
        let file = scratch.join("recording.uu");
        let script = format!("{script}; exec \"$0\"");
        let words = ["sh".as_ref(), "-c".as_ref(), script.as_ref(), program.as_ref(), file.as_ref()];
        let recording = uu::record(&scratch, &["--explicit"], |_| {}, &words).expect_code(0);
        let left = scratch.join(left);
        assert!(recording.outcome.stderr.contains(&*left.to_string_lossy()), "{}", recording.outcome.text());
        let outcome = process::run(uu::command(&scratch, &["report", "-f", "samples"]).arg(&left), &scratch, uu::LIMIT);
        assert!(outcome.expect_code(0).stdout.contains("native leaf"), "{script}");
    }
}

#[test]
fn special_files_as_input_are_refused() {
    let scratch = paths::scratch("fifos");
    let path = scratch.join("fifo.svg");
    fifo(&path);
    let refused = |words: &[&str], says: &str| {
        let outcome = process::run(uu::command(&scratch, words).current_dir(&scratch), &scratch, uu::LIMIT);
        let outcome = outcome.expect_code(125);
        assert!(outcome.stderr.contains("fifo.svg") && outcome.stderr.contains(says), "{}", outcome.text());
    };
    refused(&["report", "fifo.svg"], "it is a FIFO, not a regular file");
    refused(&["doctor", "fifo.svg"], "it is a FIFO, not a regular file");
    refused(&["sframe", "dump", "fifo.svg"], "it is a FIFO, not a regular file");
}

/// `uu record`, in the middle of naming: the debug information that a library refers to is a FIFO.
struct Naming {
    scratch: PathBuf,
    uu: Child,
    /// The process that names.
    namer: i32,
}

/// The process of this `uu` that names, once there is one.
fn namer_of(uu: u32, other_than: i32) -> i32 {
    let begun = Instant::now();
    loop {
        for entry in std::fs::read_dir("/proc").expect("/proc").flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
            let read = |name: &str| std::fs::read_to_string(entry.path().join(name)).unwrap_or_default();
            let parent = read("stat").rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1)?.parse().ok());
            if pid != other_than && parent == Some(uu) && read("cmdline").contains("naming-server") {
                return pid;
            }
        }
        assert!(begun.elapsed() < uu::LIMIT, "no naming process");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Build-id of the library that is named when something happens to the naming process.
const ID: &str = "a11ce5a11ce5a11ce5a11ce5a11ce5a11ce5a11c";

/// A client of debuginfod that, asked for that library, says so by a file, and answers when another one is gone.
fn client(scratch: &Path) -> PathBuf {
    let folder = scratch.join("client");
    std::fs::create_dir_all(&folder).expect("scratch");
    std::fs::write(scratch.join("hold"), "").expect("scratch");
    let (asked, hold) = (scratch.join("asked").display().to_string(), scratch.join("hold").display().to_string());
    let script = format!(
        "#!/bin/sh\nif [ \"$2\" = {ID} ]; then\n    : >'{asked}'\n    while [ -e '{hold}' ]; do sleep 0.01; done\nfi\nexit 1\n"
    );
    executable::write(&folder.join("debuginfod-find"), script.as_bytes());
    folder
}

/// Waits until the naming process asks the client for the library.
fn wait_until_asked(scratch: &Path) {
    let begun = Instant::now();
    while !scratch.join("asked").exists() {
        assert!(begun.elapsed() < uu::LIMIT, "the naming process does not ask for the library's debug file");
        std::thread::sleep(Duration::from_millis(5));
    }
}

impl Naming {
    fn start(name: &str) -> Naming {
        let scratch = paths::scratch(name);
        let id = format!("-Wl,--build-id=0x{ID}");
        let library = compile::gcc(&scratch, "honest.so", &["native/honest.c"], &["-shared", "-fPIC", "-DHIDDEN", &id]);
        // A server is asked only where a function has no name.
        let done = Command::new("strip").arg(&library).status().expect("strip runs");
        assert!(done.success());
        let path = std::env::var("PATH").expect("PATH");
        let path = format!("{}:{path}", client(&scratch).display());
        let own = against(&scratch, &["honest.so"]);
        let own: Vec<&str> = own.iter().map(String::as_str).collect();
        let program = compile::gcc(&scratch, "through", &["native/through.c"], &own);
        let mut command = uu::command(&scratch, &["record", "--explicit", "-o"]);
        command.env("PATH", path).env("DEBUGINFOD_URLS", "http://localhost:1");
        command.arg(scratch.join("x.uu")).arg("--").arg(program).process_group(0).stdin(Stdio::null());
        let errors = File::create(scratch.join("stderr")).expect("scratch");
        // A job that a shell has put into the background ignores SIGINT, and so would uu.
        // SAFETY: signal(2) is async-signal-safe.
        unsafe {
            command.pre_exec(|| {
                libc::signal(libc::SIGINT, libc::SIG_DFL);
                Ok(())
            })
        };
        let uu = command.stdout(Stdio::null()).stderr(errors).spawn().expect("uu runs");
        let namer = namer_of(uu.id(), 0);
        wait_until_asked(&scratch);
        Naming { scratch, uu, namer }
    }

    /// How `uu` ends, and what it said.
    fn end(mut self) -> (Option<i32>, String, String) {
        std::fs::remove_file(self.scratch.join("hold")).expect("own file");
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = self.uu.try_wait().expect("own child") {
                break status;
            }
            if begun.elapsed() > uu::LIMIT {
                let _ = self.uu.kill();
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let said = std::fs::read_to_string(self.scratch.join("stderr")).expect("what it said");
        let mut report = uu::command(&self.scratch, &["report", "-f", "samples"]);
        let shown = process::run(report.arg(self.scratch.join("x.uu")), &self.scratch, uu::LIMIT);
        (status.code(), said, shown.expect_code(0).stdout)
    }
}

fn send(pid: i32, signal: i32) {
    // SAFETY: a plain system call; the process is a child of this test, or of that child.
    assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
}

#[test]
fn a_signal_ends_naming_with_what_it_has() {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        let naming = Naming::start("naming-interrupted");
        send(naming.uu.id() as i32, signal);
        let (code, said, shown) = naming.end();
        assert_eq!(code, Some(0), "{said}");
        assert!(said.contains("naming was interrupted"), "{said}");
        assert!(shown.contains("honest.so"), "the sample is there, with addresses: {shown}");
    }
}

#[test]
fn the_end_of_the_naming_process_costs_the_names_of_one_object() {
    let naming = Naming::start("naming-killed");
    send(naming.namer, libc::SIGKILL);
    let (code, said, shown) = naming.end();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("signal 9 ended it"), "{said}");
    for name in ["native leaf", "native main", "native __libc_start_main"] {
        assert!(shown.contains(name), "{name} of another object: {shown}");
    }
    let unnamed = shown.lines().filter(|line| line.contains("native ?+0x")).collect::<Vec<_>>();
    assert!(unnamed.len() == 2 && unnamed.iter().all(|line| line.contains("honest.so")), "{shown}");
}
