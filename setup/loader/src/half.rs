//! The half of an open plugin that runs in this process: functions in its table, or, for uu's own plugins, a crate
//! that is linked into uu.

use crate::wire::{Answer, Table, TEXT_LIMIT};
use std::ffi::{c_char, c_void, CStr, CString};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use uunwind_core::plugin::{self, Analyse, Line, ObjectFile, Position, FACTS_LIMIT, LIST_LIMIT};
use uunwind_elf::{files, Image};
use uunwind_language::{Finding, Half, Language, LineTable};

/// Limit of a note's length, in bytes.
const NOTE_LIMIT: usize = 1024;

/// The half of an open plugin.
pub enum OpenHalf<'h> {
    /// Functions in the plugin's table, if it has them.
    Table(Option<Analyse>, Option<Line>),
    /// A crate that is linked into this program.
    BuiltIn(&'h dyn Half),
}

impl OpenHalf<'_> {
    /// Analyses the file at `file`, which the program has at `path`.
    pub fn analyse(&self, file: &Path, path: &Path) -> Answer {
        let nothing = Answer { outcome: 0, key: 0, facts: Vec::new(), note: String::new() };
        // The file under the first path may be gone with the process that had it.
        let opened = [file, path].into_iter().find_map(|file| Some((Image::open(file).ok()?, file)));
        let Some((image, file)) = opened else { return nothing };
        let key = uunwind_elf::key_of(&image).0;
        match self {
            OpenHalf::Table(None, _) => nothing,
            OpenHalf::Table(Some(analyse), _) => Answer { key, ..by_table(*analyse, image, file, path) },
            OpenHalf::BuiltIn(half) => match uunwind_language::examine(*half, &image) {
                Finding::Unclaimed => Answer { key, ..nothing },
                Finding::Facts(facts) => Answer { outcome: facts.len() as i64, key, facts, note: String::new() },
                Finding::Refused(note) => Answer { outcome: -1, key, facts: Vec::new(), note },
            },
        }
    }

    /// The lines of all positions, in order; 0 where a table does not say.
    pub fn lines(&self, tables: &[Table]) -> Vec<u32> {
        let all = tables.iter().flat_map(|table| table.positions.iter().map(move |position| (table, *position)));
        all.map(|(table, position)| self.line(table, position)).collect()
    }

    fn line(&self, table: &Table, position: u64) -> u32 {
        let (kind, first_line, bytes) = (table.kind, table.first_line, &table.bytes[..]);
        match self {
            OpenHalf::Table(_, None) => 0,
            OpenHalf::Table(_, Some(line)) => {
                let size = size_of::<Position>() as u32;
                let (table, table_len) = (bytes.as_ptr(), bytes.len());
                let position = Position { size, table_kind: kind, first_line, reserved: 0, table, table_len, position };
                // SAFETY: the plugin's function, and a complete structure with a table of the given size. Whatever else
                // the plugin does stays in this process.
                unsafe { line(&position) }
            }
            OpenHalf::BuiltIn(half) => half.line(&LineTable { kind, first_line, bytes }, position).unwrap_or(0),
        }
    }
}

/// What a plugin's table says of its language.
///
/// # Safety
/// `given` must be null or the `language` of a plugin's table, valid as `uu_plugin.h` says.
pub unsafe fn language(plugin: &str, given: *const plugin::Language) -> Language {
    let unknown = Language::unknown(plugin);
    if given.is_null() {
        return unknown;
    }
    let mut whole = plugin::Language {
        size: 0,
        reserved: 0,
        label: std::ptr::null(),
        glue: std::ptr::null(),
        loaders: std::ptr::null(),
        starters: std::ptr::null(),
    };
    // SAFETY: the structure has `size` bytes; a prefix of it is a prefix of ours, and null pointers are no texts. The
    // texts and lists are as the header says.
    unsafe {
        let size = ((*given).size as usize).min(size_of::<plugin::Language>()) & !7;
        std::ptr::copy_nonoverlapping(given.cast::<u8>(), (&raw mut whole).cast::<u8>(), size);
        Language {
            label: if whole.label.is_null() { unknown.label } else { text(whole.label) },
            glue: list(whole.glue),
            loaders: list(whole.loaders),
            starters: list(whole.starters),
            ..unknown
        }
    }
}

/// # Safety
/// `first` must be null or point to the first of some texts with a null pointer after them.
unsafe fn list(first: *const *const c_char) -> Vec<String> {
    let mut texts = Vec::new();
    if first.is_null() {
        return texts;
    }
    for n in 0..LIST_LIMIT {
        // SAFETY: no null pointer came before, so that this one is in the list.
        match unsafe { *first.add(n) } {
            end if end.is_null() => break,
            // SAFETY: a text of the list.
            given => texts.push(unsafe { text(given) }),
        }
    }
    texts
}

/// # Safety
/// `given` must be a NUL-terminated text.
unsafe fn text(given: *const c_char) -> String {
    // SAFETY: passed on.
    let bytes = unsafe { CStr::from_ptr(given) }.to_bytes();
    String::from_utf8_lossy(bytes.get(..TEXT_LIMIT).unwrap_or(bytes)).into_owned()
}

fn by_table(analyse: Analyse, image: Image, file: &Path, path: &Path) -> Answer {
    let nothing = Answer { outcome: 0, key: 0, facts: Vec::new(), note: String::new() };
    let Ok(Some(mapped)) = Mapped::open(file) else { return nothing };
    let build_id = image.build_id();
    let mut host = Host { image, note: String::new() };
    let c_path = CString::new(path.as_os_str().as_bytes()).unwrap_or_default();
    let object = ObjectFile {
        size: size_of::<ObjectFile>() as u32,
        reserved: 0,
        path: c_path.as_ptr(),
        data: mapped.base,
        len: mapped.len,
        build_id: build_id.as_ref().map_or(std::ptr::null(), |id| id.as_ptr()),
        build_id_len: build_id.as_ref().map_or(0, Vec::len),
        host: (&raw mut host).cast(),
        symbol,
        read,
        note,
    };
    let mut facts = vec![0; FACTS_LIMIT];
    // SAFETY: the plugin's function, a complete object, and a buffer of the given size. Whatever else the plugin does
    // stays in this process.
    let outcome = unsafe { analyse(&object, facts.as_mut_ptr(), facts.len()) } as i64;
    facts.truncate(usize::try_from(outcome).unwrap_or(0));
    Answer { outcome, key: 0, facts, note: host.note }
}

/// A file, mapped read-only.
struct Mapped {
    base: *const u8,
    len: usize,
}

impl Mapped {
    /// `None` for an empty file.
    fn open(path: &Path) -> io::Result<Option<Mapped>> {
        let file = files::open(path)?;
        let len = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
        if len == 0 {
            return Ok(None);
        }
        // SAFETY: a new mapping at an address of the kernel's choice. The file may change or shrink: only the plugin
        // reads it, and the plugin interface says that it is hostile.
        let base =
            unsafe { libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ, libc::MAP_PRIVATE, file.as_raw_fd(), 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Some(Mapped { base: base.cast(), len }))
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: `open` made this mapping.
        unsafe { libc::munmap(self.base.cast_mut().cast(), self.len) };
    }
}

/// What `ObjectFile::host` points to.
struct Host {
    image: Image,
    note: String,
}

unsafe extern "C" fn symbol(host: *mut c_void, name: *const c_char, address: *mut u64, size: *mut u64) -> bool {
    // SAFETY: the plugin passes back `ObjectFile::host` and a NUL-terminated name.
    let (host, name) = unsafe { (&*host.cast::<Host>(), CStr::from_ptr(name)) };
    let Some(symbol) = name.to_str().ok().and_then(|name| host.image.any_symbol(name)) else { return false };
    // SAFETY: the plugin passes two valid pointers.
    unsafe {
        address.write(symbol.address);
        size.write(symbol.size);
    }
    true
}

unsafe extern "C" fn read(host: *mut c_void, address: u64, out: *mut u8, len: usize) -> bool {
    // SAFETY: the plugin passes back `ObjectFile::host` and a buffer of `len` bytes.
    let (host, out) = unsafe { (&*host.cast::<Host>(), std::slice::from_raw_parts_mut(out, len)) };
    host.image.read_address(address, out)
}

unsafe extern "C" fn note(host: *mut c_void, text: *const c_char) {
    // SAFETY: the plugin passes back `ObjectFile::host` and a NUL-terminated text.
    let (host, text) = unsafe { (&mut *host.cast::<Host>(), CStr::from_ptr(text)) };
    let text = text.to_bytes();
    let text = String::from_utf8_lossy(text.get(..NOTE_LIMIT).unwrap_or(text));
    host.note = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
}
