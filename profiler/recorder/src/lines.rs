//! From positions in code objects to lines, when the recording ends: each plugin decodes its own line tables, in its
//! own process.

use crate::child::interrupted;
use std::collections::BTreeMap;
use uunwind_loader::wire::{Table, LIMIT, POSITIONS_LIMIT};
use uunwind_loader::Analysers;
use uunwind_recording::languages::{undecoded, Positions};
use uunwind_recording::{CodeLine, Name, Recording};

/// A request is sent once its tables take this number of bytes. One more of the longest tables fits into a message.
const ENOUGH: usize = LIMIT / 4;
/// Longest table that is decoded, in bytes: none that the program's process copies is longer.
const TABLE_LIMIT: usize = uunwind_core::plugin::TABLE_LIMIT as usize;
const _: () = assert!(ENOUGH + TABLE_LIMIT + 8 * POSITIONS_LIMIT + 64 < LIMIT);

/// A part of a request: the positions of one code object.
type Part<'a> = (&'a Name, Table);

/// The lines of all positions that samples met, and notes for the user.
pub fn decode(recording: &Recording, analysers: &mut Analysers) -> (Vec<CodeLine>, Vec<String>) {
    let mut of_plugins: BTreeMap<&str, Vec<Positions<'_>>> = BTreeMap::new();
    for positions in undecoded(recording) {
        of_plugins.entry(positions.plugin).or_default().push(positions);
    }
    let (mut lines, mut notes) = (Vec::new(), Vec::new());
    for (plugin, list) in of_plugins {
        let mut failed = None;
        for request in requests(&list) {
            if let Some(why) = decode_request(plugin, request, analysers, &mut lines).err() {
                failed = Some(why);
            }
        }
        if let Some(why) = failed {
            notes.push(format!(
                "plugin \"{plugin}\" could not decode all lines: {why}. Frames without a line show the first line of their function"
            ));
        }
    }
    (lines, notes)
}

fn decode_request(
    plugin: &str,
    request: Vec<Part<'_>>,
    analysers: &mut Analysers,
    lines: &mut Vec<CodeLine>,
) -> Result<(), String> {
    if interrupted().is_some() {
        return Err("it was interrupted".to_owned());
    }
    let asked = request.iter().flat_map(|(name, table)| table.positions.iter().map(|position| (*name, *position)));
    let asked: Vec<(&Name, u64)> = asked.collect();
    let found = analysers.lines(plugin, request.into_iter().map(|(_, table)| table).collect())?;
    let found = asked.into_iter().zip(found).filter(|(_, line)| *line != 0);
    lines.extend(found.map(|((name, position), line)| CodeLine {
        process: name.process,
        name: name.id,
        position,
        line,
    }));
    Ok(())
}

/// Requests that fit into messages.
fn requests<'a>(list: &[Positions<'a>]) -> Vec<Vec<Part<'a>>> {
    let mut requests: Vec<Vec<Part<'a>>> = Vec::new();
    let mut bytes = ENOUGH;
    for Positions { name, positions, .. } in list.iter().filter(|p| p.name.table.len() <= TABLE_LIMIT) {
        for part in positions.chunks(POSITIONS_LIMIT) {
            let (kind, first_line) = (name.table_kind, name.first_line);
            let table = Table { kind, first_line, bytes: name.table.clone(), positions: part.to_vec() };
            if bytes >= ENOUGH {
                bytes = 0;
                requests.push(Vec::new());
            }
            bytes += table.len();
            requests.last_mut().into_iter().for_each(|request| request.push((name, table.clone())));
        }
    }
    requests
}

#[cfg(test)]
mod tests {
    use super::*;
    use uunwind_loader::wire::{encode_request, Request};

    #[test]
    fn every_request_fits_into_a_message() {
        let name = |id, bytes| Name { id, table_kind: 1, table: vec![0; bytes], ..Name::default() };
        let names = [name(1, TABLE_LIMIT), name(2, 10), name(3, TABLE_LIMIT), name(4, TABLE_LIMIT + 1), name(5, 0)];
        let list: Vec<Positions<'_>> = names
            .iter()
            .map(|name| Positions { name, plugin: "x", positions: (0..3 * POSITIONS_LIMIT as u64 / 2).collect() })
            .collect();
        let requests = requests(&list);
        let mut met: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
        for request in requests {
            request.iter().for_each(|(name, table)| met.entry(name.id).or_default().extend(&table.positions));
            let message = encode_request(&Request::Lines(request.into_iter().map(|(_, table)| table).collect()));
            assert!(message.len() <= LIMIT, "{}", message.len());
        }
        assert_eq!(met.keys().copied().collect::<Vec<_>>(), [1, 2, 3, 5], "a table that is too long is left out");
        assert!(met.values().all(|met| met == &list[0].positions));
    }
}
