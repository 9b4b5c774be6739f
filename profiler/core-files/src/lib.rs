//! Core files: a process's memory and its threads' registers, as the kernel or gdb wrote them, and the stacks of the
//! threads (report room)
//! ([core(5)](https://man7.org/linux/man-pages/man5/core.5.html),
//! [elfcore.h](https://github.com/torvalds/linux/blob/v6.1/include/uapi/linux/elfcore.h)).
//!
//! Anybody may have made the file. It is read in parts, so that one that shrinks gives an error and no signal; every
//! offset is compared with its length before it is used, and every list has a limit.
//!
//! ```text
//! notes      threads, signal, mapped files
//! search     finds the files that were mapped, by their build-ids
//! memory     the process's memory: the core file's, and what it lacks from the files
//! objects    what was mapped, with rule tables and facts
//! dump       the stacks of all threads, as a recording
//! ```

mod dump;
mod memory;
pub mod notes;
pub mod objects;
pub mod search;

pub use dump::dump_core;
pub use search::Search;

use notes::Notes;
use object::elf;
use object::pod;
use object::read::elf::FileHeader;
use object::LittleEndian;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use uunwind_elf::files;

type Header = elf::FileHeader64<LittleEndian>;
type ProgramHeader = elf::ProgramHeader64<LittleEndian>;

/// At most this number of program headers is read: Linux gives a process 65,530 mappings, unless it is configured
/// otherwise.
const PROGRAM_HEADERS: u64 = 1 << 20;

/// Why a core file gives no stacks.
#[derive(Debug, thiserror::Error)]
pub enum CoreError {
    /// It cannot be opened or read.
    #[error("{0}: {1}")]
    Unreadable(PathBuf, io::Error),
    /// It is something else.
    #[error("{0}: not a core file: {1}")]
    NotCore(PathBuf, String),
    /// It is a core file of another machine.
    #[error("{0}: a core file of {1}; uu reads those of {own} processes", own = uunwind_elf::MACHINE_NAME)]
    Foreign(PathBuf, String),
    /// A part of it is not what it must be.
    #[error("{path}: damaged core file: {what}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        what: String,
    },
}

/// What its bytes are read from.
enum Content {
    File(File),
    Memory(Vec<u8>),
}

/// Memory that the file has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Load {
    /// First process address.
    start: u64,
    /// Number of bytes that are in the file.
    size: u64,
    /// Where they begin in the file.
    offset: u64,
    /// `p_flags`.
    flags: u32,
    /// Number of bytes that were mapped.
    mapped: u64,
}

/// A core file, open.
pub struct CoreFile {
    path: PathBuf,
    content: Content,
    len: u64,
    /// In order of addresses.
    loads: Vec<Load>,
    /// What its notes say.
    pub notes: Notes,
    /// What is missing or wrong in it, for people.
    pub troubles: Vec<String>,
}

impl CoreFile {
    /// Opens a file and reads its headers and notes.
    pub fn open(path: &Path) -> Result<CoreFile, CoreError> {
        let unreadable = |error| CoreError::Unreadable(path.into(), error);
        let file = files::open(path).map_err(unreadable)?;
        let len = file.metadata().map_err(unreadable)?.len();
        CoreFile::read(path, Content::File(file), len)
    }

    /// A core file's bytes. `path`: what errors call it.
    pub fn of_bytes(path: &Path, bytes: Vec<u8>) -> Result<CoreFile, CoreError> {
        let len = bytes.len() as u64;
        CoreFile::read(path, Content::Memory(bytes), len)
    }

    fn read(path: &Path, content: Content, len: u64) -> Result<CoreFile, CoreError> {
        let (loads, notes) = (Vec::new(), Notes::default());
        let mut core = CoreFile { path: path.into(), content, len, loads, notes, troubles: Vec::new() };
        let headers = core.program_headers()?;
        let mut missing = 0;
        for header in &headers {
            let [offset, start, size, mapped] =
                [header.p_offset, header.p_vaddr, header.p_filesz, header.p_memsz].map(|value| value.get(LittleEndian));
            let flags = header.p_flags.get(LittleEndian);
            if header.p_type.get(LittleEndian) != elf::PT_LOAD || start.checked_add(mapped.max(size)).is_none() {
                continue;
            }
            let there = len.saturating_sub(offset).min(size);
            missing = u64::saturating_add(missing, size - there);
            core.loads.push(Load { start, size: there, offset, flags, mapped: mapped.max(size) });
        }
        core.loads.sort_by_key(|load| load.start);
        if missing > 0 {
            let why = "it was cut, such as by ulimit -c or a full disk";
            core.troubles.push(format!("{missing} bytes of memory lie beyond the end of the core file: {why}"));
        }
        let mut troubles = Vec::new();
        core.notes = Notes::read(&core, &headers, &mut troubles);
        core.troubles.extend(troubles);
        if core.notes.threads.is_empty() {
            let cut = if missing > 0 { ", and the file is cut" } else { "" };
            return Err(core.damaged(format!("it has no NT_PRSTATUS note, and so no thread{cut}")));
        }
        Ok(core)
    }

    fn program_headers(&self) -> Result<Vec<ProgramHeader>, CoreError> {
        let mut header = [0; size_of::<Header>()];
        let got = self.read_at(0, &mut header);
        let header = self.check(header.get(..got).unwrap_or_default())?;
        let start = header.e_phoff(LittleEndian);
        let mut count = u64::from(header.e_phnum(LittleEndian));
        if count == u64::from(elf::PN_XNUM) {
            // The first section header has the number (elf(5)).
            let mut section = [0; size_of::<elf::SectionHeader64<LittleEndian>>()];
            let at = header.e_shoff(LittleEndian);
            if self.read_at(at, &mut section) < section.len() {
                return Err(self.damaged(format!("its first section header, at offset {at:#x}, is not in the file")));
            }
            if let Ok((section, _)) = pod::from_bytes::<elf::SectionHeader64<LittleEndian>>(&section) {
                count = section.sh_info.get(LittleEndian).into();
            }
        }
        let entry = u64::from(header.e_phentsize.get(LittleEndian));
        if entry != size_of::<ProgramHeader>() as u64 {
            return Err(self.damaged(format!("its program headers have {entry} bytes each, not 56")));
        }
        let end = start.saturating_add(count.saturating_mul(entry));
        if end > self.len {
            let len = self.len;
            return Err(self.damaged(format!("its {count} program headers reach to offset {end:#x} of {len:#x} bytes")));
        }
        if count > PROGRAM_HEADERS {
            return Err(self.damaged(format!("it has {count} program headers; at most {PROGRAM_HEADERS} are read")));
        }
        let mut bytes = vec![0; (count * entry) as usize];
        if self.read_at(start, &mut bytes) < bytes.len() {
            return Err(self.damaged(format!("its program headers, at offset {start:#x}, cannot be read")));
        }
        let headers = pod::slice_from_all_bytes::<ProgramHeader>(&bytes).unwrap_or_default();
        Ok(headers.to_vec())
    }

    fn check(&self, bytes: &[u8]) -> Result<Header, CoreError> {
        let not_core = |why: &str| CoreError::NotCore(self.path.clone(), why.to_owned());
        if !bytes.starts_with(&elf::ELFMAG) {
            return Err(not_core(match bytes {
                [] => "it is empty",
                [0x28, 0xb5, 0x2f, 0xfd, ..] => "it is compressed (zstd): decompress it first (zstd -d)",
                [0x04, 0x22, 0x4d, 0x18, ..] => "it is compressed (lz4): decompress it first (lz4 -d)",
                [0xfd, b'7', b'z', ..] => "it is compressed (xz): decompress it first (xz -d)",
                [0x1f, 0x8b, ..] => "it is compressed (gzip): decompress it first (gzip -d)",
                _ => "it is no ELF file",
            }));
        }
        let Ok((header, _)) = pod::from_bytes::<Header>(bytes) else {
            return Err(self.damaged(format!("its ELF header is cut after {} bytes", bytes.len())));
        };
        let machine = header.e_machine.get(LittleEndian);
        let found = match (header.e_ident.class, header.e_ident.data) {
            (elf::ELFCLASS64, elf::ELFDATA2LSB) if machine == uunwind_elf::MACHINE => None,
            (elf::ELFCLASS64, elf::ELFDATA2LSB) if machine == elf::EM_AARCH64 => Some("an AArch64 process".to_owned()),
            (elf::ELFCLASS64, elf::ELFDATA2LSB) if machine == elf::EM_X86_64 => Some("an x86-64 process".to_owned()),
            (elf::ELFCLASS32, _) => Some("a 32-bit process".to_owned()),
            (_, elf::ELFDATA2MSB) => Some("a big-endian machine".to_owned()),
            _ => Some(format!("machine number {machine}")),
        };
        if let Some(found) = found {
            return Err(CoreError::Foreign(self.path.clone(), found));
        }
        match header.e_type.get(LittleEndian) {
            elf::ET_CORE => Ok(*header),
            elf::ET_EXEC | elf::ET_DYN => Err(not_core("it is a program or a library")),
            kind => Err(not_core(&format!("its ELF type is {kind}"))),
        }
    }

    fn damaged(&self, what: String) -> CoreError {
        CoreError::Damaged { path: self.path.clone(), what }
    }

    /// Reads the file from an offset on. Returns the number of bytes that there are, at most those of `out`.
    fn read_at(&self, offset: u64, out: &mut [u8]) -> usize {
        match &self.content {
            Content::Memory(bytes) => {
                let rest = usize::try_from(offset).ok().and_then(|at| bytes.get(at..)).unwrap_or_default();
                out.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
                rest.len().min(out.len())
            }
            Content::File(file) => {
                let mut done = 0;
                while let Some(rest) = out.get_mut(done..).filter(|rest| !rest.is_empty()) {
                    match file.read_at(rest, offset.saturating_add(done as u64)) {
                        Ok(0) => break,
                        Ok(read) => done += read,
                        Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                        Err(_) => break,
                    }
                }
                done
            }
        }
    }

    /// Reads the process's memory from an address on, as far as the file has it without a gap. Returns the number of
    /// bytes, at most those of `out`.
    pub fn memory(&self, address: u64, out: &mut [u8]) -> usize {
        let mut done = 0;
        while let Some(rest) = out.get_mut(done..).filter(|rest| !rest.is_empty()) {
            let Some(at) = address.checked_add(done as u64) else { break };
            let Some(load) = self.load_at(at) else { break };
            let within = at - load.start;
            let len = load.size.saturating_sub(within).min(rest.len() as u64) as usize;
            let Some(part) = rest.get_mut(..len).filter(|part| !part.is_empty()) else { break };
            let read = self.read_at(load.offset.saturating_add(within), part);
            done += read;
            if read < len {
                break;
            }
        }
        done
    }

    /// The mapping that covers an address, as far as the file says.
    fn load_at(&self, address: u64) -> Option<&Load> {
        let after = self.loads.partition_point(|load| load.start <= address);
        let load = self.loads.get(after.checked_sub(1)?)?;
        (address - load.start < load.mapped).then_some(load)
    }

    /// Whether the memory at an address could be executed. `None`: the file does not say, as gdb leaves out what it
    /// does not dump.
    pub fn is_code(&self, address: u64) -> Option<bool> {
        self.load_at(address).map(|load| load.flags & elf::PF_X != 0)
    }

    /// Its path, as it was given.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl uunwind_recorder::jit::gdb::Memory for CoreFile {
    fn read(&self, address: u64, len: usize) -> Option<Vec<u8>> {
        let mut out = vec![0; len];
        (self.memory(address, &mut out) == len).then_some(out)
    }
}

#[cfg(test)]
mod tests;
