//! An ELF file, open: its headers, and reads by place in the file or by address.

use super::bytes::{u16_at, u32_at, u64_at};
use super::dynamic::Dynamic;
use crate::error::AnalyseError;
use object::elf;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// `sizeof(Elf64_Ehdr)` and `sizeof(Elf64_Phdr)`.
const HEADER: usize = 64;
const PROGRAM_HEADER: usize = 56;
/// More program headers than any linker makes.
const SEGMENT_LIMIT: usize = 1024;

/// One program header.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    /// `p_type`.
    pub kind: u32,
    /// `p_flags`.
    pub flags: u32,
    /// Place in the file.
    pub offset: u64,
    /// Address before the load bias is added.
    pub address: u64,
    /// Bytes in the file.
    pub file_size: u64,
    /// Bytes in memory.
    pub memory_size: u64,
}

/// What its bytes are read from.
enum Content {
    File(File),
    Memory(Vec<u8>),
}

impl Content {
    /// What there is from a place on, up to the length of `out`.
    fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<usize> {
        match self {
            Content::File(file) => file.read_at(out, offset),
            Content::Memory(bytes) => {
                let rest = usize::try_from(offset).ok().and_then(|offset| bytes.get(offset..)).unwrap_or(&[]);
                let count = rest.len().min(out.len());
                out.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
                Ok(count)
            }
        }
    }

    fn read_exact_at(&self, out: &mut [u8], offset: u64) -> io::Result<()> {
        match self {
            Content::File(file) => file.read_exact_at(out, offset),
            Content::Memory(_) if self.read_at(out, offset)? < out.len() => Err(io::ErrorKind::UnexpectedEof.into()),
            Content::Memory(_) => Ok(()),
        }
    }
}

/// An ELF file that can be loaded on x86-64.
pub struct Image {
    path: PathBuf,
    content: Content,
    len: u64,
    header: [u8; HEADER],
    program_headers: Vec<u8>,
    segments: Vec<Segment>,
    dynamic: Dynamic,
}

impl Image {
    /// Opens the file and reads its headers.
    pub fn open(path: &Path) -> Result<Image, AnalyseError> {
        let unreadable = |error| AnalyseError::Unreadable { path: path.into(), error };
        // Asked first, because opening a pipe would wait for its other end.
        if !std::fs::metadata(path).map_err(unreadable)?.is_file() {
            return Err(AnalyseError::NotAFile { path: path.into() });
        }
        let file = File::open(path).map_err(unreadable)?;
        let len = file.metadata().map_err(unreadable)?.len();
        Image::read(path, Content::File(file), len)
    }

    /// A file's bytes, read before, or an object that has no file (the vDSO). `path`: what errors call it.
    pub fn of_bytes(path: &Path, bytes: Vec<u8>) -> Result<Image, AnalyseError> {
        let len = bytes.len() as u64;
        Image::read(path, Content::Memory(bytes), len)
    }

    fn read(path: &Path, content: Content, len: u64) -> Result<Image, AnalyseError> {
        let unreadable = |error| AnalyseError::Unreadable { path: path.into(), error };
        let mut header = [0; HEADER];
        let got = read_up_to(&content, &mut header).map_err(unreadable)?;
        check_header(path, header.get(..got).unwrap_or(&[]), len)?;

        let (start, count) = (u64_at(&header, 32), usize::from(u16_at(&header, 56)).min(SEGMENT_LIMIT));
        let entry = usize::from(u16_at(&header, 54));
        let truncated = |what, end| AnalyseError::Truncated { path: path.into(), what, end, len };
        if count > 0 && entry != PROGRAM_HEADER {
            return Err(truncated("program header", start.saturating_add(PROGRAM_HEADER as u64)));
        }
        let mut program_headers = vec![0; count * PROGRAM_HEADER];
        let end = start.saturating_add(program_headers.len() as u64);
        if end > len {
            return Err(truncated("program header table", end));
        }
        content.read_exact_at(&mut program_headers, start).map_err(unreadable)?;
        let segments = program_headers.chunks_exact(PROGRAM_HEADER).map(segment).collect();
        let mut image =
            Image { path: path.into(), content, len, header, program_headers, segments, dynamic: Dynamic::default() };
        image.dynamic = Dynamic::read(&image);
        Ok(image)
    }

    /// The file's path, as it was given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The program headers.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// The first segment of a kind.
    pub fn segment(&self, kind: u32) -> Option<&Segment> {
        self.segments.iter().find(|s| s.kind == kind)
    }

    /// The dynamic section; empty in static programs.
    pub fn dynamic(&self) -> &Dynamic {
        &self.dynamic
    }

    /// ELF header and program headers, byte for byte: what identifies an object without a build-id.
    pub fn identity(&self) -> Vec<u8> {
        let mut bytes = self.header.to_vec();
        bytes.extend_from_slice(&self.program_headers);
        bytes
    }

    /// The program interpreter (`PT_INTERP`), if the file names one.
    pub fn interpreter(&self) -> Option<PathBuf> {
        use std::os::unix::ffi::OsStringExt;
        let segment = self.segment(elf::PT_INTERP)?;
        let mut bytes = self.read_file(segment.offset, segment.file_size.min(4096))?;
        bytes.truncate(bytes.iter().position(|b| *b == 0)?);
        Some(PathBuf::from(std::ffi::OsString::from_vec(bytes)))
    }

    /// `len` bytes at a place in the file; `None` when they are not all there. `len` must be bounded by the caller or
    /// by the file: no memory is taken for bytes that the file lacks.
    pub fn read_file(&self, offset: u64, len: u64) -> Option<Vec<u8>> {
        if offset.checked_add(len)? > self.len {
            return None;
        }
        let mut bytes = vec![0; usize::try_from(len).ok()?];
        self.content.read_exact_at(&mut bytes, offset).ok()?;
        Some(bytes)
    }

    /// Fills `out` with what the file holds at an address. False: it holds not all of it.
    pub fn read_address(&self, address: u64, out: &mut [u8]) -> bool {
        match self.place(address, out.len() as u64) {
            Some(offset) => self.content.read_exact_at(out, offset).is_ok(),
            None => false,
        }
    }

    /// Whether the file holds all bytes of `[address, address + len)`.
    pub fn holds(&self, address: u64, len: u64) -> bool {
        self.place(address, len).is_some()
    }

    /// Where in the file the bytes of `[address, address + len)` stand.
    fn place(&self, address: u64, len: u64) -> Option<u64> {
        self.segments.iter().filter(|s| s.kind == elf::PT_LOAD).find_map(|s| {
            let within = address.checked_sub(s.address)?;
            let offset = s.offset.checked_add(within)?;
            (within.checked_add(len)? <= s.file_size && offset.checked_add(len)? <= self.len).then_some(offset)
        })
    }

    /// Place, size in the file and entry size of the section header table, and index of the section of names.
    pub fn section_table(&self) -> (u64, u16, u16, u16) {
        let at = |offset| u16_at(&self.header, offset);
        (u64_at(&self.header, 40), at(60), at(58), at(62))
    }
}

fn segment(bytes: &[u8]) -> Segment {
    Segment {
        kind: u32_at(bytes, 0),
        flags: u32_at(bytes, 4),
        offset: u64_at(bytes, 8),
        address: u64_at(bytes, 16),
        file_size: u64_at(bytes, 32),
        memory_size: u64_at(bytes, 40),
    }
}

fn read_up_to(content: &Content, out: &mut [u8]) -> io::Result<usize> {
    let mut got = 0;
    while let Some(rest) = out.get_mut(got..).filter(|rest| !rest.is_empty()) {
        match content.read_at(rest, got as u64)? {
            0 => break,
            n => got += n,
        }
    }
    Ok(got)
}

fn check_header(path: &Path, header: &[u8], len: u64) -> Result<(), AnalyseError> {
    let path = || path.to_path_buf();
    if !header.starts_with(&elf::ELFMAG) {
        return Err(AnalyseError::NotElf { path: path(), found: header.iter().take(4).copied().collect() });
    }
    if header.len() < HEADER {
        return Err(AnalyseError::Truncated { path: path(), what: "ELF header", end: HEADER as u64, len });
    }
    let machine = u16_at(header, 18);
    let (class, data) = (header.get(4).copied(), header.get(5).copied());
    let found = match (class, data) {
        (Some(2), Some(1)) if machine == elf::EM_X86_64 => None,
        (Some(2), Some(1)) => Some(machine_name(machine)),
        (Some(1), Some(1)) => Some(format!("a 32-bit machine ({})", machine_name(machine))),
        (_, Some(2)) => Some(format!("a big-endian machine ({})", machine_name(machine.swap_bytes()))),
        _ => Some(format!("no known machine (class {class:?}, data {data:?})")),
    };
    if let Some(found) = found {
        return Err(AnalyseError::Foreign { path: path(), found });
    }
    let kind = u16_at(header, 16);
    if kind != elf::ET_EXEC && kind != elf::ET_DYN {
        return Err(AnalyseError::NotLoadable { path: path(), kind });
    }
    Ok(())
}

fn machine_name(machine: u16) -> String {
    let name = match machine {
        3 => "i386",
        40 => "ARM",
        62 => "x86-64",
        183 => "AArch64",
        243 => "RISC-V",
        21 => "PowerPC64",
        22 => "S/390",
        _ => return format!("machine number {machine}"),
    };
    name.into()
}
