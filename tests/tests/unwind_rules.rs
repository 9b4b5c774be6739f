//! Our rules against gimli's rows, for every FDE of real objects: as the interpreter gives them in place, and as the table
//! has them that is built of the same object. And the table against readelf's own interpretation.
//!
//! A row holds for all its instructions, so it is compared at its first and last address; where an expression makes it depend
//! on the pc, at every address. `UU_DIFFERENTIAL=N` compares N objects of this machine, of all sizes, instead of a few.

use gimli::{BaseAddresses, EhFrame, LittleEndian, UnwindContext, UnwindSection};
use object::{Object, ObjectSection, ObjectSegment};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use uunwind_analyse::elf::Image;
use uunwind_analyse::rules::of_image;
use uunwind_core::memory::{Reader, Region};
use uunwind_core::rule::Packed;
use uunwind_core::stop_reason::StopReason;
use uunwind_eh_frame::Answer;
use uunwind_tables::{Found, Table};
use uunwind_tests::cfi_oracle::{has_expression, ours, theirs};
use uunwind_tests::skips::skipped;

#[derive(Default, Debug)]
struct Count {
    fdes: usize,
    rows: usize,
    ends: usize,
    /// No rule can say it.
    beyond: usize,
    /// The index does not know the function: the interpreter cannot.
    unlisted: usize,
    /// The table leaves it to the interpreter.
    asked: usize,
    /// Bytes of `.eh_frame`, and of the table.
    bytes: (usize, usize),
}

/// Compares every row of an object; `None` if it has no unwind tables.
fn compare(path: &Path) -> Option<Count> {
    let data = std::fs::read(path).ok()?;
    let file = object::File::parse(&*data).ok()?;
    let frame_section = file.section_by_name(".eh_frame")?;
    let hdr = file.section_by_name(".eh_frame_hdr")?.address();
    let frame_data = frame_section.data().ok()?;
    let frame = EhFrame::new(frame_data, LittleEndian);
    let text = file.section_by_name(".text").map_or(0, |s| s.address());
    let bases = BaseAddresses::default().set_eh_frame(frame_section.address()).set_text(text).set_eh_frame_hdr(hdr);
    let segments: Vec<(u64, Vec<u8>)> =
        file.segments().filter_map(|s| Some((s.address(), [s.data().ok()?, &[0; 16]].concat()))).collect();
    let regions: Vec<Region<'_>> =
        segments.iter().map(|(address, bytes)| Region { address: *address, bytes }).collect();
    let bounds =
        (regions.iter().map(|r| r.address).min()?, regions.iter().map(|r| r.address + r.bytes.len() as u64).max()?);
    let mut reader = Reader::recorded(&regions);
    let bytes = of_image(&Image::open(path).ok()?, 1).ok()?;
    let table = Table::new(&bytes).expect("what was built is a table");
    let mut context = UnwindContext::new();
    let mut count = Count { bytes: (frame_data.len(), bytes.len()), ..Count::default() };
    let mut entries = frame.entries(&bases);
    while let Ok(Some(entry)) = entries.next() {
        let gimli::CieOrFde::Fde(partial) = entry else { continue };
        let fde = partial.parse(EhFrame::cie_from_offset).ok()?;
        let function = (fde.initial_address(), fde.initial_address() + fde.len());
        if fde.len() == 0 {
            continue;
        }
        count.fdes += 1;
        assert_eq!(table.function(function.0), Some(function), "{}", path.display());
        assert_eq!(table.function(function.1 - 1), Some(function), "{}", path.display());
        let Ok(mut rows) = fde.rows(&frame, &bases, &mut context) else { continue };
        while let Ok(Some(row)) = rows.next_row() {
            let (first, last) = (row.start_address(), row.end_address().saturating_sub(1));
            if first > last {
                continue;
            }
            let step = if has_expression(row) { 1 } else { (last - first).max(1) };
            for pc in (first..=last).step_by(step as usize) {
                let at = || format!("{}: pc {pc:#x}, FDE {:#x}", path.display(), fde.initial_address());
                let answer = uunwind_eh_frame::find(hdr, bounds, pc, pc, &mut reader);
                let answer = match answer {
                    // A tool that moves functions (BOLT) leaves the old ones' FDEs in place, and out of the index.
                    Err(StopReason::NoRule) => {
                        count.unlisted += 1;
                        continue;
                    }
                    answer => answer.unwrap_or_else(|reason| panic!("{}: {reason:?}", at())),
                };
                assert_eq!(answer.function, function, "{}", at());
                count.rows += 1;
                count.asked += usize::from(same_in_table(&table, &answer, pc, has_expression(row), &at));
                match (answer.rule, theirs(row, &frame, fde.cie().encoding(), pc)) {
                    (Ok(rule), Ok(theirs)) => {
                        count.ends += usize::from(theirs.is_none());
                        assert_eq!(ours(&rule), theirs, "{}\nrule {rule:?}\nrow {row:?}", at());
                    }
                    // Where we have no rule, it must be for something that no rule can say.
                    (Err(StopReason::UnsupportedRule), _) => count.beyond += usize::from(pc == first),
                    (ours, theirs) => panic!("{}: {ours:?} against {theirs:?}", at()),
                }
            }
        }
    }
    Some(count)
}

/// The table must say what the interpreter does, unless it leaves the pc to it. True if it does.
fn same_in_table(table: &Table<'_>, answer: &Answer, pc: u64, may_ask: bool, at: &dyn Fn() -> String) -> bool {
    let wanted = Packed::from_result(answer.rule);
    match table.find(pc) {
        Found::Short(rule) => assert_eq!(rule.pack(), wanted, "table, {}", at()),
        Found::Long(rule) => assert_eq!(rule, wanted, "table, {}", at()),
        Found::Ask => {
            assert!(may_ask, "the table asks the interpreter, {}", at());
            return true;
        }
        Found::Nothing => panic!("the table has no function, {}", at()),
    }
    false
}

/// Objects that most machines have, this test itself, and what the environment names.
fn usual() -> Vec<PathBuf> {
    let lib = Path::new("/usr/lib/x86_64-linux-gnu");
    let mut paths: Vec<PathBuf> = ["libc.so.6", "libm.so.6", "libgcc_s.so.1", "libstdc++.so.6", "libsqlite3.so.0"]
        .map(|name| lib.join(name))
        .into();
    paths.extend([lib.join("libcrypto.so.3"), "/lib64/ld-linux-x86-64.so.2".into()]);
    paths.extend(["python3", "bash", "git"].map(|name| Path::new("/usr/bin").join(name)));
    paths.extend(std::env::current_exe());
    paths
}

/// As many objects as are asked for, spread evenly over all that are found, by size.
fn many(wanted: usize) -> Vec<PathBuf> {
    let sysroot = Command::new("rustc").args(["--print", "sysroot"]).output().ok();
    let sysroot = sysroot.and_then(|out| Some(PathBuf::from(String::from_utf8(out.stdout).ok()?.trim()).join("lib")));
    let python = Command::new("python3").args(["-c", "import sys; print(sys.base_prefix)"]).output().ok();
    let python = python.and_then(|out| Some(PathBuf::from(String::from_utf8(out.stdout).ok()?.trim()).join("lib")));
    let folders = ["/usr/lib/x86_64-linux-gnu", "/usr/bin", "/usr/sbin", "/usr/lib"].map(PathBuf::from);
    let mut found = BTreeSet::new();
    for folder in folders.into_iter().chain(sysroot).chain(python) {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let Ok(path) = entry.path().canonicalize() else { continue };
            let Ok(meta) = std::fs::metadata(&path) else { continue };
            if meta.is_file() && std::fs::File::open(&path).is_ok_and(|mut f| begins_as_elf(&mut f)) {
                found.insert((meta.len(), path));
            }
        }
    }
    let found: Vec<PathBuf> = found.into_iter().map(|(_, path)| path).collect();
    let step = (found.len() / wanted.max(1)).max(1);
    found.into_iter().rev().step_by(step).collect()
}

fn begins_as_elf(file: &mut std::fs::File) -> bool {
    use std::io::Read;
    let mut magic = [0; 4];
    file.read_exact(&mut magic).is_ok() && magic == *b"\x7fELF"
}

#[test]
fn every_row_of_real_objects() {
    let wanted = std::env::var("UU_DIFFERENTIAL").ok().map(|n| n.parse().expect("UU_DIFFERENTIAL is a number"));
    let (mut objects, mut incomplete, mut rows, mut bytes) = (0, 0, 0, (0, 0));
    for path in wanted.map_or_else(usual, many) {
        let Some(count) = compare(&path) else {
            println!("left out: {} (not here, or without unwind tables)", path.display());
            continue;
        };
        println!("{}: {count:?}", path.display());
        // What no rule can say is rare: a handful of hand-written sequences.
        assert!(count.beyond * 1000 <= count.rows + 20_000, "{}: {count:?}", path.display());
        // Small objects may have more rules than rows that use them.
        assert!(
            count.bytes.1 <= count.bytes.0 + 1024,
            "{}: the table is larger than .eh_frame: {count:?}",
            path.display()
        );
        // Nearly every object's index is complete.
        incomplete += usize::from(count.unlisted > 0);
        objects += 1;
        rows += count.rows;
        bytes = (bytes.0 + count.bytes.0, bytes.1 + count.bytes.1);
    }
    println!("{objects} objects, {rows} places compared; {} bytes of .eh_frame, {} of tables", bytes.0, bytes.1);
    assert!(
        incomplete * 20 <= objects,
        "{incomplete} of {objects} objects have functions that their index does not know"
    );
    assert!(objects >= 2, "the C library and this test itself have unwind tables");
    assert!(bytes.1 <= bytes.0, "tables are larger than what they are built of");
}

/// One line of `readelf --debug-dump=frames-interp`: where a row begins, and its CFA as `register+offset`.
fn readelf_rows(path: &Path) -> Option<Vec<(u64, String)>> {
    let out = Command::new("readelf").args(["--wide", "--debug-dump=frames-interp"]).arg(path).output().ok()?;
    let text = String::from_utf8_lossy(&out.stdout);
    let row = |line: &str| {
        let mut words = line.split_whitespace();
        let at = words.next().filter(|word| word.len() == 16)?;
        let cfa = words.next().filter(|word| word.contains('+') || *word == "exp")?;
        Some((u64::from_str_radix(at, 16).ok()?, cfa.to_owned()))
    };
    Some(text.lines().filter_map(row).collect())
}

#[test]
fn cfas_are_those_of_readelf() {
    if Command::new("readelf").arg("--version").output().is_err() {
        return skipped("unwind_rules::cfas_are_those_of_readelf", "readelf (binutils) is not here");
    }
    let mut compared = 0;
    for path in usual().into_iter().filter(|path| path.exists()).take(4) {
        let Some(rows) = readelf_rows(&path) else { continue };
        let bytes = of_image(&Image::open(&path).expect("an ELF file"), 1).expect("a table");
        let table = Table::new(&bytes).expect("a table");
        for (pc, cfa) in rows {
            let rule = match table.find(pc) {
                Found::Short(rule) => rule.pack(),
                Found::Long(rule) => rule,
                Found::Ask => {
                    assert_eq!(cfa, "exp", "{} at {pc:#x}", path.display());
                    continue;
                }
                // The rows of CIEs stand at 0.
                Found::Nothing => {
                    assert_eq!(pc, 0, "{}: no function", path.display());
                    continue;
                }
            };
            let (register, offset) = rule.cfa_parts();
            let ours = match register {
                7 => format!("rsp+{offset}"),
                6 => format!("rbp+{offset}"),
                n => format!("r{n}+{offset}"),
            };
            let named = [("rbx", 3), ("rdi", 5), ("rsi", 4), ("rdx", 1), ("rcx", 2), ("rax", 0)];
            let ours = named.iter().find(|(_, n)| *n == register).map_or(ours, |(name, _)| format!("{name}+{offset}"));
            // What ends a stack, or needs an expression, has no such CFA.
            if rule.is_plain() && cfa != "exp" {
                assert_eq!(ours, cfa, "{} at {pc:#x}", path.display());
                compared += 1;
            }
        }
    }
    println!("{compared} rows compared");
    assert!(compared > 1000, "{compared} rows compared");
}
