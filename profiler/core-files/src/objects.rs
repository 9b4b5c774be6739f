//! The objects of a core file's process: what was mapped is in the core file's notes, their headers in its memory, and
//! their code and unwind data mostly in the files alone.

use super::search::{Identity, Search};
use super::{notes::MappedFile, CoreFile};
use crate::memory::{of_core, Backing};
use object::elf;
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use uunwind_core::span::Span;
use uunwind_elf::mapped::{object_at, unknown_at, Part};
use uunwind_elf::Image;
use uunwind_remote::memory::Memory;
use uunwind_remote::objects::{path_of, Mapped, Objects, LIMIT, VDSO};
use uunwind_remote::plugins::Plugins;
use uunwind_tables_build::Cache;

/// At most this number of an object's first bytes is read from the core file: its headers and its build-id.
const HEAD: u64 = 64 * 1024;
/// At most this number of entries of a dynamic section is compared.
const DYNAMIC: u64 = 1024;
const PAGE: u64 = 4096;

/// The objects, and what the core file lacks of their read-only parts.
pub fn prepare(core: &Arc<CoreFile>, search: &Search, cache: &Cache, plugins: &mut Plugins) -> (Objects, Vec<Backing>) {
    let (mut objects, mut backings) = (Objects::default(), Vec::new());
    let memory = of_core(core, Vec::new());
    // A file that is mapped twice begins twice.
    let mut is_used = false;
    // Those that are in an object.
    let mut taken = HashSet::new();
    for first in core.notes.files.iter().filter(|first| first.offset == 0) {
        if objects.objects.len() >= LIMIT || taken.contains(&first.start) {
            continue;
        }
        let found = object(core, first, search, &memory, cache, plugins);
        is_used |= found.is_named;
        taken.extend(found.parts);
        objects.objects.extend(found.object);
        objects.troubles.extend(found.why.map(|why| format!("{}: {why}", String::from_utf8_lossy(&first.name))));
        backings.extend(found.backings);
    }
    if let Some(path) = search.executable.as_ref().filter(|_| !is_used) {
        let why = Image::open(path).err().map(|error| error.to_string());
        let why = why.unwrap_or_else(|| "the core file's process has not mapped this file".to_owned());
        objects.troubles.push(format!("{}: {why}. It is not used", path.display()));
    }
    let mut vdso = vec![0; VDSO as usize];
    let got = if core.notes.vdso == 0 { 0 } else { core.memory(core.notes.vdso, &mut vdso) };
    vdso.truncate(got);
    if let Ok(image) = Image::of_bytes(Path::new("[vdso]"), vdso) {
        let start = core.notes.vdso;
        let place = Span::new(start, start.saturating_add(got as u64));
        let code = code(&image, place);
        let name = b"[vdso]".as_slice();
        objects.objects.extend(Mapped::new(&image, place, path_of(name), name, code, Some(cache), plugins));
    }
    objects.objects.sort_by_key(|object| object.image.start);
    backings.sort_by_key(|backing| backing.span.start);
    (objects, backings)
}

/// What was found of one mapped file.
#[derive(Default)]
struct Found {
    /// `None`: it is no ELF file, or nothing of it is known.
    object: Option<Mapped>,
    /// Its file is the one that was named.
    is_named: bool,
    /// Where its mappings begin (process addresses).
    parts: Vec<u64>,
    /// What the core file lacks of it.
    backings: Vec<Backing>,
    /// Why its file cannot be used, for people.
    why: Option<String>,
}

/// The object whose first byte this mapping has.
fn object(
    core: &CoreFile,
    first: &MappedFile,
    search: &Search,
    memory: &Memory,
    cache: &Cache,
    plugins: &mut Plugins,
) -> Found {
    let mut head = vec![0; (first.end - first.start).min(HEAD) as usize];
    let got = core.memory(first.start, &mut head);
    head.truncate(got);
    let name = path_of(&first.name);
    let place = Span::new(first.start, first.end);
    if got >= elf::ELFMAG.len() && !head.starts_with(&elf::ELFMAG) {
        return Found::default();
    }
    let head = match (got >= elf::ELFMAG.len()).then(|| Image::of_bytes(&name, head)).transpose() {
        Ok(head) => head,
        Err(error) => return Found { why: Some(error.to_string()), ..Found::default() },
    };
    let parts = Parts::of(core, first);
    let taken = match &head {
        Some(head) => parts.of_object(head),
        None => Some(parts.of_unknown()),
    };
    // Without code, the program reads the file.
    let Some(taken) = taken else { return Found::default() };
    let identity = match &head {
        Some(head) => match head.build_id() {
            Some(id) => Identity::BuildId(id),
            None => Identity::Headers(head.identity()),
        },
        None => Identity::Unknown,
    };
    let is_program = parts.cover(&taken, core.notes.entry);
    let fits = |image: &Image| is_mapped_at(image, place, memory);
    match search.open(&first.name, &identity, is_program, &fits) {
        Ok((image, file)) => {
            // What the core file lacks of its headers, the file has.
            let taken = parts.of_object(&image).unwrap_or(taken);
            let (code, is_named) = (code(&image, place), search.executable.as_ref() == Some(&file));
            let Some(mut object) = Mapped::new(&image, place, file, &first.name, code, Some(cache), plugins) else {
                return Found::default();
            };
            if let Identity::BuildId(id) = &identity {
                object.debug_file = search.debug_file(id);
            }
            let backings = backings(&Arc::new(image), object.bias);
            Found { object: Some(object), is_named, parts: taken, backings, why: None }
        }
        // Data that was not dumped has no headers either, and nobody misses it.
        Err(_) if head.is_none() && !taken.iter().any(|start| core.is_code(*start) == Some(true)) => Found::default(),
        Err(why) => {
            // Its unwind data may be in the core file.
            let known = |head: Image| Mapped::new(&head, place, name, &first.name, code(&head, place), None, plugins);
            let object = head.and_then(known);
            let why = format!("{why}. Stacks may end in it; --debug-dir names folders with such files");
            Found { object, parts: taken, why: Some(why), ..Found::default() }
        }
    }
}

/// The mappings of one file.
struct Parts {
    parts: Vec<Part>,
    /// Index of the one that an object may begin with.
    first: usize,
}

impl Parts {
    fn of(core: &CoreFile, first: &MappedFile) -> Parts {
        let files = core.notes.files.iter().filter(|file| file.name == first.name);
        let part = |file: &MappedFile| Part {
            place: Span::new(file.start, file.end),
            offset: file.offset,
            is_code: core.is_code(file.start),
        };
        let parts: Vec<Part> = files.map(part).collect();
        let first = parts.iter().position(|part| part.place.start == first.start).unwrap_or(0);
        Parts { parts, first }
    }

    /// Where those of the object begin that begins with the first one, as its headers say. `None`: it has no code.
    fn of_object(&self, image: &Image) -> Option<Vec<u64>> {
        object_at(image, &self.parts, self.first).map(|of| self.starts(&of))
    }

    /// The same, without headers.
    fn of_unknown(&self) -> Vec<u64> {
        self.starts(&unknown_at(&self.parts, self.first))
    }

    fn starts(&self, indices: &[usize]) -> Vec<u64> {
        indices.iter().filter_map(|index| Some(self.parts.get(*index)?.place.start)).collect()
    }

    /// Whether one of those that begin there covers an address.
    fn cover(&self, starts: &[u64], address: u64) -> bool {
        self.parts.iter().any(|part| part.place.contains(address) && starts.contains(&part.place.start))
    }
}

/// The executable parts of an image that is mapped from this place on, in process addresses.
pub fn code(image: &Image, place: Span) -> Vec<Span> {
    let Some(bias) = uunwind_remote::objects::bias(image, place.start) else { return Vec::new() };
    let loads = image.segments().iter().filter(|load| load.kind == elf::PT_LOAD && load.flags & elf::PF_X != 0);
    loads.map(|load| Span::sized(bias.wrapping_add(load.address), load.memory_size)).collect()
}

/// The parts of an image that nobody can have written to, whose bytes in memory are those of the file.
fn backings(image: &Arc<Image>, bias: u64) -> Vec<Backing> {
    let loads = image.segments().iter().filter(|load| load.kind == elf::PT_LOAD && load.flags & elf::PF_W == 0);
    let backing = |load: &uunwind_elf::Segment| {
        let before = load.address % PAGE;
        let start = bias.wrapping_add(load.address - before);
        let end = start.checked_add(before.checked_add(load.file_size)?.checked_next_multiple_of(PAGE)?)?;
        let offset = load.offset.checked_sub(before)?;
        Some(Backing { span: Span::new(start, end), offset, image: image.clone() })
    };
    loads.filter_map(backing).collect()
}

/// Whether the dynamic section in memory is the file's: the loader writes to it, so the core file has it, and it holds
/// the sizes and places of an object's tables. The loader adds the bias to some entries, and sets `DT_DEBUG`.
fn is_mapped_at(image: &Image, place: Span, memory: &Memory) -> bool {
    let Some(bias) = uunwind_remote::objects::bias(image, place.start) else { return false };
    let Some(dynamic) = image.segment(elf::PT_DYNAMIC) else { return false };
    let size = dynamic.file_size.min(DYNAMIC * 16) as usize;
    let (mut file, mut mapped) = (vec![0; size], vec![0; size]);
    if !image.read_address(dynamic.address, &mut file) || !memory.read(bias.wrapping_add(dynamic.address), &mut mapped)
    {
        return false;
    }
    let word = |bytes: &[u8]| bytes.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
    let entries = || file.as_chunks::<16>().0.iter().zip(mapped.as_chunks::<16>().0);
    let same = |(file, mapped): (&[u8; 16], &[u8; 16])| {
        let (tag, value) = (word(&file[..8]), word(&file[8..]));
        let (found, now) = (word(&mapped[..8]), word(&mapped[8..]));
        tag == found && (now == value || now == value.wrapping_add(bias) || tag == elf::DT_DEBUG as u64)
    };
    size >= 64 && entries().all(same)
}
