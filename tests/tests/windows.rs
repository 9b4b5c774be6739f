//! Windows under stress, at every instruction, through header wrappers, and with two copies of the library.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use uunwind_tests::{compile, paths, process, uu};

/// Builds a C program of the tests against the header; `linked`: and against the library of the laid-out tree.
fn build(scratch: &Path, name: &str, linked: bool, more: &[&str]) -> PathBuf {
    let (include, library) = (format!("-I{}", paths::tree().join("include").display()), paths::tree().join("lib"));
    let (search, run) = (format!("-L{}", library.display()), format!("-Wl,-rpath,{}", library.display()));
    let mut options = vec![&*include, "-pthread"];
    options.extend(more);
    if linked {
        options.extend([&*search, "-luunwind", &*run]);
    }
    compile::gcc(scratch, name, &[&format!("native/{name}.c")], &options)
}

/// Seconds in CI; `UU_STRESS_SECONDS` for longer (ci/nightly).
#[test]
fn nothing_is_read_after_the_registry_has_given_it_back() {
    let scratch = paths::scratch("windows-stress");
    let seconds = std::env::var("UU_STRESS_SECONDS").unwrap_or("3".to_owned());
    let limit = Duration::from_secs(120 + seconds.parse::<u64>().expect("UU_STRESS_SECONDS is a number"));
    let program = build(&scratch, "windows_stress", true, &[]);
    let out = process::run(Command::new(&program).arg(&seconds), &scratch, limit).expect_code(0).stdout;
    println!("{out}");
    let words: Vec<&str> = out.split_whitespace().collect();
    for what in ["changes", "swaps", "hits", "misses", "rules", "handlers", "cancels", "jumps", "forks", "crowd"] {
        let at = words.iter().position(|w| *w == what).unwrap_or_else(|| panic!("{what} is not reported: {out}"));
        assert!(words[at + 1].parse::<u64>().expect("a number") > 0, "no {what}: nothing was tried: {out}");
    }
}

/// Whole stacks, walked by the program itself at any instruction, through code of JITs that runs, and that is unmapped
/// as soon as it is unregistered.
#[test]
fn whole_stacks_have_the_windows_that_are_there_now() {
    let scratch = paths::scratch("walk-windows");
    let watch = compile::shared(&scratch, "watch.so", &["native/watch_calls.c"]);
    let emitter = format!("-I{}", paths::root().join("examples/jit").display());
    let program = build(&scratch, "walk_windows", true, &[&emitter]);
    let seconds = std::env::var("UU_STRESS_SECONDS").unwrap_or("3".to_owned());
    let limit = Duration::from_secs(120 + seconds.parse::<u64>().expect("UU_STRESS_SECONDS is a number"));
    for reads in [&[][..], &["guarded"]] {
        let mut command = Command::new(&program);
        command.arg(&seconds).args(reads).env("LD_PRELOAD", &watch);
        println!("{}", process::run(&mut command, &scratch, limit).expect_code(0).stdout);
    }
}

#[test]
fn a_walk_at_every_instruction_of_a_change_sees_the_old_or_the_new() {
    let scratch = paths::scratch("windows-stepper");
    let object = compile::shared(&scratch, "libfar.so", &["native/far.c"]);
    let program = build(&scratch, "windows_stepper", true, &[]);
    let out = process::run(Command::new(&program).arg(object), &scratch, uu::LIMIT).expect_code(0).stdout;
    println!("{out}");
    assert!(out.ends_with("all well\n"), "{out}");
    let changes: Vec<Vec<&str>> = out.lines().map(|line| line.split(" result ").collect()).collect();
    for (change, result) in [
        ("register", 0),
        ("overlap", -17),
        ("seal", 0),
        ("replace", 0),
        ("unlink", 0),
        ("synchronize", 0),
        ("register among many", 0),
        ("replace among many", 0),
        ("unlink among many", 0),
        ("again among many", 0),
        ("unregister among many", 0),
        ("unregister", 0),
        ("unknown", -2),
        ("dlopen", 0),
        ("dlclose", 0),
        ("fork", 0),
        ("child's register", 0),
        ("child's unregister", 0),
    ] {
        let line =
            changes.iter().find(|line| line[0] == change).unwrap_or_else(|| panic!("{change} is not reported: {out}"));
        let words: Vec<&str> = line[1].split(' ').collect();
        assert_eq!(words[0], result.to_string(), "{change}");
        assert!(words[2].parse::<u32>().expect("a number") > 50, "{change} was not stepped: {out}");
    }
}

/// After three failures it is called no more, although at each one the walk last looked at another address.
#[test]
fn a_stepper_that_looks_elsewhere_and_fails_is_turned_off() {
    let scratch = paths::scratch("windows-failing-stepper");
    let program = build(&scratch, "failing_stepper", true, &[]);
    let out = process::run(&mut Command::new(&program), &scratch, uu::LIMIT).expect_code(0).stdout;
    assert_eq!(out, "calls 3, lookups 3\n");
}

/// Without the library in the process the wrappers return an error; if it was preloaded, or opened by the program, they
/// call it.
#[test]
fn wrappers_work_with_and_without_the_library() {
    let scratch = paths::scratch("windows-optional");
    let library = paths::tree().join("lib/libuunwind.so.0");
    let program = build(&scratch, "windows_optional", false, &["-ldl", "-rdynamic"]);
    let out = |command: &mut Command| process::run(command, &scratch, uu::LIMIT).expect_code(0).stdout;
    let absent = "register -38, unregister -38, ticket 0\nwalk -38, capture 0, stop 99, begins nowhere\n";
    assert_eq!(out(&mut Command::new(&program)), absent);
    let with = "register 0, unregister 0, ticket 1\nwalk 0, capture 1, stop 1, begins use\n";
    assert_eq!(out(Command::new(&program).env("LD_PRELOAD", &library)), with);
    assert_eq!(out(Command::new(&program).arg(&library)), format!("{absent}{with}"), "opened by path, RTLD_LOCAL");
}

/// One process, one registry: a second copy of the library passes its calls on to the first.
#[test]
fn two_copies_share_one_registry() {
    let scratch = paths::scratch("windows-copies");
    let library = paths::tree().join("lib/libuunwind.so.0");
    let copy = |folder: &str| {
        let folder = scratch.join(folder);
        std::fs::create_dir_all(&folder).expect("scratch");
        let file = folder.join("libuunwind.so.0");
        std::fs::copy(&library, &file).expect("scratch");
        file
    };
    let (first, second) = (copy("first"), copy("second"));
    let program = build(&scratch, "windows_copies", false, &["-ldl"]);
    let run = |command: &mut Command| process::run(command, &scratch, uu::LIMIT).expect_code(0).stdout;
    let wanted = "two copies\nfirst sees 1, second sees 1\nexists -17\ngone 0\nfirst sees 0, second sees 0\n";
    assert_eq!(run(Command::new(&program).args([&first, &second])), wanted);
    assert_eq!(
        run(Command::new(&program).args([&first, &second]).arg("global")),
        wanted,
        "the first one in the global scope"
    );
    // The program's own copy, and the recorder's: windows of the one are seen in samples by the other.
    let arguments = [program.as_os_str(), first.as_os_str(), second.as_os_str(), "signal".as_ref()];
    let recording = uu::record(&scratch, &["--explicit", "-r", "1"], |_| {}, &arguments).expect_code(0);
    assert!(recording.report("samples").contains("jit copies+0x"), "{}", recording.report("samples"));
}

#[test]
fn pkg_config_gives_the_options_to_link() {
    let scratch = paths::scratch("pkg-config");
    let text = std::fs::read_to_string(paths::tree().join("lib/pkgconfig/uunwind.pc")).expect("uunwind.pc is laid out");
    assert!(text.contains(concat!("Version: ", env!("CARGO_PKG_VERSION"))), "{text}");
    let source = scratch.join("use.c");
    std::fs::write(&source, "#include <uu.h>\nint main(void) { return uu_abi() != UU_ABI; }\n").expect("scratch");
    // As pkg-config expands it, with the folder that it found the file in.
    let folder = paths::tree().join("lib/pkgconfig");
    let value = |key: &str| text.lines().find_map(|l| l.strip_prefix(key)).expect("a line").trim().to_owned();
    let expand = |text: String| {
        let prefix = value("prefix=").replace("${pcfiledir}", &folder.display().to_string());
        let all = [("${includedir}", value("includedir=")), ("${libdir}", value("libdir="))];
        all.iter().fold(text, |text, (name, is)| text.replace(name, is)).replace("${prefix}", &prefix)
    };
    let flags = format!("{} {}", expand(value("Cflags:")), expand(value("Libs:")));
    let options: Vec<&str> = flags.split(' ').collect();
    let program = compile::gcc_files(&scratch, "use", &[source], &options);
    let library = paths::tree().join("lib");
    process::run(Command::new(&program).env("LD_LIBRARY_PATH", library), &scratch, uu::LIMIT).expect_code(0);
}
