//! The files of a recording's objects, opened when a walk first meets them, and where each was mapped at a time.

use crate::called;
use object::elf;
use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use uunwind_core::span::Span;
use uunwind_core_files::objects::code;
use uunwind_core_files::search::{check, Identity, Search};
use uunwind_elf::{maps, Image};
use uunwind_loader::FoundPlugins;
use uunwind_recording::Object;
use uunwind_remote::objects::{bias, Mapped, VDSO};
use uunwind_remote::plugins::Plugins;
use uunwind_tables_build::Cache;

/// Bytes of a page of a file, and the limit of the pages that are kept (64 MiB).
const PAGE: u64 = 4096;
const PAGES: usize = 16 * 1024;
/// Limit of the times at which a process's objects change that are distinguished; what changes later is taken to have
/// been so from the last one on.
const EPOCHS: usize = 4096;

/// What covers an address.
pub enum Found {
    /// An object whose file is there.
    Mapped(Rc<Mapped>),
    /// An object whose file is missing.
    Missing,
    /// No object.
    Nothing,
}

/// The files of all objects of a recording.
pub struct Files<'r> {
    objects: &'r [Object],
    search: &'r Search,
    own: &'r uunwind_symbolize::Files<'r>,
    cache: &'r Cache,
    processes: HashMap<u32, Epochs>,
    state: RefCell<State>,
}

/// The objects of a process, from some times on.
struct Epochs {
    /// In order of time: from when on, and what is mapped then, in order of addresses.
    epochs: Vec<(u64, Vec<(Span, u32)>)>,
}

/// What was opened so far.
struct State {
    plugins: Plugins,
    files: HashMap<Key, Rc<OneFile>>,
    /// By index of the object.
    mapped: HashMap<u32, (Rc<OneFile>, Option<Rc<Mapped>>)>,
    /// By identity of the file's place here, and page.
    pages: HashMap<(usize, u64), Option<Box<[u8; PAGE as usize]>>>,
    /// How often a missing file was needed, by index of the first object that needed it.
    missing: HashMap<*const OneFile, (u32, u64)>,
}

/// What identifies a file: facts key, build-id, path.
pub type Key = (u64, Vec<u8>, Vec<u8>);

/// The identity of an object's file.
pub fn key(object: &Object) -> Key {
    (object.facts_key, object.build_id.clone(), object.path.clone())
}

/// A file, or why there is none.
struct OneFile {
    image: Result<(Image, PathBuf), String>,
    /// Where it was mapped first.
    first: RefCell<Option<Rc<Mapped>>>,
}

impl<'r> Files<'r> {
    /// Those of a recording's objects.
    pub fn new(
        objects: &'r [Object],
        search: &'r Search,
        own: &'r uunwind_symbolize::Files<'r>,
        cache: &'r Cache,
    ) -> Files<'r> {
        let mut by_process: HashMap<u32, Vec<u32>> = HashMap::new();
        for (index, object) in objects.iter().enumerate() {
            by_process.entry(object.process).or_default().push(index as u32);
        }
        let epochs = |(process, mut list): (u32, Vec<u32>)| {
            list.sort_by_key(|index| objects.get(*index as usize).map_or(0, |object| object.time));
            (process, Epochs::of(objects, &list))
        };
        let state = State {
            plugins: Plugins::open(FoundPlugins::default(), &[]),
            files: HashMap::new(),
            mapped: HashMap::new(),
            pages: HashMap::new(),
            missing: HashMap::new(),
        };
        let processes = by_process.into_iter().map(epochs).collect();
        Files { objects, search, own, cache, processes, state: RefCell::new(state) }
    }

    /// The index of the object of a process that covers a process address at this time.
    fn index(&self, process: u32, time: u64, address: u64) -> Option<u32> {
        let epochs = &self.processes.get(&process)?.epochs;
        // What was reported later may have been there before.
        let place = epochs.partition_point(|(from, _)| *from <= time).saturating_sub(1);
        let list = &epochs.get(place)?.1;
        let after = list.partition_point(|(span, _)| span.start <= address);
        let (span, index) = list.get(after.checked_sub(1)?)?;
        span.contains(address).then_some(*index)
    }

    /// What covers a process address of a process at this time. A missing file is noted as needed.
    pub fn find(&self, process: u32, time: u64, address: u64) -> Found {
        let Some(index) = self.index(process, time, address) else { return Found::Nothing };
        let (file, mapped) = self.mapped(index);
        match mapped {
            Some(mapped) => Found::Mapped(mapped),
            None => {
                let mut state = self.state.borrow_mut();
                state.missing.entry(Rc::as_ptr(&file)).or_insert((index, 0)).1 += 1;
                Found::Missing
            }
        }
    }

    /// Fills `out` from the read-only parts of the object's file that covers a process address.
    pub fn read(&self, process: u32, time: u64, address: u64, out: &mut [u8]) -> bool {
        let Some(index) = self.index(process, time, address) else { return false };
        let (file, Some(mapped)) = self.mapped(index) else { return false };
        let Ok((image, _)) = &file.image else { return false };
        let mut state = self.state.borrow_mut();
        let (mut at, mut out) = (address.wrapping_sub(mapped.bias), out);
        while !out.is_empty() {
            let (page, offset) = (at & !(PAGE - 1), (at & (PAGE - 1)) as usize);
            let len = out.len().min(PAGE as usize - offset);
            let (part, rest) = out.split_at_mut(len);
            let key = (Rc::as_ptr(&file) as usize, page);
            if !state.pages.contains_key(&key) {
                if state.pages.len() >= PAGES {
                    state.pages.clear();
                }
                state.pages.insert(key, page_of(image, page));
            }
            let Some(bytes) = state.pages.get(&key).and_then(Option::as_ref).and_then(|page| page.get(offset..)) else {
                return false;
            };
            part.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
            (at, out) = (at.wrapping_add(len as u64), rest);
        }
        true
    }

    /// The object with this index, if its file is there.
    fn mapped(&self, index: u32) -> (Rc<OneFile>, Option<Rc<Mapped>>) {
        if let Some(known) = self.state.borrow().mapped.get(&index) {
            return known.clone();
        }
        let none = || Rc::new(OneFile { image: Err("there is no such object".to_owned()), first: RefCell::default() });
        let Some(object) = self.objects.get(index as usize) else { return (none(), None) };
        let key = key(object);
        let known = self.state.borrow().files.get(&key).cloned();
        let file = known.unwrap_or_else(|| {
            let image = self.open(object);
            Rc::new(OneFile { image, first: RefCell::default() })
        });
        let mapped = self.map(object, &file);
        let mut state = self.state.borrow_mut();
        state.files.insert(key, file.clone());
        state.mapped.insert(index, (file.clone(), mapped.clone()));
        (file, mapped)
    }

    fn map(&self, object: &Object, file: &OneFile) -> Option<Rc<Mapped>> {
        let (image, path) = file.image.as_ref().ok()?;
        // Of a program whose segments leave gaps, the loader reports each executable one, so that the object does not
        // begin with the file. `bias` of 0: the file's first byte lies where the file says.
        let start = object.bias.wrapping_sub(bias(image, 0)?);
        let mut first = file.first.borrow_mut();
        let mapped = match &*first {
            Some(first) => Rc::new(first.moved_to(start)),
            None => self.map_first(object, image, path, start)?,
        };
        let fits = mapped.image.contains(object.start) && object.end <= mapped.image.end;
        first.get_or_insert_with(|| mapped.clone());
        fits.then_some(mapped)
    }

    /// A file that was mapped nowhere before, where its first byte lies at `start`.
    fn map_first(&self, object: &Object, image: &Image, path: &Path, start: u64) -> Option<Rc<Mapped>> {
        let place = Span::new(start, start.checked_add(1)?);
        let plugins = &mut self.state.borrow_mut().plugins;
        let code = code(image, place);
        Mapped::new(image, place, path.into(), &object.path, code, Some(self.cache), plugins).map(Rc::new)
    }

    fn open(&self, object: &Object) -> Result<(Image, PathBuf), String> {
        let identity = match object.build_id.is_empty() {
            true => Identity::Key(object.facts_key),
            false => Identity::BuildId(object.build_id.clone()),
        };
        let fits = |image: &Image| check(image, &identity, &|_| false).is_ok();
        for path in (self.own)(object) {
            if let Some(image) = Image::open(&path).ok().filter(fits) {
                return Ok((image, path));
            }
        }
        if object.path == b"linux-vdso.so.1" || object.path == b"[vdso]" {
            let own = own_vdso().filter(fits).map(|image| (image, PathBuf::from("[vdso]")));
            return own.ok_or_else(|| "it is the vDSO of another kernel than this one's".to_owned());
        }
        self.search.open(&object.path, &identity, false, &|_| false)
    }

    /// Files that were needed and are missing, for people.
    pub fn missing(&self) -> Vec<String> {
        let state = self.state.borrow();
        let mut missing: Vec<(u32, u64)> = state.missing.values().copied().collect();
        missing.sort_by_key(|(index, count)| (std::cmp::Reverse(*count), *index));
        let line = |(index, count): (u32, u64)| {
            let object = self.objects.get(index as usize)?;
            let why = match self.mapped(index).0.image.as_ref() {
                Err(why) => why.clone(),
                Ok((_, path)) => format!("{} is mapped at other addresses than were recorded", path.display()),
            };
            let stacks = if count == 1 { "1 stack ends".to_owned() } else { format!("{count} stacks end") };
            Some(format!("{stacks} in {}: {why}. --debug-dir names folders with such files", called(object)))
        };
        missing.into_iter().filter_map(line).collect()
    }

    /// Where the files are that were found.
    pub fn found(&self) -> HashMap<Key, PathBuf> {
        let path = |(key, file): (&Key, &Rc<OneFile>)| {
            let (_, path) = file.image.as_ref().ok()?;
            Some((key.clone(), path.clone()))
        };
        self.state.borrow().files.iter().filter_map(path).collect()
    }
}

impl Epochs {
    /// `list`: the process's objects in order of time.
    fn of(objects: &[Object], list: &[u32]) -> Epochs {
        let spans: Vec<(Span, u64, u32)> = list
            .iter()
            .filter_map(|index| {
                let object = objects.get(*index as usize)?;
                Some((Span::new(object.start, object.end), object.time, *index))
            })
            .filter(|(span, ..)| !span.is_empty())
            .collect();
        let mut epochs: Vec<(u64, Vec<(Span, u32)>)> = vec![(0, Vec::new())];
        for (span, time, index) in spans {
            let Some(last) = epochs.last() else { break };
            let others = overlapping(&last.1, span);
            if others.is_empty() {
                // It was there before it was met, as far as anybody knows.
                for (_, all) in &mut epochs {
                    if overlapping(all, span).is_empty() {
                        let at = all.partition_point(|(other, _)| other.start < span.start);
                        all.insert(at, (span, index));
                    }
                }
                continue;
            }
            let mut next = last.1.clone();
            next.drain(others);
            let at = next.partition_point(|(other, _)| other.start < span.start);
            next.insert(at, (span, index));
            if last.0 == time || epochs.len() >= EPOCHS {
                epochs.pop();
            }
            epochs.push((time, next));
        }
        Epochs { epochs }
    }
}

/// Those of the spans, which are in order and do not overlap, that overlap another one.
fn overlapping(all: &[(Span, u32)], span: Span) -> std::ops::Range<usize> {
    let first = all.partition_point(|(other, _)| other.end <= span.start);
    let end = all.partition_point(|(other, _)| other.start < span.end);
    first..end.max(first)
}

/// A page of a file by its address in it, if nobody could write to all of it.
fn page_of(image: &Image, page: u64) -> Option<Box<[u8; PAGE as usize]>> {
    let loads = image.segments().iter().filter(|load| load.kind == elf::PT_LOAD);
    let holds = |load: &&uunwind_elf::Segment| {
        page < load.address.saturating_add(load.memory_size) && load.address < page.saturating_add(PAGE)
    };
    let mut bytes = Box::new([0; PAGE as usize]);
    let mut any = false;
    for load in loads.filter(holds) {
        if load.flags & elf::PF_W != 0 {
            return None;
        }
        // The kernel maps whole pages of the file.
        let offset = load.offset.checked_add(page)?.checked_sub(load.address)?;
        let there = image.len().checked_sub(offset)?.min(PAGE);
        let read = image.read_file(offset, there)?;
        bytes.iter_mut().zip(&read).for_each(|(to, from)| *to = *from);
        any = true;
    }
    any.then_some(bytes)
}

/// The vDSO of this process.
fn own_vdso() -> Option<Image> {
    let vdso = maps::own().ok()?.find(|mapping| mapping.name == b"[vdso]")?;
    let mut bytes = vec![0; usize::try_from(vdso.end.checked_sub(vdso.start)?.min(VDSO)).ok()?];
    File::open("/proc/self/mem").and_then(|memory| memory.read_exact_at(&mut bytes, vdso.start)).ok()?;
    Image::of_bytes(Path::new("[vdso]"), bytes).ok()
}
