//! `libuunwind-compat.so`, preloaded alone: the stacks of backtrace(3), `_Unwind_Backtrace` and libunwind's cursors are
//! those of the libraries that define these functions first, from the same call; exceptions are as without it; and the
//! profilers that take stacks by them work.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use uunwind_tests::crash_report::Symbols;
use uunwind_tests::process::Outcome;
use uunwind_tests::{compile, paths, process, uu};

fn object() -> PathBuf {
    paths::tree().join("lib/uu/libuunwind-compat.so")
}

fn alone(scratch: &Path, program: &Path, words: &[&str]) -> Outcome {
    process::run(Command::new(program).args(words).current_dir(scratch), scratch, uu::LIMIT)
}

fn preloaded(scratch: &Path, program: &Path, words: &[&str]) -> Outcome {
    let mut command = Command::new(program);
    process::run(command.args(words).current_dir(scratch).env("LD_PRELOAD", object()), scratch, uu::LIMIT)
}

/// The oracles are glibc, libgcc and libunwind in the same process, called from the same instruction.
#[test]
fn stacks_are_those_of_the_originals() {
    let scratch = paths::scratch("compat-same");
    let program = compile::gcc(&scratch, "same", &["compat/same.c"], &["-lunwind", "-pthread", "-rdynamic"]);
    let outcome = preloaded(&scratch, &program, &["libuunwind-compat.so"]).expect_code(0);
    for (place, least) in [
        ("main", 4),
        ("recursion", 34),
        ("deep recursion", 304),
        ("a handler", 7),
        ("a handler on another stack", 7),
        ("a callback of libc", 10),
        ("interrupted work", 6),
        ("a thread", 9),
    ] {
        let mut counts = outcome.stdout.lines().filter_map(|line| line.strip_prefix(place)?.strip_prefix(": "));
        let count = counts.next().and_then(|count| count.strip_suffix(" frames")).and_then(|n| n.parse::<usize>().ok());
        assert!(count.is_some_and(|count| count >= least), "{place}: {}", outcome.text());
    }
    // Without it, the calls reach libunwind and glibc, which the program notices.
    let other = process::run(Command::new(&program).arg("libuunwind-compat.so"), &scratch, uu::LIMIT);
    assert!(other.code() == 2 && other.stdout.contains("is not libuunwind-compat.so's"), "{}", other.text());
}

/// The code of a JIT, which has no unwind data; and buffers of every size, of which a frame there takes more.
#[test]
fn stacks_lead_through_windows() {
    let scratch = paths::scratch("compat-window");
    let (include, library) = (paths::tree().join("include"), paths::tree().join("lib"));
    let [include, rpath] = [format!("-I{}", include.display()), format!("-Wl,-rpath,{}", library.display())];
    let library = library.join("libuunwind.so.0").display().to_string();
    let program = compile::gcc(&scratch, "window", &["compat/window.c"], &[&include, &library, &rpath, "-lunwind"]);
    let with = preloaded(&scratch, &program, &[]).expect_code(0);
    assert_eq!(with.stdout, "whole\n", "{}", with.text());
}

/// By libgcc; and by libunwind, which unwinds exceptions itself in a program that is linked with it first. (Such a
/// program crashes in pthread_exit(3), with the object and without.)
#[test]
fn exceptions_are_as_without_it() {
    for (name, options, words) in
        [("libgcc", &[][..], &[][..]), ("libunwind", &["-Wl,--no-as-needed", "-lunwind"], &["without threads"])]
    {
        let scratch = paths::scratch(&format!("compat-exceptions-{name}"));
        let options = [options, &["-std=c++17", "-pthread", "-lstdc++"]].concat();
        let program = compile::gcc(&scratch, "exceptions", &["compat/exceptions.cpp"], &options);
        let (without, with) = (alone(&scratch, &program, words), preloaded(&scratch, &program, words));
        assert!(without.stdout.contains("terminate, with a stack"), "{name}: {}", without.text());
        assert_eq!((&with.stdout, &with.stderr), (&without.stdout, &without.stderr), "{name}");
        assert_eq!(with.code(), without.code(), "{name}");
    }
}

/// Without the library, or with one of another build, stacks are taken as without the object, which says so once.
#[test]
fn without_the_library_calls_go_on() {
    let scratch = paths::scratch("compat-missing");
    let program =
        compile::gcc(&scratch, "exceptions", &["compat/exceptions.cpp"], &["-std=c++17", "-pthread", "-lstdc++"]);
    let without = alone(&scratch, &program, &[]);
    let folder = scratch.join("lib/uu");
    std::fs::create_dir_all(&folder).expect("scratch");
    let lonely = folder.join("libuunwind-compat.so");
    std::fs::copy(object(), &lonely).expect("a copy");
    let with = |message: &str| {
        let mut command = Command::new(&program);
        let outcome = process::run(command.env("LD_PRELOAD", &lonely), &scratch, uu::LIMIT);
        assert_eq!((&outcome.stdout, outcome.code()), (&without.stdout, without.code()), "{}", outcome.text());
        assert_eq!(outcome.stderr.lines().count(), 1, "{}", outcome.text());
        assert!(outcome.stderr.contains(message), "{}", outcome.text());
    };
    with("libuunwind.so.0 is not in the folder above");
    let text = "unsigned uu_private_library_0[64] = {8, 1};\n";
    std::fs::write(scratch.join("other.c"), text).expect("scratch");
    let options = ["-shared", "-fPIC", "-Wl,-soname,libuunwind.so.0"];
    compile::gcc_files(&scratch.join("lib"), "libuunwind.so.0", &[scratch.join("other.c")], &options);
    with("is of another build");
}

/// The calls to `name` in an object of this name reached ours, as the loader reports.
#[track_caller]
fn bound(scratch: &Path, object: &str, name: &str) {
    let files = std::fs::read_dir(scratch).expect("scratch").flatten().map(|entry| entry.path());
    let reports =
        files.filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("bound.")));
    let texts: Vec<String> =
        reports.map(|path| String::from_utf8_lossy(&std::fs::read(path).expect("read")).into()).collect();
    let is_it = |line: &str| {
        let (from, to) = line.split_once(" to ").unwrap_or_default();
        from.contains(object) && to.contains("/libuunwind-compat.so ") && to.contains(&format!("`{name}'"))
    };
    assert!(texts.iter().flat_map(|text| text.lines()).any(is_it), "{name} of {object} is not ours");
}

fn allocates(scratch: &Path) -> PathBuf {
    compile::gcc(scratch, "allocates", &["compat/allocates.c"], &["-rdynamic", "-no-pie"])
}

fn under(scratch: &Path, preload: &str, command: &mut Command) -> Outcome {
    command.current_dir(scratch).env("LD_PRELOAD", preload);
    command.env("LD_DEBUG", "bindings").env("LD_DEBUG_OUTPUT", scratch.join("bound"));
    process::run(command, scratch, uu::LIMIT).expect_code(0)
}

/// The functions of a stack, without what comes before `main`.
fn functions(symbols: &Symbols, addresses: &[u64]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for (index, address) in addresses.iter().enumerate() {
        // A return address lies after its call.
        let looked_up = address.saturating_sub(u64::from(index > 0));
        names.extend(symbols.at(looked_up).map(str::to_owned));
    }
    names.truncate(names.iter().position(|name| name == "main").map_or(names.len(), |main| main + 1));
    names
}

/// heaptrack, which takes stacks by `unw_backtrace`, finds the same allocations with it as without.
#[test]
fn heaptrack_finds_the_same() {
    let scratch = paths::scratch("compat-heaptrack");
    let program = allocates(&scratch);
    let found = |name: &str, preload: &str| {
        let mut command = Command::new("heaptrack");
        let data = scratch.join(name);
        under(&scratch, preload, command.arg("-o").arg(&data).arg(&program).arg("1"));
        let files = std::fs::read_dir(&scratch).expect("scratch").flatten().map(|entry| entry.path());
        let mut written = files.filter(|path| path.file_stem().is_some_and(|stem| stem == name));
        let data = written.next().expect("heaptrack's data");
        let report =
            process::run(Command::new("heaptrack_print").arg("-f").arg(data), &scratch, uu::LIMIT).expect_code(0);
        let (_, most) = report.stdout.split_once("MOST CALLS TO ALLOCATION FUNCTIONS\n").expect("a report");
        most.split("\n\n").next().unwrap_or_default().to_owned()
    };
    let without = found("without", "");
    assert!(without.contains("200 calls") && without.contains("innermost") && without.contains("keeps"), "{without}");
    assert_eq!(found("with", object().to_str().expect("a path")), without);
    bound(&scratch, "libheaptrack_preload.so", "unw_backtrace");
}

/// gperftools' heap profiler, by each of its methods that ask a library.
#[test]
fn gperftools_heap_profiles_have_the_same_stacks() {
    let scratch = paths::scratch("compat-heap");
    let program = allocates(&scratch);
    let symbols = Symbols::of(&program);
    for (method, name) in [("libunwind", "_ULx86_64_step"), ("libgcc", "_Unwind_Backtrace")] {
        let preload = format!("{}:libtcmalloc.so.4", object().display());
        let prefix = scratch.join(method);
        let mut command = Command::new(&program);
        command.arg("1").env("HEAPPROFILE", &prefix).env("TCMALLOC_STACKTRACE_METHOD", method);
        under(&scratch, &preload, &mut command);
        bound(&scratch, "libtcmalloc.so.4", name);
        let profile = std::fs::read_to_string(prefix.with_extension("0001.heap")).expect("a heap profile");
        let (counts, stack) = profile.lines().nth(1).and_then(|line| line.split_once('@')).expect("a stack");
        assert!(counts.trim_start().starts_with("200: 20000000"), "{profile}");
        let addresses = stack.split_whitespace().map(|word| u64::from_str_radix(word.trim_start_matches("0x"), 16));
        // The first one is a return address, too.
        let addresses: Vec<u64> =
            std::iter::once(0).chain(addresses.map(|address| address.expect("hexadecimal"))).collect();
        let names = functions(&symbols, &addresses);
        assert_eq!(names, ["innermost", "middle", "keeps", "main"], "{method}: {profile}");
    }
}

/// jemalloc's profiler takes a stack while the allocator is set up, before anything may be opened.
#[test]
fn jemalloc_takes_stacks_from_its_set_up_on() {
    let scratch = paths::scratch("compat-jemalloc");
    let program = allocates(&scratch);
    let preload = format!("{}:libjemalloc.so.2", object().display());
    let options = format!("prof:true,prof_final:true,prof_prefix:{}", scratch.join("heap").display());
    under(&scratch, &preload, Command::new(&program).arg("1").env("MALLOC_CONF", options));
    bound(&scratch, "libjemalloc.so.2", "_Unwind_Backtrace");
}

/// gperftools' CPU profiler, which takes stacks in a signal handler.
#[test]
fn gperftools_cpu_profiles_lead_to_main() {
    let scratch = paths::scratch("compat-cpu");
    let program = allocates(&scratch);
    let symbols = Symbols::of(&program);
    for (method, name) in [("libunwind", "_ULx86_64_step"), ("libgcc", "_Unwind_Backtrace")] {
        let preload = format!("{}:libprofiler.so.0", object().display());
        let file = scratch.join(method);
        let mut command = Command::new(&program);
        command.arg("1000").env("CPUPROFILE", &file).env("CPUPROFILE_FREQUENCY", "200");
        under(&scratch, &preload, command.env("TCMALLOC_STACKTRACE_METHOD", method));
        bound(&scratch, "libprofiler.so.0", name);
        let stacks = cpu_profile(&std::fs::read(&file).expect("a CPU profile"));
        let mut whole: BTreeMap<bool, u64> = BTreeMap::new();
        for (count, addresses) in &stacks {
            let names = functions(&symbols, addresses);
            let in_work = names.iter().any(|name| name == "computes");
            let leads = names.ends_with(&["computes", "works", "main"].map(str::to_owned));
            if in_work {
                *whole.entry(leads).or_default() += count;
            }
        }
        let is_well = whole.get(&true).is_some_and(|count| *count >= 20) && !whole.contains_key(&false);
        assert!(is_well, "{method}: {whole:?} in {stacks:x?}");
    }
}

/// The stacks of a [CPU profile](https://gperftools.github.io/gperftools/cpuprofile-fileformat.html): how often each was
/// seen, and its addresses, leaf first.
fn cpu_profile(file: &[u8]) -> Vec<(u64, Vec<u64>)> {
    let mut words = file.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes")));
    let header: Vec<u64> = words.by_ref().take(5).collect();
    assert_eq!(header[..3], [0, 3, 0], "not a CPU profile");
    let mut stacks = Vec::new();
    loop {
        let (count, depth) = (words.next().expect("a record"), words.next().expect("a record"));
        let addresses: Vec<u64> = words.by_ref().take(depth as usize).collect();
        if count == 0 {
            return stacks;
        }
        stacks.push((count, addresses));
    }
}
