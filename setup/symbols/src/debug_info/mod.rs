//! Lines and inlined functions, from DWARF, by addr2line. Any bytes may be passed.
//!
//! ```text
//! sections   the sections of files, decompressed, within a limit
//! split      skeletons, and the files with what they lack
//! companions where these files, and dwz's, may lie
//! nesting    how deep functions are inlined
//! ```

pub mod companions;
mod nesting;
mod sections;
mod split;

pub use sections::Source;

use crate::{demangle, Inlined, Symbol};
use addr2line::{Context, Frame, FrameIter, LookupContinuation, LookupResult};
use gimli::{AbbreviationsCacheStrategy, DwarfFileType, UnitOffset, UnitRef};
use sections::{Bytes, Sections, Store};
use split::Split;

/// A file that belongs to another one with debug information.
#[derive(Clone, Copy, Debug)]
pub enum Wanted<'w> {
    /// A package of split units.
    Package,
    /// A split unit: `DW_AT_comp_dir` and `DW_AT_dwo_name`.
    Split {
        /// Folder in which it was compiled; empty if it is not given.
        folder: &'w [u8],
        /// Its path, which may be relative to the folder.
        name: &'w [u8],
    },
    /// What dwz(1) moved out of several files: its path, and its build-id.
    Supplement {
        /// Its path, which may be relative to the folder of the file that names it.
        name: &'w [u8],
        /// Its build-id, which has been verified of what is returned.
        build_id: &'w [u8],
    },
}

/// What debug information says.
#[derive(Debug, Default)]
pub struct Found {
    /// One for each address, in their order.
    pub symbols: Vec<Option<Symbol>>,
    /// For people: what of it could not be used.
    pub remark: Option<String>,
}

/// Looks up file addresses. `companions`: where further files may be, best first. The error says, for people, why
/// nothing of it can be used.
pub fn find<'b>(
    main: &Source<'b>,
    companions: &dyn Fn(&Wanted<'_>) -> Vec<Source<'b>>,
    addresses: &[u64],
) -> Result<Found, String> {
    let file = Sections::open(main)?;
    if !file.has(".debug_info") {
        return Ok(Found { symbols: vec![None; addresses.len()], remark: None });
    }
    let store = Store::new();
    let mut remark = None;
    let mut dwarf = file.dwarf(&store, |id| Some(id.name()))?;
    if let Some((name, build_id)) = file.supplement() {
        let sources = companions(&Wanted::Supplement { name, build_id });
        let opened = sources.iter().find_map(|source| Sections::open(source).ok());
        match opened.map(|file| file.dwarf(&store, |id| Some(id.name()))) {
            Some(Ok(supplement)) => dwarf.set_sup(supplement),
            Some(Err(why)) => remark = Some(why),
            None => {
                let name = String::from_utf8_lossy(name);
                remark = Some(format!("its supplementary debug information (dwz) is missing: {name}"));
            }
        }
    }
    dwarf.populate_abbreviations_cache(AbbreviationsCacheStrategy::Duplicates);
    let mut sorted = addresses.to_vec();
    sorted.sort_unstable();
    nesting::check(&dwarf, &sorted)?;
    let damaged = |error: gimli::Error| format!("its debug information is damaged: {error}");
    let context = Context::from_dwarf(dwarf).map_err(damaged)?;
    let split = Split::new(&store, companions);
    let mut error = None;
    let one = |address: &u64| {
        look_up(&context, &split, *address).unwrap_or_else(|e| {
            error.get_or_insert(e);
            None
        })
    };
    let symbols = addresses.iter().map(one).collect();
    let remark = split.remark().or(remark).or(error.map(damaged));
    Ok(Found { symbols, remark })
}

fn look_up<'s>(context: &Context<Bytes<'s>>, split: &Split<'s, '_, '_>, address: u64) -> gimli::Result<Option<Symbol>> {
    let mut result = context.find_frames(address);
    let frames = loop {
        match result {
            LookupResult::Output(frames) => break frames?,
            LookupResult::Load { load, continuation } => result = continuation.resume(split.load(&load)),
        }
    };
    let mut frames = all(frames)?;
    // The last one contains the others. It has no function where only the line table covers the address.
    let Some(outer) = frames.pop() else { return Ok(None) };
    let unit = context.find_dwarf_and_unit(address).skip_all_loads();
    let skeleton = unit.as_ref().filter(|unit| unit.dwarf.file_type == DwarfFileType::Main);
    if let Some(id) = skeleton.and_then(|unit| unit.dwo_id).filter(|_| outer.function.is_none()) {
        // The line may be that of an inlined function.
        split.miss(id);
        return Ok(None);
    }
    let start = unit.zip(outer.dw_die_offset).and_then(|(unit, offset)| start(unit, offset, address));
    let inlined = frames.iter().filter_map(|frame| {
        // One whose name is missing is left out, with its line: what contains it has a line of its own.
        let (name, (file, line)) = (name(frame)?, place(frame));
        Some(Inlined { name, file, line })
    });
    let (name, (file, line)) = (name(&outer).unwrap_or_default(), place(&outer));
    Ok(Some(Symbol { address: 0, name, start: start.unwrap_or(0), file, line, inlined: inlined.collect() }))
}

fn all<'c, 's>(mut frames: FrameIter<'c, Bytes<'s>>) -> gimli::Result<Vec<Frame<'c, Bytes<'s>>>> {
    let mut all = Vec::new();
    while let Some(frame) = frames.next()? {
        all.push(frame);
    }
    Ok(all)
}

fn name(frame: &Frame<'_, Bytes<'_>>) -> Option<String> {
    let name = frame.function.as_ref()?.raw_name().ok()?;
    Some(demangle(&name)).filter(|name| !name.is_empty())
}

/// File and line.
fn place(frame: &Frame<'_, Bytes<'_>>) -> (String, u32) {
    let Some(location) = &frame.location else { return (String::new(), 0) };
    (location.file.unwrap_or_default().to_owned(), location.line.unwrap_or(0))
}

/// Where the part of a function begins that covers an address.
fn start(unit: UnitRef<'_, Bytes<'_>>, function: UnitOffset, address: u64) -> Option<u64> {
    let entry = unit.entry(function).ok()?;
    let mut ranges = unit.die_ranges(&entry).ok()?;
    while let Some(range) = ranges.next().ok()? {
        if (range.begin..range.end).contains(&address) {
            return Some(range.begin);
        }
    }
    None
}

/// As [`find`], in an ELF image that is its own companion of every kind.
pub fn in_image(image: &[u8], addresses: &[u64]) -> Result<Found, String> {
    find(&Source::Image(image), &|_| vec![Source::Image(image)], addresses)
}
