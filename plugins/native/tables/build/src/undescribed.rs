//! Functions that nothing describes: rows from their machine code, put into the gaps of a table.

use super::rule_set::RuleSet;
use object::elf::PT_LOAD;
use uunwind_core::memory::{Reader, Region};
use uunwind_core::span::Span;
use uunwind_elf::Image;
use uunwind_from_code::{analyse, Budget, Code, Found};
use uunwind_sframe::Section;

/// Instructions that are carried out for one object: this number, and this number for each byte of its code that
/// nothing describes.
const STEPS: u64 = 100_000;
const STEPS_PER_BYTE: u64 = 10;
/// Never more than this: two seconds' work.
const MOST_STEPS: u64 = 20_000_000;
/// Sections that Go's linker makes. Go's functions leave no register as it was but the frame pointer.
const OF_GO: [&[u8]; 3] = [b".go.buildinfo", b".gopclntab", b".note.go.buildid"];
/// No file is read that has more bytes.
const LARGEST: u64 = 512 << 20;

/// The segment that holds SFrame (binutils: include/elf/common.h).
const PT_GNU_SFRAME: u32 = 0x6474_e554;

/// A function's rows: its addresses, and where each of its rules begins, in bytes from its start, with its number.
pub struct Undescribed {
    pub span: Span,
    pub rows: Vec<(u32, u32)>,
}

/// The functions of a file outside of these spans, as far as their code is understood.
pub fn of(image: &Image, described: &[Span], rules: &mut RuleSet) -> Vec<Undescribed> {
    if OF_GO.iter().any(|name| image.section(name).is_some()) {
        return Vec::new();
    }
    let Some(bytes) = (image.len() <= LARGEST).then(|| image.read_file(0, image.len())).flatten() else {
        return Vec::new();
    };
    let code = Code::of_file(&bytes, described);
    let size = code.undescribed(usize::MAX) as u64;
    if size == 0 {
        return Vec::new();
    }
    let steps = STEPS.saturating_add(STEPS_PER_BYTE.saturating_mul(size)).min(MOST_STEPS);
    let mut found = functions(&analyse(&code, Budget { steps }), rules);
    leave_to_sframe(image, &mut found);
    found
}

/// Walks read SFrame in place, after the table: what it describes is not put there.
fn leave_to_sframe(image: &Image, functions: &mut Vec<Undescribed>) {
    let Some(segment) = image.segment(PT_GNU_SFRAME) else { return };
    let loads = image.segments().iter().filter(|segment| segment.kind == PT_LOAD);
    let bytes: Vec<(u64, Vec<u8>)> =
        loads.filter_map(|load| Some((load.address, image.read_file(load.offset, load.file_size)?))).collect();
    let regions: Vec<Region<'_>> = bytes.iter().map(|(address, bytes)| Region { address: *address, bytes }).collect();
    let mut reader = Reader::recorded(&regions);
    let end = bytes.iter().map(|(address, bytes)| address.saturating_add(bytes.len() as u64)).max().unwrap_or(0);
    let section = Section::new(Span::sized(segment.address, segment.file_size), Span::new(0, end));
    functions.retain(|function| uunwind_sframe::find(&section, function.span.start, &mut reader).is_err());
}

/// The rows of each function, without gaps.
fn functions(found: &Found, rules: &mut RuleSet) -> Vec<Undescribed> {
    let entries: Vec<u64> = found.functions.iter().filter(|f| f.fault.is_none()).map(|f| f.entry).collect();
    let mut functions: Vec<Undescribed> = Vec::new();
    for row in found.rows() {
        let Some(rule) = row.rule else { continue };
        let number = rules.number_by_code(&rule);
        // A row may go on where another function begins.
        let later = entries.partition_point(|entry| *entry <= row.span.start);
        let inside = entries.get(later..).unwrap_or(&[]).iter().copied().take_while(|entry| *entry < row.span.end);
        let mut start = row.span.start;
        for end in inside.chain([row.span.end]) {
            let goes_on = entries.binary_search(&start).is_err();
            match functions.last_mut().filter(|last| goes_on && last.span.end == start) {
                Some(last) => {
                    last.rows.push(((start - last.span.start) as u32, number));
                    last.span.end = end;
                }
                None => functions.push(Undescribed { span: Span::new(start, end), rows: vec![(0, number)] }),
            }
            start = end;
        }
    }
    functions
}
