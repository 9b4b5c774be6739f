//! What uu refuses: the message, the exit code, and that the program did not run.

mod support;

use std::os::unix::fs::PermissionsExt;
use support::{exists, outcome, Installation};

/// A running process was started by others, and runs on.
#[test]
fn a_result_of_a_running_process_that_cannot_be_written() {
    let uu = Installation::new("attached");
    let pid = std::process::id().to_string();
    let (code, text) = outcome(&uu.run(&["record", "-p", &pid, "-o", "no-folder/x.svg"]));
    assert!(code == 125 && text.contains("The process is not recorded; choose another place"), "{text}");
}

#[test]
fn programs_that_cannot_run_get_the_codes_of_env() {
    let uu = Installation::new("codes");
    std::fs::write(uu.folder.join("plain"), "text").expect("file");
    std::fs::write(uu.folder.join("app.py"), "print(1)").expect("file");
    let script = uu.folder.join("script");
    std::fs::write(&script, "#!/no/such/interpreter\n").expect("file");
    std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).expect("mode");
    for (program, words) in [
        ("no-such-program", "no such program in PATH"),
        ("", "the program's name is empty"),
        ("python3 app.py", "without quotes: uu record -- python3 app.py"),
        ("./no-such-file", "no such file"),
        ("./plain", "not executable"),
        ("./bin", "is a directory"),
        ("./script", "/no/such/interpreter"),
        ("elsewhere.py", "Give the script's path: uu record -- python3 FOLDER/elsewhere.py"),
        ("./sub/elsewhere.py", "a script is run so: uu record -- python3 ./sub/elsewhere.py"),
        ("app.py", "app.py is no program in PATH. To run the file here: uu record -- python3 app.py"),
        ("./app.py", "is not executable. To run it: uu record -- python3 ./app.py"),
    ] {
        let (code, text) = outcome(&uu.run(&["record", "--", program]));
        let env = std::process::Command::new("env").arg(program).current_dir(&uu.folder).output().expect("env");
        assert_eq!(Some(code), env.status.code(), "{program}: {text}");
        assert!(text.contains(words), "{program}: {text}");
    }
    assert_eq!(uu.files(".uu"), Vec::<String>::new());
}

#[test]
fn programs_that_cannot_be_recorded_are_refused_with_the_reason() {
    let uu = Installation::new("static");
    let source = "#include <stdio.h>\nint main() { FILE *f = fopen(\"ran\", \"w\"); return f == 0; }";
    uu.build("static", source, &["-static"]);
    let (code, text) = outcome(&uu.run(&["record", "./static"]));
    assert_eq!(code, 125);
    assert!(text.contains("statically linked") && text.contains("dynamically"), "{text}");

    let other = uu.build("other", source, &[]);
    let mut bytes = std::fs::read(&other).expect("file");
    bytes[18] = 183; // e_machine: AArch64
    std::fs::write(&other, bytes).expect("file");
    let (code, text) = outcome(&uu.run(&["record", "./other"]));
    assert_eq!(code, 126);
    assert!(text.contains("only 64-bit x86-64 is served"), "{text}");
    assert!(!exists(&uu.folder.join("ran")));
}

#[test]
fn a_set_uid_program_of_somebody_else_is_refused() {
    let uu = Installation::new("setuid");
    let program = uu.build("program", "int main() { return 0; }", &[]);
    // SAFETY: these calls have no preconditions.
    if unsafe { libc::geteuid() } != 0 {
        uunwind_skips::skipped("set-user-ID programs of another user", "giving a file away needs root");
        return;
    }
    std::os::unix::fs::chown(&program, Some(65534), Some(65534)).expect("chown");
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o4755)).expect("mode");
    let (code, text) = outcome(&uu.run(&["record", "./program"]));
    assert_eq!(code, 125);
    assert!(text.contains("set-uid") && text.contains("65534"), "{text}");
}

#[test]
fn an_output_that_cannot_be_written_is_found_before_the_program_runs() {
    let uu = Installation::new("output");
    for output in ["no/folder/x.uu", "no/folder/x.svg", "/dev/full", "bin", "/proc/x.svg"] {
        let format = if matches!(output, "bin" | "/dev/full") { "-fuu" } else { "-r99" };
        let (code, text) = outcome(&uu.run(&["record", format, "-o", output, "--", "touch", "ran"]));
        assert_eq!(code, 125, "{output}: {text}");
        assert!(text.contains(output) && text.contains("not started"), "{output}: {text}");
        // Nobody has asked for a temporary file.
        assert!(!text.contains("partial"), "{output}: {text}");
        let says = match output {
            "no/folder/x.uu" | "no/folder/x.svg" => "there is no folder no/folder.",
            "/proc/x.svg" => "no file can be made in the folder /proc: ",
            _ => "",
        };
        assert!(text.contains(says), "{output}: {text}");
    }
    std::fs::write(uu.folder.join("plain"), "").expect("a file");
    let (_, text) = outcome(&uu.run(&["record", "-o", "plain/x.uu", "--", "touch", "ran"]));
    assert!(text.contains("cannot write plain/x.uu: plain is no folder. "), "{text}");
    assert!(!exists(&uu.folder.join("ran")));
    assert_eq!(uu.files(".svg"), Vec::<String>::new());
}

#[test]
fn wrong_options_are_explained() {
    let uu = Installation::new("options");
    for (arguments, words) in [
        (&["record", "-r", "0", "true"][..], "from 1 to 10000"),
        (&["record", "-r", "10001", "true"], "from 1 to 10000"),
        (&["record", "-r", "fast", "true"], "-r fast"),
        (&["record", "-d", "0", "true"], "above 0"),
        (&["record", "-f", "xyz", "true"], "folded"),
        (&["record", "-o", "x.xyz", "true"], ".pb.gz"),
        (&["record", "-o", "x.uu", "--no-keep", "true"], "leave nothing"),
        (&["record", "-o", "-", "true"], "belongs to the program"),
        (&["record", "--native-frames", "some", "true"], "hide, leaf or show"),
        (&["record", "--what", "true"], "--what"),
        (&["record"], "no program"),
        (&["report"], "no recording"),
        (&["report", "a", "b"], "cannot read a"),
        (&["wat"], "there is no command \"wat\""),
        (&["help", "wat"], "there is no command \"wat\""),
        (&["--wat", "record"], "invalid option '--wat'"),
        (&["sframe"], "no command given: it takes dump or make"),
        (&["record", "-o", "/", "true"], "-o /: that is a directory"),
        (&["report", "-o", ".", "x.uu"], "-o .: that is a directory"),
        (&["record", "-F", "99", "true"], "invalid option '-F'; the rate is -r HZ"),
        (&["record", "--kernel", "--mode", "wall", "true"], "--kernel and --mode wall do not go together"),
        (&["record", "--kernel", "--unwind", "both", "true"], "--kernel and --unwind offline do not go together"),
        (&["record", "--async", "--unwind", "offline", "true"], "--async and --unwind offline do not go together"),
        (
            &["diff", "a", "b", "-o", "d.png"],
            "-o d.png: the picture is a flame graph in SVG. Give it the extension .svg",
        ),
        (&["diff", "a", "b", "-o", "d.html"], "-o d.html: the picture is a flame graph in SVG"),
        (&["diff", "a", "b", "-o", "d.svg"], "cannot read a"),
        (&["record", "--filter", "thread=x", "true"], "invalid option '--filter'; it is an option of `uu report`"),
        (&["record", "--by=thread", "true"], "invalid option '--by'; it is an option of `uu report`"),
        (&["report", "--rate", "9", "x.uu"], "'--rate'; it is an option of `uu record`, `uu top`"),
        (&["record", "-i", "true"], "-i shows threads that only wait, which --mode wall samples"),
        (&["report", "--by", "core", "x.uu"], "--by core: it takes process, thread or label, or several"),
        (&["report", "--filter", "time=3", "x.uu"], "--filter time=3: \"3\" is no time"),
        (&["report", "--focus", "(", "x.uu"], "--focus (: \"(\" is no regular expression"),
        (&["view"], "no recording given"),
        (&["diff", "x.uu"], "two recordings are compared: BEFORE and AFTER"),
        (&["diff", "a", "b", "--fail-over", "x"], "--fail-over x: it takes percentage points"),
        (&["view", "gone.html"], "cannot open gone.html"),
        (&["recrod", "true"], "there is no command \"recrod\"; did you mean 'record'? See `uu --help`"),
        (
            &["record", "--ouput", "x", "true"],
            "invalid option '--ouput'; did you mean '--output'? See `uu record --help`",
        ),
        (&["record", "-r"], "missing argument for option '--rate'"),
        (&["record", "--no-keep=3", "true"], "--no-keep"),
        (&["sframe", "mkae"], "there is no command \"sframe mkae\"; did you mean 'make'?"),
        (&["sframe", "make", "x"], "no output given (-o OUT). See `uu sframe make --help`"),
        (&["sframe", "dump"], "no file given"),
        (&["doctor", "a", "b"], "unexpected argument \"b\""),
        (&["completions", "fihs"], "<SHELL> \"fihs\": it takes one of bash, zsh, fish; did you mean 'fish'?"),
        (&["man", "wat"], "there is no command \"wat\""),
    ] {
        let (code, text) = outcome(&uu.run(arguments));
        assert_eq!(code, 125, "{arguments:?}: {text}");
        assert!(text.contains(words), "{arguments:?}: {text}");
    }
    for arguments in
        [&[][..], &["--help"], &["record", "--help"], &["report", "-h"], &["help", "record"], &["--version"]]
    {
        let output = uu.run(arguments);
        assert_eq!(output.status.code(), Some(0));
        assert!(
            output.stdout.starts_with(b"u")
                || output.stdout.starts_with(b"Runs")
                || output.stdout.starts_with(b"Shows")
        );
        assert!(output.stderr.is_empty());
    }
}

#[test]
fn a_thread_is_no_process() {
    let uu = Installation::new("thread");
    // The test runs in a thread of its own.
    // SAFETY: this call has no preconditions.
    let (tid, pid) = (unsafe { libc::gettid() }.to_string(), std::process::id());
    for arguments in [&["record", "-p", &tid][..], &["dump", "-p", &tid], &["snapshot", &tid]] {
        let (code, text) = outcome(&uu.run(arguments));
        let says = format!("{tid} is a thread of process {pid}: give {pid}");
        assert!(code == 125 && text.contains(&says), "{arguments:?}: {text}");
    }
}

#[test]
fn missing_parts_of_the_installation_are_named() {
    let uu = Installation::new("parts");
    std::fs::remove_file(uu.folder.join("lib/uu/libuunwind-preload.so")).expect("removed");
    let (code, text) = outcome(&uu.run(&["record", "true"]));
    assert_eq!(code, 125);
    assert!(text.contains("libuunwind-preload.so is missing"), "{text}");
}

#[test]
fn broken_plugins_are_named_and_left_out() {
    let uu = Installation::new("plugins");
    let broken = uu.build("broken.so", "int nothing;", &["-shared", "-fPIC"]);
    let output = uu.uu(&["record", "true"]).env("UU_PLUGINS", format!("{}:/no/such.so", broken.display())).output();
    let (_, text) = outcome(&output.expect("uu runs"));
    assert!(text.contains("broken.so is no plugin"), "{text}");
    assert!(text.contains("/no/such.so cannot be read"), "{text}");
}

#[test]
fn files_that_are_no_recordings_are_distinguished() {
    let uu = Installation::new("foreign");
    let write = |name: &str, bytes: &[u8]| std::fs::write(uu.folder.join(name), bytes).expect("file");
    write("empty", b"");
    write("foreign", b"\x7fELF and more bytes");
    write("short", b"uu-rec01\x01");
    write("newer", b"uu-rec01\x07\0\0\0\0\0\0\0");
    write("bare", b"uu-rec01\x01\0\0\0\0\0\0\0");
    for (file, words) in [
        ("empty", "is empty"),
        ("foreign", "not a uu recording: it begins with \"\\x7fELF"),
        ("short", "truncated: it ends after 9 bytes"),
        ("newer", "format 7 (offset 8); this uu knows 1"),
        ("bare", "damaged at offset 16"),
        ("gone", "No such file"),
    ] {
        let (code, text) = outcome(&uu.run(&["report", file]));
        assert_eq!(code, 125, "{file}: {text}");
        assert!(text.contains(words) && text.contains(file), "{file}: {text}");
    }
}

#[test]
fn defaults_come_from_a_file_and_give_way_to_the_command_line() {
    let uu = Installation::new("config");
    let folder = uu.folder.join("config/uu");
    std::fs::create_dir_all(&folder).expect("a folder");
    let file = folder.join("config.toml");
    std::fs::write(&file, "[record]\nrate = 0\n").expect("a file");
    let (code, text) = outcome(&uu.run(&["record", "true"]));
    assert!(code == 125 && text.contains("uu/config.toml: rate = 0: the rate must be"), "{text}");
    std::fs::write(&file, "[record]\nmode = \"cup\"\nrate = 0\n").expect("a file");
    let (code, text) = outcome(&uu.run(&["record", "true"]));
    assert!(code == 125 && text.contains("uu/config.toml: mode = cup: it takes cpu, wall, alloc or lock"), "{text}");
    let (_, text) = outcome(&uu.run(&["record", "--mode", "wall", "true"]));
    assert!(text.contains("uu/config.toml: rate = 0: the rate must be"), "{text}");
    let (_, text) = outcome(&uu.run(&["record", "--mode", "wall", "-r", "10001", "true"]));
    assert!(text.contains("-r 10001"), "{text}");
    for (wrong, says) in [
        (&b"[record]\nrate = 99\n[nothing]\n"[..], "line 3: [nothing] is no command"),
        (b"\xff", "it is not UTF-8"),
        (&[b'#'; 70_000], "it cannot be read"),
    ] {
        std::fs::write(&file, wrong).expect("a file");
        let (code, text) = outcome(&uu.run(&["record", "true"]));
        assert!(code == 125 && text.contains("config.toml: ") && text.contains(says), "{says}: {text}");
    }
    std::fs::remove_file(&file).expect("removed");
    std::fs::create_dir(&file).expect("a folder in its place");
    let (code, text) = outcome(&uu.run(&["record", "true"]));
    assert!(code == 125 && text.contains("it cannot be read"), "{text}");
}

/// `script` gives uu a terminal, and what its own standard input has as keys.
#[test]
fn a_person_is_asked_before_a_file_is_replaced() {
    let uu = Installation::new("replace");
    if std::process::Command::new("script").arg("--version").output().is_err() {
        uunwind_skips::skipped("questions on a terminal", "there is no script(1)");
        return;
    }
    let ask = |answer: &str| {
        std::fs::write(uu.folder.join("x.svg"), "mine").expect("a file");
        let _ = std::fs::remove_file(uu.folder.join("ran"));
        let line = format!("{}/bin/uu record -o x.svg -- touch ran", uu.folder.display());
        let mut script = std::process::Command::new("script");
        script.args(["-qec", &line, "/dev/null"]).current_dir(&uu.folder).stdin(std::process::Stdio::piped());
        script.env("XDG_CONFIG_HOME", uu.folder.join("config")).stdout(std::process::Stdio::piped());
        let mut child = script.spawn().expect("script");
        let mut keys = child.stdin.take().expect("a pipe");
        std::io::Write::write_all(&mut keys, answer.as_bytes()).expect("written");
        let output = child.wait_with_output().expect("its end");
        (String::from_utf8_lossy(&output.stdout).into_owned(), exists(&uu.folder.join("ran")))
    };
    let (said, ran) = ask("n\n");
    assert!(said.contains("x.svg exists. Replace it?") && said.contains("stays as it is") && !ran, "{said}");
    let (said, ran) = ask("y\n");
    assert!(said.contains("x.svg exists. Replace it?") && ran, "{said}");
    // Without a terminal nobody is there to answer.
    let (_, text) = outcome(&uu.run(&["record", "-o", "x.svg", "--", "touch", "ran"]));
    assert!(!text.contains("exists"), "{text}");
}
