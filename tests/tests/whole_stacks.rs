//! `uu_walk()` in programs without a recorder: what it says of a stack, and what the runtime says.

use std::process::Command;
use uunwind_tests::{compile, faces, interpreters, paths, process, skips, uu};

/// An environment with a cache of its own.
fn command(program: &std::path::Path, scratch: &std::path::Path) -> Command {
    let mut command = Command::new(program);
    command.env("XDG_CACHE_HOME", scratch.join("cache"));
    command
}

#[test]
fn python_stacks_are_the_interpreters() {
    let library = paths::tree().join("lib/libuunwind.so.0");
    let scratch = paths::scratch("whole-python");
    let include = format!("-I{}", paths::tree().join("include").display());
    let storm = compile::gcc(&scratch, "storm.so", &["native/walk_storm.c"], &["-shared", "-fPIC", &include]);
    // malloc and locks are watched: the storm's handler must not call them.
    let watch = compile::shared(&scratch, "watch.so", &["native/watch_calls.c"]);
    let found = interpreters::modern();
    assert!(!found.is_empty(), "no interpreter");
    for python in found {
        // The second run takes the facts from the cache.
        for run in 0..2 {
            let mut command = command(&python.path, &scratch);
            command.arg(paths::source("python/whole_stack.py")).arg(&library).arg(&storm).env("LD_PRELOAD", &watch);
            let out = process::run(&mut command, &scratch, uu::LIMIT);
            assert!(out.stdout.ends_with("ok\n"), "{} run {run}: {}", python.label, out.text());
            eprintln!("{} run {run}: {}", python.label, out.stdout.replace('\n', "; "));
        }
    }
}

#[test]
fn requests_are_refused_ended_and_left_as_documented() {
    let scratch = paths::scratch("walk-requests");
    let program = compile::with_library(&scratch, "walk_requests", &["-pthread", "-Wno-clobbered"]);
    let out = process::run(&mut command(&program, &scratch), &scratch, uu::LIMIT).expect_code(0);
    assert_eq!(out.stdout, "ok\n");
}

/// Kinds that are wanted, and what is read and called where faults are not handled.
#[test]
fn each_flag_of_a_request_does_what_it_says() {
    if !cfg!(target_arch = "x86_64") {
        return skips::skipped("the flags of a request", "the code in its window is that of x86-64");
    }
    let scratch = paths::scratch("walk-flags");
    let good = faces::good(&scratch);
    let program = compile::with_library(&scratch, "walk_flags", &[faces::CLAIMED_BY_GOOD]);
    let mut command = command(&program, &scratch);
    let out = process::run(command.env("UU_PLUGINS", &good), &scratch, uu::LIMIT).expect_code(0);
    assert_eq!(out.stdout, "ok\n");
}

/// Objects stay without an owner for good once they are known to have none; while a plugin is missing, they are not.
#[test]
fn plugins_that_are_missing_are_looked_for_again() {
    let scratch = paths::scratch("late-plugins");
    let (from, lib) = (paths::tree().join("lib"), scratch.join("lib"));
    std::fs::create_dir_all(lib.join("uu")).expect("scratch");
    for file in ["libuunwind.so.0", "uu/libuunwind-setup.so"] {
        std::fs::copy(from.join(file), lib.join(file)).expect("a built tree");
    }
    for python in interpreters::modern() {
        let later = scratch.join("later");
        std::fs::create_dir_all(&later).expect("scratch");
        for file in std::fs::read_dir(from.join("uu/plugins")).expect("plugins") {
            let file = file.expect("plugins");
            std::fs::copy(file.path(), later.join(file.file_name())).expect("copied");
        }
        let mut command = command(&python.path, &scratch);
        command.arg(paths::source("python/late_plugins.py")).arg(lib.join("libuunwind.so.0")).arg(&later);
        let out = process::run(&mut command, &scratch, uu::LIMIT);
        assert_eq!(out.stdout, "ok\n", "{}: {}", python.label, out.text());
        std::fs::remove_dir_all(lib.join("uu/plugins")).expect("renamed by the script");
    }
}

/// A foreign plugin analyses in a process of its own, in programs without a recorder, too: its end costs what it would
/// have found, which stacks say.
#[test]
fn an_analysis_that_crashes_or_lies_costs_a_doubt() {
    let scratch = paths::scratch("setup-faces");
    let bad = faces::bad(&scratch);
    let program = compile::with_library(&scratch, "setup_faces", &[faces::CLAIMED]);
    for face in ["analyse-crash", "analyse-exit", "analyse-liar", "analyse-memory", "analyse-refuses", "analyse-hang"] {
        let mut command = command(&program, &scratch);
        command.env("UU_PLUGINS", &bad).env("UU_FACE", face);
        let out = process::run(&mut command, &scratch, uu::LIMIT).expect_code(0);
        // UU_DOUBT_SETUP_DUE.
        assert_eq!(out.stdout, "doubt 2\ndoubt 2\n", "{face}: {}", out.text());
    }
}

/// uu_setup() takes no lock before the loader's: a constructor, which has that one, may call it, too.
#[test]
fn a_constructor_may_prepare_while_another_thread_does() {
    let scratch = paths::scratch("setup-in-constructor");
    let program = compile::with_library(&scratch, "setup_in_constructor", &["-pthread", "-rdynamic"]);
    let include = format!("-I{}", paths::tree().join("include").display());
    let options = ["-shared", "-fPIC", "-DCONSTRUCTOR", &include];
    let object = compile::gcc(&scratch, "constructor.so", &["native/setup_in_constructor.c"], &options);
    let out = process::run(command(&program, &scratch).arg(object), &scratch, uu::LIMIT).expect_code(0);
    assert_eq!(out.stdout, "ok\n");
}

/// A plugin that faults, jumps away or never ends costs its own frames only; where its faults would not be contained,
/// it is not called.
#[test]
fn plugins_that_misbehave_are_contained() {
    let scratch = paths::scratch("walk-faces");
    let bad = faces::bad(&scratch);
    let program = compile::with_library(&scratch, "walk_faces", &[faces::CLAIMED, "-Wno-clobbered"]);
    let faces: [&[&str]; 3] = [
        &["null-read", "wild-read", "wild-write", "wild-jump", "far-jump", "registers-fault"],
        &["trap", "divide", "bus", "copy", "nonsense", "endless"],
        &["endless-reads", "endless-emits", "endless-recalls", "endless-hashes", "endless-descriptions"],
    ];
    for face in faces.concat() {
        let mut command = command(&program, &scratch);
        command.env("UU_PLUGINS", &bad).env("UU_FACE", face);
        let out = process::run(&mut command, &scratch, uu::LIMIT);
        assert_eq!((&*out.stdout, out.code()), ("ok\n", 0), "{face}: {}", out.text());
    }
}

/// A fault of a handler of the program's that runs on top of a walk is the program's, and the walk goes on.
#[test]
fn faults_of_handlers_that_interrupt_a_walk_are_the_programs() {
    let scratch = paths::scratch("walk-interrupted");
    let bad = faces::bad(&scratch);
    let program = compile::with_library(&scratch, "walk_interrupted", &[faces::CLAIMED, "-Wno-clobbered"]);
    for stack in [None, Some("alternate")] {
        let mut command = command(&program, &scratch);
        command.args(stack).env("UU_PLUGINS", &bad).env("UU_FACE", "raises");
        let out = process::run(&mut command, &scratch, uu::LIMIT);
        assert_eq!((&*out.stdout, out.code()), ("ok\n", 0), "{stack:?}: {}", out.text());
    }
}

#[test]
fn signals_of_faults_keep_their_effect_when_they_are_handled() {
    let scratch = paths::scratch("handled-faults");
    let program = compile::with_library(&scratch, "handled_faults", &["-Wno-clobbered"]);
    let out = process::run(&mut command(&program, &scratch), &scratch, uu::LIMIT).expect_code(0);
    assert_eq!(out.stdout, "ok\n");
}

/// Where a plugin that asks for unowned code could not be asked, no stack through such code is certain.
#[test]
fn a_plugin_for_unowned_code_that_is_not_called_leaves_a_doubt() {
    let scratch = paths::scratch("walk-unowned");
    let bad = faces::bad(&scratch);
    let program = compile::with_library(&scratch, "walk_unowned", &[]);
    let mut command = command(&program, &scratch);
    command.env("UU_PLUGINS", &bad).env("UU_FACE", "unrelated-fault");
    let out = process::run(&mut command, &scratch, uu::LIMIT).expect_code(0);
    assert_eq!(out.stdout, "ok\n");
}

#[test]
fn calls_that_get_no_memory_say_so_and_use_nothing_up() {
    let scratch = paths::scratch("walk-no-memory");
    let program = compile::with_library(&scratch, "walk_no_memory", &[]);
    let out = process::run(&mut command(&program, &scratch), &scratch, uu::LIMIT).expect_code(0);
    assert_eq!(out.stdout, "ok\n");
}

#[test]
fn each_frame_has_the_cfa_that_the_compiler_says() {
    let scratch = paths::scratch("walk-cfas");
    let program = compile::with_library(&scratch, "walk_cfas", &["-fomit-frame-pointer"]);
    let out = process::run(&mut command(&program, &scratch), &scratch, uu::LIMIT).expect_code(0);
    assert_eq!(out.stdout, "ok\n");
}

/// The machine's frames are those that gdb finds in the same process at the same place, and the interpreter's stand
/// among them where they were called.
#[test]
fn mixed_stacks_have_the_frames_that_gdb_finds() {
    const LIST: &str = "python
frame = gdb.newest_frame()
while frame:
    if frame.type() == gdb.NORMAL_FRAME: print('gdb', hex(frame.pc()), frame.name())
    frame = frame.older()
end
";
    if Command::new("gdb").arg("--version").output().is_err() {
        return skips::skipped("mixed stacks beside gdb's", "there is no gdb on this machine");
    }
    let scratch = paths::scratch("beside-gdb");
    let object = compile::shared_with_library(&scratch, "libbeside.so", &["native/beside_gdb.c"]);
    let script = scratch.join("list.gdb");
    std::fs::write(&script, LIST).expect("scratch");
    for python in interpreters::modern() {
        let mut gdb = command(std::path::Path::new("gdb"), &scratch);
        gdb.args(["-q", "-nx", "-batch", "-ex", "set debuginfod enabled off", "-ex", "set backtrace past-main on"]);
        gdb.args(["-ex", "run", "-x"]).arg(&script).arg("--args").arg(&python.path);
        let out = process::run(gdb.arg(paths::source("python/beside_gdb.py")).arg(&object), &scratch, uu::LIMIT);
        let words = |kind: &str| -> Vec<(String, String)> {
            let lines = out.stdout.lines().filter_map(|line| line.strip_prefix(kind)?.strip_prefix(' '));
            lines.filter_map(|line| line.split_once(' ')).map(|(pc, name)| (pc.to_owned(), name.to_owned())).collect()
        };
        // gdb finds raise(3) nearer the leaf, and this function at another instruction.
        let by_gdb = words("gdb").into_iter().skip_while(|(_, name)| name != "seen").skip(1).map(|(pc, _)| pc);
        let walked = words("native").into_iter().skip(1).map(|(pc, _)| pc);
        let (by_gdb, walked): (Vec<String>, Vec<String>) = (by_gdb.collect(), walked.collect());
        assert!(by_gdb.len() > 10, "{}: {}", python.label, out.text());
        assert_eq!(walked, by_gdb, "{}: {}", python.label, out.text());
        let named = out.stdout.lines().filter_map(|line| match line.split(' ').collect::<Vec<_>>()[..] {
            ["python", name] | ["native", _, name @ ("seen" | "through")] => Some(name),
            _ => None,
        });
        let named: Vec<&str> = named.collect();
        let method = if named.contains(&"Outer.method") { "Outer.method" } else { "method" };
        assert_eq!(named, ["seen", "inner", "called", "through", method, "<module>"], "{}", python.label);
        assert!(out.stdout.contains("stop 1 doubt 0\n"), "{}: {}", python.label, out.text());
    }
}
