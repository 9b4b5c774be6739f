//! How deep functions are inlined into each other: addr2line reads a level by a call of itself, so that a crafted file
//! could use up the stack. Any bytes may be passed.

use super::sections::Bytes;
use gimli::{AttributeValue, Dwarf, UnitRef};

/// Most levels. Compilers stop far earlier.
const MOST: usize = 256;

/// An error, for people, if a unit has too many levels that may describe one of these file addresses, which are sorted.
pub fn check(dwarf: &Dwarf<Bytes<'_>>, addresses: &[u64]) -> Result<(), String> {
    let mut units = dwarf.units();
    // Where the list of units is damaged, addr2line refuses it as well.
    while let Ok(Some(header)) = units.next() {
        let Ok(unit) = dwarf.unit(header) else { continue };
        let unit = unit.unit_ref(dwarf);
        if may_cover(unit, addresses).unwrap_or(true) {
            check_unit(unit)?;
        }
    }
    Ok(())
}

/// The same for one unit, whatever it describes.
pub fn check_unit(unit: UnitRef<'_, Bytes<'_>>) -> Result<(), String> {
    // What cannot be read to its end has no functions for addr2line either.
    match levels(unit) {
        Ok(levels) if levels > MOST => {
            Err(format!("its debug information is damaged: more than {MOST} levels of inlined functions"))
        }
        _ => Ok(()),
    }
}

/// The number of levels, at most one more than [`MOST`].
fn levels(unit: UnitRef<'_, Bytes<'_>>) -> gimli::Result<usize> {
    let (mut entries, mut open, mut most) = (unit.entries_raw(None)?, Vec::new(), 0);
    while !entries.is_empty() && most <= MOST {
        let depth = entries.next_depth();
        let Some(abbreviation) = entries.read_abbreviation()? else { continue };
        while open.last().is_some_and(|outer| *outer >= depth) {
            open.pop();
        }
        if abbreviation.tag() == gimli::DW_TAG_inlined_subroutine {
            open.push(depth);
            most = most.max(open.len());
        }
        entries.skip_attributes(abbreviation.attributes())?;
    }
    Ok(most)
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
        let next = addresses.partition_point(|address| *address < range.begin);
        if addresses.get(next).is_some_and(|address| *address < range.end) {
            return Ok(true);
        }
    }
    Ok(is_empty)
}
