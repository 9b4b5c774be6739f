//! Where an ELF file keeps its call frame information.

use super::builder::{build, NoTable, Source};
use super::go;
use object::elf::{PF_X, PT_GNU_EH_FRAME, PT_LOAD, SHF_COMPRESSED, SHT_NOBITS};
use sha2::{Digest, Sha256};
use uunwind_elf::compressed::{self, Unread};
use uunwind_elf::{Image, Section};

/// Bytes of code that are read at once for a digest.
const PART: usize = 1 << 20;
/// Sections in no segment that say where functions begin, and what the others are called.
const SYMBOLS: [&[u8]; 3] = [b".symtab", b".strtab", b".shstrtab"];
/// Most bytes of a section that are decompressed. The Linux kernel's `.debug_frame` takes some 10 MiB.
const MOST: u64 = 64 << 20;

/// All that the table of an ELF file is built of.
pub struct Inputs<'a> {
    image: &'a Image,
    /// Executable segments, without load bias.
    text: Vec<(u64, u64)>,
    /// Address and bytes of `.eh_frame`.
    eh_frame: Option<(u64, Vec<u8>)>,
    /// The same of `.debug_frame`, decompressed.
    debug_frame: Option<(u64, Vec<u8>)>,
}

impl<'a> Inputs<'a> {
    /// Reads the sections.
    pub fn of(image: &'a Image) -> Inputs<'a> {
        let executable = image.segments().iter().filter(|s| s.kind == PT_LOAD && s.flags & PF_X != 0);
        Inputs {
            image,
            text: executable.map(|s| (s.address, s.address.saturating_add(s.memory_size))).collect(),
            eh_frame: section(image, b".eh_frame").or_else(|| by_header(image)),
            debug_frame: debug_frame(image).and_then(Result::ok),
        }
    }

    /// The table, under `key` ([`Image::unwind_key`]).
    pub fn build(&self, key: u64) -> Result<Vec<u8>, NoTable> {
        let all = [(false, &self.eh_frame), (true, &self.debug_frame)];
        let sources: Vec<Source<'_>> = all
            .iter()
            .filter_map(|(debug, found)| {
                let (address, bytes) = found.as_ref()?;
                Some(Source { debug: *debug, address: *address, bytes })
            })
            .collect();
        build(&sources, &self.text, Some(self.image), key)
    }

    /// SHA-256 over all that [`Inputs::build`] uses: what has the same digest has the same table. It must withstand
    /// people who look for a second object with the digest of a first one.
    pub fn digest(&self, key: u64) -> [u8; 32] {
        let mut hash = Sha256::new();
        hash.update(key.to_le_bytes());
        hash.update((self.text.len() as u64).to_le_bytes());
        for (start, end) in &self.text {
            hash.update(start.to_le_bytes());
            hash.update(end.to_le_bytes());
        }
        for (address, bytes) in [&self.eh_frame, &self.debug_frame].into_iter().flatten() {
            hash.update(address.to_le_bytes());
            hash.update((bytes.len() as u64).to_le_bytes());
            hash.update(bytes);
        }
        hash.update([u8::from(self.eh_frame.is_some()), u8::from(self.debug_frame.is_some())]);
        if self.debug_frame.is_some() {
            self.digest_ends(&mut hash);
        }
        self.digest_code(&mut hash);
        hash.finalize().into()
    }

    /// Where Go's stacks end.
    fn digest_ends(&self, hash: &mut Sha256) {
        for outermost in go::outermost(self.image) {
            let (start, size) = outermost.map_or((0, 0), |symbol| (symbol.address, symbol.size));
            hash.update(start.to_le_bytes());
            hash.update(size.to_le_bytes());
        }
    }

    /// The code, against which Go's rows are held, and of which rows are made where there are none; and what says where
    /// its functions begin.
    fn digest_code(&self, hash: &mut Sha256) {
        for segment in self.image.segments().iter().filter(|s| s.kind == PT_LOAD) {
            hash.update(segment.address.to_le_bytes());
            self.digest_file(segment.offset, segment.file_size, hash);
        }
        for name in SYMBOLS {
            let section = stored(self.image, name);
            let (offset, size) = section.map_or((0, 0), |section| (section.offset, section.size));
            self.digest_file(offset, size, hash);
        }
        // The headers of sections: a word and two halves of the ELF header say where they are.
        let header = self.image.identity();
        let word = header.get(40..48).and_then(|bytes| bytes.first_chunk()).map_or(0, |word| u64::from_le_bytes(*word));
        let half =
            |at: usize| header.get(at..).and_then(|h| h.first_chunk()).map_or(0, |n| u64::from(u16::from_le_bytes(*n)));
        self.digest_file(word, half(58) * half(60), hash);
    }

    /// The bytes of a part of the file, as far as it has them, after their number.
    fn digest_file(&self, offset: u64, size: u64, hash: &mut Sha256) {
        hash.update(size.to_le_bytes());
        for part in (0..size).step_by(PART) {
            let len = (size - part).min(PART as u64);
            let bytes = offset.checked_add(part).and_then(|at| self.image.read_file(at, len));
            let Some(bytes) = bytes else { break };
            hash.update(&bytes);
        }
    }
}

/// The table of an ELF file, under `key`.
pub fn of_image(image: &Image, key: u64) -> Result<Vec<u8>, NoTable> {
    Inputs::of(image).build(key)
}

/// Address and bytes of `.debug_frame`, decompressed, or why it cannot be read. `None`: there is none.
pub fn debug_frame(image: &Image) -> Option<Result<(u64, Vec<u8>), Unread>> {
    let (section, read) = match stored(image, b".debug_frame") {
        Some(section) => (section, content(image, &section)),
        None => {
            let section = stored(image, b".zdebug_frame")?;
            let bytes = image.read_file(section.offset, section.size).ok_or(Unread::Cut);
            (section, bytes.and_then(|bytes| compressed::old_section(&bytes, MOST)))
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
        return compressed::section(&bytes, MOST);
    }
    Ok(bytes)
}

/// `.eh_frame` of a file without section headers: it begins where `.eh_frame_hdr` says, and ends with its segment at
/// the latest.
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
