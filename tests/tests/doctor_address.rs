//! `uu doctor FILE@ADDRESS` agrees with readelf about every instruction that it is given, and with what is known of
//! code that readelf says nothing about.

use std::path::{Path, PathBuf};
use std::process::Command;
use uunwind_core::regs::RSP;
use uunwind_elf::Image;
use uunwind_tables::{Table, TableAnswer};
use uunwind_tables_build::of_image;
use uunwind_tests::readelf_rows::{self, Row};
use uunwind_tests::{compile, paths, uu};

/// The program's text, and the exit code.
fn run(scratch: &Path, what: &str) -> (String, Option<i32>) {
    let done = uu::command(scratch, &["doctor", what]).output().expect("uu");
    (String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned(), done.status.code())
}

/// What is printed for an address.
#[track_caller]
fn doctor(scratch: &Path, file: &Path, place: &str) -> String {
    let (text, code) = run(scratch, &format!("{}@{place}", file.display()));
    assert_eq!(code, Some(0), "{text}");
    text
}

/// What is printed after a name.
#[track_caller]
fn line<'a>(said: &'a str, name: &str) -> &'a str {
    let found = said.lines().find_map(|line| line.strip_prefix("  ")?.strip_prefix(name)?.strip_prefix(' '));
    found.unwrap_or_else(|| panic!("no line {name:?}: {said}")).trim()
}

fn tool(program: &str, arguments: &[&str], file: &Path) -> String {
    let done = Command::new(program).args(arguments).arg(file).output().expect("binutils");
    assert!(done.status.success(), "{program}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8_lossy(&done.stdout).into_owned()
}

/// Addresses of a symbol's instructions with their text, by objdump.
fn instructions(file: &Path, symbol: &str) -> Vec<(u64, String)> {
    let said = tool("objdump", &["-d", "--no-show-raw-insn", &format!("--disassemble={symbol}")], file);
    let instruction = |line: &str| {
        let (address, text) = line.split_once(":\t")?;
        Some((u64::from_str_radix(address.trim(), 16).ok()?, text.trim().to_owned()))
    };
    let found: Vec<_> = said.lines().filter_map(instruction).collect();
    assert!(!found.is_empty(), "objdump has no {symbol}: {said}");
    found
}

/// A row of readelf's in the doctor's words; only for rows without expressions.
fn expected(rows: &[Row], address: u64) -> String {
    let row = rows.iter().rfind(|r| r.function.contains(address) && r.start <= address);
    let row = row.unwrap_or_else(|| panic!("readelf has no row for {address:#x}"));
    let names = [(3, "rbx"), (6, "rbp"), (12, "r12"), (13, "r13"), (14, "r14"), (15, "r15"), (16, "rip")];
    let places = names.into_iter().filter_map(|(number, name)| {
        let (_, place) = row.places.iter().find(|(n, _)| *n == number)?;
        Some(format!(", {name} *(CFA{})", place.strip_prefix('c')?))
    });
    format!("CFA {}{}", row.cfa, places.collect::<String>())
}

fn program(scratch: &Path, options: &[&str]) -> PathBuf {
    let options = [&["-Wl,-z,lazy", "-Wl,--build-id=sha1", "-fcf-protection=none"], options].concat();
    compile::gcc(scratch, "addresses", &["native/doctor_address.c"], &options)
}

#[test]
fn every_instruction_has_the_rule_that_readelf_prints() {
    let scratch = paths::scratch("doctor-address");
    let file = program(&scratch, &[]);
    let rows = readelf_rows::read(&file).expect("readelf (binutils)");
    let mut texts = String::new();
    for symbol in ["framed", "pushes"] {
        let code = instructions(&file, symbol);
        let start = code[0].0;
        for (address, text) in code {
            texts += &format!("{text}\n");
            let said = doctor(&scratch, &file, &format!("{address:#x}"));
            let rule = expected(&rows, address);
            assert_eq!(line(&said, "rule table"), rule, "{text}: {said}");
            assert_eq!(line(&said, ".eh_frame"), rule, "{text}: {said}");
            let chosen = line(&said, "chosen");
            assert!(chosen.starts_with("rule table: ") && chosen.ends_with(&rule), "{text}: {said}");
            let place = format!("{symbol}+{:#x}", address - start);
            assert!(line(&said, "function").starts_with(&place), "{place}: {said}");
            assert_eq!(doctor(&scratch, &file, &place), said, "{place}");
        }
    }
    for part in ["push ", "leave", "call "] {
        assert!(texts.contains(part), "the program has no {part}:\n{texts}");
    }
}

#[test]
fn functions_are_found_by_the_names_that_reports_show() {
    let scratch = paths::scratch("doctor-address-name");
    let file = program(&scratch, &[]);
    let mangled = doctor(&scratch, &file, "_ZN5space4nameEi+0x1");
    assert!(line(&mangled, "function").starts_with("space::name(int)+0x1 "), "{mangled}");
    assert_eq!(doctor(&scratch, &file, "space::name(int)+0x1"), mangled);
}

#[test]
fn what_follows_a_call_is_looked_up_in_the_call() {
    let scratch = paths::scratch("doctor-address-call");
    let file = program(&scratch, &[]);
    let rows = readelf_rows::read(&file).expect("readelf (binutils)");
    let code = instructions(&file, "pushes");
    let mut calls = 0;
    for pair in code.windows(2) {
        let said = doctor(&scratch, &file, &format!("{:x}", pair[1].0));
        if pair[0].1.starts_with("call") {
            let returned = line(&said, "if returned to");
            let lookup = pair[1].0 - 1;
            assert!(returned.starts_with(&format!("looked up at {lookup:#x}")), "{said}");
            assert!(returned.ends_with(&expected(&rows, lookup)), "{said}");
            calls += 1;
        } else {
            assert!(!said.contains("if returned to"), "{}: {said}", pair[0].1);
        }
    }
    assert!(calls >= 3, "{calls} calls");
}

/// The expression for the CFA in the FDE that covers an address, as readelf's raw dump prints it.
fn expression(file: &Path, address: u64) -> String {
    let said = tool("readelf", &["--wide", "--debug-dump=frames", "--debug-dump=no-follow-links"], file);
    let mut inside = false;
    for line in said.lines() {
        if let Some((_, range)) = line.split_once(" pc=") {
            let (start, end) = range.trim().split_once("..").expect("a range");
            let number = |text| u64::from_str_radix(text, 16).expect("hexadecimal");
            inside = (number(start)..number(end)).contains(&address);
        }
        if let Some((_, text)) = line.split_once("DW_CFA_def_cfa_expression (").filter(|_| inside) {
            return text.trim_end_matches(')').to_owned();
        }
    }
    panic!("no expression for {address:#x}: {said}")
}

/// The number before or after a word of an expression.
fn number(expression: &str, before: &str, after: &str) -> u64 {
    let rest = expression.split_once(before).unwrap_or_else(|| panic!("{before} in {expression}")).1;
    rest.split(after).next().and_then(|n| n.trim().parse().ok()).unwrap_or_else(|| panic!("{expression}"))
}

#[test]
fn a_stub_of_the_linkage_table_has_another_rule_after_its_push() {
    let scratch = paths::scratch("doctor-address-plt");
    let file = program(&scratch, &[]);
    let sections = tool("readelf", &["-SW"], &file);
    let of_plt = sections.lines().find_map(|line| line.split_once("] .plt ")).expect("a .plt").1;
    let plt = u64::from_str_radix(of_plt.split_whitespace().nth(1).expect("address"), 16).expect("hexadecimal");
    // breg7 (rsp) + 8 + (((rip & 15) >= N) << 3)
    let meaning = expression(&file, plt + 16);
    let base = number(&meaning, "DW_OP_breg7 (rsp): ", ";");
    let from = number(&meaning, "DW_OP_and; DW_OP_lit", ";");
    for offset in [0, from - 1, from, 15] {
        let said = doctor(&scratch, &file, &format!("{:#x}", plt + 16 + offset));
        let cfa = base + if offset >= from { 8 } else { 0 };
        assert!(line(&said, ".eh_frame").starts_with(&format!("CFA rsp+{cfa},")), "{meaning}, +{offset}: {said}");
        assert!(line(&said, "rule table").starts_with("left to .eh_frame"), "{said}");
        assert!(line(&said, "chosen").starts_with(".eh_frame: "), "{said}");
        assert!(said.lines().next().is_some_and(|first| first.ends_with("in .plt")), "{said}");
    }
}

#[test]
fn code_without_unwind_information_is_left_to_its_instructions_its_bytes_or_the_frame_pointer() {
    let scratch = paths::scratch("doctor-address-gap");
    let file = program(&scratch, &[]);
    // 24 bytes, and the return address.
    let said = doctor(&scratch, &file, "bare+0x4");
    assert_eq!(line(&said, "machine code"), "CFA rsp+32, rip *(CFA-8)", "{said}");
    assert!(line(&said, "rule table").starts_with("left to the machine code"), "{said}");
    assert!(line(&said, "chosen").starts_with("machine code: "), "{said}");
    assert!(line(&said, "function").starts_with("bare+0x4") && said.contains("no unwind information"), "{said}");
    let said = doctor(&scratch, &file, "lost+0x2");
    for source in ["rule table", ".eh_frame"] {
        assert_eq!(line(&said, source), "does not cover it", "{said}");
    }
    assert!(line(&said, "chosen").starts_with("frame pointer: nothing else has a rule here"), "{said}");
    assert!(line(&said, "function").starts_with("lost+0x2") && said.contains("no unwind information"), "{said}");
    // At +4 of _init, 8 bytes were made room for; before, the return address is at rsp.
    for (place, cfa) in [("_init", 8), ("_init+0x4", 16)] {
        let said = doctor(&scratch, &file, place);
        let rule = format!("CFA rsp+{cfa}, rip *(CFA-8)");
        assert_eq!(line(&said, "known code"), rule, "{said}");
        // The instructions say the same, and come first.
        assert_eq!(line(&said, "machine code"), rule, "{said}");
        assert!(line(&said, "chosen").starts_with("machine code: "), "{said}");
    }
}

#[test]
fn the_trampoline_of_signals_is_a_signal_frame() {
    let scratch = paths::scratch("doctor-address-signal");
    let file = program(&scratch, &["-static"]);
    let (start, _) = instructions(&file, "__restore_rt")[0];
    let said = doctor(&scratch, &file, "__restore_rt");
    // DW_OP_breg7 (rsp): N; DW_OP_deref
    let meaning = expression(&file, start);
    let at = number(&meaning, "DW_OP_breg7 (rsp): ", ";");
    assert!(meaning.ends_with("DW_OP_deref"), "{meaning}");
    assert!(line(&said, "rule table").starts_with(&format!("signal frame: CFA *(rsp+{at})")), "{meaning}: {said}");
    assert!(line(&said, "chosen").contains("signal frame"), "{said}");
}

#[test]
fn a_debug_frame_counts_as_part_of_the_table() {
    let scratch = paths::scratch("doctor-address-debug");
    let file = program(&scratch, &["-fno-asynchronous-unwind-tables", "-fno-unwind-tables"]);
    let rows = readelf_rows::read(&file).expect("readelf (binutils)");
    for (address, text) in instructions(&file, "framed") {
        let said = doctor(&scratch, &file, &format!("{address:#x}"));
        let rule = expected(&rows, address);
        assert_eq!(line(&said, "rule table"), rule, "{text}: {said}");
        assert!(line(&said, ".debug_frame").starts_with(&format!("{rule} (a process does not load it")), "{said}");
        assert_eq!(line(&said, ".eh_frame"), "does not cover it", "{said}");
        assert!(line(&said, "chosen").starts_with("rule table: "), "{said}");
    }
}

#[test]
fn what_is_no_address_of_the_file_is_refused_with_what_to_do() {
    let scratch = paths::scratch("doctor-address-refused");
    let file = program(&scratch, &[]);
    let file = file.display();
    for (what, words) in [
        (format!("{file}@0x10"), "no code at 0x10. Its code: .init 0x"),
        (format!("{file}@0x7fffdeadbeef"), "less the load bias"),
        (format!("{file}@no_such_function"), "no function has this name"),
        (format!("{file}@0xnumber"), "no hexadecimal number"),
        (format!("{file}@framed+0xeight"), "comes +0x and a hexadecimal number"),
        (format!("{file}.missing@0x10"), "cannot be read"),
        ("/dev/null@0x10".to_owned(), "/dev/null"),
    ] {
        let (text, code) = run(&scratch, &what);
        assert_eq!(code, Some(125), "{what}: {text}");
        assert!(text.contains(words), "{what}: {text}");
    }
}

/// More code than is analysed: that is said, and what was analysed before has its rules.
#[test]
fn code_that_takes_too_much_work_costs_no_other_code() {
    let scratch = paths::scratch("doctor-address-budget");
    // Functions of 1.9 MB of `cmc` each: 20 million instructions are carried out for a table, two million
    // for a function.
    let long = ".globl long_\\@\n.type long_\\@, @function\nlong_\\@: .fill 1900000, 1, 0xf5\nret\n.size long_\\@, . - long_\\@\n";
    let early = ".globl early\n.type early, @function\nearly: push %rbx\nnop\npop %rbx\nret\n.size early, . - early\n";
    let source = format!(
        ".text\n{early}.macro long\n{long}.endm\n.rept 12\nlong\n.endr\n.section .note.GNU-stack,\"\",@progbits\n"
    );
    std::fs::write(scratch.join("long.s"), source).expect("scratch");
    let options = ["-shared", "-nostdlib", "-Wl,--build-id"];
    let file = compile::gcc_files(&scratch, "long.so", &[scratch.join("long.s")], &options);
    let (said, code) = run(&scratch, &file.display().to_string());
    let words = "some code that nothing describes was not analysed: it takes more work than a table may";
    assert!(code == Some(0) && said.contains(words), "{said}");
    // In the table, too, after its push.
    let image = Image::open(&file).expect("an object");
    let start = image.section(b".text").expect("text").address;
    let built = of_image(&image, 1).expect("a table");
    let mut words = vec![0u64; built.len().div_ceil(8)];
    // SAFETY: integers, as bytes.
    let place = unsafe { &mut words.align_to_mut::<u8>().1[..built.len()] };
    place.copy_from_slice(&built);
    let TableAnswer::Short(short) = Table::new(place).expect("whole").find(start + 1) else { panic!("no rule") };
    let rule = short.pack().unpack().expect("a rule");
    assert_eq!((rule.cfa_register, rule.cfa_offset, rule.slots[0]), (RSP, 16, -2));
}
