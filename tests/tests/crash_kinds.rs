//! Kinds of crash, in programs that know nothing of reports: `uu run --report-crashes` changes nothing of how they end,
//! and the report names the functions that they were in. The oracles are the program alone, and its symbol table.

use std::ffi::OsStr;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use uunwind_tests::crash_report::{Report, Symbols};
use uunwind_tests::process::Outcome;
use uunwind_tests::{compile, paths, process, skips, uu};

const SIGILL: i32 = 4;
const SIGABRT: i32 = 6;
const SIGBUS: i32 = 7;
const SIGFPE: i32 = 8;
const SIGSEGV: i32 = 11;

fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let options = ["-pthread", "-D_FORTIFY_SOURCE=2", "-fstack-protector-all", "-lm"];
        compile::gcc(&paths::scratch("crash-kinds-program"), "kinds", &["native/crash_kinds.c"], &options)
    })
}

/// Where the analysis of libraries is kept for all runs.
fn cache() -> &'static Path {
    static CACHE: OnceLock<PathBuf> = OnceLock::new();
    CACHE.get_or_init(|| paths::scratch("crash-kinds-cache"))
}

/// Runs a program with reports on stderr, by these options of `uu run`.
fn reported(scratch: &Path, options: &[&str], program: &[&OsStr]) -> Outcome {
    let mut words: Vec<&OsStr> = vec!["run".as_ref(), "--report-crashes".as_ref()];
    words.extend(options.iter().map(AsRef::<OsStr>::as_ref));
    words.push("--".as_ref());
    words.extend(program);
    process::run(uu::command(cache(), &words).current_dir(scratch), scratch, uu::LIMIT)
}

/// Runs it alone.
fn alone(scratch: &Path, program: &[&OsStr]) -> Outcome {
    process::run(Command::new(program[0]).args(&program[1..]).current_dir(scratch), scratch, uu::LIMIT)
}

/// Runs it with the object preloaded by hand.
fn preloaded(scratch: &Path, program: &[&OsStr]) -> Outcome {
    let object = paths::tree().join("lib/uu/libuunwind-crash.so");
    let mut command = Command::new(program[0]);
    command.args(&program[1..]).env("LD_PRELOAD", object).env("UU_REPORT_CRASHES", "2");
    process::run(command.current_dir(scratch), scratch, uu::LIMIT)
}

/// The functions of an object in the thread that crashed, without those that the C library adds (`_start`).
fn functions(report: &Report, of: &Path) -> Vec<String> {
    let mut found = report.crashed().functions(&Symbols::of(of));
    found.retain(|name| !name.starts_with('_'));
    found
}

/// Runs a program alone, with a report in JSON and with one in text; returns that in JSON.
fn crash(label: &str, words: &[&OsStr], signal: i32, name: &str) -> (Report, Outcome) {
    let scratch = paths::scratch(&format!("crash-{label}"));
    let without = alone(&scratch, words);
    let text = reported(&scratch, &[], words);
    assert_eq!(text.status, without.status, "{label}: {}", text.text());
    assert!(text.stderr.contains(&format!("uu crash report: {name} ({signal})")), "{label}: {}", text.text());
    assert!(text.stderr.contains("\nend of the crash report\n"), "{label}: {}", text.text());
    let json = reported(&scratch, &["--json"], words);
    assert_eq!(json.status, without.status, "{label}: {}", json.text());
    let report = Report::one(&json.stderr);
    assert_eq!(report.crash["signal"], signal, "{label}: {}", json.text());
    let first = &report.crashed().frames[0];
    assert_eq!(report.registers["rip"], first["address"], "{label}: {}", json.text());
    let with_id = |object: &serde_json::Value| object["build_id"].as_str().is_some_and(|id| id.len() == 40);
    assert!(report.objects.iter().any(with_id), "{label}: {}", json.text());
    (report, json)
}

const NESTED: [&str; 6] = ["crash_here", "on_signal", "on_first", "crash_nested_handlers", "middle", "main"];

#[test]
fn each_kind_ends_as_alone_and_names_the_functions() {
    let names =
        [(SIGILL, "SIGILL"), (SIGABRT, "SIGABRT"), (SIGBUS, "SIGBUS"), (SIGFPE, "SIGFPE"), (SIGSEGV, "SIGSEGV")];
    for (kind, signal, code, threads, stack) in [
        ("read-only", SIGSEGV, 2, 1, &["crash_read_only", "middle", "main"][..]),
        ("data-call", SIGSEGV, 2, 1, &["crash_data_call", "middle", "main"]),
        ("privileged", SIGSEGV, 128, 1, &["crash_privileged", "middle", "main"]),
        ("guard-page", SIGSEGV, 2, 1, &["crash_guard_page", "middle", "main"]),
        ("misaligned", SIGBUS, 1, 1, &["crash_misaligned", "middle", "main"]),
        ("least-divided", SIGFPE, 1, 1, &["crash_least_divided", "middle", "main"]),
        ("float", SIGFPE, 3, 1, &["crash_float", "middle", "main"]),
        ("protector", SIGABRT, -6, 1, &["crash_protector", "middle", "main"]),
        ("double-free", SIGABRT, -6, 1, &["crash_double_free", "middle", "main"]),
        ("fortify", SIGABRT, -6, 1, &["crash_fortify", "middle", "main"]),
        ("unmapped-code", SIGSEGV, 1, 1, &["crash_unmapped_code", "middle", "main"]),
        ("made-code", SIGILL, 2, 1, &["crash_made_code", "middle", "main"]),
        ("callback", SIGSEGV, 1, 1, &["crash_here", "crash_compare", "crash_callback", "middle", "main"]),
        ("alternate", SIGSEGV, 1, 1, &["crash_here", "on_signal", "crash_alternate", "middle", "main"]),
        ("swapped", SIGSEGV, 1, 1, &["crash_here", "in_other_context"]),
        ("mostly-blocked", SIGSEGV, 1, 1, &["crash_here", "crash_mostly_blocked", "middle", "main"]),
        ("at-exit", SIGSEGV, 1, 1, &["crash_here", "at_exit", "crash_leaving", "middle", "main"]),
        ("large-frame", SIGSEGV, 1, 1, &["crash_large_frame", "middle", "main"]),
        ("constructor", SIGSEGV, 1, 1, &["crash_here", "in_constructor"]),
        ("thread-key", SIGSEGV, 1, 2, &["crash_here", "of_key"]),
        ("main-gone", SIGSEGV, 1, 2, &["crash_here", "middle", "worker"]),
        ("detached", SIGSEGV, 1, 2, &["crash_here", "middle", "worker"]),
        ("exec-storm", SIGSEGV, 1, 3, &["crash_here", "middle", "main"]),
        ("child", SIGSEGV, 1, 1, &["crash_here", "crash_child", "middle", "main"]),
        ("null-call", SIGSEGV, 1, 1, &["crash_null_call", "middle", "main"]),
        ("non-canonical", SIGSEGV, 128, 1, &["crash_non_canonical", "middle", "main"]),
        ("trap", SIGILL, 2, 1, &["crash_trap", "middle", "main"]),
        ("lock-prefix", SIGILL, 2, 1, &["crash_lock_prefix", "middle", "main"]),
        ("interrupts", SIGSEGV, 128, 1, &["crash_interrupts", "middle", "main"]),
        ("movaps", SIGSEGV, 128, 1, &["crash_movaps", "middle", "main"]),
        ("zero-divided", SIGFPE, 1, 1, &["crash_zero_divided", "middle", "main"]),
        ("float-invalid", SIGFPE, 7, 1, &["crash_float_invalid", "middle", "main"]),
        ("float-overflow", SIGFPE, 4, 1, &["crash_float_overflow", "middle", "main"]),
        ("truncated-file", SIGBUS, 2, 1, &["crash_truncated_file", "middle", "main"]),
        ("read-only-file", SIGSEGV, 2, 1, &["crash_read_only_file", "middle", "main"]),
        ("unmapped-data", SIGSEGV, 1, 1, &["crash_unmapped_data", "middle", "main"]),
        ("abort", SIGABRT, -6, 1, &["crash_abort", "middle", "main"]),
        ("assert", SIGABRT, -6, 1, &["crash_assert", "middle", "main"]),
        ("invalid-free", SIGABRT, -6, 1, &["crash_invalid_free", "middle", "main"]),
        ("heap", SIGABRT, -6, 1, &["crash_heap", "middle", "main"]),
        ("in-memcpy", SIGSEGV, 1, 1, &["crash_in_memcpy", "middle", "main"]),
        ("in-strlen", SIGSEGV, 1, 1, &["crash_in_strlen", "middle", "main"]),
        ("in-printf", SIGSEGV, 1, 1, &["crash_in_printf", "middle", "main"]),
        ("raised", SIGSEGV, -6, 1, &["crash_raised", "middle", "main"]),
        ("killed", SIGBUS, 0, 1, &["crash_killed", "middle", "main"]),
        ("queued", SIGFPE, -1, 1, &["crash_queued", "middle", "main"]),
        ("thread-killed", SIGILL, -6, 1, &["crash_thread_killed", "middle", "main"]),
        ("once", SIGSEGV, 1, 1, &["crash_here", "of_once", "crash_once", "middle", "main"]),
        ("tree", SIGSEGV, 1, 1, &["crash_here", "crash_compare", "crash_tree", "middle", "main"]),
        ("timer", SIGSEGV, 1, 1, &["crash_here", "on_signal", "crash_timer", "middle", "main"]),
        ("nested-handlers", SIGSEGV, 1, 1, &NESTED),
        ("quick-exit", SIGSEGV, 1, 1, &["crash_here", "at_exit", "crash_quick_exit", "middle", "main"]),
        ("destructor", SIGSEGV, 1, 1, &["crash_here", "in_destructor", "crash_leaving", "middle", "main"]),
        ("at-fork", SIGSEGV, 1, 1, &["crash_here", "at_exit", "crash_at_fork", "middle", "main"]),
        ("realigned", SIGSEGV, 1, 1, &["crash_here", "crash_realigned", "middle", "main"]),
        ("variadic", SIGSEGV, 1, 1, &["crash_here", "of_many", "crash_variadic", "middle", "main"]),
        ("small-thread", SIGSEGV, 1, 2, &["crash_here", "middle", "worker"]),
    ] {
        let name = names.iter().find(|(number, _)| *number == signal).map_or("", |(_, name)| name);
        let (report, out) = crash(kind, &[program().as_ref(), kind.as_ref()], signal, name);
        assert_eq!(report.crash["code"], code, "{kind}: {}", out.text());
        assert_eq!(functions(&report, program()), stack, "{kind}: {}", out.text());
        assert_eq!(report.threads.len(), threads, "{kind}: {}", out.text());
        let is_whole = kind == "made-code" || report.crashed().head["complete"] == true;
        assert!(is_whole, "{kind}: {}", out.text());
    }
}

/// A fault whose signal is blocked is not delivered: the kernel ends the process.
#[test]
fn what_the_kernel_does_not_deliver_is_not_reported() {
    let scratch = paths::scratch("crash-blocked");
    let words: [&OsStr; 2] = [program().as_ref(), "blocked".as_ref()];
    let out = reported(&scratch, &[], &words);
    assert_eq!((out.status, &*out.stderr), (alone(&scratch, &words).status, ""));
    // Nothing can be preloaded into a static program; `uu run` says so.
    let options = ["-pthread", "-static-pie", "-lm"];
    let alone_linked = compile::gcc(&scratch, "static", &["native/crash_kinds.c"], &options);
    let words: [&OsStr; 2] = [alone_linked.as_ref(), "read-only".as_ref()];
    let refused = reported(&scratch, &[], &words).expect_code(125);
    assert!(refused.stderr.contains("statically linked"), "{}", refused.text());
    let out = preloaded(&scratch, &words);
    assert_eq!((out.status, &*out.stderr), (alone(&scratch, &words).status, ""));
}

#[test]
fn closed_files_and_other_folders_do_not_matter() {
    for kind in ["closed", "changed-folder"] {
        let scratch = paths::scratch(&format!("crash-{kind}"));
        let words: [&OsStr; 2] = [program().as_ref(), kind.as_ref()];
        let out = reported(&scratch, &["--json", "-o", "report.json"], &words);
        assert_eq!(out.status, alone(&scratch, &words).status, "{kind}: {}", out.text());
        let report = Report::one(&std::fs::read_to_string(scratch.join("report.json")).expect("a report"));
        let function = format!("crash_{}", kind.replace('-', "_"));
        assert_eq!(functions(&report, program()), ["crash_here", &function, "middle", "main"], "{}", out.text());
    }
}

#[test]
fn a_root_folder_without_files_does_not_matter() {
    // SAFETY: takes nothing.
    if unsafe { libc::geteuid() } != 0 {
        skips::skipped("a crash after chroot", "only root may");
        return;
    }
    let scratch = paths::scratch("crash-chroot");
    let empty = scratch.join("empty");
    std::fs::create_dir(&empty).expect("scratch");
    let words: [&OsStr; 3] = [program().as_ref(), "chroot".as_ref(), empty.as_ref()];
    let out = reported(&scratch, &["--json"], &words).expect_code(128 + SIGSEGV);
    let mut report = Report::one(&out.stderr);
    // Without /proc, the program has no path; it has its build-id.
    let build_id = report.objects.iter().find(|object| object["file"] == "").map(|object| object["build_id"].clone());
    assert!(build_id.is_some_and(|id| id.as_str().is_some_and(|id| id.len() == 40)), "{}", out.text());
    let path = program().canonicalize().expect("it exists");
    for frame in report.threads[0].frames.iter_mut().filter(|frame| frame["object"] == "") {
        frame["object"] = path.to_str().into();
    }
    assert_eq!(functions(&report, program()), ["crash_here", "crash_chroot", "middle", "main"], "{}", out.text());
}

#[test]
fn a_destructor_that_crashes_during_dlclose_is_named() {
    let scratch = paths::scratch("crash-destructor");
    let source = scratch.join("destructor.c");
    std::fs::write(&source, "__attribute__((destructor)) void in_destructor(void) { *(volatile int *)0 = 1; }\n")
        .expect("scratch");
    let object = compile::gcc_files(&scratch, "destructor.so", &[source], &["-shared", "-fPIC", "-Wno-array-bounds"]);
    let words: [&OsStr; 3] = [program().as_ref(), "unload".as_ref(), object.as_ref()];
    let (report, out) = crash("unload", &words, SIGSEGV, "SIGSEGV");
    assert_eq!(functions(&report, &object), ["in_destructor"], "{}", out.text());
    assert_eq!(functions(&report, program()), ["crash_unload", "middle", "main"], "{}", out.text());
}

/// What ends programs of C++ and Rust.
#[test]
fn exceptions_and_panics_that_end_a_program_are_reported() {
    let scratch = paths::scratch("crash-languages");
    for (name, body) in [("uncaught", "throw 1;"), ("terminate", "std::terminate();")] {
        let source = scratch.join(format!("{name}.cc"));
        let text = format!(
            "#include <exception>\nextern \"C\" __attribute__((noinline, noipa)) void crash_cc() {{ {body} }}\n\
             int main() {{ crash_cc(); __asm__ volatile(\"\" ::: \"memory\"); }}\n"
        );
        std::fs::write(&source, text).expect("scratch");
        let program = compile::gcc_files(&scratch, name, &[source], &["-lstdc++"]);
        let (report, out) = crash(name, &[program.as_ref()], SIGABRT, "SIGABRT");
        assert_eq!(functions(&report, &program), ["crash_cc", "main"], "{}", out.text());
    }
    let source = scratch.join("panics.rs");
    let text = "#[inline(never)] #[no_mangle] pub extern \"C\" fn crash_rust(n: usize) -> u8 { [1u8, 2][n] }\n\
        fn main() { std::process::exit(crash_rust(std::env::args().count() + 1).into()) }\n";
    std::fs::write(&source, text).expect("scratch");
    let program = compile::rustc(&scratch, "panics", source.to_str().expect("UTF-8"), &["-Cpanic=abort"]);
    let (report, out) = crash("panics", &[program.as_ref()], SIGABRT, "SIGABRT");
    let found = functions(&report, &program);
    assert!(found.iter().any(|name| name == "crash_rust"), "{found:?} {}", out.text());
}

/// The core dump is made, and shows the crash, not the report.
#[test]
fn core_dumps_are_as_without_reports() {
    let limited = |words: &[&OsStr], reports: bool| {
        let scratch = paths::scratch("crash-core");
        let mut command = Command::new("prlimit");
        command.args(["--core=unlimited:unlimited", "--"]);
        if reports {
            command.arg(paths::uu()).args(["run", "--report-crashes", "-o", "report", "--"]);
        }
        command.args(words).current_dir(&scratch).env("XDG_CACHE_HOME", cache());
        (process::run(&mut command, &scratch, uu::LIMIT), scratch)
    };
    for (kind, first) in [("guard-page", "crash_guard_page"), ("double-free", "crash_double_free")] {
        let words: [&OsStr; 2] = [program().as_ref(), kind.as_ref()];
        let (without, _) = limited(&words, false);
        let (with, scratch) = limited(&words, true);
        assert_eq!(with.status, without.status, "{}", with.text());
        assert_eq!(with.status.core_dumped(), without.status.core_dumped(), "{}", with.text());
        let core = scratch
            .read_dir()
            .expect("a folder")
            .flatten()
            .find(|e| e.file_name().to_string_lossy().starts_with("core"));
        let Some(core) = core.filter(|_| with.status.core_dumped()) else {
            skips::skipped("core dumps beside crash reports", "core dumps do not come to the folder of the program");
            return;
        };
        let mut gdb = Command::new("gdb");
        gdb.args(["-nx", "-batch", "-ex", "bt"]).arg(program()).arg(core.path());
        let shown = process::run(&mut gdb, &scratch, uu::LIMIT);
        let own = |line: &&str| line.starts_with('#') && line.contains("crash_kinds.c");
        let frame = shown.stdout.lines().find(own).unwrap_or_else(|| panic!("{}", shown.text()));
        assert!(frame.contains(first), "{}", shown.text());
        assert!(!shown.stdout.contains("libuunwind"), "{}", shown.text());
    }
}

/// A program with the rights of another user gets no object of its caller's.
#[test]
fn programs_with_the_rights_of_others_are_left_alone() {
    let scratch = paths::scratch("crash-setuid");
    let copy = scratch.join("kinds");
    std::fs::copy(program(), &copy).expect("scratch");
    let made = Command::new("chown").arg("65534").arg(&copy).status().is_ok_and(|status| status.success())
        && Command::new("chmod").arg("4755").arg(&copy).status().is_ok_and(|status| status.success());
    // SAFETY: takes nothing.
    if !made || unsafe { libc::getuid() } != 0 {
        skips::skipped("crash reports of set-user-ID programs", "only root may give files away");
        return;
    }
    let words: [&OsStr; 2] = [copy.as_ref(), "read-only".as_ref()];
    let refused = reported(&scratch, &[], &words).expect_code(125);
    assert!(refused.stderr.contains("set-uid"), "{}", refused.text());
    let out = preloaded(&scratch, &words);
    assert_eq!(out.status, alone(&scratch, &words).status, "{}", out.text());
    assert!(!out.stderr.contains("crash report"), "{}", out.text());
}

/// Python at the end of a deep recursion, in C.
#[test]
fn python_in_deep_recursion_has_both_ends() {
    let scratch = paths::scratch("crash-deep-python");
    let script = scratch.join("deep.py");
    let text = "import ctypes, sys\nsys.setrecursionlimit(20000)\ndef deep(n):\n    if n == 0:\n        ctypes.string_at(0)\n    deep(n - 1)\ndeep(5000)\n";
    std::fs::write(&script, text).expect("scratch");
    for python in uunwind_tests::interpreters::modern() {
        let words: [&OsStr; 2] = [python.path.as_ref(), script.as_ref()];
        let (report, out) = crash("deep-python", &words, SIGSEGV, "SIGSEGV");
        let names: Vec<String> = report.crashed().semantic().into_iter().map(|(name, ..)| name).collect();
        assert_eq!(names.first().map(|name| &**name), Some("string_at"), "{}: {}", python.label, out.text());
        assert_eq!(names.last().map(|name| &**name), Some("<module>"), "{}: {}", python.label, out.text());
        assert!(names.len() > 60 && names[1..names.len() - 1].iter().all(|name| name == "deep"), "{names:?}");
    }
}

/// Other allocators: their locks, their handlers.
#[test]
fn programs_with_other_allocators_are_reported() {
    for library in ["libjemalloc.so.2", "libtcmalloc.so.4", "libtcmalloc_minimal.so.4", "libmimalloc.so.2"] {
        let folders = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/local/lib"];
        let Some(path) = folders.iter().map(|folder| Path::new(folder).join(library)).find(|path| path.is_file())
        else {
            skips::skipped(&format!("crash reports with {library}"), "it is not installed");
            continue;
        };
        let scratch = paths::scratch("crash-allocator");
        let mut command = uu::command(cache(), &["run", "--report-crashes", "--json", "--"]);
        command.arg(program()).arg("callback").env("LD_PRELOAD", &path);
        let out = process::run(&mut command, &scratch, uu::LIMIT).expect_code(128 + SIGSEGV);
        assert_eq!(functions(&Report::one(&out.stderr), program())[0], "crash_here", "{}", out.text());
    }
}
