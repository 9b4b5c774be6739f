//! The files that a process has mapped, with what a walk needs of each.

use crate::memory::Memory;
use crate::plugins::{Answer, Facts, Plugins};
use crate::registered::Places;
use object::elf;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use uunwind_core::memory::Reader;
use uunwind_core::rule::{is_final, Packed};
use uunwind_core::span::Span;
pub use uunwind_elf::mapped::bias;
use uunwind_elf::mapped::{object_at, Part};
use uunwind_elf::maps::{self, Mapping};
use uunwind_elf::process;
use uunwind_elf::{key_of, Image};
use uunwind_recording::Object as Recorded;
use uunwind_sources::Sources;
use uunwind_tables::{Table, TableAnswer};
use uunwind_tables_build::Cache;

/// At most this number of files is looked at.
pub const LIMIT: usize = 64 * 1024;
/// The longest vDSO that is read, in bytes.
pub const VDSO: u64 = 1 << 20;

/// What follows from a file, wherever it is mapped.
#[derive(Default)]
struct File {
    /// The words of its rule table, 8-aligned; empty: its unwind data is interpreted in place.
    table: Vec<u64>,
    table_len: usize,
    answer: Answer,
    key: u64,
    build_id: Vec<u8>,
    /// Where it has what registrations begin with.
    places: Places,
    /// Where another process of uu can open it, while the process that has it mapped lives.
    opened: PathBuf,
}

/// An object in the process's memory.
pub struct Mapped {
    file: Arc<File>,
    /// From its first byte to its last one (process addresses).
    pub image: Span,
    /// Process address minus file address.
    pub bias: u64,
    /// Its unwind data (process addresses).
    pub sources: Sources,
    /// Its executable parts (process addresses).
    code: Vec<Span>,
    /// Path as the process has it.
    pub path: Vec<u8>,
    /// A file with its symbols and lines, where the one that was mapped may lack them.
    pub debug_file: Option<PathBuf>,
}

/// What a process has mapped, in order of addresses.
#[derive(Default)]
pub struct Objects {
    /// The objects.
    pub objects: Vec<Mapped>,
    mappings: Vec<Mapping>,
    /// Files that could not be used, and why.
    pub troubles: Vec<String>,
}

impl Objects {
    /// Opens all files that the process has mapped, builds their rule tables or takes them from `cache`, and asks the
    /// plugins for facts. Takes as long as that takes: the process runs meanwhile.
    pub fn prepare(pid: u32, memory: &Memory, cache: &Cache, plugins: &mut Plugins) -> io::Result<Objects> {
        let mut objects = Objects { mappings: maps::of(pid)?.collect(), ..Objects::default() };
        let mappings = std::mem::take(&mut objects.mappings);
        // Those that are in an object.
        let mut taken = HashSet::new();
        for first in mappings.iter().filter(|mapping| is_file(mapping) && mapping.offset == 0) {
            let is_code = mappings.iter().any(|other| other.name == first.name && other.is_executable());
            if !is_code || objects.objects.len() >= LIMIT || taken.contains(&first.start) {
                continue;
            }
            match Mapped::open(pid, first, &mappings, memory, cache, plugins) {
                Ok(Some((mapped, parts))) => {
                    objects.objects.push(mapped);
                    taken.extend(parts);
                }
                Ok(None) => {}
                Err(why) => {
                    let name = String::from_utf8_lossy(&first.name);
                    objects.troubles.push(format!("{name}: {why}"));
                }
            }
        }
        objects.objects.sort_by_key(|object| object.image.start);
        objects.mappings = mappings;
        Ok(objects)
    }

    /// Whether the process still has mapped the same code as when it was prepared.
    pub fn are_current(&self, pid: u32) -> bool {
        maps::of(pid).is_ok_and(|now| code(now) == code(self.mappings.iter().cloned()))
    }

    /// The object that covers a process address, and its index.
    pub fn find(&self, address: u64) -> Option<(usize, &Mapped)> {
        let after = self.objects.partition_point(|object| object.image.start <= address);
        let index = after.checked_sub(1)?;
        let object = self.objects.get(index)?;
        object.image.contains(address).then_some((index, object))
    }

    /// Whether the process can change what lies at an address: it cannot in files that are not mapped for writing.
    pub fn may_change(&self, address: u64) -> bool {
        self.mapping_at(address).is_none_or(|m| m.inode == 0 || m.permissions.contains('w'))
    }

    /// The end of the mapping that holds a process address, such as that of a stack.
    pub fn end_of_mapping(&self, address: u64) -> Option<u64> {
        self.mapping_at(address).map(|m| m.end)
    }

    /// Whether an address lies in the stack of the main thread.
    pub fn is_main_stack(&self, address: u64) -> bool {
        self.mapping_at(address).is_some_and(|m| m.name == b"[stack]")
    }

    fn mapping_at(&self, address: u64) -> Option<&Mapping> {
        self.mappings.iter().find(|m| (m.start..m.end).contains(&address))
    }

    /// Where code that is registered at run time is described, and process address minus file address there.
    pub fn places(&self) -> impl Iterator<Item = (&Places, u64)> {
        self.objects.iter().map(|object| (&object.file.places, object.bias))
    }

    /// As the recording has them.
    pub fn recorded(&self) -> Vec<Recorded> {
        let recorded = |object: &Mapped| Recorded {
            process: 0,
            time: 0,
            bias: object.bias,
            start: object.image.start,
            end: object.image.end,
            facts_key: object.file.key,
            build_id: object.file.build_id.clone(),
            path: object.path.clone(),
        };
        self.objects.iter().map(recorded).collect()
    }

    /// Where the file of the recording's object with this place can be opened, the best way first.
    pub fn files_of(&self, start: u64) -> Vec<PathBuf> {
        let object = self.objects.iter().find(|object| object.image.start == start);
        let files = object.map(|object| {
            let own = [object.file.opened.clone(), path_of(&object.path)];
            object.debug_file.iter().cloned().chain(own).collect()
        });
        files.unwrap_or_default()
    }
}

impl Mapped {
    /// The object whose first byte this mapping has, and where its mappings begin. `None`: it is not the beginning of
    /// an ELF file, or that is only read.
    fn open(
        pid: u32,
        first: &Mapping,
        mappings: &[Mapping],
        memory: &Memory,
        cache: &Cache,
        plugins: &mut Plugins,
    ) -> Result<Option<(Mapped, Vec<u64>)>, String> {
        let mut header = [0; 64];
        if !memory.read(first.start, &mut header) || !header.starts_with(elf::ELFMAG.as_slice()) {
            return Ok(None);
        }
        let (image, opened) = if first.name == b"[vdso]" {
            let mut bytes = vec![0; (first.end - first.start).min(VDSO) as usize];
            if !memory.read(first.start, &mut bytes) {
                return Err("it cannot be read".to_owned());
            }
            let path = PathBuf::from("[vdso]");
            (Image::of_bytes(&path, bytes).map_err(|error| error.to_string())?, path)
        } else {
            open(pid, first, &header)?
        };
        let place = Span::new(first.start, first.end);
        let Some(span) = extent(&image, place) else { return Ok(None) };
        let Some(parts) = parts_of(&image, mappings, first) else { return Ok(None) };
        // Also code that was put in the place of the file's.
        let covers = |m: &&Mapping| m.is_executable() && span.contains(m.start);
        let code = mappings.iter().filter(covers).map(|m| Span::new(m.start, m.end)).collect();
        let mapped = Mapped::new(&image, place, opened, &first.name, code, Some(cache), plugins);
        Ok(mapped.map(|mapped| (mapped, parts)))
    }

    /// An object whose first bytes are mapped at `place`. `opened`: where its file can be opened. `code`: its
    /// executable parts (process addresses). `cache`: where its rule table is; `None`: its file is not known, and what
    /// there is of it is in memory. `None`: its first bytes are mapped nowhere.
    pub fn new(
        image: &Image,
        place: Span,
        opened: PathBuf,
        path: &[u8],
        code: Vec<Span>,
        cache: Option<&Cache>,
        plugins: &mut Plugins,
    ) -> Option<Mapped> {
        let (bias, span) = (bias(image, place.start)?, extent(image, place)?);
        let address_of = |kind| image.segment(kind).map(|s| Span::sized(bias.wrapping_add(s.address), s.memory_size));
        let sources = Sources {
            eh_frame_hdr: address_of(elf::PT_GNU_EH_FRAME).map_or(0, |place| place.start),
            image: span,
            sframe: address_of(elf::PT_GNU_SFRAME).unwrap_or(Span::EMPTY),
            text: span,
        };
        let (key, build_id) = key_of(image);
        let places = Places::of(image);
        let mut file = File { key, build_id: build_id.unwrap_or_default(), places, opened, ..File::default() };
        if let Some(cache) = cache {
            if let Ok((table, _)) = cache.table(image) {
                file.table_len = table.len();
                file.table = table.chunks(8).map(word).collect();
            }
            file.answer = plugins.facts(key, &file.opened, &path_of(path));
        }
        let path = path.to_vec();
        Some(Mapped { file: Arc::new(file), image: span, bias, sources, code, path, debug_file: None })
    }

    /// The same file where its first byte is mapped at another process address.
    pub fn moved_to(&self, start: u64) -> Mapped {
        let by = start.wrapping_sub(self.image.start);
        let moved = |span: Span| Span::new(span.start.wrapping_add(by), span.end.wrapping_add(by));
        let some = |span: Span| if span.is_empty() { span } else { moved(span) };
        let sources = Sources {
            eh_frame_hdr: if self.sources.eh_frame_hdr == 0 { 0 } else { self.sources.eh_frame_hdr.wrapping_add(by) },
            image: moved(self.sources.image),
            sframe: some(self.sources.sframe),
            text: moved(self.sources.text),
        };
        Mapped {
            file: self.file.clone(),
            image: moved(self.image),
            bias: self.bias.wrapping_add(by),
            sources,
            code: self.code.iter().copied().map(moved).collect(),
            path: self.path.clone(),
            debug_file: self.debug_file.clone(),
        }
    }

    fn table(&self) -> Option<Table<'_>> {
        // SAFETY: words are bytes, too; `table_len` is at most their number of bytes.
        let bytes = unsafe { std::slice::from_raw_parts(self.file.table.as_ptr().cast::<u8>(), self.file.table_len) };
        Table::new(bytes).ok()
    }

    /// The rule that the table has for a process address.
    pub fn rule_at(&self, lookup: u64) -> Option<Packed> {
        match self.table()?.find(lookup.wrapping_sub(self.bias)) {
            TableAnswer::Short(rule) => Some(rule.pack()),
            // The table may say why there is no rule; another source may still have one.
            TableAnswer::Long(rule) if !rule.is_failed() || is_final(rule) => Some(rule),
            _ => None,
        }
    }

    /// Why the process address has no rule in the table although unwind information describes it.
    pub fn described_without_rule(&self, lookup: u64) -> Option<Packed> {
        self.table()?.described_without_rule(lookup.wrapping_sub(self.bias))
    }

    /// The range of the function that covers a process address, as process addresses.
    pub fn function_at(&self, address: u64, reader: &mut Reader<'_>) -> Option<Span> {
        let by_table = self.table().and_then(|table| table.function(address.wrapping_sub(self.bias)));
        if let Some(Span { start, end }) = by_table {
            return Some(Span::new(start.wrapping_add(self.bias), end.wrapping_add(self.bias)));
        }
        uunwind_sources::function(&self.sources, address, reader)
    }

    /// Whether an address lies in an executable part.
    pub fn may_execute(&self, address: u64) -> bool {
        self.code.iter().any(|code| code.contains(address))
    }

    /// The plugin that claims it, and its facts.
    pub fn facts(&self) -> Option<&Facts> {
        match &self.file.answer {
            Answer::Claimed(facts) => Some(facts),
            Answer::Unclaimed | Answer::Unknown => None,
        }
    }

    /// Whether it is not known if one claims it.
    pub fn may_be_claimed(&self) -> bool {
        matches!(self.file.answer, Answer::Unknown)
    }
}

/// Where the mappings of the object begin whose first byte this mapping of a file has. `None`: the file is only read
/// there.
fn parts_of(image: &Image, mappings: &[Mapping], first: &Mapping) -> Option<Vec<u64>> {
    let parts: Vec<Part> = mappings.iter().filter(|other| other.is_of_file(first)).map(Mapping::part).collect();
    let index = parts.iter().position(|part| part.place.start == first.start)?;
    let of = object_at(image, &parts, index)?;
    Some(of.into_iter().filter_map(|index| Some(parts.get(index)?.place.start)).collect())
}

/// The mapping of a file's first byte where the file is an object, by the file's inode.
pub fn first_of<'m>(image: &Image, mappings: &'m [Mapping], inode: u64) -> Option<&'m Mapping> {
    let mut first = mappings.iter().filter(|mapping| mapping.inode == inode && mapping.offset == 0);
    first.find(|first| parts_of(image, mappings, first).is_some())
}

/// All that an image takes in memory (process addresses), from its first byte, which is mapped at `place`.
pub fn extent(image: &Image, place: Span) -> Option<Span> {
    let bias = bias(image, place.start)?;
    let loads = image.segments().iter().filter(|load| load.kind == elf::PT_LOAD);
    let end = loads.map(|load| bias.wrapping_add(load.address).wrapping_add(load.memory_size)).max();
    Some(Span::new(place.start, end.unwrap_or(place.end).max(place.end)))
}

/// Opens the file of a mapping: the very one that is mapped, by `/proc/PID/map_files`, where that is allowed; else by
/// its path in the process's root, if its inode and its first bytes are those that are mapped.
fn open(pid: u32, mapping: &Mapping, header: &[u8]) -> Result<(Image, PathBuf), String> {
    let exact = process::mapped_file(pid, mapping.start, mapping.end);
    if let Ok(image) = Image::open(&exact) {
        return Ok((image, exact));
    }
    let path = in_root(pid, &mapping.name);
    let image = Image::open(&path).map_err(|error| error.to_string())?;
    let same_inode = image.metadata().is_some_and(|file| {
        use std::os::unix::fs::MetadataExt;
        file.ino() == mapping.inode
    });
    if !same_inode || image.read_file(0, header.len() as u64).as_deref() != Some(header) {
        return Err(format!("{} is another file than the one that is mapped", path.display()));
    }
    Ok((image, path))
}

/// A path of the process's, as it is seen from here.
pub fn in_root(pid: u32, path: &[u8]) -> PathBuf {
    let mut seen = process::file(pid, "root").into_os_string();
    seen.push(OsStr::from_bytes(path));
    seen.into()
}

/// Start, end and inode of each executable mapping of a file or the vDSO.
pub type Code = HashSet<(u64, u64, u64)>;

/// The code of a process as it is now; empty: it has ended.
pub fn code_of(pid: u32) -> Code {
    code(maps::of(pid).into_iter().flatten())
}

fn code(mappings: impl Iterator<Item = Mapping>) -> Code {
    mappings.filter(|m| m.is_executable() && is_file(m)).map(|m| (m.start, m.end, m.inode)).collect()
}

fn is_file(mapping: &Mapping) -> bool {
    mapping.inode != 0 || mapping.name == b"[vdso]"
}

fn word(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    u64::from_le_bytes(word)
}

/// Bytes as a path.
pub fn path_of(bytes: &[u8]) -> PathBuf {
    Path::new(OsStr::from_bytes(bytes)).to_path_buf()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use uunwind_loader::FoundPlugins;

    /// A program that maps its own file to read it has no second object there.
    #[test]
    fn a_file_that_is_only_read_is_no_object() {
        let path = std::fs::read_link("/proc/self/exe").expect("its path");
        let file = std::fs::File::open(&path).expect("its file");
        let len = file.metadata().expect("its length").len() as usize;
        // SAFETY: a new mapping at an address of the kernel's choice, which nobody else uses.
        let whole = unsafe {
            libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ, libc::MAP_PRIVATE, file.as_raw_fd(), 0) as u64
        };
        let (pid, mut plugins) = (std::process::id(), Plugins::open(FoundPlugins::default(), &[]));
        let objects = Objects::prepare(pid, &Memory::of(pid), &Cache::none(), &mut plugins).expect("its mappings");
        let own: Vec<u64> =
            objects.objects.iter().filter(|o| path_of(&o.path) == path).map(|o| o.image.start).collect();
        let (_, here) = objects.find(bias as *const () as u64).expect("this code");
        assert_eq!(own, [here.image.start], "the other one is at {whole:#x}");
        assert!(here.image.start != whole && objects.find(whole + 64).is_none());
        // SAFETY: the mapping of above.
        unsafe { libc::munmap(whole as *mut libc::c_void, len) };
    }
}
