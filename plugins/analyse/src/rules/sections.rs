//! Where an ELF file keeps its call frame information.

use super::builder::{build, NoTable, Source};
use super::compressed::{self, Unread};
use crate::elf::{Image, Section};
use object::elf::{PF_X, PT_GNU_EH_FRAME, PT_LOAD, SHF_COMPRESSED, SHT_NOBITS};

/// The table of an ELF file, under `key`.
pub fn of_image(image: &Image, key: u64) -> Result<Vec<u8>, NoTable> {
    let text: Vec<(u64, u64)> = image
        .segments()
        .iter()
        .filter(|s| s.kind == PT_LOAD && s.flags & PF_X != 0)
        .map(|s| (s.address, s.address.saturating_add(s.memory_size)))
        .collect();
    let eh_frame = section(image, b".eh_frame").or_else(|| by_header(image));
    let debug_frame = debug_frame(image).and_then(Result::ok);
    let all = [(false, &eh_frame), (true, &debug_frame)];
    let sources: Vec<Source<'_>> = all
        .iter()
        .filter_map(|(debug, found)| {
            let (address, bytes) = found.as_ref()?;
            Some(Source { debug: *debug, address: *address, bytes })
        })
        .collect();
    build(&sources, &text, Some(image), key)
}

/// Address and bytes of `.debug_frame`, decompressed, or why it cannot be read. `None`: there is none.
pub fn debug_frame(image: &Image) -> Option<Result<(u64, Vec<u8>), Unread>> {
    let (section, read) = match stored(image, b".debug_frame") {
        Some(section) => (section, content(image, &section)),
        None => {
            let section = stored(image, b".zdebug_frame")?;
            let bytes = image.read_file(section.offset, section.size).ok_or(Unread::Cut);
            (section, bytes.and_then(|bytes| compressed::old_section(&bytes)))
        }
    };
    Some(read.map(|bytes| (section.address, bytes)))
}

/// Address and bytes of a section.
fn section(image: &Image, name: &[u8]) -> Option<(u64, Vec<u8>)> {
    let section = stored(image, name)?;
    Some((section.address, content(image, &section).ok()?))
}

/// A section whose bytes are in the file.
fn stored(image: &Image, name: &[u8]) -> Option<Section> {
    image.section(name).filter(|section| section.kind != SHT_NOBITS)
}

fn content(image: &Image, section: &Section) -> Result<Vec<u8>, Unread> {
    let bytes = image.read_file(section.offset, section.size).ok_or(Unread::Cut)?;
    if section.flags & u64::from(SHF_COMPRESSED) != 0 {
        return compressed::section(&bytes);
    }
    Ok(bytes)
}

/// `.eh_frame` of a file without section headers: it begins where `.eh_frame_hdr` says, and ends with its segment at the
/// latest.
fn by_header(image: &Image) -> Option<(u64, Vec<u8>)> {
    let header = image.segment(PT_GNU_EH_FRAME)?;
    let mut bytes = [0; 8];
    if !image.read_address(header.address, &mut bytes) {
        return None;
    }
    let [version, encoding, _, _, a, b, c, d] = bytes;
    // The one form that linkers write: version 1, pc-relative, 4 bytes.
    if (version, encoding) != (1, 0x1b) {
        return None;
    }
    let start = header.address.wrapping_add(4).wrapping_add_signed(i64::from(i32::from_le_bytes([a, b, c, d])));
    let segment = image.segments().iter().find(|s| {
        s.kind == PT_LOAD && s.address <= start && start.checked_sub(s.address).is_some_and(|n| n < s.file_size)
    })?;
    let within = start - segment.address;
    let bytes = image.read_file(segment.offset.checked_add(within)?, segment.file_size - within)?;
    Some((start, bytes))
}
