//! The sources of one file, side by side: what each says, where they disagree, which one a walk takes and why.

use super::binary::{Binary, View};
use super::chosen::{functions, rows, Choice, Memory, Range, MOST_LOOKUPS};
use super::compare::{compare, coverage, Disagreement};
use super::unwind_row::Piece;
use super::{eh_frame, padding, sframe, Refusal};
use uunwind_core::objects::UNIQUE_BUILD_ID;
use uunwind_elf::Image;
use uunwind_sframe::Fault;
use uunwind_tables::format::{TableHead, CODE_LEFT_OUT, FROM_CODE, FROM_DEBUG_FRAME, FROM_EH_FRAME};
use uunwind_tables::Table;
use uunwind_tables_build as rules;

/// What was found out about a file.
pub struct Diagnosis {
    /// Size of its code, in bytes.
    pub text: u64,
    /// Bytes of it that fill the room between functions, and are no code.
    pub padding: u64,
    /// Its rule table, or why it has none.
    pub table: Result<RuleTable, String>,
    /// The content of `.eh_frame`; `None` without that section.
    pub eh_frame: Option<Dwarf>,
    /// Why walks in a process cannot search `.eh_frame` in place, if they cannot.
    pub unsearchable: Option<&'static str>,
    /// The content of `.debug_frame`.
    pub debug_frame: Option<Dwarf>,
    /// Functions whose rows contradict their code (Go's): the table leaves them out.
    pub untrue: usize,
    /// There is one that cannot be read.
    pub debug_frame_unread: Option<rules::Unread>,
    /// The content of the SFrame section.
    pub sframe: Option<Sframe>,
    /// Where two sources both have a rule, and not the same.
    pub disagreements: Vec<Conflict>,
    /// What walks choose, once the table is there: all of the text, by address, with the name of the code section. Of
    /// large objects without a table, looked up at each function's start.
    pub chosen: Vec<(Range, String)>,
    /// What they choose without it, looked up at each function's start.
    pub without_table: Vec<Range>,
}

/// A disagreement, and who disagrees.
pub struct Conflict {
    /// The two sources, in the order of [`Disagreement::first`] and `second`.
    pub sources: [&'static str; 2],
    /// What they say.
    pub said: Disagreement,
    /// Name of the code section.
    pub section: String,
}

/// The table that is built of the file.
pub struct RuleTable {
    /// What it was built from: `.eh_frame`, `.debug_frame`, machine code.
    pub from: String,
    /// Its size, in bytes.
    pub bytes: usize,
    /// Rows in it.
    pub rows: usize,
    /// Of some functions that nothing describes the machine code was not analysed.
    pub code_left_out: bool,
}

/// Summary of a section of call frame information.
pub struct Dwarf {
    /// Bytes of text with a rule.
    pub covered: u64,
    /// Number of FDEs.
    pub functions: usize,
    /// Number of FDEs that cannot be read.
    pub damaged: usize,
    /// Ranges whose rule has no words here (their walk may still go well), and their bytes.
    pub beyond: (usize, u64),
}

/// The content of the SFrame section.
pub struct Sframe {
    /// Bytes of text with a rule.
    pub covered: u64,
    /// Versions of its tables.
    pub versions: Vec<u8>,
    /// Number of function descriptors.
    pub functions: usize,
    /// Number of rows.
    pub rows: usize,
    /// Checks that failed.
    pub faults: Vec<Fault>,
    /// Ranges of PLT-like blocks too many to be examined.
    pub beyond: usize,
    /// The part of the file in which it was found, in words.
    pub whence: &'static str,
    /// A segment describes it, so a process finds it.
    pub mapped: bool,
}

/// Looks into a file that processes of this machine can run. Errors: it is another one, with what it is.
pub(super) fn examinable(binary: &Binary) -> Result<View<'_>, Refusal> {
    let view = binary.view()?;
    if view.machine != uunwind_elf::MACHINE || view.relocatable {
        let foreign = format!("not for {}", uunwind_elf::MACHINE_NAME);
        let found = if view.relocatable { "a relocatable object" } else { &foreign };
        return Err(binary.refuse(format!("{found}: no process runs it here; `uu sframe dump` reads its tables")));
    }
    if binary.is_debug_only(&view) {
        return Err(binary.refuse("debugging information of another file, without its code. Give that file"));
    }
    Ok(view)
}

/// Examines all unwind information of a file. Errors: it is no ELF file that can be examined; the text says why.
pub fn diagnose(binary: &Binary) -> Result<Diagnosis, Refusal> {
    let view = examinable(binary)?;
    let image = Image::of_bytes(&binary.path, binary.bytes.clone()).map_err(|why| Refusal(why.to_string()))?;
    let (debug_section, debug_frame_unread) = match rules::debug_frame(&image).transpose() {
        Ok(section) => (section, None),
        Err(why) => (None, Some(why)),
    };
    let by_eh = eh_frame::read(&view);
    let by_debug = debug_section.as_ref().map(|(_, bytes)| eh_frame::read_debug(bytes)).unwrap_or_default();
    let by_sframe = sframe::read(&view);
    let covered = |pieces: &[Piece]| coverage(&view.text, &[pieces]).1;

    let built = table_of(&image);
    let table = built.as_ref().ok().and_then(|built| Table::new(built.bytes.get()).ok());
    let memory = Memory::new(&view);
    let (eh, debug, quick) = (&by_eh.pieces, &by_debug.pieces, &by_sframe.pieces);
    let mut starts: Vec<u64> = rows(eh).chain(rows(debug)).chain(rows(quick)).collect();
    starts.extend(table.iter().flat_map(|table| table.rows().map(|(at, ..)| at)));
    let at_functions = [functions(eh), functions(quick)].concat();
    // Without a table each address is interpreted: of large objects, those at which functions begin.
    let too_many = table.is_none() && starts.len() > MOST_LOOKUPS as usize;
    let mut chosen = memory.choose(&view, table.as_ref(), if too_many { &at_functions } else { &starts });
    let mut without_table = memory.choose(&view, None, &at_functions);
    let by_code = table.as_ref().map(padding::by_code).unwrap_or_default();
    let filled = padding::of(&view, &[eh, debug, quick], &by_code);
    padding::mark(&mut chosen, &filled);
    padding::mark(&mut without_table, &filled);

    let named = [(".eh_frame", eh), (".debug_frame", debug), ("SFrame", quick)];
    let mut disagreements = Vec::new();
    for (number, (first, one)) in named.into_iter().enumerate() {
        for (second, other) in named.into_iter().skip(number + 1) {
            disagreements.extend(compare(one, other).into_iter().map(|said| {
                let section = view.text_name(said.start).to_owned();
                Conflict { sources: [first, second], said, section }
            }));
        }
    }
    let known = |piece: &&Piece| view.text.iter().any(|text| text.start <= piece.start && piece.start < text.end);
    let left_out = |start: u64| table.as_ref().is_some_and(|table| table.function(start).is_none());
    let mut untrue: Vec<u64> = debug.iter().filter(known).map(|piece| piece.function).collect();
    untrue.dedup();
    untrue.retain(|start| left_out(*start));
    let place = view.sframe().filter(|(part, _)| !part.bytes.is_empty());
    Ok(Diagnosis {
        text: coverage(&view.text, &[]).0,
        padding: bytes_of(&chosen, Choice::Padding),
        eh_frame: view.eh_frame.map(|_| dwarf(&by_eh, covered(eh))),
        unsearchable: unsearchable(&view),
        untrue: untrue.len(),
        debug_frame_unread,
        debug_frame: debug_section.map(|_| dwarf(&by_debug, covered(debug))),
        sframe: place.map(|(_, whence)| Sframe {
            covered: covered(quick),
            versions: by_sframe.versions,
            functions: by_sframe.functions,
            rows: by_sframe.rows,
            faults: by_sframe.faults,
            beyond: by_sframe.beyond.len(),
            whence,
            mapped: view.sframe_segment.is_some(),
        }),
        disagreements,
        chosen: chosen.into_iter().map(|range| (range, view.text_name(range.start).to_owned())).collect(),
        without_table,
        table: built.map(|table| table.summary),
    })
}

fn bytes_of(ranges: &[Range], choice: Choice) -> u64 {
    ranges.iter().filter(|range| range.choice == choice).map(|range| range.end - range.start).sum()
}

/// A table's bytes, at a multiple of 8 from some place on, as [`Table::new`] wants them.
pub(super) struct Aligned {
    bytes: Vec<u8>,
    from: usize,
}

impl Aligned {
    pub(super) fn new(table: &[u8]) -> Aligned {
        let mut bytes: Vec<u8> = Vec::with_capacity(table.len() + 8);
        let from = bytes.as_ptr().align_offset(8);
        bytes.resize(from, 0);
        bytes.extend(table);
        Aligned { bytes, from }
    }

    pub(super) fn get(&self) -> &[u8] {
        self.bytes.get(self.from..).unwrap_or(&[])
    }
}

/// A rule table, and what is said of it.
pub(super) struct Built {
    pub(super) bytes: Aligned,
    summary: RuleTable,
}

/// The table that processes will find for this object.
pub(super) fn table_of(image: &Image) -> Result<Built, String> {
    let (key, build_id) = uunwind_elf::key_of(image);
    let id = build_id.map_or(0, |id| id.len());
    if id < UNIQUE_BUILD_ID {
        let has = if id == 0 { "no build-id".to_owned() } else { format!("a build-id of {id} bytes") };
        return Err(format!("{has}; processes find tables by build-ids of {UNIQUE_BUILD_ID} bytes or more"));
    }
    let table = rules::of_image(image, key).map_err(|why| why.to_string())?;
    let head = TableHead::read(&table).unwrap_or_default();
    let sources = [(FROM_EH_FRAME, ".eh_frame"), (FROM_DEBUG_FRAME, ".debug_frame"), (FROM_CODE, "machine code")];
    let from: Vec<&str> = sources.iter().filter(|(bit, _)| head.sources & bit != 0).map(|(_, name)| *name).collect();
    let from = from.join(" and ");
    let code_left_out = head.sources & CODE_LEFT_OUT != 0;
    let summary = RuleTable { from, bytes: table.len(), rows: head.rows as usize, code_left_out };
    Ok(Built { bytes: Aligned::new(&table), summary })
}

fn dwarf(source: &eh_frame::Source, covered: u64) -> Dwarf {
    let beyond = source.pieces.iter().filter(|p| p.rule.is_err());
    let beyond = beyond.fold((0, 0), |(count, bytes), p| (count + 1, bytes + (p.end - p.start)));
    Dwarf { covered, functions: source.functions, damaged: source.damaged.len(), beyond }
}

fn unsearchable(view: &View<'_>) -> Option<&'static str> {
    view.eh_frame?;
    let Some(hdr) = view.eh_frame_hdr else { return Some("it has no index (.eh_frame_hdr)") };
    match hdr.bytes {
        [1, _, count, 0x3b, ..] if *count != 0xff => None,
        _ => Some("its index (.eh_frame_hdr) has no sorted table of the usual encoding"),
    }
}
