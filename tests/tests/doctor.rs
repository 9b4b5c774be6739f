//! `uu doctor`: the sources of rules that it reports are those that walks choose, and its report on unwind data agrees
//! with readelf's.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use uunwind_tests::samples::{Frame, Sample};
use uunwind_tests::{compile, executable, paths, uu};

fn doctor(scratch: &Path, what: &str) -> String {
    let done = uu::command(scratch, &["doctor", "--list", what]).output().expect("uu");
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success(), "{text}{}", String::from_utf8_lossy(&done.stderr));
    text
}

/// The ranges for which no rule table is chosen, and what is.
fn ranges(said: &str) -> Vec<(u64, u64, String)> {
    let chosen = said.lines().skip_while(|line| !line.starts_with("  chosen"));
    let range = |line: &str| {
        let (range, rest) = line.trim().split_once(" in ")?;
        let (start, end) = range.split_once("..")?;
        let number = |text: &str| u64::from_str_radix(text.strip_prefix("0x")?, 16).ok();
        Some((number(start)?, number(end)?, rest.split_once(": ")?.1.to_owned()))
    };
    chosen.filter_map(range).collect()
}

/// The chain's program at fixed addresses, with these options for its own part; sampled in its callback.
fn recorded(scratch: &Path, options: &[&str]) -> (String, Vec<Sample>) {
    let sources = ["native/chain_main.c", "native/chain_library.c"];
    let options = [&["-no-pie", "-fno-inline", "-fno-optimize-sibling-calls", "-Wl,--build-id=sha1"], options].concat();
    let program = compile::gcc(scratch, "chain", &sources, &options);
    let recording = uu::record(scratch, &["--explicit", "-r", "1"], |_| {}, &[program.as_ref()]).expect_code(0);
    let samples = recording.samples().into_iter().filter(|s| s.kind == "explicit").collect();
    (program.to_str().expect("UTF-8").to_owned(), samples)
}

/// Checks for each frame of the program that its caller was found by the frame pointer exactly if the doctor says so
/// for its address, and by the machine code likewise. Returns the number of those that were found by the frame pointer,
/// and of the others.
#[track_caller]
fn agrees(scratch: &Path, (program, samples): &(String, Vec<Sample>)) -> (usize, usize) {
    assert_eq!(samples.len(), 40, "two samples a round");
    let ranges = ranges(&doctor(scratch, program));
    let mut counts = (0, 0);
    for sample in samples {
        for pair in sample.frames.windows(2) {
            let [Frame::Native { object, address, exact, by_code, .. }, Frame::Native { by_frame_pointer, .. }] = pair
            else {
                panic!("native frames only: {}", sample.text());
            };
            if object != program {
                continue;
            }
            let lookup = address - u64::from(!exact);
            let range = ranges.iter().find(|(start, end, _)| (*start..*end).contains(&lookup));
            let guessed = range.is_some_and(|(.., choice)| choice == "frame pointer");
            let from_code = range.is_some_and(|(.., choice)| choice == "machine code");
            assert_eq!(from_code, *by_code, "{lookup:#x}, range {range:?}: {}", sample.text());
            assert_eq!(guessed, *by_frame_pointer, "{lookup:#x}, range {range:?}: {}", sample.text());
            *(if guessed { &mut counts.0 } else { &mut counts.1 }) += 1;
        }
    }
    counts
}

const CHAIN: [&str; 5] = ["back", "chain_inner", "chain_varied", "chain_outer", "main"];

#[test]
fn what_is_chosen_is_what_walks_do() {
    let scratch = paths::scratch("doctor-chosen");
    let (by_frame_pointer, _) = agrees(&scratch, &recorded(&scratch, &["-g0"]));
    assert_eq!(by_frame_pointer, 0, "a program with .eh_frame");
    let options = ["-g0", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables", "-fno-omit-frame-pointer"];
    let run = recorded(&scratch, &options);
    assert_eq!(agrees(&scratch, &run).0, 0, "a program whose code is understood");
    let by_code =
        |sample: &Sample| sample.frames.iter().filter(|f| matches!(f, Frame::Native { by_code: true, .. })).count();
    assert!(run.1.iter().all(|sample| by_code(sample) >= CHAIN.len()), "{}", run.1[0].text());
    // Without a build-id it has no rule table.
    let options = [&options[..], &["-Wl,--build-id=none"]].concat();
    let (by_frame_pointer, _) = agrees(&scratch, &recorded(&scratch, &options));
    assert!(by_frame_pointer >= 40 * CHAIN.len(), "{by_frame_pointer} callers by frame pointer");
}

/// Bytes that readelf's list of FDEs covers, those of `.debug_frame` included.
fn covered_by_readelf(file: &str) -> u64 {
    let frames = ["--debug-dump=frames", "--debug-dump=no-follow-links"];
    let said = Command::new("readelf").args(frames).arg(file).output().expect("readelf (binutils)");
    let said = String::from_utf8_lossy(&said.stdout);
    let range = |line: &str| {
        let (from, to) = line.split_once(" FDE ")?.1.split_once("pc=")?.1.split_once("..")?;
        let number = |text: &str| u64::from_str_radix(text.trim(), 16).ok();
        Some((number(from)?, number(to)?))
    };
    let mut ranges: Vec<_> = said.lines().filter_map(range).collect();
    ranges.sort_unstable();
    let mut end = 0;
    ranges.into_iter().fold(0, |sum, (from, to)| {
        let more = to.saturating_sub(from.max(end));
        end = end.max(to);
        sum + more
    })
}

#[test]
fn code_with_debug_frame_only_is_walked_by_its_table() {
    let plain = ["-fno-asynchronous-unwind-tables", "-fno-unwind-tables"];
    for (name, more) in [("plain", None), ("compressed", Some("-gz=zlib"))] {
        let scratch = paths::scratch(&format!("doctor-debug-frame-{name}"));
        let options: Vec<&str> = plain.into_iter().chain(more).collect();
        let run = recorded(&scratch, &options);
        agrees(&scratch, &run);
        for sample in &run.1 {
            let names: Vec<&str> = sample.frames.iter().map(Frame::name).collect();
            let guessed = sample.frames.iter().any(|f| matches!(f, Frame::Native { by_frame_pointer: true, .. }));
            let whole = sample.complete() && !guessed && names.windows(CHAIN.len()).any(|part| part == CHAIN);
            assert!(whole, "{name}: {}", sample.text());
        }
        let said = doctor(&scratch, &run.0);
        // The start files have .eh_frame.
        assert!(said.contains("rule table     from .eh_frame and .debug_frame"), "{said}");
        assert!(
            said.contains("not searched in place: it is not loaded") && said.contains("disagreements  0"),
            "{said}"
        );
        let number = |before: &str| {
            let (_, rest) = said.split_once(before)?;
            rest.split_whitespace().next()?.parse::<u64>().ok()
        };
        let code = number("text ").zip(number("bytes, ")).map(|(text, padding)| text - padding);
        let without = |choice: &str| {
            let of_choice = |(.., name): &&(u64, u64, String)| name == choice;
            ranges(&said).iter().filter(of_choice).map(|(start, end, _)| end - start).sum::<u64>()
        };
        let range = code.unwrap_or_else(|| panic!("text, and padding: {said}"))
            - without("frame pointer")
            - without("machine code")
            - without("known code");
        assert_eq!(range, covered_by_readelf(&run.0), "{name}: {said}");
    }
}

#[test]
fn a_debug_frame_that_cannot_be_read_is_no_silence() {
    let scratch = paths::scratch("doctor-unread");
    let options = ["-fno-asynchronous-unwind-tables", "-fno-unwind-tables", "-gz=zlib"];
    let program =
        compile::gcc(&scratch, "plain", &["native/chain_library.c"], &[&options[..], &["-shared", "-fPIC"]].concat());
    let text = program.to_str().expect("UTF-8");
    assert!(!doctor(&scratch, text).contains("cannot be read"));
    // Elf64_Chdr begins with the kind: 1 is zlib, 2 zstd; 3 is not assigned.
    let said = Command::new("readelf").args(["-SW", text]).output().expect("readelf (binutils)");
    let said = String::from_utf8_lossy(&said.stdout);
    let line = said.lines().find(|line| line.contains(" .debug_frame ")).expect("the section");
    let words: Vec<&str> = line.split_once(".debug_frame").expect("its name").1.split_whitespace().collect();
    // Type, address, offset.
    let offset = usize::from_str_radix(words[2], 16).expect("its place");
    let mut bytes = std::fs::read(&program).expect("the file");
    assert_eq!(bytes[offset], 1, "{line}");
    for (kind, why) in [(3, "compressed by method 3; 1, zlib, and 2, zstd, are known"), (2, "compressed, and damaged")]
    {
        bytes[offset] = kind;
        std::fs::write(&program, &bytes).expect("the file");
        let said = doctor(&scratch, text);
        assert!(said.contains(&format!(".debug_frame   cannot be read: {why}")), "{said}");
    }
}

#[test]
fn a_file_of_debugging_information_is_none_to_be_examined() {
    let scratch = paths::scratch("doctor-debug-only");
    let program = compile::gcc(&scratch, "plain", &["native/chain_library.c"], &["-shared", "-fPIC"]);
    let debug = scratch.join("plain.debug");
    let done = Command::new("objcopy").arg("--only-keep-debug").args([&program, &debug]).status().expect("objcopy");
    assert!(done.success());
    for (file, code) in [(&program, 0), (&debug, 125)] {
        let done = uu::command(&scratch, &["doctor".as_ref(), file.as_os_str()]).output().expect("uu");
        let said = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(code), "{}: {said}", file.display());
        assert!(code == 0 || said.contains("debugging information of another file, without its code"), "{said}");
    }
}

#[test]
fn all_code_of_a_process_is_reported() {
    let scratch = paths::scratch("doctor-process");
    let source = scratch.join("jit.c");
    let code = "#define _GNU_SOURCE\n#include <stdio.h>\n#include <sys/mman.h>\nint main(void) {\n\
                void *p = mmap(0, 12288, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);\n\
                printf(\"%p\\n\", p); fflush(stdout); return getchar() == 0; }";
    std::fs::write(&source, code).expect("a source");
    let program = compile::gcc_files(&scratch, "jit", &[source], &[]);
    let gone = scratch.join("gone");
    executable::copy(&program, &gone);
    let start = |program: &Path| {
        let mut command = Command::new(program);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().expect("a pipe")).read_line(&mut line).expect("a line");
        let number = line.trim().strip_prefix("0x").and_then(|text| u64::from_str_radix(text, 16).ok());
        (child, number.unwrap_or_else(|| panic!("an address: {line}")))
    };
    let (mut child, at) = start(&program);
    let said = doctor(&scratch, &child.id().to_string());
    child.kill().and_then(|()| child.wait()).expect("it ends");
    let objects: Vec<&str> = said.lines().filter(|line| !line.starts_with(' ')).collect();
    let anonymous = format!("anonymous {at:#x}..{:#x} (r-xp)", at + 12288);
    let own = program.to_str().expect("UTF-8");
    for wanted in [own, "[vdso]", &anonymous] {
        assert_eq!(objects.iter().filter(|object| **object == wanted).count(), 1, "{wanted}: {said}");
    }
    // The kernel's own object has .eh_frame, and is examined as any other.
    let (_, vdso) = said.split_once("[vdso]\n").expect("it was just found");
    assert!(vdso.lines().nth(1).is_some_and(|line| line.contains("rule table     from .eh_frame")), "{said}");

    let (mut child, _) = start(&gone);
    std::fs::remove_file(&gone).expect("removed");
    let said = doctor(&scratch, &child.id().to_string());
    child.kill().and_then(|()| child.wait()).expect("it ends");
    let (_, rest) = said.split_once("gone (deleted)\n").expect("a file that was deleted");
    let line = rest.lines().next().unwrap_or_default();
    // With CAP_CHECKPOINT_RESTORE it can be examined nevertheless.
    assert!(line.contains("the file was deleted or replaced") || line.contains("text "), "{said}");
}
