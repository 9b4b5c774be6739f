//! `uu_symbolize()`: names, inlined functions and lines of a program's own frames, compared with binutils' addr2line.

use std::path::Path;
use std::process::Command;
use uunwind_tests::{compile, paths, process, uu};

/// One symbol that the program printed.
#[derive(Debug, PartialEq, Eq)]
struct Row {
    frame: u32,
    address: u64,
    inlined: bool,
    function: String,
    file: String,
    line: u32,
    problem: String,
}

fn rows(out: &str) -> Vec<Row> {
    let row = |line: &str| {
        let f: Vec<&str> = line.split('|').collect();
        let [frame, address, exact, inlined, function, file, number, _language, problem] = f[..] else {
            panic!("{line}: {out}")
        };
        let address = u64::from_str_radix(address.trim_start_matches("0x"), 16).expect("hexadecimal");
        Row {
            frame: frame.parse().expect("a number"),
            address: address - u64::from(exact == "after"),
            inlined: inlined == "i",
            function: function.to_owned(),
            file: file.to_owned(),
            line: number.parse().expect("a number"),
            problem: problem.to_owned(),
        }
    };
    out.lines().map(row).collect()
}

fn run(program: &Path, arguments: &[&str], scratch: &Path) -> Vec<Row> {
    let out = process::run(Command::new(program).args(arguments), scratch, uu::LIMIT).expect_code(0).stdout;
    rows(&out)
}

fn named<'a>(rows: &'a [Row], function: &str) -> &'a Row {
    rows.iter().find(|row| row.function == function).unwrap_or_else(|| panic!("no {function}: {rows:#?}"))
}

#[test]
fn inlined_functions_and_lines_are_those_of_addr2line() {
    let scratch = paths::scratch("symbolize");
    let program = compile::with_library(&scratch, "symbolize", &[]);
    let rows = run(&program, &[], &scratch);
    let frame = named(&rows, "outermost").frame;
    let functions: Vec<_> = rows.iter().filter(|r| r.frame == frame).map(|r| (&*r.function, r.inlined)).collect();
    assert_eq!(functions, [("innermost", true), ("middle", true), ("outermost", false)], "{rows:#?}");
    assert_eq!(frame, rows[0].frame, "innermost captures");
    let mut compared = 0;
    for row in rows.iter().filter(|row| row.file.ends_with("symbolize.c") && !row.inlined) {
        let mut tool = Command::new("addr2line");
        let out = tool.args(["-f", "-i", "-e"]).arg(&program).arg(format!("{:#x}", row.address)).output();
        let truth = String::from_utf8(out.expect("binutils").stdout).expect("text");
        let truth: Vec<(&str, &str)> = truth.lines().collect::<Vec<_>>().chunks(2).map(|l| (l[0], l[1])).collect();
        let ours: Vec<&Row> = rows.iter().filter(|other| other.frame == row.frame).collect();
        assert_eq!(ours.len(), truth.len(), "{ours:?} {truth:?}");
        for (our, (function, place)) in ours.iter().zip(truth) {
            assert_eq!(our.function, function);
            assert_eq!(format!("{}:{}", our.file, our.line), place.split(" (").next().expect("a part"));
            compared += 1;
        }
    }
    // innermost, middle, outermost, called, main.
    assert!(compared >= 5, "{rows:#?}");
    // The C library has no debug information here, or has: its functions have names in any case.
    assert!(rows.iter().any(|row| row.function.contains("qsort") || row.function.contains("msort")), "{rows:#?}");
}

/// Split, and compressed: as addr2line has it of the plain form.
#[test]
fn every_form_of_debug_information_gives_the_same() {
    let scratch = paths::scratch("symbolize-forms");
    let built = |name: &str, options: &[&str]| {
        let folder = scratch.join(name);
        std::fs::create_dir(&folder).expect("scratch");
        (compile::with_library(&folder, "symbolize", options), folder)
    };
    let own = |program: &Path, folder: &Path| {
        let rows = run(program, &[], folder).into_iter().filter(|row| row.file.ends_with("symbolize.c"));
        rows.map(|row| (row.function, row.inlined, row.line)).collect::<Vec<_>>()
    };
    let (program, folder) = built("plain", &[]);
    let plain = own(&program, &folder);
    assert!(plain.iter().filter(|(_, inlined, line)| *inlined && *line > 0).count() >= 2, "{plain:?}");
    for (name, options) in [("split-5", ["-gdwarf-5", "-gsplit-dwarf"]), ("split-4", ["-gdwarf-4", "-gsplit-dwarf"])] {
        let (program, folder) = built(name, &options);
        assert_eq!(own(&program, &folder), plain, "{name}");
    }
    let (program, folder) = built("zstd", &[]);
    let done = Command::new("objcopy").arg("--compress-debug-sections=zstd").arg(&program).status();
    assert!(done.expect("objcopy").success());
    assert_eq!(own(&program, &folder), plain, "zstd");
    // What is missing is said, with the frames that it concerns.
    let (program, folder) = built("missing", &["-gsplit-dwarf"]);
    for file in std::fs::read_dir(&folder).expect("scratch").flatten() {
        if file.path().extension() == Some("dwo".as_ref()) {
            std::fs::remove_file(file.path()).expect("removed");
        }
    }
    let rows = run(&program, &[], &folder);
    let row = named(&rows, "outermost");
    assert!(row.line == 0 && row.problem.contains("split debug information is missing"), "{row:?}");
}

#[test]
fn a_program_without_debug_information_has_names() {
    let scratch = paths::scratch("symbolize-bare");
    let options: [(&str, &[&str]); 2] = [("id", &["-g0"]), ("no-id", &["-g0", "-Wl,--build-id=none"])];
    for (name, options) in options {
        let folder = scratch.join(name);
        std::fs::create_dir(&folder).expect("scratch");
        let rows = run(&compile::with_library(&folder, "symbolize", options), &[], &folder);
        let row = named(&rows, "outermost");
        assert!(row.file.is_empty() && row.line == 0 && row.problem.is_empty() && !row.inlined, "{row:?}");
        assert!(rows.iter().all(|row| row.function != "innermost"), "{rows:#?}");
        named(&rows, "main");
    }
}

#[test]
fn a_program_whose_file_was_removed_has_names() {
    let scratch = paths::scratch("symbolize-removed");
    let rows = run(&compile::with_library(&scratch, "symbolize", &[]), &["removed"], &scratch);
    assert!(named(&rows, "innermost").inlined, "{rows:#?}");
}

#[test]
fn a_library_whose_file_was_replaced_has_no_wrong_names() {
    for id in [&[][..], &["-Wl,--build-id=none"]] {
        let scratch = paths::scratch("symbolize-replaced");
        let program = compile::with_library(&scratch, "symbolize", &[]);
        let build = |name: &str, more: &[&str]| {
            let options = [&["-shared", "-fPIC"], id, more].concat();
            compile::gcc(&scratch, name, &["native/symbolize_lib.c"], &options)
        };
        // The same file again, and another layout of the same functions.
        let same = [build("same.so", &["-DRESULT=1"]), build("its-copy.so", &["-DRESULT=1"])];
        let other =
            [build("loaded.so", &["-DRESULT=1"]), build("other.so", &["-DRESULT=2", "-O0", "-falign-functions=256"])];
        let after = |pair: [std::path::PathBuf; 2]| {
            let [loaded, replacement] = pair.map(|path| path.to_str().expect("text").to_owned());
            let rows = run(&program, &[&loaded, &replacement], &scratch);
            let called = rows.iter().position(|row| row.function == "called").expect("it called");
            rows.into_iter().nth(called + 1).expect("its caller")
        };
        assert_eq!(after(same).function, "through");
        let row = after(other);
        assert!(row.function.is_empty() && row.file.is_empty(), "{row:?}");
        assert!(row.problem.contains("the file changed") || row.problem.contains("headers are not those"), "{row:?}");
    }
}

#[test]
fn without_the_set_up_object_it_says_so() {
    let scratch = paths::scratch("symbolize-absent");
    let program = compile::with_library(&scratch, "symbolize", &[]);
    std::fs::copy(paths::tree().join("lib/libuunwind.so.0"), scratch.join("libuunwind.so.0")).expect("scratch");
    let mut command = Command::new(&program);
    command.arg("absent").env("LD_LIBRARY_PATH", &scratch);
    process::run(&mut command, &scratch, uu::LIMIT).expect_code(0);
}
