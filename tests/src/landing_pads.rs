//! Where exceptions enter functions (*landing pads*), by the tables that `.eh_frame` refers to. Nothing else leads
//! there, so no analysis of the code alone finds with which frame.

use gimli::{BaseAddresses, CieOrFde, EhFrame, EndianSlice, LittleEndian, Pointer, Reader, UnwindSection};
use object::{Object, ObjectSection};
use std::collections::HashSet;

/// Encodings of numbers in these tables: `DW_EH_PE_uleb128`, `DW_EH_PE_udata4`, `DW_EH_PE_omit` (Linux Standard Base,
/// "DWARF Exception Header Encoding").
const ULEB128: u8 = 0x01;
const UDATA4: u8 = 0x03;
const OMITTED: u8 = 0xff;

type Bytes<'a> = EndianSlice<'a, LittleEndian>;

/// The file addresses of an object's landing pads. Tables that are not understood have none.
pub fn landing_pads(bytes: &[u8]) -> HashSet<u64> {
    let mut pads = HashSet::new();
    let Ok(file) = object::File::parse(bytes) else { return pads };
    let section = |name: &str| {
        let section = file.section_by_name(name)?;
        Some((section.address(), section.data().ok()?))
    };
    let (Some((frames_at, frames)), Some((tables_at, tables))) = (section(".eh_frame"), section(".gcc_except_table"))
    else {
        return pads;
    };
    let frames = EhFrame::new(frames, LittleEndian);
    let bases = BaseAddresses::default().set_eh_frame(frames_at);
    let mut entries = frames.entries(&bases);
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(partial) = entry else { continue };
        let Ok(fde) = partial.parse(|_, bases, offset| frames.cie_from_offset(bases, offset)) else { continue };
        let Some(Pointer::Direct(at)) = fde.lsda() else { continue };
        let table = at.checked_sub(tables_at).and_then(|at| tables.get(usize::try_from(at).ok()?..));
        table.and_then(|table| read(EndianSlice::new(table, LittleEndian), fde.initial_address(), &mut pads));
    }
    pads
}

/// The landing pads of one function (Itanium C++ ABI: exception handling tables).
fn read(mut table: Bytes<'_>, function: u64, pads: &mut HashSet<u64>) -> Option<()> {
    if table.read_u8().ok()? != OMITTED {
        return None;
    }
    if table.read_u8().ok()? != OMITTED {
        table.read_uleb128().ok()?;
    }
    let encoding = table.read_u8().ok()?;
    let len = usize::try_from(table.read_uleb128().ok()?).ok()?;
    let mut sites = EndianSlice::new(table.slice().get(..len)?, LittleEndian);
    let number = |sites: &mut Bytes<'_>| match encoding {
        ULEB128 => sites.read_uleb128().ok(),
        UDATA4 => sites.read_u32().ok().map(u64::from),
        _ => None,
    };
    while !sites.is_empty() {
        let (_start, _len, pad) = (number(&mut sites)?, number(&mut sites)?, number(&mut sites)?);
        let _action = sites.read_uleb128().ok()?;
        if pad != 0 {
            pads.insert(function + pad);
        }
    }
    Some(())
}
