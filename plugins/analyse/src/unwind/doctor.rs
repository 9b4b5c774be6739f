//! The sources of one file, side by side: what each tells, where they disagree, which one a walk takes and why.

use super::binary::{Binary, View};
use super::compare::{compare, coverage, Disagreement};
use super::piece::Piece;
use super::{eh_frame, sframe, Refusal};
use object::elf;
use uunwind_sframe::Fault;

/// What was found out about a file.
pub struct Diagnosis {
    /// Bytes of text.
    pub text: u64,
    /// Bytes of text that `.eh_frame` has rules for; `None` without `.eh_frame`.
    pub eh_frame: Option<EhFrame>,
    /// The same of SFrame.
    pub sframe: Option<Sframe>,
    /// Bytes of text that no source has a rule for: frame pointers are followed there, and marked.
    pub neither: u64,
    /// Where both have a rule, and not the same; with the name of the code section.
    pub disagreements: Vec<(Disagreement, String)>,
}

/// What `.eh_frame` tells.
pub struct EhFrame {
    /// Bytes of text with a rule.
    pub covered: u64,
    /// FDEs.
    pub functions: usize,
    /// FDEs that cannot be read.
    pub damaged: usize,
    /// Ranges whose rule has no words here (their walk may still go well), and their bytes.
    pub beyond: (usize, u64),
    /// Why walks in a process cannot search it in place, if they cannot.
    pub unsearchable: Option<&'static str>,
}

/// What SFrame tells.
pub struct Sframe {
    /// Bytes of text with a rule.
    pub covered: u64,
    /// Bytes of text that only it has a rule for.
    pub alone: u64,
    /// Versions of its tables.
    pub versions: Vec<u8>,
    /// Function descriptors.
    pub functions: usize,
    /// Rows.
    pub rows: usize,
    /// Checks that failed.
    pub faults: Vec<Fault>,
    /// Ranges of PLT-like blocks too many to be examined.
    pub untold: usize,
    /// Where it was found.
    pub whence: &'static str,
    /// A segment tells of it, so a process finds it.
    pub mapped: bool,
}

/// Looks at a file.
pub fn diagnose(binary: &Binary) -> Result<Diagnosis, Refusal> {
    let view = binary.view()?;
    if view.machine != elf::EM_X86_64 || view.relocatable {
        let found = if view.relocatable { "a relocatable object" } else { "not for x86-64" };
        return Err(binary.refuse(format!("{found}: no process runs it here; `uu sframe dump` reads its tables")));
    }
    let dwarf = eh_frame::read(&view);
    let (quick, place) = (sframe::read(&view), view.sframe().filter(|(part, _)| !part.bytes.is_empty()));
    let (text, by_dwarf) = coverage(&view.text, &[&dwarf.pieces]);
    let by_sframe = coverage(&view.text, &[&quick.pieces]).1;
    let by_any = coverage(&view.text, &[&dwarf.pieces, &quick.pieces]).1;
    let disagreements = compare(&dwarf.pieces, &quick.pieces);
    Ok(Diagnosis {
        text,
        neither: text - by_any,
        disagreements: disagreements.into_iter().map(|d| (d.clone(), view.text_name(d.start).to_owned())).collect(),
        eh_frame: view.eh_frame.map(|_| EhFrame {
            covered: by_dwarf,
            functions: dwarf.functions,
            damaged: dwarf.damaged.len(),
            beyond: beyond(&dwarf.pieces),
            unsearchable: unsearchable(&view),
        }),
        sframe: place.map(|(_, whence)| Sframe {
            covered: by_sframe,
            alone: by_any - by_dwarf,
            versions: quick.versions,
            functions: quick.functions,
            rows: quick.rows,
            faults: quick.faults,
            untold: quick.untold.len(),
            whence,
            mapped: view.sframe_segment.is_some(),
        }),
    })
}

fn beyond(pieces: &[Piece]) -> (usize, u64) {
    let beyond = pieces.iter().filter(|p| p.rule.is_err());
    beyond.fold((0, 0), |(count, bytes), p| (count + 1, bytes + (p.end - p.start)))
}

fn unsearchable(view: &View<'_>) -> Option<&'static str> {
    let Some(hdr) = view.eh_frame_hdr else { return Some("it has no index (.eh_frame_hdr)") };
    match hdr.bytes {
        [1, _, count, 0x3b, ..] if *count != 0xff => None,
        _ => Some("its index (.eh_frame_hdr) has no sorted table of the usual encoding"),
    }
}
