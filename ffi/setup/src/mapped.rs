//! Objects as they are mapped: the headers of one that has no build-id, and the one that has no file.

use std::fs::File;
use std::os::unix::fs::FileExt;
use uunwind_core::object_key;
use uunwind_elf::maps::{self, Mapping};

/// The program's own file, also after it was removed, or its main thread has ended.
pub const PROGRAM: &str = "/proc/thread-self/exe";

/// The loader's name of the kernel's object.
pub const VDSO: &[u8] = b"linux-vdso.so.1";

/// Bytes of an ELF header, and of a program header (<elf.h>).
const ELF_HEADER: usize = 64;
const PROGRAM_HEADER: usize = 56;

/// `uunwind_core::object_key::key` of the ELF header and the program headers of the object that is mapped at an
/// address; 0: none is, or they are not mapped. The loader, which cannot be asked in the child of a fork, is not asked.
pub fn headers_key(address: u64) -> u64 {
    let read = || {
        let mappings: Vec<Mapping> = maps::own().ok()?.collect();
        let at = mappings.iter().position(|mapping| mapping.start <= address && address < mapping.end)?;
        let inode = mappings.get(at)?.inode;
        let before = mappings.get(..=at)?.iter().rev().take_while(|mapping| mapping.inode == inode);
        let first = before.filter(|mapping| mapping.offset == 0).last()?;
        let memory = File::open("/proc/thread-self/mem").ok()?;
        let bytes = |at: u64, len: usize| {
            let mut bytes = vec![0; len];
            memory.read_exact_at(&mut bytes, at).ok().map(|()| bytes)
        };
        let header = bytes(first.start, ELF_HEADER)?;
        // e_phoff and e_phnum (<elf.h>).
        let offset = u64::from_le_bytes(header.get(32..40)?.try_into().ok()?);
        let count = u16::from_le_bytes(header.get(56..58)?.try_into().ok()?);
        let programs = bytes(first.start.checked_add(offset)?, usize::from(count) * PROGRAM_HEADER)?;
        Some(object_key::key(&[header, programs].concat()))
    };
    read().unwrap_or(0)
}

/// The kernel's object in this process, which has no file (vdso(7)).
pub fn vdso() -> Option<&'static [u8]> {
    // SAFETY: getauxval has no preconditions.
    let at = unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) } as *const libc::Elf64_Ehdr;
    // SAFETY: null, or the kernel's header, which stays as long as the process.
    let header = unsafe { at.as_ref() }?;
    // Its section headers come last.
    let len = header.e_shoff.checked_add(u64::from(header.e_shentsize) * u64::from(header.e_shnum))?;
    // SAFETY: the kernel maps the whole image.
    Some(unsafe { std::slice::from_raw_parts(at.cast(), usize::try_from(len).ok()?) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_headers_of_an_object_are_those_of_its_file() {
        let file = std::fs::read(PROGRAM).expect("the test's own file");
        let number = |at: usize| usize::from(u16::from_le_bytes([file[at], file[at + 1]]));
        let programs = &file[ELF_HEADER..][..number(56) * PROGRAM_HEADER];
        // Linkers place the program headers after the ELF header.
        assert_eq!(number(32), ELF_HEADER);
        let expected = object_key::key(&[&file[..ELF_HEADER], programs].concat());
        assert_eq!(headers_key(headers_key as *const () as u64), expected);
        assert_eq!(headers_key(8), 0);
    }
}
