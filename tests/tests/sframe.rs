//! SFrame end to end: stacks through libraries that have no other unwind data, files that `uu sframe make` wrote, and
//! the output of `uu sframe dump` and `uu doctor`. Oracles: the assembler's own tables, the programs' behaviour,
//! readelf.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use uunwind_tests::samples::{Frame, Sample};
use uunwind_tests::{compile, paths, skips, uu};

fn run(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"))
}

#[track_caller]
fn succeed(command: &mut Command) -> String {
    let done = run(command);
    let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{command:?}: {out}{err}");
    out.into_owned()
}

#[track_caller]
fn uu_says(scratch: &Path, args: &[&str], code: i32) -> String {
    let done = run(&mut uu::command(scratch, args));
    let text = format!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert_eq!(done.status.code(), Some(code), "uu {args:?}: {text}");
    text
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// Version of binutils, `(2, 40)`.
fn binutils() -> (u32, u32) {
    let said = succeed(Command::new("readelf").arg("--version"));
    let number = said.lines().next().and_then(|line| line.split_whitespace().last()).expect("a version");
    let mut parts = number.split('.').map(|part| part.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}

/// Disables an object's `.eh_frame`: its program header is removed, and the section begins with a terminator, so that
/// no rule table is made from it either.
fn hide_eh_frame(path: &Path) {
    let mut bytes = std::fs::read(path).expect("the file");
    let section = succeed(Command::new("objdump").args(["-h", "-j", ".eh_frame"]).arg(path));
    let line = section.lines().find(|line| line.contains(" .eh_frame")).expect("the section");
    // Index, name, size, address, load address, offset in the file.
    let hex = |field: usize| line.split_whitespace().nth(field).and_then(|n| usize::from_str_radix(n, 16).ok());
    let (size, offset) = (hex(2).expect("its size"), hex(5).expect("its place"));
    bytes[offset..offset + size].fill(0);
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes")) as usize;
    let (table, count) = (word(32), usize::from(u16::from_le_bytes([bytes[56], bytes[57]])));
    let header = (0..count).map(|n| table + n * 56).find(|at| bytes[*at..*at + 4] == 0x6474_e550u32.to_le_bytes());
    let header = header.expect("PT_GNU_EH_FRAME");
    bytes[header..header + 4].fill(0);
    std::fs::write(path, bytes).expect("the file");
}

fn library(scratch: &Path) -> PathBuf {
    compile::gcc(scratch, "libchain.so", &["native/chain_library.c"], &["-shared", "-fPIC"])
}

/// Samples of the program with the library at `libchain.so` in the folder.
fn samples(scratch: &Path) -> Vec<Sample> {
    let (folder, search) = (format!("-L{}", scratch.display()), format!("-Wl,-rpath,{}", scratch.display()));
    let options = [folder.as_str(), "-lchain", &search, "-fno-optimize-sibling-calls"];
    let program = compile::gcc(scratch, "chain", &["native/chain_main.c"], &options);
    let recording = uu::record(scratch, &["--explicit", "-r", "1"], |_| {}, &[program.as_ref()]).expect_code(0);
    recording.samples().into_iter().filter(|s| s.kind == "explicit").collect()
}

const CHAIN: [&str; 5] = ["back", "chain_inner", "chain_varied", "chain_outer", "main"];

/// Whether a stack has the whole chain of calls, ends where the program began, and has no guessed frame, and none that
/// was left by a rule made from code.
fn whole(sample: &Sample) -> bool {
    let names: Vec<&str> = sample.frames.iter().map(Frame::name).collect();
    let guessed = sample.frames.iter().any(|f| matches!(f, Frame::Native { by_frame_pointer: true, .. }));
    let by_code = sample.frames.iter().any(|f| matches!(f, Frame::Native { by_code: true, .. }));
    sample.complete() && !guessed && !by_code && names.windows(CHAIN.len()).any(|part| part == CHAIN)
}

#[track_caller]
fn all_whole(samples: &[Sample]) {
    assert_eq!(samples.len(), 40, "two samples a round");
    for sample in samples {
        assert!(whole(sample), "{}", sample.text());
    }
}

#[test]
fn stacks_through_a_library_with_made_sframe_only_are_whole() {
    for version in ["2", "3"] {
        let scratch = paths::scratch(&format!("sframe-only-{version}"));
        let plain = library(&scratch);
        let made = scratch.join("made.so");
        uu_says(&scratch, &["sframe", "make", "--version", version, "-o", text(&made), text(&plain)], 0);
        hide_eh_frame(&made);
        std::fs::rename(&made, &plain).expect("renamed");
        all_whole(&samples(&scratch));
    }
}

/// Nothing describes the library's functions any more: the rows are made from their instructions.
#[test]
fn stacks_through_a_library_with_sframe_from_its_code_only_are_whole() {
    for version in ["2", "3"] {
        let scratch = paths::scratch(&format!("sframe-code-{version}"));
        let plain = library(&scratch);
        hide_eh_frame(&plain);
        let made = scratch.join("made.so");
        let refused = uu_says(&scratch, &["sframe", "make", "-o", text(&made), text(&plain)], 125);
        assert!(refused.contains("--from-code"), "{refused}");
        let arguments = ["sframe", "make", "--from-code", "--version", version, "-o", text(&made), text(&plain)];
        let said = uu_says(&scratch, &arguments, 0);
        assert!(said.contains("By the machine code"), "{said}");
        std::fs::rename(&made, &plain).expect("renamed");
        all_whole(&samples(&scratch));
    }
}

/// Without it, the rule table has rows made from the library's code.
#[test]
fn without_it_stacks_are_whole_by_the_code() {
    let scratch = paths::scratch("sframe-code-only");
    let plain = library(&scratch);
    hide_eh_frame(&plain);
    let samples = samples(&scratch);
    assert_eq!(samples.len(), 40);
    for sample in &samples {
        let names: Vec<&str> = sample.frames.iter().map(Frame::name).collect();
        assert!(sample.complete() && names.windows(CHAIN.len()).any(|part| part == CHAIN), "{}", sample.text());
        for frame in &sample.frames {
            let Frame::Native { object, by_code, by_frame_pointer, .. } = frame else { panic!("{}", sample.text()) };
            assert_eq!(*by_code, object == text(&plain), "{}", sample.text());
            assert!(!by_frame_pointer, "{}", sample.text());
        }
    }
}

/// Without a build-id an object has no rule table.
#[test]
fn without_any_of_them_they_are_not() {
    let scratch = paths::scratch("sframe-none");
    let options = ["-shared", "-fPIC", "-Wl,--build-id=none"];
    hide_eh_frame(&compile::gcc(&scratch, "libchain.so", &["native/chain_library.c"], &options));
    let samples = samples(&scratch);
    assert_eq!(samples.len(), 40);
    // The variable-size frame keeps a frame pointer, the one below does not: nothing describes how to step over it.
    assert!(!samples.iter().any(whole), "{}", samples[0].text());
}

/// The assembler's own table, in a library that never had an .eh_frame.
#[test]
fn stacks_through_a_library_with_the_assemblers_sframe_only_are_whole() {
    let scratch = paths::scratch("sframe-assembler");
    if !succeed(Command::new("as").arg("--help")).contains("--gsframe") {
        skips::skipped("stacks by the assembler's SFrame", "this assembler has no --gsframe (binutils 2.40 has)");
        return;
    }
    let object = compile::gcc(&scratch, "chain.o", &["native/chain_library.c"], &["-c", "-fPIC", "-Wa,--gsframe"]);
    succeed(Command::new("objcopy").args(["-R", ".eh_frame", "-R", ".rela.eh_frame"]).arg(&object));
    let library = scratch.join("libchain.so");
    let flags = ["-shared", "-nostdlib", "-Wl,--no-ld-generated-unwind-info", "-o"];
    succeed(Command::new("gcc").args(flags).arg(&library).arg(&object));
    let headers = succeed(Command::new("readelf").arg("-lW").arg(&library));
    assert!(headers.contains("GNU_SFRAME") && !headers.contains("EH_FRAME"), "{headers}");
    all_whole(&samples(&scratch));
    // Our dump has the same functions as readelf's.
    let theirs = succeed(Command::new("readelf").arg("--sframe").arg(&library));
    let ours = uu_says(&scratch, &["sframe", "dump", text(&library)], 0);
    let functions = theirs.lines().filter(|line| line.contains("func idx")).count();
    assert!(functions >= 3 && ours.contains(&format!("{functions} functions")), "{theirs}\n{ours}");
    let rows = |text: &str, prefix: &str| -> Vec<u64> {
        let words = text.lines().filter_map(|l| l.split_whitespace().next()?.strip_prefix(prefix));
        words.filter(|w| w.len() == 16).filter_map(|w| u64::from_str_radix(w, 16).ok()).collect()
    };
    assert!(!rows(&ours, "0x").is_empty());
    assert_eq!(rows(&ours, "0x"), rows(&theirs, ""), "{theirs}\n{ours}");
}

/// Programs and libraries with SFrame run as before.
#[test]
fn made_files_run() {
    let scratch = paths::scratch("sframe-run");
    let libs = scratch.join("libs");
    std::fs::create_dir_all(&libs).expect("a folder");
    let make = |from: &str, to: &Path, version: &str| {
        let said = uu_says(&scratch, &["sframe", "make", "--version", version, "-o", text(to), from], 0);
        // readelf finds nothing to complain of in the headers, and the segment inside a mapped one.
        let done = run(Command::new("readelf").arg("-lSW").arg(to));
        let headers = String::from_utf8_lossy(&done.stdout);
        assert!(headers.contains("GNU_SFRAME") && headers.contains(".sframe"), "{headers}");
        let complaints = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success() && complaints.is_empty(), "{to:?}: {complaints}");
        said
    };
    let expected = succeed(Command::new("/bin/ls").arg("-l").arg(paths::root()));
    for version in ["2", "3"] {
        let ls = scratch.join("ls");
        make("/bin/ls", &ls, version);
        assert_eq!(succeed(Command::new(&ls).arg("-l").arg(paths::root())), expected);
        let (libc, loader) = (libs.join("libc.so.6"), libs.join("ld.so"));
        make("/lib/x86_64-linux-gnu/libc.so.6", &libc, version);
        make("/lib64/ld-linux-x86-64.so.2", &loader, version);
        let mut command = Command::new(&loader);
        command.arg("--library-path").arg(&libs).arg(&ls).arg("-l").arg(paths::root());
        assert_eq!(succeed(&mut command), expected, "with its own C library and loader");
    }
    // A static program, one that is linked to a fixed address, one with much .bss, and a library with thread-locals.
    let source = scratch.join("program.c");
    let code = "#include <stdio.h>\nstatic char big[64 << 20]; __thread int mine = 7;\n\
                int main(int n, char **v) { big[n << 20] = 1; printf(\"%d %d %s\\n\", mine, big[n << 20], v[1]); return 0; }";
    std::fs::write(&source, code).expect("a source");
    for (name, options) in [("static", &["-static"][..]), ("fixed", &["-no-pie"]), ("static-pie", &["-static-pie"])] {
        let program = compile::gcc_files(&scratch, name, std::slice::from_ref(&source), options);
        let made = scratch.join(format!("{name}.made"));
        make(text(&program), &made, "3");
        assert_eq!(succeed(Command::new(&made).arg("ok")), "7 1 ok\n", "{name}");
    }
    // Python, with the library that most of it lies in where it is built so.
    let ask = |script: &str| succeed(Command::new("python3").args(["-c", script])).trim().to_owned();
    let python = ask("import sys; print(sys.executable)");
    let shared = ask(
        "from sysconfig import get_config_var as v; print(v('LIBDIR') + '/' + v('INSTSONAME') if v('Py_ENABLE_SHARED') else '')",
    );
    let made = scratch.join("python3");
    make(&python, &made, "3");
    let python_libs = scratch.join("python-libs");
    std::fs::create_dir_all(&python_libs).expect("a folder");
    if shared.is_empty() {
        skips::skipped("SFrame made for libpython", "python3 is here without a shared library");
    } else {
        let name = Path::new(&shared).file_name().expect("a name");
        make(&shared, &python_libs.join(name), "3");
    }
    let script =
        "import json, sys, zlib; print(len(zlib.compress(json.dumps(list(range(1000))).encode())), sys.version)";
    let home = ask("import sys; print(sys.base_prefix)");
    let run_python = |program: &Path, libs: &Path| {
        let mut command = Command::new(program);
        succeed(command.env("PYTHONHOME", &home).env("LD_LIBRARY_PATH", libs).args(["-c", script]))
    };
    let expected = run_python(Path::new(&python), Path::new("/nonexistent"));
    assert_eq!(run_python(&made, &python_libs), expected);
}

/// binutils' own reading of what we wrote, where its version can.
#[test]
fn readelf_reads_what_was_made() {
    let scratch = paths::scratch("sframe-readelf");
    let have = binutils();
    for (version, from, to) in [("2", (2, 41), (2, 99)), ("3", (2, 46), (2, 99))] {
        if have < from || have > to {
            let why = format!("readelf {}.{} is here; {}.{} reads version {version}", have.0, have.1, from.0, from.1);
            skips::skipped(&format!("readelf on SFrame version {version}"), &why);
            continue;
        }
        let made = scratch.join("ls");
        uu_says(&scratch, &["sframe", "make", "--version", version, "-o", text(&made), "/bin/ls"], 0);
        let theirs = succeed(Command::new("readelf").arg("--sframe").arg(&made));
        let ours = uu_says(&scratch, &["sframe", "dump", text(&made)], 0);
        let functions = theirs.lines().filter(|line| line.contains("func idx")).count();
        assert!(functions > 100 && ours.contains(&format!(" {functions} functions")), "{functions} by readelf");
        let rows = |text: &str, prefix: &str| {
            let words = text.lines().filter_map(|l| l.split_whitespace().next()?.strip_prefix(prefix));
            words
                .filter(|w| w.len() == 16 && w.bytes().all(|b| b.is_ascii_hexdigit()))
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        // Block rows have no address of their own in our dump, and one in readelf's.
        let blocks = ours.lines().filter(|l| l.trim().starts_with("block+")).count();
        assert_eq!(rows(&ours, "0x").len() + blocks, rows(&theirs, "").len());
    }
}

#[test]
fn dump_names_each_failed_check_and_survives_damage() {
    let scratch = paths::scratch("sframe-dump");
    let made = scratch.join("ls");
    uu_says(&scratch, &["sframe", "make", "-o", text(&made), "/bin/ls"], 0);
    let section = scratch.join("section");
    succeed(Command::new("objcopy").args(["-O", "binary", "-j", ".sframe"]).arg(&made).arg(&section));
    let good = std::fs::read(&section).expect("the section");
    assert!(uu_says(&scratch, &["sframe", "dump", "--check", text(&section)], 0).contains("0 checks failed"));
    let dump = |bytes: &[u8]| {
        std::fs::write(&section, bytes).expect("a file");
        uu_says(&scratch, &["sframe", "dump", text(&section)], 1)
    };
    for (at, value, check) in
        [(2, 9, "check 2 at offset 0x2"), (4, 2, "check 4 at offset 0x6"), (6, 8, "check 4"), (16, 0xff, "check 6")]
    {
        let mut bytes = good.clone();
        bytes[at] = value;
        if at == 16 {
            bytes[19] = value;
        }
        assert!(dump(&bytes).contains(check), "{at} {value}: {}", dump(&bytes));
    }
    let mut state = 0x5eed_0099u64;
    for _ in 0..20 {
        let mut bytes = good.clone();
        for _ in 0..3 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let at = (state >> 33) as usize % 64;
            bytes[at] = (state >> 20) as u8;
        }
        std::fs::write(&section, &bytes).expect("a file");
        let code = run(&mut uu::command(&scratch, &["sframe", "dump", text(&section)])).status.code();
        assert!(matches!(code, Some(0 | 1 | 125)), "{code:?}");
    }
    uu_says(&scratch, &["sframe", "dump", "/bin/ls"], 125);
    uu_says(&scratch, &["sframe", "dump", "/nonexistent"], 125);
    uu_says(&scratch, &["sframe", "make", "-o", text(&section), "/etc/passwd"], 125);
}

/// Bytes of code that readelf's list of FDEs covers, and bytes of code in all.
fn coverage_by_readelf(file: &str) -> (u64, u64) {
    let hex = |w: &str| u64::from_str_radix(w, 16).expect("a number");
    let sections = succeed(Command::new("readelf").arg("-SW").arg(file));
    let mut text = Vec::new();
    for line in sections.lines().filter_map(|line| line.split_once(']')).map(|(_, rest)| rest) {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let [_, "PROGBITS", address, _, size, _, "AX", ..] = words[..] {
            text.push((hex(address), hex(address) + hex(size)));
        }
    }
    let frames =
        succeed(Command::new("readelf").args(["--debug-dump=frames", "--debug-dump=no-follow-links"]).arg(file));
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for range in frames.lines().filter_map(|line| line.split_once("pc=")).map(|(_, range)| range) {
        let (from, to) = range.split_once("..").expect("a range");
        ranges.push((hex(from), hex(to.trim())));
    }
    ranges.sort_unstable();
    let (mut covered, mut end) = (0, 0);
    for (from, to) in ranges {
        let from = from.max(end);
        covered += text.iter().map(|t| to.min(t.1).saturating_sub(from.max(t.0))).sum::<u64>();
        end = end.max(to);
    }
    (covered, text.iter().map(|t| t.1 - t.0).sum())
}

#[test]
fn doctor_measures_what_readelf_measures() {
    let scratch = paths::scratch("sframe-doctor");
    for file in ["/bin/ls", "/bin/bash", "/lib/x86_64-linux-gnu/libc.so.6"] {
        let (covered, total) = coverage_by_readelf(file);
        let made = scratch.join("made");
        uu_says(&scratch, &["sframe", "make", "-o", text(&made), file], 0);
        let said = uu_says(&scratch, &["doctor", text(&made)], 0);
        let head = format!("text           {total} bytes, ");
        let padding =
            said.split_once(&head).and_then(|(_, rest)| rest.split_once(" of them padding")?.0.parse::<u64>().ok());
        let code = total - padding.unwrap_or_else(|| panic!("{head}: {said}"));
        // Rows that say more than doctor's rules do (libc's longjmp): it names their bytes.
        let beyond =
            said.lines().find_map(|line| line.trim().strip_suffix(" bytes, by expressions that are not examined here"));
        let beyond = beyond.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or(0);
        let share = format!("{:.2} % of code", (covered - beyond) as f64 * 100.0 / code as f64);
        assert_eq!(said.matches(&share).count(), 2, "{share}, by either source: {said}");
        assert!(said.contains("disagreements  0"), "{said}");
    }
    // Of a process: this one.
    let own = std::process::id().to_string();
    let said = uu_says(&scratch, &["doctor", &own], 0);
    for object in [text(&std::env::current_exe().expect("a path")), "libc.so.6"] {
        assert!(said.contains(object), "{object}: {said}");
    }
    uu_says(&scratch, &["doctor", "4294967295"], 125);
}

/// GNU ld's row for .plt.got is wrong (`sp+16` where a call has just pushed 8 bytes); .eh_frame's is right.
#[test]
fn doctor_finds_the_linkers_wrong_row() {
    let scratch = paths::scratch("sframe-plt-got");
    // Linked by GNU ld 2.44 with version 2 tables; see plugins/native/sframe/tests.
    let folder = paths::root().join("tests/targets/sframe");
    let said = uu_says(&scratch, &["doctor", text(&folder.join("plt_got_ld244.elf"))], 0);
    assert!(said.contains("0x1040..0x1048 in .plt.got"), "{said}");
    let lines: Vec<&str> = said.lines().map(str::trim).collect();
    let at = lines.iter().position(|line| line.starts_with("0x1040")).expect("the disagreement");
    assert_eq!(lines[at + 1].trim_start_matches(".eh_frame").trim(), "CFA rsp+8, rip *(CFA-8)");
    assert_eq!(lines[at + 2].trim_start_matches("SFrame").trim(), "CFA rsp+16, rip *(CFA-8)");
}
