//! An ELF file, open: its headers, and reads by place in the file or by address.

use super::dynamic::Dynamic;
use crate::error::AnalyseError;
use crate::files;
use object::elf;
use object::pod::{self, Pod};
use object::read::elf::{FileHeader, ProgramHeader};
use object::LittleEndian;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use uunwind_core::headers::{unwind_key, UNWIND_KEY_BYTES, UNWIND_KEY_START};

/// The ELF header of the files that are read.
pub(super) type Header = elf::FileHeader64<LittleEndian>;
type SegmentHeader = elf::ProgramHeader64<LittleEndian>;
/// Length of the ELF header, in bytes.
const HEADER: usize = size_of::<Header>();
const PROGRAM_HEADER: usize = size_of::<SegmentHeader>();
/// More program headers than any linker makes.
const SEGMENT_LIMIT: usize = 1024;

/// No part of a file is read that is larger, in bytes.
const READ_LIMIT: u64 = 512 << 20;

/// One program header.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    /// `p_type`.
    pub kind: u32,
    /// `p_flags`.
    pub flags: u32,
    /// Offset in the file, in bytes (`p_offset`).
    pub offset: u64,
    /// Address before the load bias is added.
    pub address: u64,
    /// Size in the file, in bytes (`p_filesz`).
    pub file_size: u64,
    /// Size in memory, in bytes (`p_memsz`).
    pub memory_size: u64,
    /// What its address is a multiple of (`p_align`); 0 and 1: of any number.
    pub alignment: u64,
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
    header: Header,
    program_headers: Vec<SegmentHeader>,
    segments: Vec<Segment>,
    dynamic: Dynamic,
}

impl Image {
    /// Opens the file and reads its headers.
    pub fn open(path: &Path) -> Result<Image, AnalyseError> {
        let unreadable = |error| AnalyseError::Unreadable { path: path.into(), error };
        let file = files::open(path).map_err(unreadable)?;
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
        let header = check_header(path, header.get(..got).unwrap_or(&[]), len)?;

        let (start, count) = (header.e_phoff(LittleEndian), header.e_phnum(LittleEndian));
        let (count, entry) = (usize::from(count).min(SEGMENT_LIMIT), usize::from(header.e_phentsize(LittleEndian)));
        let truncated = |what, end| AnalyseError::Truncated { path: path.into(), what, end, len };
        if count > 0 && entry != PROGRAM_HEADER {
            return Err(truncated("program header", start.saturating_add(PROGRAM_HEADER as u64)));
        }
        let end = start.saturating_add((count * PROGRAM_HEADER) as u64);
        if end > len {
            return Err(truncated("program header table", end));
        }
        let mut program_headers = zeroed::<SegmentHeader>(count);
        content.read_exact_at(pod::bytes_of_slice_mut(&mut program_headers), start).map_err(unreadable)?;
        let segments = program_headers.iter().map(segment).collect();
        let mut image =
            Image { path: path.into(), content, len, header, program_headers, segments, dynamic: Dynamic::default() };
        image.dynamic = Dynamic::read(&image);
        Ok(image)
    }

    /// What the file system says of the file that is open; `None`: its bytes came from memory.
    pub fn metadata(&self) -> Option<std::fs::Metadata> {
        match &self.content {
            Content::File(file) => file.metadata().ok(),
            Content::Memory(_) => None,
        }
    }

    /// Its length in bytes, as it was when it was opened.
    #[allow(clippy::len_without_is_empty, reason = "what has a header is never empty")]
    pub fn len(&self) -> u64 {
        self.len
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
        [pod::bytes_of(&self.header), pod::bytes_of_slice(&self.program_headers)].concat()
    }

    /// What binds a rule table to this object: [`uunwind_core::headers::unwind_key`] of its file.
    pub fn unwind_key(&self) -> u64 {
        let mut index = Vec::new();
        if let Some(segment) = self.segment(elf::PT_GNU_EH_FRAME) {
            index = vec![0; segment.file_size.min(UNWIND_KEY_BYTES) as usize];
            if !self.read_address(segment.address, &mut index) {
                index.fill(0);
            }
        }
        let parts = [pod::bytes_of(&self.header), pod::bytes_of_slice(&self.program_headers), &index];
        parts.into_iter().fold(UNWIND_KEY_START, |key, part| {
            let part = part.get(..UNWIND_KEY_BYTES as usize).unwrap_or(part);
            unwind_key(key, part.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)))
        })
    }

    /// The program interpreter (`PT_INTERP`), if the file names one.
    pub fn interpreter(&self) -> Option<PathBuf> {
        use std::os::unix::ffi::OsStringExt;
        let segment = self.segment(elf::PT_INTERP)?;
        let mut bytes = self.read_file(segment.offset, segment.file_size.min(4096))?;
        bytes.truncate(bytes.iter().position(|b| *b == 0)?);
        Some(PathBuf::from(std::ffi::OsString::from_vec(bytes)))
    }

    /// `len` bytes at a place in the file; `None` when they are not all there, or more than `READ_LIMIT`. No memory is
    /// taken for bytes that the file lacks; a file may be long and have hardly any, so there is a limit as well.
    pub fn read_file(&self, offset: u64, len: u64) -> Option<Vec<u8>> {
        self.read_all(offset, len)
    }

    /// As [`Image::read_file`], as values of one size; a rest shorter than that is left out.
    pub(super) fn read_all<T: Pod>(&self, offset: u64, len: u64) -> Option<Vec<T>> {
        if offset.checked_add(len)? > self.len || len > READ_LIMIT {
            return None;
        }
        let mut values = zeroed(usize::try_from(len).ok()? / size_of::<T>());
        self.content.read_exact_at(pod::bytes_of_slice_mut(&mut values), offset).ok()?;
        Some(values)
    }

    /// The value that the file holds at an address. `None`: it holds not all of it.
    pub(super) fn read_at<T: Pod>(&self, address: u64) -> Option<T> {
        let mut value = zeroed(1);
        self.read_address(address, pod::bytes_of_slice_mut(&mut value)).then(|| value.pop())?
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

    /// The ELF header.
    pub(super) fn header(&self) -> &Header {
        &self.header
    }
}

/// Values to read into. No structure of ELF is longer than its header.
fn zeroed<T: Pod>(count: usize) -> Vec<T> {
    const { assert!(size_of::<T>() <= HEADER) };
    pod::from_bytes(&[0; HEADER]).map_or(Vec::new(), |(zero, _)| vec![*zero; count])
}

fn segment(header: &SegmentHeader) -> Segment {
    Segment {
        kind: header.p_type(LittleEndian),
        flags: header.p_flags(LittleEndian),
        offset: header.p_offset(LittleEndian),
        address: header.p_vaddr(LittleEndian),
        file_size: header.p_filesz(LittleEndian),
        memory_size: header.p_memsz(LittleEndian),
        alignment: header.p_align(LittleEndian),
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

/// The header of a file that can be loaded on this CPU. `bytes`: what the file begins with, at most [`HEADER`] bytes.
fn check_header(path: &Path, bytes: &[u8], len: u64) -> Result<Header, AnalyseError> {
    let path = || path.to_path_buf();
    if !bytes.starts_with(&elf::ELFMAG) {
        return Err(AnalyseError::NotElf { path: path(), found: bytes.iter().take(4).copied().collect() });
    }
    let Ok((header, _)) = pod::from_bytes::<Header>(bytes) else {
        return Err(AnalyseError::Truncated { path: path(), what: "ELF header", end: HEADER as u64, len });
    };
    // `e_machine` is at the same place for 32 and 64 bits.
    let machine = header.e_machine(LittleEndian);
    let found = match (header.e_ident.class, header.e_ident.data) {
        (elf::ELFCLASS64, elf::ELFDATA2LSB) if machine == crate::cpu::MACHINE => None,
        (elf::ELFCLASS64, elf::ELFDATA2LSB) => Some(machine_name(machine)),
        (elf::ELFCLASS32, elf::ELFDATA2LSB) => Some(format!("a 32-bit machine ({})", machine_name(machine))),
        (_, elf::ELFDATA2MSB) => Some(format!("a big-endian machine ({})", machine_name(machine.swap_bytes()))),
        (class, data) => Some(format!("no known machine (class {class}, data {data})")),
    };
    if let Some(found) = found {
        return Err(AnalyseError::Foreign { path: path(), found });
    }
    let kind = header.e_type(LittleEndian);
    if kind != elf::ET_EXEC && kind != elf::ET_DYN {
        return Err(AnalyseError::NotLoadable { path: path(), kind });
    }
    Ok(*header)
}

fn machine_name(machine: u16) -> String {
    let name = match machine {
        elf::EM_386 => "i386",
        elf::EM_ARM => "ARM",
        elf::EM_X86_64 => "x86-64",
        elf::EM_AARCH64 => "AArch64",
        elf::EM_RISCV => "RISC-V",
        elf::EM_PPC64 => "PowerPC64",
        elf::EM_S390 => "S/390",
        _ => return format!("machine number {machine}"),
    };
    name.into()
}
