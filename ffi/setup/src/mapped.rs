//! Objects as they are mapped: the headers of one that has no build-id, and the one that has no file.

use crate::forked;
use libc::{c_int, c_void, dl_phdr_info};
use uunwind_core::object_key;

/// The program's own file, also after it was removed.
pub const PROGRAM: &str = "/proc/self/exe";

/// The loader's name of the kernel's object.
pub const VDSO: &[u8] = b"linux-vdso.so.1";

/// Bytes of an ELF header, and of a program header (<elf.h>).
pub const ELF_HEADER: usize = 64;
pub const PROGRAM_HEADER: usize = 56;

struct Search {
    address: u64,
    key: u64,
}

/// `uunwind_core::object_key::key` of the ELF header and the program headers of the object that is loaded at an
/// address; 0: none is, or its header is not mapped.
pub fn headers_key(address: u64) -> u64 {
    if forked::is_child() {
        return forked::headers_key(address);
    }
    let mut search = Search { address, key: 0 };
    // SAFETY: the callback gets `search`, and keeps nothing.
    unsafe { libc::dl_iterate_phdr(Some(note), (&raw mut search).cast()) };
    search.key
}

unsafe extern "C" fn note(info: *mut dl_phdr_info, _size: usize, search: *mut c_void) -> c_int {
    // SAFETY: the loader passes its structure, `headers_key` its search.
    let (info, search) = unsafe { (&*info, &mut *search.cast::<Search>()) };
    if info.dlpi_phdr.is_null() {
        return 0;
    }
    // SAFETY: the loader's own copy of the program headers, or their place in the mapped file.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    let loaded = || headers.iter().filter(|header| header.p_type == libc::PT_LOAD);
    let at = |header: &libc::Elf64_Phdr| info.dlpi_addr.wrapping_add(header.p_vaddr);
    if !loaded().any(|header| search.address.wrapping_sub(at(header)) < header.p_memsz) {
        return 0;
    }
    let first = loaded().find(|header| header.p_offset == 0 && header.p_filesz >= ELF_HEADER as u64);
    if let Some(first) = first {
        // SAFETY: the first bytes of a mapped segment that has them.
        let header = unsafe { std::slice::from_raw_parts(at(first) as *const u8, ELF_HEADER) };
        // SAFETY: the same bytes as `headers`.
        let programs =
            unsafe { std::slice::from_raw_parts(info.dlpi_phdr.cast::<u8>(), headers.len() * PROGRAM_HEADER) };
        search.key = object_key::key(&[header, programs].concat());
    }
    1
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
