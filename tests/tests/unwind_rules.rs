//! Our rules against gimli's rows, for every FDE of real objects: as the interpreter gives them in place, and as the
//! table has them that is built of the same object. And our rules against readelf's own interpretation.
//!
//! A row holds for all its instructions, so it is compared at its first and last address; where an expression makes it
//! depend on the pc, at every address. `UU_DIFFERENTIAL=N` compares N objects of this machine, of all sizes, instead of
//! a few.

use gimli::{BaseAddresses, EhFrame, LittleEndian, UnwindContext, UnwindSection};
use object::{Object, ObjectSection, ObjectSegment};
use std::path::Path;
use std::process::Command;
use uunwind_core::memory::{Reader, Region};
use uunwind_core::rule::Packed;
use uunwind_core::span::Span;
use uunwind_core::stop_reason::StopReason;
use uunwind_eh_frame::Answer;
use uunwind_elf::Image;
use uunwind_tables::format::{TableHead, FROM_EH_FRAME};
use uunwind_tables::{Table, TableAnswer};
use uunwind_tables_build::of_image;
use uunwind_tests::cfi_oracle::{has_expression, ours, same, theirs};
use uunwind_tests::objects::{all, usual};
use uunwind_tests::readelf_rows;
use uunwind_tests::skips::skipped;

#[derive(Default, Debug)]
struct Count {
    fdes: usize,
    rows: usize,
    ends: usize,
    /// Rows that no rule can express.
    beyond: usize,
    /// Places that the interpreter cannot find, because the index lacks the function.
    unlisted: usize,
    /// Places that the table leaves to the interpreter.
    asked: usize,
    /// Registers that are unavailable because no rule can express their place.
    given_up: usize,
    /// Sizes in bytes of `.eh_frame` and of the table.
    bytes: (usize, usize),
    /// The sections from which the table was built (`FROM_*`).
    sources: u8,
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
    let loaded = Loaded::open(path)?;
    let (regions, bounds) = (loaded.regions(), loaded.bounds);
    let mut reader = Reader::recorded(&regions);
    let bytes = of_image(&Image::open(path).ok()?, 1).ok()?;
    let table = Table::new(&bytes).expect("what was built is a table");
    let mut context = UnwindContext::new();
    let sources = TableHead::read(&bytes)?.sources;
    let mut count = Count { bytes: (frame_data.len(), bytes.len()), sources, ..Count::default() };
    let mut entries = frame.entries(&bases);
    while let Ok(Some(entry)) = entries.next() {
        let gimli::CieOrFde::Fde(partial) = entry else { continue };
        let fde = partial.parse(EhFrame::cie_from_offset).ok()?;
        let function = Span::sized(fde.initial_address(), fde.len());
        if fde.len() == 0 {
            continue;
        }
        count.fdes += 1;
        assert_eq!(table.function(function.start), Some(function), "{}", path.display());
        assert_eq!(table.function(function.end - 1), Some(function), "{}", path.display());
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
                // What saves rdx may deliver exceptions: which instructions do is known from the code alone.
                let saves_rdx = matches!(row.register(gimli::X86_64::RDX), Some(gimli::RegisterRule::Offset(_)));
                let may_ask = has_expression(row) || saves_rdx;
                count.asked += usize::from(same_in_table(&table, &answer, pc, may_ask, &at));
                match (answer.rule, theirs(row, &frame, fde.cie().encoding(), pc)) {
                    (Ok(rule), Ok(theirs)) => {
                        count.ends += usize::from(theirs.is_none());
                        let ours = ours(&rule);
                        let same = same(ours.as_ref(), theirs.as_ref(), row);
                        let given_up = same
                            .unwrap_or_else(|| panic!("{}: {ours:?}\n{theirs:?}\nrule {rule:?}\nrow {row:?}", at()));
                        count.given_up += usize::from(given_up > 0);
                    }
                    // Where we have no rule, it must be for something that no rule can say.
                    (Err(StopReason::UnsupportedRule), _) => count.beyond += usize::from(pc == first),
                    // The last steps of an exception's delivery, recognised in libgcc, a shared or a static one.
                    (Err(StopReason::StackInTransit), _) if is_libgcc(path) || saves_rdx => {}
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
        TableAnswer::Short(rule) => assert_eq!(rule.pack(), wanted, "table, {}", at()),
        TableAnswer::Long(rule) => assert_eq!(rule, wanted, "table, {}", at()),
        TableAnswer::Ask => {
            assert!(may_ask, "the table asks the interpreter, {}", at());
            return true;
        }
        TableAnswer::Nothing => panic!("the table has no function, {}", at()),
    }
    false
}

fn is_libgcc(path: &Path) -> bool {
    path.to_string_lossy().contains("libgcc_s")
}

/// How many objects are to be compared (`UU_DIFFERENTIAL`), instead of a few usual ones.
fn wanted() -> Option<usize> {
    std::env::var("UU_DIFFERENTIAL").ok().map(|n| n.parse().expect("UU_DIFFERENTIAL is a number"))
}

#[test]
fn every_row_of_real_objects() {
    let (mut objects, mut incomplete, mut rows, mut bytes) = (0, 0, 0, (0, 0));
    for path in wanted().map_or_else(usual, all) {
        if wanted().is_some_and(|wanted| objects >= wanted) {
            break;
        }
        let Some(count) = compare(&path) else {
            println!("left out: {} (not here, or without unwind tables)", path.display());
            continue;
        };
        println!("{}: {count:?}", path.display());
        // What no rule can say is rare: a handful of hand-written sequences.
        assert!(count.beyond * 1000 <= count.rows + 20_000, "{}: {count:?}", path.display());
        // `.eh_frame` alone, without its index. What was made of `.debug_frame`, too, is no measure.
        let (theirs, ours) = count.bytes;
        let alone = count.sources == FROM_EH_FRAME;
        assert!(!alone || ours <= theirs, "{}: the table is larger than its .eh_frame: {count:?}", path.display());
        // Nearly every object's index is complete.
        incomplete += usize::from(count.unlisted > 0);
        objects += 1;
        rows += count.rows;
        bytes = if alone { (bytes.0 + theirs, bytes.1 + ours) } else { bytes };
    }
    println!("{objects} objects, {rows} places compared; {} bytes of .eh_frame, {} of tables", bytes.0, bytes.1);
    assert!(
        incomplete * 20 <= objects,
        "{incomplete} of {objects} objects have functions that their index does not know"
    );
    assert!(objects >= 2, "the C library and this test itself have unwind tables");
    if let Some(wanted) = wanted().filter(|wanted| *wanted > objects) {
        skipped(
            "unwind_rules::every_row_of_real_objects",
            &format!("{objects} objects are here, {wanted} were wanted"),
        );
    }
}

/// An object's loaded bytes, and what leads to its `.eh_frame`.
struct Loaded {
    segments: Vec<(u64, Vec<u8>)>,
    hdr: u64,
    bounds: Span,
}

impl Loaded {
    /// `None`: no object, or one without an index.
    fn open(path: &Path) -> Option<Loaded> {
        let data = std::fs::read(path).ok()?;
        let file = object::File::parse(&*data).ok()?;
        let hdr = file.section_by_name(".eh_frame_hdr")?.address();
        let segments: Vec<_> =
            file.segments().filter_map(|s| Some((s.address(), [s.data().ok()?, &[0; 16]].concat()))).collect();
        let bounds = Span::new(
            segments.iter().map(|(address, _)| *address).min()?,
            segments.iter().map(|(address, bytes)| address + bytes.len() as u64).max()?,
        );
        Some(Loaded { segments, hdr, bounds })
    }

    fn regions(&self) -> Vec<Region<'_>> {
        self.segments.iter().map(|(address, bytes)| Region { address: *address, bytes }).collect()
    }
}

/// Compares every row of an object with readelf's; how many. `None`: nothing to compare.
fn compare_with_readelf(path: &Path) -> Option<usize> {
    let loaded = Loaded::open(path)?;
    let regions = loaded.regions();
    let mut reader = Reader::recorded(&regions);
    let mut compared = 0;
    for row in readelf_rows::read(path)? {
        let pc = row.start;
        let answer = uunwind_eh_frame::find(loaded.hdr, loaded.bounds, pc, pc, &mut reader);
        match answer.map(|answer| (answer.rule, answer.function)) {
            // Code that was moved (BOLT) still has its old FDEs; the index has the valid ones.
            Ok((_, function)) if function != row.function => {}
            Ok((Ok(rule), _)) => {
                let different = readelf_rows::difference(&rule, &row);
                assert_eq!(different, None, "{}: pc {pc:#x}: {rule:?}", path.display());
                compared += 1;
            }
            // Rows that no rule can express, and functions that the index lacks, are checked by the comparison with
            // gimli.
            Ok((Err(StopReason::UnsupportedRule), _)) | Err(StopReason::NoRule) => {}
            // The last steps of an exception's delivery.
            Ok((Err(StopReason::StackInTransit), _)) if is_libgcc(path) || row.saves(1) => {}
            other => panic!("{}: pc {pc:#x}: {other:?}", path.display()),
        }
    }
    Some(compared)
}

#[test]
fn rows_are_those_of_readelf() {
    const NAME: &str = "unwind_rules::rows_are_those_of_readelf";
    if Command::new("readelf").arg("--version").output().is_err() {
        return skipped(NAME, "readelf (binutils) is not here");
    }
    // readelf takes long over large objects.
    let few =
        || usual().into_iter().filter(|path| std::fs::metadata(path).is_ok_and(|meta| meta.len() < 3 << 20)).collect();
    let (mut objects, mut rows) = (0, 0);
    for path in wanted().map_or_else(few, all) {
        if wanted().is_some_and(|wanted| objects >= wanted) {
            break;
        }
        let Some(compared) = compare_with_readelf(&path).filter(|rows| *rows > 0) else { continue };
        println!("{}: {compared} rows", path.display());
        objects += 1;
        rows += compared;
    }
    println!("{objects} objects, {rows} rows compared");
    assert!(objects >= 2 && rows > 10_000, "{objects} objects, {rows} rows compared");
    if let Some(wanted) = wanted().filter(|wanted| *wanted > objects) {
        skipped(NAME, &format!("{objects} objects are here, {wanted} were wanted"));
    }
}
