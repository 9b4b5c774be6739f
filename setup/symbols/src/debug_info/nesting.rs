//! How deep functions are inlined into each other: addr2line reads a level by a call of itself, so that a crafted file
//! could use up the stack. Any bytes may be passed.

use super::sections::Bytes;
use gimli::UnitRef;

/// Most levels. Compilers stop far earlier.
const MOST: usize = 256;

/// A unit that was checked.
pub struct Checked {
    /// None of its entries refers to one of another unit of the file. False also for a unit that cannot be read to its
    /// end.
    pub is_alone: bool,
}

/// Reads a unit. The error says, for people, that it has too many levels.
pub fn check_unit(unit: UnitRef<'_, Bytes<'_>>) -> Result<Checked, String> {
    // What cannot be read to its end has no functions for addr2line either.
    match levels(unit) {
        Ok((levels, _)) if levels > MOST => {
            Err(format!("its debug information is damaged: more than {MOST} levels of inlined functions"))
        }
        levels => Ok(Checked { is_alone: levels.is_ok_and(|(_, is_alone)| is_alone) }),
    }
}

/// The number of levels, at most one more than [`MOST`], and whether no entry refers to one of another unit.
fn levels(unit: UnitRef<'_, Bytes<'_>>) -> gimli::Result<(usize, bool)> {
    let (mut entries, mut open, mut most, mut is_alone) = (unit.entries_raw(None)?, Vec::new(), 0, true);
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
        let forms = abbreviation.attributes().iter().map(|attribute| attribute.form());
        is_alone &= !forms.into_iter().any(|form| matches!(form, gimli::DW_FORM_ref_addr | gimli::DW_FORM_indirect));
        entries.skip_attributes(abbreviation.attributes())?;
    }
    Ok((most, is_alone))
}
