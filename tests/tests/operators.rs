//! Operators new and delete of C++ in a recording of allocations that `uu` begins: those of an allocator of its own are
//! counted, once each; programs have those that they have alone.

use serde_json::Value;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use uunwind_tests::process::run;
use uunwind_tests::uu::Recording;
use uunwind_tests::{compile, paths, uu};

const ALL: [&str; 3] = ["--mode", "alloc", "--all"];

/// `native/heap_phases.cpp`, with these options, and the library that it loads.
fn phases(scratch: &Path, options: &[&str]) -> [PathBuf; 2] {
    // What is named first defines an operator first.
    let options = [options, &["-std=c++17", "-pthread", "-lstdc++", "-ldl"]].concat();
    [
        compile::gcc(scratch, "heap_phases", &["native/heap_phases.cpp"], &options),
        compile::shared(scratch, "heap_library.so", &["native/heap_library.c"]),
    ]
}

/// Records it; it is told `words`.
#[track_caller]
fn recorded(scratch: &Path, program: &[PathBuf; 2], words: &str, options: &[&str], preload: Option<&str>) -> Recording {
    let input = scratch.join("words");
    std::fs::write(&input, words).expect("scratch");
    let configure = |command: &mut Command| {
        command.envs(preload.map(|object| ("LD_PRELOAD", object)));
    };
    let words: Vec<&OsStr> = program.iter().chain([&input]).map(|path| path.as_os_str()).collect();
    uu::record(scratch, options, configure, &words).expect_code(0)
}

/// The numbers in a line of the program's.
#[track_caller]
fn said(recording: &Recording, name: &str) -> [u64; 2] {
    let stdout = &recording.outcome.stdout;
    let line = stdout.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("{name}: {stdout}"));
    let numbers: Vec<u64> = line.split_whitespace().map(|number| number.parse().expect("a number")).collect();
    numbers.try_into().expect("two numbers")
}

/// Number and bytes of what functions with such names have allocated: all of it, and what was not freed.
#[track_caller]
fn counted(recording: &Recording, functions: &str) -> [[u64; 2]; 2] {
    let json: Value = serde_json::from_str(&recording.report_with("json", &["--focus", functions])).expect("JSON");
    let all = json["allocations"].as_array().expect("allocations");
    let sum = |sum: [u64; 2], one: &Value| [sum[0] + 1, sum[1] + one["size"].as_u64().expect("a size")];
    [all.iter().fold([0; 2], sum), all.iter().filter(|one| one["freed"].is_null()).fold([0; 2], sum)]
}

#[track_caller]
fn must_be_exact(recording: &Recording, context: &str) {
    let stderr = &recording.outcome.stderr;
    for lost in ["were lost", "no room", "does not see", "in arenas"] {
        assert!(!stderr.contains(lost), "{context}: {stderr}");
    }
    let counted = counted(recording, "^phase_");
    assert_eq!(counted, [said(recording, "total"), said(recording, "live")], "{context}: {stderr}");
}

/// Of jemalloc, mimalloc, tcmalloc, whose operators call no malloc by its name; after exceptions, too.
#[test]
fn those_of_other_allocators_are_counted() {
    for name in ["libjemalloc.so.2", "libmimalloc.so.2", "libtcmalloc_minimal.so.4"] {
        let scratch = paths::scratch(&format!("operators-{name}"));
        for options in [&["-Wl,-z,lazy"][..], &["-fno-plt", "-Wl,-z,now"], &["-no-pie"]] {
            let program = phases(&scratch, options);
            for more in [&[][..], &["--mmap"]] {
                // Where there is no memory, mimalloc's end the program, which is C's way.
                let throws = if name.contains("mimalloc") { "" } else { "too much\n" };
                let words = format!("{throws}phase\nend\n");
                let recording = recorded(&scratch, &program, &words, &[&ALL, more].concat(), Some(name));
                assert_eq!(recording.outcome.stdout.contains("thrown 2"), !throws.is_empty(), "{name} {options:?}");
                must_be_exact(&recording, &format!("{name} {options:?} {more:?}"));
            }
        }
    }
}

/// Of a library that the program needs: a pool, whose chunks alone come from malloc, and are not counted again. All of
/// them, and two, which the C++ runtime's others call.
#[test]
fn those_of_a_library_are_counted() {
    for defined in [&[][..], &["-DFEW"]] {
        let scratch = paths::scratch(&format!("operators-own-{}", defined.len()));
        let options = [&["-std=c++17", "-O1", "-shared", "-fPIC", "-lstdc++"], defined].concat();
        let library = compile::gcc(&scratch, "libown_operators.so", &["native/own_operators.cpp"], &options);
        let folder = format!("-Wl,-rpath,{}", scratch.display());
        let program = phases(&scratch, &["-Wl,--no-as-needed", &library.display().to_string(), &folder]);
        let words = "too much\nphase\nend\n";
        let recording = recorded(&scratch, &program, words, &ALL, None);
        assert!(recording.outcome.stdout.contains("thrown"), "{}", recording.outcome.text());
        // Its chunks would be allocations of the same function.
        must_be_exact(&recording, &format!("{defined:?}"));
    }
}

/// Those of the C++ runtime call malloc: each allocation is counted once.
#[test]
fn those_of_the_runtime_are_not_counted_again() {
    let scratch = paths::scratch("operators-runtime");
    let program = phases(&scratch, &[]);
    let recording = recorded(&scratch, &program, "too much\nphase\nend\n", &ALL, None);
    assert!(recording.outcome.stdout.contains("thrown 2"), "{}", recording.outcome.text());
    must_be_exact(&recording, "libstdc++");
}

/// A program of C that opens libraries with operators of their own: each uses its own ones, as alone. A definition of
/// uu's would stand before all of them, and lead to the first one's.
#[test]
fn libraries_that_are_opened_keep_theirs() {
    let scratch = paths::scratch("operators-opened");
    let program = compile::gcc(&scratch, "opens_operators", &["native/opens_operators.c"], &["-ldl"]);
    let options = ["-std=c++17", "-O1", "-shared", "-fPIC", "-static-libstdc++", "-static-libgcc", "-lstdc++"];
    let libraries =
        ["first.so", "second.so"].map(|name| compile::gcc(&scratch, name, &["native/own_operators.cpp"], &options));
    let words: Vec<&OsStr> = [&program].into_iter().chain(&libraries).map(|path| path.as_os_str()).collect();
    let alone = run(Command::new(words[0]).args(&words[1..]), &scratch, uu::LIMIT).expect_code(0);
    assert_eq!(alone.stdout, "20\n40\n");
    let recording = uu::record(&scratch, &ALL, |_| {}, &words).expect_code(0);
    assert_eq!(recording.outcome.stdout, alone.stdout, "{}", recording.outcome.text());
}

/// What a program has in itself cannot be seen, and is named: operators of its own, other allocators. What it has from
/// malloc is seen.
#[test]
fn what_a_program_has_in_itself_is_named() {
    let scratch = paths::scratch("operators-inside");
    let own = ["-std=c++17", "-O1", "-g", "-pthread", "-lstdc++", "-ldl"];
    let sources = ["native/heap_phases.cpp", "native/own_operators.cpp"];
    let library = compile::shared(&scratch, "heap_library.so", &["native/heap_library.c"]);
    let program = [compile::gcc(&scratch, "own_inside", &sources, &own), library];
    let recording = recorded(&scratch, &program, "phase\nend\n", &ALL, None);
    assert!(recording.outcome.stderr.contains("defines operator new itself"), "{}", recording.outcome.text());
    let holds = |options: &[&str]| {
        let program = compile::gcc(&scratch, "holds", &["native/holds.c"], &[&["-pthread"], options].concat());
        uu::record(&scratch, &ALL, |_| {}, &[program.as_os_str(), "1".as_ref(), "1".as_ref()]).expect_code(0)
    };
    for (name, function) in [("jemalloc", "_rjem_malloc"), ("mimalloc", "mi_malloc"), ("tcmalloc", "tc_malloc")] {
        let recording = holds(&[&format!("-Dkeep_rest={function}")]);
        assert!(recording.outcome.stderr.contains(&format!("has {name} in itself")), "{}", recording.outcome.text());
    }
    let said = holds(&[]).outcome.stderr;
    assert!(!said.contains("itself"), "{said}");
}
