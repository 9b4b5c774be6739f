//! The units of `.debug_info` that may describe some addresses: a library has thousands of them, of which a stack needs
//! a few, and each has abbreviations of its own to be parsed. `.debug_aranges` says which units cover an address
//! ([DWARF 5, 6.1.2](https://dwarfstd.org/doc/DWARF5.pdf)); of those that it leaves out, their own entries say it. Any
//! bytes may be passed.

use super::nesting;
use super::sections::{Bytes, Store};
use gimli::{AttributeValue, DebugAranges, DebugInfo, Dwarf, Section, UnitRef};
use std::collections::HashMap;
use std::ops::Range;

/// Leaves of `.debug_info` only the units that may describe one of these file addresses, which are sorted, where none
/// of them refers to an entry of another unit; else all. The error says, for people, that a unit is damaged.
pub fn keep_those_of<'s>(
    dwarf: &mut Dwarf<Bytes<'s>>,
    aranges: Bytes<'s>,
    addresses: &[u64],
    store: &'s Store<'s>,
) -> Result<(), String> {
    let listed = listed(aranges, addresses);
    let (mut kept, mut are_alone) = (Vec::new(), true);
    let mut units = dwarf.units();
    while let Some(header) = units.next().map_err(|error| format!("its debug information is damaged: {error}"))? {
        // Type units describe no code.
        let Some(start) = header.debug_info_offset().map(|offset| offset.0) else { continue };
        let listed = listed.get(&start).copied();
        if listed == Some(false) {
            continue;
        }
        let range = start..start.saturating_add(header.length_including_self());
        let Ok(unit) = dwarf.unit(header) else { continue };
        let unit = unit.unit_ref(dwarf);
        if listed.is_some() || may_cover(unit, addresses).unwrap_or(true) {
            are_alone &= nesting::check_unit(unit)?.is_alone;
            kept.push(range);
        }
    }
    if are_alone {
        let all = dwarf.debug_info.reader().slice();
        let bytes = |range: Range<usize>| all.get(range).ok_or("its debug information is damaged");
        let kept = kept.into_iter().map(bytes).collect::<Result<Vec<_>, _>>()?.concat();
        dwarf.debug_info = DebugInfo::from(store.keep(kept));
    }
    Ok(())
}

/// The units that `.debug_aranges` lists, by their offsets in `.debug_info`, and whether each covers one of these
/// addresses, which are sorted. Empty if it is damaged.
fn listed(aranges: Bytes<'_>, addresses: &[u64]) -> HashMap<usize, bool> {
    let mut listed = HashMap::new();
    let mut sets = DebugAranges::from(aranges).headers();
    while let Some(set) = sets.next().transpose() {
        let Ok(set) = set else { return HashMap::new() };
        let mut entries = set.entries();
        while let Some(entry) = entries.next().transpose() {
            let Ok(entry) = entry else { return HashMap::new() };
            let covers = listed.entry(set.debug_info_offset().0).or_default();
            *covers |= covers_one(entry.range().begin, entry.range().end, addresses);
        }
    }
    listed
}

/// Whether one of these addresses, which are sorted, lies in a range.
fn covers_one(begin: u64, end: u64, addresses: &[u64]) -> bool {
    let next = addresses.partition_point(|address| *address < begin);
    addresses.get(next).is_some_and(|address| *address < end)
}

/// Whether a unit may describe one of these addresses: also if its ranges are given in a way that readers could
/// understand differently.
fn may_cover(unit: UnitRef<'_, Bytes<'_>>, addresses: &[u64]) -> gimli::Result<bool> {
    let mut entries = unit.entries_raw(None)?;
    let Some(abbreviation) = entries.read_abbreviation()? else { return Ok(true) };
    let (mut low, mut high, mut ranges) = (0, 0, 0);
    for specification in abbreviation.attributes() {
        let attribute = entries.read_attribute(*specification)?;
        match (attribute.name(), attribute.value()) {
            (gimli::DW_AT_low_pc, AttributeValue::Addr(_) | AttributeValue::DebugAddrIndex(_)) => low += 1,
            (
                gimli::DW_AT_high_pc,
                AttributeValue::Addr(_) | AttributeValue::DebugAddrIndex(_) | AttributeValue::Udata(_),
            ) => high += 1,
            (gimli::DW_AT_ranges, _) => ranges += 1,
            (gimli::DW_AT_low_pc | gimli::DW_AT_high_pc, _) => return Ok(true),
            _ => {}
        }
    }
    if !matches!((low, high, ranges), (1, 1, 0) | (0 | 1, 0, 1)) {
        return Ok(true);
    }
    let (mut all, mut is_empty) = (unit.unit_ranges()?, true);
    while let Some(range) = all.next()? {
        is_empty &= range.begin >= range.end;
        if covers_one(range.begin, range.end, addresses) {
            return Ok(true);
        }
    }
    Ok(is_empty)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::debug_info::sections::{Sections, Source};
    use crate::table;
    use crate::tests::run;
    use gimli::SectionId;
    use std::path::Path;

    /// The number of units that are kept of a file for the address of `first`, and of all that it has.
    fn kept(file: &Path) -> (usize, usize) {
        let count = |dwarf: &Dwarf<Bytes<'_>>| {
            let mut units = dwarf.units();
            std::iter::from_fn(|| units.next().expect("whole units")).count()
        };
        let store = Store::new(None);
        let sections = Sections::open(&Source::Path(file.to_owned())).expect("a file");
        let mut dwarf = sections.dwarf(&store, |id| Some(id.name())).expect("its sections");
        let aranges = sections.of(&store, Some(SectionId::DebugAranges.name())).expect("a section, or none");
        let all = count(&dwarf);
        keep_those_of(&mut dwarf, aranges, &[address(file)], &store).expect("whole units");
        (count(&dwarf), all)
    }

    /// Where the program's one function named `first` lies: the entry point is set to it.
    fn address(file: &Path) -> u64 {
        use object::Object;
        let bytes = std::fs::read(file).expect("a file");
        let entry = object::File::parse(&*bytes).expect("ELF").entry();
        let named = table::names(file, &[entry]).expect("symbols");
        assert_eq!(named[0].as_ref().map(|(_, name)| &**name), Some("first"));
        entry
    }

    #[test]
    fn units_that_cover_no_address_are_left_out() {
        let folder = std::env::temp_dir().join(format!("uu-units-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).expect("a folder");
        let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).expect("room");
        write("first.c", "int second(int); int first(int n) { return second(n) + 1; }");
        write("second.c", "int third(int); int second(int n) { return third(n) + 2; }");
        write("third.c", "int third(int n) { return n * 3; }");
        let link = "-nostdlib -static -Wl,-e,first first.c second.c third.c";
        run(&folder, &format!("gcc -g -O1 {link} -o plain"));
        run(&folder, &format!("gcc -g -O1 -gz=zlib {link} -o packed"));
        run(&folder, "objcopy -R .debug_aranges plain unlisted");
        for name in ["plain", "packed", "unlisted"] {
            assert_eq!(kept(&folder.join(name)), (1, 3), "{name}");
        }
        // One unit refers to entries of another: all stay.
        run(&folder, &format!("gcc -g -O2 -flto -fno-fat-lto-objects {link} -o lto"));
        let (kept, all) = kept(&folder.join("lto"));
        assert!(kept == all && all > 1, "{kept} of {all}");
        std::fs::remove_dir_all(&folder).expect("the folder");
    }

    #[test]
    fn a_damaged_list_lists_nothing() {
        let listed = |bytes: &[u8]| listed(Bytes::new(bytes, gimli::LittleEndian), &[0x1008]).len();
        // unit_length, version 2, offset 0, address size 8, no segments, padding; an entry; the end.
        let words = |words: [u64; 4]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        let header = [44, 0, 0, 0, 2, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0];
        let set = [&header[..], &words([0x1000, 16, 0, 0])].concat();
        assert_eq!(listed(&set), 1);
        for cut in 1..set.len() {
            assert_eq!(listed(&set[..cut]), 0, "{cut}");
        }
    }
}
