//! The sections of interpreted languages: what a report must know of each, and the lines of the positions that samples
//! met in their code objects. Reports need no plugin for what is in them.

use crate::model::Name;
use crate::read::Recording;
use crate::wire::{Malformed, Put, Reader};
use std::collections::{BTreeSet, HashMap, HashSet};
use uunwind_core::frame::{frames, Frame};
use uunwind_core::plugin::TABLE_NONE;
use uunwind_language::{Half, Language, LineTable, Place};

/// The line of a position in a code object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CodeLine {
    /// Index of the process in the recording.
    pub process: u32,
    /// Name id of the code object within the process.
    pub name: u32,
    /// Position in the code object, in the unit of its plugin.
    pub position: u64,
    /// Line number.
    pub line: u32,
}

impl CodeLine {
    const BYTES: usize = 20;
}

pub(super) fn encode_language(language: &Language, out: &mut Vec<u8>) {
    out.put_bytes(language.plugin.as_bytes());
    out.put_bytes(language.label.as_bytes());
    for list in [&language.glue, &language.loaders, &language.starters] {
        out.put_u32(list.len() as u32);
        list.iter().for_each(|text| out.put_bytes(text.as_bytes()));
    }
}

pub(super) fn decode_language(r: &mut Reader<'_>) -> Result<Language, Malformed> {
    let (plugin, label) = (r.text("plugin name")?, r.text("label")?);
    let list = |r: &mut Reader<'_>, what| {
        let count = r.count(4, what)?;
        (0..count).map(|_| r.text(what)).collect::<Result<Vec<String>, Malformed>>()
    };
    let (glue, loaders, starters) = (list(r, "glue")?, list(r, "loader")?, list(r, "starter")?);
    Ok(Language { plugin, label, title: String::new(), glue, loaders, starters })
}

pub(super) fn encode_lines(lines: &[CodeLine], out: &mut Vec<u8>) {
    out.put_u32(lines.len() as u32);
    for line in lines {
        out.put_u32(line.process);
        out.put_u32(line.name);
        out.put_u64(line.position);
        out.put_u32(line.line);
    }
}

pub(super) fn decode_lines(r: &mut Reader<'_>) -> Result<Vec<CodeLine>, Malformed> {
    let count = r.count(CodeLine::BYTES, "number of lines")?;
    let line = |r: &mut Reader<'_>| {
        let (process, name) = (r.u32("process")?, r.u32("name id")?);
        Ok(CodeLine { process, name, position: r.u64("position")?, line: r.u32("line")? })
    };
    (0..count).map(|_| line(r)).collect()
}

/// Positions of one code object that samples met and whose lines the recording does not have.
#[derive(Debug)]
pub struct Positions<'a> {
    /// The code object. It has a line table.
    pub name: &'a Name,
    /// Name of the plugin that described it.
    pub plugin: &'a str,
    /// Its positions, in ascending order.
    pub positions: Vec<u64>,
}

/// All positions whose lines the recording does not have, in the order of the code objects' sections.
pub fn undecoded(recording: &Recording) -> Vec<Positions<'_>> {
    let decoded = recording.lines.iter().map(|l| (l.process, l.name, l.position)).collect();
    met(recording, &decoded)
}

/// All positions that samples met in code objects with a line table, but those in `decoded` (process, name id,
/// position).
fn met<'r>(recording: &'r Recording, decoded: &HashSet<(u32, u32, u64)>) -> Vec<Positions<'r>> {
    let of_process = |name: &Name| (name.process, name.id);
    let tables = recording.names.iter().enumerate().filter(|(_, name)| name.table_kind != TABLE_NONE);
    let index: HashMap<(u32, u32), usize> = tables.map(|(index, name)| (of_process(name), index)).collect();
    if index.is_empty() {
        return Vec::new();
    }
    let mut met: BTreeSet<(usize, u64)> = BTreeSet::new();
    // Stacks share nodes: a node that was met in a process was met with all its callers.
    let mut seen: HashSet<(u32, u32)> = HashSet::new();
    for sample in recording.all_samples() {
        let Some(process) = recording.threads.get(sample.thread as usize).map(|thread| thread.process) else {
            continue;
        };
        let mut node = sample.stack;
        // A node's parent has a smaller number, which the reader checked, so this ends.
        while let Some(entry) = (node as usize).checked_sub(1).and_then(|i| recording.nodes.get(i)) {
            if !seen.insert((process, node)) {
                break;
            }
            if let Some(Frame::Semantic { name, position, .. }) = frames(&[entry.word, entry.position]).next() {
                if let Some(index) =
                    index.get(&(process, name)).filter(|_| !decoded.contains(&(process, name, position)))
                {
                    met.insert((*index, position));
                }
            }
            node = entry.parent;
        }
    }
    let mut out: Vec<(usize, Positions<'_>)> = Vec::new();
    for (index, position) in met {
        match out.last_mut() {
            Some((last, positions)) if *last == index => positions.positions.push(position),
            _ => {
                let Some(name) = recording.names.get(index) else { continue };
                let plugins = recording.processes.get(name.process as usize).map(|process| &process.plugins);
                let plugin = plugins.and_then(|plugins| plugins.get(name.plugin as usize)).map_or("", String::as_str);
                out.push((index, Positions { name, plugin, positions: vec![position] }));
            }
        }
    }
    out.into_iter().map(|(_, positions)| positions).collect()
}

/// Where the code at a position stands in its source, with columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodePlace {
    /// Index of the process in the recording.
    pub process: u32,
    /// Name id of the code object within the process.
    pub name: u32,
    /// Position in the code object, in the unit of its plugin.
    pub position: u64,
    /// Lines and columns.
    pub place: Place,
}

/// Adds the columns of all positions that samples met, for those of these languages that have any. A recording holds
/// the tables they are in, and never the columns.
pub fn add_columns(recording: &mut Recording, halves: &[&dyn Half]) {
    let known: Vec<(Language, &dyn Half)> = halves.iter().map(|half| (half.language(), *half)).collect();
    let mut places = Vec::new();
    for Positions { name, plugin, positions } in met(recording, &HashSet::new()) {
        let Some((_, half)) = known.iter().find(|(language, _)| language.plugin == plugin) else { continue };
        let table = LineTable { kind: name.table_kind, first_line: name.first_line, bytes: &name.table };
        places.extend(positions.into_iter().filter_map(|position| {
            let place = half.place(&table, position)?;
            Some(CodePlace { process: name.process, name: name.id, position, place })
        }));
    }
    recording.places = places;
}

/// Adds the titles of these languages.
pub fn entitle(recording: &mut Recording, halves: &[&dyn Half]) {
    for language in halves.iter().map(|half| half.language()) {
        for same in recording.languages.iter_mut().filter(|other| other.plugin == language.plugin) {
            same.title.clone_from(&language.title);
        }
    }
}

/// Adds what the recording lacks of these languages: their titles; and what an older uu did not write, or the recorder
/// could not before the recording was cut.
pub fn complete(recording: &mut Recording, halves: &[&dyn Half]) {
    let known: Vec<(Language, &dyn Half)> = halves.iter().map(|half| (half.language(), *half)).collect();
    for (language, _) in &known {
        let used = recording.processes.iter().any(|process| process.plugins.contains(&language.plugin));
        if used && recording.languages.iter().all(|other| other.plugin != language.plugin) {
            recording.languages.push(language.clone());
        }
    }
    entitle(recording, halves);
    let mut lines = Vec::new();
    for Positions { name, plugin, positions } in undecoded(recording) {
        let Some((_, half)) = known.iter().find(|(language, _)| language.plugin == plugin) else { continue };
        let table = LineTable { kind: name.table_kind, first_line: name.first_line, bytes: &name.table };
        let line = |position| {
            let line = half.line(&table, position)?;
            Some(CodeLine { process: name.process, name: name.id, position, line })
        };
        lines.extend(positions.into_iter().filter_map(line));
    }
    recording.lines.append(&mut lines);
}
