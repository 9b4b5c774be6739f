//! Every function of the shipped objects that programs can call has unwind data, hand-written ones included: a stack
//! that is captured in one without would end there.

use gimli::{BaseAddresses, CieOrFde, EhFrame, LittleEndian, UnwindSection};
use object::{Object, ObjectSection, ObjectSymbol, SymbolKind};
use std::path::Path;

/// Exported functions that unwind data does not cover from the first byte to the last.
pub fn uncovered(path: &Path) -> Result<Vec<String>, String> {
    let data = std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let file = object::File::parse(&*data).map_err(|e| format!("{}: {e}", path.display()))?;
    let section = file.section_by_name(".eh_frame").ok_or("no .eh_frame")?;
    let bytes = section.data().map_err(|e| e.to_string())?;
    let (frame, bases) = (EhFrame::new(bytes, LittleEndian), BaseAddresses::default().set_eh_frame(section.address()));
    let (mut ranges, mut entries) = (Vec::new(), frame.entries(&bases));
    while let Some(entry) = entries.next().map_err(|e| e.to_string())? {
        if let CieOrFde::Fde(partial) = entry {
            let fde = partial.parse(EhFrame::cie_from_offset).map_err(|e| e.to_string())?;
            ranges.push(fde.initial_address()..fde.initial_address() + fde.len());
        }
    }
    let covered = |address: u64| ranges.iter().any(|range| range.contains(&address));
    let functions = file.dynamic_symbols().filter(|s| s.is_definition() && s.kind() == SymbolKind::Text);
    let bare = functions.filter(|s| !covered(s.address()) || !covered(s.address() + s.size().max(1) - 1));
    Ok(bare.map(|s| format!("{}: {} has no unwind data", path.display(), s.name().unwrap_or("?"))).collect())
}
