//! Functions that nothing describes: rows from their machine code, put into the gaps of a table.

use super::rule_set::RuleSet;
use object::elf::{PT_GNU_SFRAME, PT_LOAD};
use uunwind_core::memory::{Reader, Region};
use uunwind_core::span::Span;
use uunwind_elf::{Image, Segment};
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

/// A function's rows: its addresses, and where each of its rules begins, in bytes from its start, with its number.
pub struct Undescribed {
    pub span: Span,
    pub rows: Vec<(u32, u32)>,
}

/// The functions of a file outside of these spans, as far as their code is understood; and whether some of it was left
/// out, since it takes too much work.
pub fn of(image: &Image, described: &[Span], rules: &mut RuleSet) -> (Vec<Undescribed>, bool) {
    if OF_GO.iter().any(|name| image.section(name).is_some()) {
        return (Vec::new(), false);
    }
    let Some(bytes) = (image.len() <= LARGEST).then(|| image.read_file(0, image.len())).flatten() else {
        return (Vec::new(), false);
    };
    let code = Code::of_file(&bytes, described);
    // Counted as far as it makes a difference: in 300 MB of code that takes half a minute.
    let size = code.undescribed((MOST_STEPS / STEPS_PER_BYTE) as usize) as u64;
    if size == 0 {
        return (Vec::new(), false);
    }
    let steps = STEPS.saturating_add(STEPS_PER_BYTE.saturating_mul(size)).min(MOST_STEPS);
    let found = analyse(&code, Budget { steps });
    let mut functions = functions(&found, rules);
    leave_to_sframe(image, &bytes, &mut functions);
    (functions, found.exhausted)
}

/// Walks read SFrame in place, after the table: what it describes is not put there.
fn leave_to_sframe(image: &Image, file: &[u8], functions: &mut Vec<Undescribed>) {
    let Some(segment) = image.segment(PT_GNU_SFRAME) else { return };
    let region = |load: &Segment| {
        let from = file.get(usize::try_from(load.offset).ok()?..)?;
        Some(Region { address: load.address, bytes: from.get(..usize::try_from(load.file_size).ok()?)? })
    };
    let loads = image.segments().iter().filter(|segment| segment.kind == PT_LOAD);
    let regions: Vec<Region<'_>> = loads.filter_map(region).collect();
    let mut reader = Reader::recorded(&regions);
    let end = regions.iter().map(|part| part.address.saturating_add(part.bytes.len() as u64)).max().unwrap_or(0);
    let section = Section::new(Span::sized(segment.address, segment.file_size), Span::new(0, end));
    functions.retain(|function| uunwind_sframe::find(&section, function.span.start, &mut reader).is_err());
}

/// The rows of each function, without gaps.
fn functions(found: &Found, rules: &mut RuleSet) -> Vec<Undescribed> {
    let mut functions: Vec<Undescribed> = Vec::new();
    for (function, span, rule) in found.rows_of_functions() {
        let number = rules.number_by_code(&rule);
        match functions.last_mut().filter(|last| function != span.start && last.span.end == span.start) {
            Some(last) => {
                last.rows.push(((span.start - last.span.start) as u32, number));
                last.span.end = span.end;
            }
            None => functions.push(Undescribed { span, rows: vec![(0, number)] }),
        }
    }
    functions
}
