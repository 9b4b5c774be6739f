//! Rule tables made of `.debug_frame`, above all of Go's, which has nothing else: every row against gimli's and against
//! readelf's own interpretation. What is left out, because Go's rows are not what its code does, is looked at by
//! objdump.

use gimli::{BaseAddresses, CfaRule, DebugFrame, EhFrame, LittleEndian, UnwindContext, UnwindSection};
use object::elf::{PF_X, PT_LOAD};
use object::{Object, ObjectSection, ObjectSymbol};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::process::Command;
use uunwind_core::regs::RSP;
use uunwind_core::rule::{Rule, UNKNOWN};
use uunwind_core::span::Span;
use uunwind_core::stop_reason::StopReason;
use uunwind_elf::Image;
use uunwind_tables::format::{TableHead, FROM_DEBUG_FRAME};
use uunwind_tables::{Table, TableAnswer};
use uunwind_tables_build::{debug_frame, of_image};
use uunwind_tests::cfi_oracle::{has_expression, ours, same, same_by_go, theirs};
use uunwind_tests::{compile, go, paths, readelf_rows};

/// Without `.eh_frame` for the program's own functions.
const DEBUG_ONLY: [&str; 2] = ["-fno-asynchronous-unwind-tables", "-fno-unwind-tables"];

/// Functions of an object, by their first address, that only its `.debug_frame` describes.
type Functions = HashMap<u64, u64>;

/// The table's rule, or why it has none.
fn rule(table: &Table<'_>, pc: u64) -> Result<Rule, StopReason> {
    match table.find(pc) {
        TableAnswer::Short(rule) => rule.pack().unpack(),
        TableAnswer::Long(rule) => rule.unpack(),
        TableAnswer::Ask => panic!("{pc:#x}: cannot be interpreted in place: .debug_frame is not loaded"),
        TableAnswer::Nothing => panic!("{pc:#x}: not in the table"),
    }
}

/// Ranges that `.eh_frame` describes, which takes precedence.
fn by_eh_frame(path: &Path) -> Vec<(u64, u64)> {
    let data = std::fs::read(path).expect("the file");
    let file = object::File::parse(&*data).expect("an ELF file");
    let Some(section) = file.section_by_name(".eh_frame") else { return Vec::new() };
    // A file of debugging information has the section without its bytes.
    let frame = EhFrame::new(section.data().expect("its bytes"), LittleEndian);
    let bases = BaseAddresses::default().set_eh_frame(section.address());
    let (mut entries, mut ranges) = (frame.entries(&bases), Vec::new());
    while let Some(entry) = entries.next().expect("a sound section") {
        let gimli::CieOrFde::Fde(partial) = entry else { continue };
        let fde = partial.parse(EhFrame::cie_from_offset).expect("a sound FDE");
        ranges.push((fde.initial_address(), fde.initial_address() + fde.len()));
    }
    ranges
}

/// DWARF number of r12; index of rbp among the slots.
const R12: u8 = 12;
const RBP_SLOT: usize = 1;

/// What objdump shows of a program's code.
#[derive(Default)]
struct Code {
    /// Instructions that save rbp: from where, up to where.
    saves: BTreeMap<u64, u64>,
    /// From after `mov %rsp,%r12` up to after `mov %r12,%rsp`; and from after the next return to the end of its
    /// function.
    kept: Vec<(u64, u64)>,
}

impl Code {
    fn of(path: &Path) -> Code {
        let done = Command::new("objdump").args(["-d", "--no-show-raw-insn", "-w"]).arg(path).output();
        let said = String::from_utf8_lossy(&done.expect("objdump (binutils)").stdout).into_owned();
        let instruction = |line: &str| {
            let (address, text) = line.trim().split_once(":\t")?;
            Some((u64::from_str_radix(address, 16).ok()?, text.split_whitespace().collect::<Vec<_>>().join(" ")))
        };
        let mut code = Code::default();
        for function in said.split("\n\n") {
            let all: Vec<(u64, String)> = function.lines().filter_map(instruction).collect();
            let mut copied = None;
            let mut returns = false;
            for pair in all.windows(2) {
                let [(at, text), (next, _)] = pair else { continue };
                if text == "push %rbp" || text.starts_with("mov %rbp,") && text.ends_with("(%rsp)") {
                    code.saves.insert(*at, *next);
                }
                match &**text {
                    "mov %rsp,%r12" => copied = Some(*next),
                    "mov %r12,%rsp" => {
                        code.kept.extend(copied.take().map(|from| (from, *next)));
                        returns = true;
                    }
                    "ret" if returns => {
                        code.kept.extend(all.last().map(|(last, _)| (*next, last + 1)));
                        returns = false;
                    }
                    _ => {}
                }
            }
        }
        code
    }

    fn keeps_stack_pointer(&self, pc: u64) -> bool {
        self.kept.iter().any(|(from, to)| (*from..*to).contains(&pc))
    }

    /// Whether a function has saved rbp before `pc`; `None`: it never does, or not as the first thing of its frame.
    fn has_saved_rbp(&self, start: u64, pc: u64) -> Option<bool> {
        let (_, end) = self.saves.range(start..).next()?;
        Some(*end <= pc)
    }
}

/// What was found in an object.
#[derive(Default)]
struct Seen {
    /// Places compared with gimli's rows.
    compared: usize,
    /// Functions of the table.
    functions: Functions,
    /// Functions that the table leaves out.
    left_out: Vec<(u64, u64)>,
}

/// Compares every row with gimli's. `outermost`: functions in which Go's stacks end.
fn with_gimli(path: &Path, image: &Image, table: &Table<'_>, outermost: &[u64]) -> Seen {
    let (_, bytes) = debug_frame(image).expect("a .debug_frame").expect("that can be read");
    let frame = DebugFrame::new(&bytes, LittleEndian);
    let known = by_eh_frame(path);
    let is_code = |pc: u64| {
        let inside = |s: &&uunwind_elf::Segment| {
            s.kind == PT_LOAD && s.flags & PF_X != 0 && pc.wrapping_sub(s.address) < s.memory_size
        };
        image.segments().iter().any(|segment| inside(&segment))
    };
    let code = Code::of(path);
    let (bases, mut context) = (BaseAddresses::default(), UnwindContext::new());
    let mut seen = Seen::default();
    let mut entries = frame.entries(&bases);
    while let Some(entry) = entries.next().expect("a sound section") {
        let gimli::CieOrFde::Fde(partial) = entry else { continue };
        let fde = partial.parse(DebugFrame::cie_from_offset).expect("a sound FDE");
        let (start, end) = (fde.initial_address(), fde.initial_address() + fde.len());
        let listed_twice = known.iter().any(|(from, to)| start < *to && *from < end);
        // What the linker left out is at address 0.
        if start == end || listed_twice || !is_code(start) {
            continue;
        }
        // Go alone counts in words of 4 bytes on this CPU.
        let by_go = fde.cie().data_alignment_factor() == -4;
        match table.function(start) {
            None if by_go => {
                seen.left_out.push((start, end));
                continue;
            }
            function => assert_eq!(function, Some(Span::new(start, end)), "{}", path.display()),
        }
        if outermost.contains(&start) {
            assert_eq!(rule(table, start + 1), Ok(Rule::end()), "{}", path.display());
            continue;
        }
        seen.functions.insert(start, end);
        let mut rows = fde.rows(&frame, &bases, &mut context).expect("rows");
        while let Some(row) = rows.next_row().expect("a sound program") {
            let (first, last) = (row.start_address(), row.end_address().min(end).saturating_sub(1));
            if first > last {
                continue;
            }
            assert!(!has_expression(row), "{}: {first:#x}: {row:?}", path.display());
            // Where rbp is saved within a row, our rule changes.
            let saves = code.saves.range(first..=last).flat_map(|(_, end)| [*end - 1, *end]).filter(|pc| *pc <= last);
            for pc in [first, last].into_iter().chain(saves) {
                let at = || format!("{}: pc {pc:#x}, FDE {start:#x}", path.display());
                let rule = rule(table, pc).unwrap_or_else(|reason| panic!("{}: {reason:?}", at()));
                let theirs = theirs(row, &frame, fde.cie().encoding(), pc).unwrap_or_else(|_| panic!("{}", at()));
                let ours = ours(&rule);
                let is_same = match row.cfa() {
                    // The stack pointer may be another stack's there, and r12 has the function's own.
                    CfaRule::RegisterAndOffset { offset, .. } if by_go && rule.cfa_register == R12 => {
                        code.keeps_stack_pointer(pc) && *offset == i64::from(rule.cfa_offset)
                    }
                    CfaRule::RegisterAndOffset { offset, .. } if by_go => {
                        let saved = if *offset == 8 { Some(false) } else { code.has_saved_rbp(start, pc) };
                        same_by_go(ours.as_ref(), theirs.as_ref(), saved)
                    }
                    _ => same(ours.as_ref(), theirs.as_ref(), row) == Some(0),
                };
                assert!(is_same, "{}: {ours:?}\n{theirs:?}", at());
                seen.compared += 1;
            }
        }
    }
    seen
}

/// Compares the rows of these functions with readelf's; how many.
fn with_readelf(path: &Path, table: &Table<'_>, functions: &Functions, by_go: bool) -> usize {
    let rows = readelf_rows::read(path).expect("readelf (binutils)");
    let of_debug_frame = rows.iter().filter(|row| functions.get(&row.function.start) == Some(&row.function.end));
    // A row of no length, at the end of its function, holds nowhere.
    let rows = of_debug_frame.filter(|row| row.start < row.function.end);
    rows.map(|row| {
        let mut rule = rule(table, row.start).expect("a rule");
        // What Go's rows do not say was compared with its code: where rbp is saved, and what r12 has.
        if by_go {
            rule.slots[RBP_SLOT] = UNKNOWN;
            if rule.cfa_register == R12 {
                (rule.cfa_register, rule.flags) = (RSP, 0);
            }
        }
        let different = readelf_rows::difference(&rule, row);
        assert_eq!(different, None, "{}: pc {:#x}: {rule:?}", path.display(), row.start);
    })
    .count()
}

/// Makes all comparisons for an object with at least `least` functions that only `.debug_frame` describes. Returns all
/// rules, by address.
#[track_caller]
fn compare(path: &Path, least: usize) -> Vec<(u64, Rule)> {
    let image = Image::open(path).expect("an ELF file");
    let bytes = of_image(&image, 1).expect("a table");
    assert_ne!(TableHead::read(&bytes).expect("a table").sources & FROM_DEBUG_FRAME, 0, "{}", path.display());
    let table = Table::new(&bytes).expect("a table");
    let names = names(path);
    let ends = |name: &str| matches!(name.trim_end_matches(".abi0"), "runtime.goexit" | "runtime.rt0_go");
    let outermost: Vec<u64> = names.iter().filter(|(_, name)| ends(name)).map(|(start, _)| *start).collect();
    let Seen { compared, functions, left_out } = with_gimli(path, &image, &table, &outermost);
    let rows = with_readelf(path, &table, &functions, !outermost.is_empty());
    println!(
        "{}: {} functions; {compared} places, {rows} rows of readelf; {} left out",
        path.display(),
        functions.len(),
        left_out.len()
    );
    assert!(functions.len() >= least, "{}: {} functions", path.display(), functions.len());
    assert!(rows >= functions.len() && compared >= rows, "{}: {compared} places, {rows} rows", path.display());
    are_left_out_with_reason(path, &left_out, &names);
    let mut starts: Vec<u64> = functions.into_keys().collect();
    starts.sort_unstable();
    starts.into_iter().map(|pc| (pc, rule(&table, pc).expect("a rule"))).collect()
}

/// Functions by their first address.
fn names(path: &Path) -> BTreeMap<u64, String> {
    let data = std::fs::read(path).expect("the file");
    let file = object::File::parse(&*data).expect("an ELF file");
    file.symbols().filter_map(|s| Some((s.address(), s.name().ok()?.to_owned()))).collect()
}

/// Of a program of Go, with its code: functions that take another stack are left out, and none that leaves its own
/// alone.
fn are_left_out_with_reason(path: &Path, left_out: &[(u64, u64)], names: &BTreeMap<u64, String>) {
    for wanted in ["runtime.systemstack.abi0", "runtime.asmcgocall.abi0", "runtime.mcall"] {
        let Some((start, _)) = names.iter().find(|(_, name)| *name == wanted) else { continue };
        assert!(left_out.iter().any(|(left, _)| left == start), "{}: {wanted} is used", path.display());
    }
    for (start, end) in left_out {
        let range = [format!("--start-address={start:#x}"), format!("--stop-address={end:#x}")];
        let done = Command::new("objdump").args(["-d", "--no-show-raw-insn", "-w"]).args(range).arg(path).output();
        let said = String::from_utf8_lossy(&done.expect("objdump (binutils)").stdout).into_owned();
        let writes = |line: &str| line.trim_end().ends_with(",%rsp") || line.contains("pushf") || line.contains("popf");
        let name = names.get(start).map_or("?", String::as_str);
        assert!(said.lines().any(writes), "{}: {name}: why is it left out? {said}", path.display());
    }
}

/// A copy whose debugging sections are compressed so, or not at all (`none`).
fn compressed(dir: &Path, path: &Path, kind: &str) -> PathBuf {
    let copy = dir.join(format!("{}-{kind}", path.file_name().expect("a name").to_string_lossy()));
    let option = match kind {
        "none" => "--decompress-debug-sections".to_owned(),
        kind => format!("--compress-debug-sections={kind}"),
    };
    let done = Command::new("objcopy").arg(&option).args([path, &copy]).output().expect("objcopy (binutils)");
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{option} (binutils 2.40 knows zlib, zlib-gnu and zstd): {said}");
    copy
}

#[test]
fn rows_of_a_program_of_c_are_those_of_gimli_and_readelf() {
    let scratch = paths::scratch("debug-frames-c");
    for (name, options) in [("plain", &[][..]), ("pushes", &["-O1", "-mno-red-zone", "-fno-omit-frame-pointer"])] {
        let options = [&DEBUG_ONLY[..], &["-shared", "-fPIC", "-fno-inline"], options].concat();
        let path = compile::gcc(&scratch, name, &["native/chain_library.c"], &options);
        let plain = compare(&path, 3);
        for kind in ["zlib", "zlib-gnu", "zstd"] {
            assert_eq!(compare(&compressed(&scratch, &path, kind), 3), plain, "{kind}");
        }
    }
}

#[test]
fn rows_of_go_are_those_of_gimli_and_readelf() {
    let scratch = paths::scratch("debug-frames-go");
    // Go's runtime alone has more than a thousand functions.
    let plain = compare(&go::kept_frames(), 1000);
    for kind in ["none", "zlib", "zlib-gnu", "zstd"] {
        assert_eq!(compare(&compressed(&scratch, &go::kept_frames(), kind), 1000), plain, "{kind}");
    }
    if !go::installed("debug_frames::rows_of_go_are_those_of_gimli_and_readelf, of programs made here") {
        return;
    }
    for (name, source, cgo) in [("println", "go/println.go", false), ("calls", "go/calls.go", true)] {
        let as_usual = compare(&go::build(&scratch, name, source, cgo, &[]), 1000);
        let options = ["-ldflags=-compressdwarf=false"];
        let plain = go::build(&scratch, &format!("{name}-plain"), source, cgo, &options);
        // The addresses may be others, the functions not.
        assert_eq!(compare(&plain, 1000).len(), as_usual.len(), "{name}");
    }
}
