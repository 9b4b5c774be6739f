//! Where an ELF file keeps its call frame information.

use super::builder::{build, NoTable, Source};
use crate::elf::bytes::{u32_at, u64_at};
use crate::elf::Image;
use object::elf::{ELFCOMPRESS_ZLIB, PF_X, PT_GNU_EH_FRAME, PT_LOAD, SHF_COMPRESSED, SHT_NOBITS};
use std::io::Read;

/// The table of an ELF file, under `key`.
pub fn of_image(image: &Image, key: u64) -> Result<Vec<u8>, NoTable> {
    let text: Vec<(u64, u64)> = image
        .segments()
        .iter()
        .filter(|s| s.kind == PT_LOAD && s.flags & PF_X != 0)
        .map(|s| (s.address, s.address.saturating_add(s.memory_size)))
        .collect();
    let eh_frame = section(image, b".eh_frame").or_else(|| by_header(image));
    let debug_frame = debug_frame(image);
    let all = [(false, &eh_frame), (true, &debug_frame)];
    let sources: Vec<Source<'_>> = all
        .iter()
        .filter_map(|(debug, found)| {
            let (address, bytes) = found.as_ref()?;
            Some(Source { debug: *debug, address: *address, bytes })
        })
        .collect();
    build(&sources, &text, key)
}

/// Address and bytes of `.debug_frame`, decompressed.
pub fn debug_frame(image: &Image) -> Option<(u64, Vec<u8>)> {
    section(image, b".debug_frame")
}

/// Whether there is a `.debug_frame` that [`debug_frame`] cannot read: compressed otherwise than by zlib, or damaged.
pub fn has_unread_debug_frame(image: &Image) -> bool {
    let there = image.section(b".debug_frame").is_some_and(|section| section.kind != SHT_NOBITS && section.size > 0);
    there && debug_frame(image).is_none()
}

/// Address and bytes of a section.
fn section(image: &Image, name: &[u8]) -> Option<(u64, Vec<u8>)> {
    let section = image.section(name)?;
    if section.kind == SHT_NOBITS {
        return None;
    }
    let bytes = image.read_file(section.offset, section.size)?;
    if section.flags & u64::from(SHF_COMPRESSED) != 0 {
        return Some((section.address, inflate(&bytes)?));
    }
    Some((section.address, bytes))
}

/// The content of a compressed section (gABI, "Section Compression"): `Elf64_Chdr`, then a zlib stream.
fn inflate(bytes: &[u8]) -> Option<Vec<u8>> {
    const HEADER: usize = 24;
    /// The most that zlib can make of a byte.
    const RATIO: u64 = 1032;
    let (header, stream) = bytes.split_at_checked(HEADER)?;
    let (kind, size) = (u32_at(header, 0), u64_at(header, 8));
    if kind != ELFCOMPRESS_ZLIB || size > RATIO * stream.len() as u64 {
        return None;
    }
    let mut content = Vec::new();
    flate2::read::ZlibDecoder::new(stream).take(size).read_to_end(&mut content).ok()?;
    (content.len() as u64 == size).then_some(content)
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
