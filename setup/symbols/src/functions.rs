//! Beginnings of functions, for code without symbols, from the index of the unwind tables: `.eh_frame_hdr` ([LSB Core
//! 10.6](https://refspecs.linuxfoundation.org/LSB_5.0.0/LSB-Core-generic/LSB-Core-generic/ehframechpt.html)). They let
//! stripped code be merged by function, though it has no names.
//!
//! Only the encoding that linkers write is read: a sorted table of 32-bit offsets from its own start. Any other object
//! gives nothing. Any bytes may be passed.

use object::read::elf::{FileHeader, ProgramHeader};
use object::{elf, Endianness, ReadRef};
use std::ops::Range;
use std::path::Path;
use uunwind_elf::blocks::Blocks;

/// DW_EH_PE_udata4.
const UDATA4: u8 = 0x03;
/// DW_EH_PE_datarel | DW_EH_PE_sdata4.
const TABLE: u8 = 0x3b;

/// For each file address, the range of the function that covers it.
pub fn covering(path: &Path, addresses: &[u64]) -> Option<Vec<Option<Range<u64>>>> {
    in_image(&Blocks::new(uunwind_elf::files::open(path).ok()?), addresses)
}

/// As [`covering`], in an ELF image.
pub fn in_image<'data, R: ReadRef<'data>>(image: R, addresses: &[u64]) -> Option<Vec<Option<Range<u64>>>> {
    let table = Table::parse(image)?;
    Some(addresses.iter().map(|address| table.find(*address)).collect())
}

/// An object's index of unwind tables, and the segments that contain them.
struct Table<'data> {
    /// File address and bytes of `.eh_frame_hdr`.
    header: (u64, &'data [u8]),
    /// Pairs of 32-bit offsets: of the function, and of its FDE.
    entries: &'data [u8],
    segments: Vec<(u64, &'data [u8])>,
}

impl<'data> Table<'data> {
    fn parse<R: ReadRef<'data>>(data: R) -> Option<Table<'data>> {
        let file = elf::FileHeader64::<Endianness>::parse(data).ok()?;
        let endian = file.endian().ok()?;
        let (mut header, mut segments) = (None, Vec::new());
        for segment in file.program_headers(endian, data).ok()? {
            let place = || Some((segment.p_vaddr(endian), segment.data(endian, data).ok()?));
            match segment.p_type(endian) {
                elf::PT_GNU_EH_FRAME => header = place(),
                elf::PT_LOAD => segments.extend(place()),
                _ => {}
            }
        }
        let header = header?;
        let [1, pointer, UDATA4, TABLE] = *header.1.get(..4)? else { return None };
        let at = 4 + encoded_bytes(pointer)?;
        let count = u32_at(header.1, at)? as usize;
        let entries = header.1.get(at + 4..at.checked_add(4)?.checked_add(count.checked_mul(8)?)?)?;
        Some(Table { header, entries, segments })
    }

    fn find(&self, address: u64) -> Option<Range<u64>> {
        let offset = i32::try_from(address.wrapping_sub(self.header.0) as i64).ok()?;
        let entry = |n: usize| {
            let at = n.checked_mul(8)?;
            Some((u32_at(self.entries, at)? as i32, u32_at(self.entries, at + 4)? as i32))
        };
        let (mut low, mut high) = (0, self.entries.len() / 8);
        while low < high {
            let middle = low + (high - low) / 2;
            if entry(middle)?.0 <= offset {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let (function, fde) = entry(low.checked_sub(1)?)?;
        let start = self.header.0.wrapping_add(i64::from(function) as u64);
        let len = self.length(self.header.0.wrapping_add(i64::from(fde) as u64))?;
        let range = start..start.checked_add(len)?;
        range.contains(&address).then_some(range)
    }

    /// Bytes from a file address to the end of its segment.
    fn at(&self, address: u64) -> Option<&'data [u8]> {
        self.segments.iter().find_map(|(start, bytes)| bytes.get(usize::try_from(address.checked_sub(*start)?).ok()?..))
    }

    /// Length in bytes of the function that an FDE describes.
    fn length(&self, fde: u64) -> Option<u64> {
        let bytes = self.at(fde)?;
        let to_cie = u32_at(bytes, 4)?;
        let encoding = pointer_encoding(self.at(fde.wrapping_add(4).wrapping_sub(u64::from(to_cie)))?)?;
        match encoded_bytes(encoding)? {
            4 => Some(u64::from(u32_at(bytes, 12)?)),
            8 => Some(u64::from_le_bytes(bytes.get(16..24)?.try_into().ok()?)),
            _ => None,
        }
    }
}

/// The encoding of addresses in the FDEs of a CIE (augmentation `R`); absolute if the CIE does not say.
fn pointer_encoding(cie: &[u8]) -> Option<u8> {
    let version = *cie.get(8)?;
    let text = cie.get(9..)?;
    let augmentation = text.get(..text.iter().position(|b| *b == 0)?)?;
    let Some((b'z', letters)) = augmentation.split_first() else { return Some(0) };
    let mut rest = text.get(augmentation.len() + 1..)?;
    let mut leb = || {
        let end = rest.iter().position(|b| b & 0x80 == 0)?;
        rest = rest.get(end + 1..)?;
        Some(())
    };
    // Code alignment and data alignment; in version 1 the return address register is a byte.
    leb()?;
    leb()?;
    if version == 1 {
        rest = rest.get(1..)?;
    } else {
        leb()?;
    }
    // Length of the augmentation data.
    let end = rest.iter().position(|b| b & 0x80 == 0)?;
    rest = rest.get(end + 1..)?;
    for letter in letters {
        match letter {
            b'R' => return rest.first().copied(),
            b'L' => rest = rest.get(1..)?,
            b'P' => rest = rest.get(1 + encoded_bytes(*rest.first()?)?..)?,
            b'S' | b'B' => {}
            _ => return None,
        }
    }
    Some(0)
}

/// Size in bytes of an encoded pointer; `None` for a size that varies.
fn encoded_bytes(encoding: u8) -> Option<usize> {
    match encoding & 0x0f {
        0x02 | 0x0a => Some(2),
        0x03 | 0x0b => Some(4),
        0x00 | 0x04 | 0x0c => Some(8),
        _ => None,
    }
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}
