//! The loaded objects of the process, asked from the loader and confirmed while the loader's counters stand still;
//! where these were not found, once a walk.
//!
//! glibc's `_dl_find_object` (2.35 and later, async-signal-safe, looked up by name) reports the object under an
//! address; before, the loader's own list does (`list`), as musl's does (`musl`). An entry of the table stands for a
//! place and a key: range, link map, unwind header, and build-id or a fingerprint of the headers. What follows from the
//! key (facts, rule table) hangs on it. The key does not identify the contents: two files may share a build-id or all
//! that the fingerprint covers. So what follows from the contents (rules by pc, what the recorder has received) hangs
//! on the *load*, too ([`Loaded`]), which the loader numbers. Objects of the initial set never go away and are not read
//! again.

mod answer;
mod bases;
mod code;
mod list;
mod musl;
mod object;
mod recent;

use crate::headers::Headers;
use crate::loads::Loads;
use crate::memory::Reader;
use crate::object_key::{self, FNV_START};
use crate::span::Span;
use crate::syscall::{self, nr};
pub use answer::{Answer, Settled, Source};
pub use bases::Bases;
pub use code::Code;
use core::ffi::{c_int, c_void};
use core::ops::ControlFlow;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use list::List;
use musl::MuslList;
pub use object::{same_object, BuildId, Loaded, Object, BUILD_ID_LIMIT, UNIQUE_BUILD_ID};
use object::{sealed, MADE, NUMBER_BITS};
use recent::Recent;

/// `struct dl_find_object` (glibc, dlfcn.h), with its reserved words.
#[repr(C)]
struct DlFindObject {
    flags: u64,
    map_start: u64,
    map_end: u64,
    link_map: u64,
    eh_frame: u64,
    reserved: [u64; 7],
}

/// Type of `_dl_find_object`.
pub type DlFindObjectFn = unsafe extern "C" fn(pc: *mut c_void, result: *mut c_void) -> c_int;

/// Number of objects that the table has room for.
pub const CELLS: usize = 2048;
const PROBES: usize = 64;
const TOGETHER: usize = 16;
const RECENT: usize = 512;
/// Objects of the loader's list that are looked at.
const LISTED: usize = 1024;

struct Cell {
    state: AtomicU32,
    object: core::cell::UnsafeCell<core::mem::MaybeUninit<Object>>,
}

const FREE: u32 = 0;
const BUSY: u32 = 1;
const PUBLISHED: u32 = 2;

/// The table of objects seen by this process.
// In this order, so that what every process uses lies together: each page costs a fault.
#[repr(C)]
pub struct Objects {
    find: AtomicPtr<c_void>,
    /// Numbers that were given to what has no other: see [`Objects::next`].
    numbers: AtomicU64,
    program: (AtomicU64, AtomicU64),
    removable_count: AtomicUsize,
    /// The loader's counters: they show whether objects that are not permanent must be confirmed.
    loads: Loads,
    cells: [Cell; CELLS],
    /// The cells of objects that may go away, in the order in which they came; 0 = not yet written.
    removable: [AtomicU32; CELLS],
    /// Objects by a page that was looked up in them: found again without asking the loader.
    recent: [Recent; RECENT],
    /// Where `find` is null: the ranges of the loader's list, or musl's.
    list: List,
    musl: MuslList,
}

// SAFETY: a cell's object is written by the one that took it from FREE to BUSY, and read only after PUBLISHED.
unsafe impl Sync for Objects {}

/// The object under a pc.
#[derive(Clone, Copy, Debug)]
pub enum Lookup<'a> {
    /// This load of this object covers it.
    Object(Loaded<'a>),
    /// No loaded object covers it.
    Nothing,
    /// An object that the table has no room for: see [`Objects::make`].
    Full,
}

/// Objects that this walk has confirmed.
#[derive(Default)]
pub struct Memo<'a> {
    objects: [Option<Loaded<'a>>; 8],
    next: u8,
    /// The loader's counters when this walk first asked; 0: not known, or not asked.
    loads: u64,
}

impl Objects {
    /// An empty table.
    #[allow(clippy::new_without_default, reason = "made once, as a static")]
    pub const fn new() -> Objects {
        Objects {
            find: AtomicPtr::new(core::ptr::null_mut()),
            numbers: AtomicU64::new(0),
            program: (AtomicU64::new(0), AtomicU64::new(0)),
            removable: [const { AtomicU32::new(0) }; CELLS],
            removable_count: AtomicUsize::new(0),
            loads: Loads::new(),
            recent: [const { Recent::new() }; RECENT],
            list: List::new(),
            musl: MuslList::new(),
            cells: [const {
                Cell {
                    state: AtomicU32::new(FREE),
                    object: core::cell::UnsafeCell::new(core::mem::MaybeUninit::uninit()),
                }
            }; CELLS],
        }
    }

    /// Sets the address of the loader's `_dl_find_object`. Not for handlers.
    pub fn set_finder(&self, find: DlFindObjectFn) {
        self.find.store(find as *mut c_void, Ordering::Release);
    }

    /// The loader's counters.
    pub fn loads(&self) -> &Loads {
        &self.loads
    }

    /// Sets the extent of the program's image (process addresses): of its PT_LOAD segments.
    pub fn set_program(&self, image: Span) {
        self.program.0.store(image.start, Ordering::Release);
        self.program.1.store(image.end, Ordering::Release);
    }

    fn program(&self) -> Span {
        Span::new(self.program.0.load(Ordering::Acquire), self.program.1.load(Ordering::Acquire))
    }

    fn image(&self, found: &DlFindObject) -> Span {
        let (mapped, program) = (Span::new(found.map_start, found.map_end), self.program());
        if program.covers(mapped) {
            program
        } else {
            mapped
        }
    }

    /// For a loader without `_dl_find_object`: its list of objects is used, once its counters are located
    /// ([`Objects::loads`]). False: the list is not as expected, and nothing can be found. Not for handlers.
    pub fn use_list(&self, reader: &mut Reader<'_>) -> bool {
        self.list.locate(&self.loads, reader)
    }

    /// For musl's loader: its list of objects is used, which begins with this `struct dso`. Not for handlers.
    pub fn use_musl_list(&self, first: u64) {
        self.musl.locate(first);
    }

    /// Whether objects can be found at all.
    pub fn has_finder(&self) -> bool {
        !self.find.load(Ordering::Acquire).is_null() || self.list.is_located() || self.musl.is_located()
    }

    /// In the child of a fork. Not for handlers.
    pub fn after_fork(&self) {
        self.list.after_fork();
    }

    /// The object under `pc`, confirmed in this walk: looked for among those that the walk has met, else asked from the
    /// loader. Async-signal-safe.
    pub fn find<'a>(&'a self, pc: u64, memo: &mut Memo<'a>, reader: &mut Reader<'_>) -> Lookup<'a> {
        let page = pc >> 12;
        let recent = self.recent.get((page.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % RECENT);
        if memo.loads == 0 {
            memo.loads = self.loads.now().unwrap_or(0);
        }
        if let Some(object) = recent.and_then(|recent| recent.get(page)) {
            if object.start <= pc && pc < object.end {
                if let Some(load) = confirmed(object, memo.loads) {
                    return Lookup::Object(Loaded { object, load });
                }
            }
        }
        let covers = |loaded: &&Loaded<'_>| loaded.object.start <= pc && pc < loaded.object.end;
        if let Some(loaded) = memo.objects.iter().flatten().find(covers) {
            return Lookup::Object(*loaded);
        }
        let Some(found) = self.ask_loader(pc, reader) else { return Lookup::Nothing };
        let now = Some(memo.loads).filter(|loads| *loads != 0);
        let Some(loaded) = self.identify(&found, reader, false, now) else { return Lookup::Full };
        // Confirmed while the counters stood still: valid as long as they do.
        if now.is_some() && self.loads.now() == now {
            loaded.object.confirmed.store(sealed(memo.loads, loaded.load), Ordering::Relaxed);
        }
        if let Some(recent) = recent {
            recent.put(page, loaded.object);
        }
        if let Some(place) = memo.objects.get_mut(usize::from(memo.next & 7)) {
            *place = Some(loaded);
        }
        memo.next = memo.next.wrapping_add(1);
        Lookup::Object(loaded)
    }

    /// Whether this load of the object is still there. Async-signal-safe.
    pub fn confirm(&self, loaded: Loaded<'_>, reader: &mut Reader<'_>) -> bool {
        let Loaded { object, load } = loaded;
        let now = self.loads.now();
        if now.is_some_and(|now| confirmed(object, now) == Some(load)) {
            return true;
        }
        self.ask_loader(object.start, reader).is_some_and(|found| {
            object.is_at(&found) && (object.permanent || self.load_of(&found, now, reader) == Some(load))
        })
    }

    /// The load of an object of the table that is there now, by the generation of one of its loads, confirmed in this
    /// walk. `None`: nothing, or another object, is there. Async-signal-safe.
    pub fn present<'a>(&'a self, generation: u64, memo: &mut Memo<'a>, reader: &mut Reader<'_>) -> Option<Loaded<'a>> {
        let object = self.of_generation(generation)?.object;
        match self.find(object.start, memo, reader) {
            Lookup::Object(loaded) if core::ptr::eq(loaded.object, object) => Some(loaded),
            _ => None,
        }
    }

    /// The load of an object of the table that has this generation.
    pub fn of_generation(&self, generation: u64) -> Option<Loaded<'_>> {
        if generation & MADE != 0 {
            return None;
        }
        let index = (generation & ((1 << NUMBER_BITS) - 1)).checked_sub(1)?;
        let object = self.cells.get(index as usize).and_then(published)?;
        Some(Loaded { object, load: generation >> NUMBER_BITS })
    }

    /// The objects that the loader has, each entered and confirmed: more than walks have met. At most 1,024; where the
    /// loader's list cannot be read, the first few that are known. Async-signal-safe.
    pub fn each_loaded<'a>(&'a self, reader: &mut Reader<'_>, mut each: impl FnMut(Loaded<'a>)) {
        let now = self.loads.now();
        let mut left = LISTED;
        let is_read = self.loads.each_object(reader, |link_map, _, reader| {
            // struct link_map { ElfW(Addr) l_addr; char *l_name; ElfW(Dyn) *l_ld; ... } (link.h)
            let found = reader.word(link_map.wrapping_add(16)).and_then(|dynamic| self.ask_loader(dynamic, reader));
            if let Some(loaded) = found.and_then(|found| self.identify(&found, reader, false, now)) {
                each(loaded);
            }
            left = left.saturating_sub(1);
            if left == 0 {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        if !is_read && left == LISTED {
            self.first_few().for_each(each);
        }
    }

    /// The objects that lie together: the first few, which in most programs are all. A load of each was there once.
    fn first_few(&self) -> impl Iterator<Item = Loaded<'_>> {
        self.cells.iter().take(TOGETHER).filter_map(published).map(|object| {
            let load = if object.permanent { 0 } else { object.load.load(Ordering::Acquire) };
            Loaded { object, load }
        })
    }

    /// The process addresses at which the object under `pc` is mapped; empty if there is none. Async-signal-safe.
    pub fn range(&self, pc: u64) -> Span {
        self.ask_loader(pc, &Reader::probed()).map_or(Span::EMPTY, |found| Span::new(found.map_start, found.map_end))
    }

    /// The object under `pc`, outside of the table: for a walk that met [`Lookup::Full`]. Its generation is its own, so
    /// nothing that was remembered of it is found again. Async-signal-safe.
    pub fn make(&self, pc: u64, reader: &mut Reader<'_>) -> Option<Object> {
        let made = self.read_object(&self.ask_loader(pc, reader)?, reader, false)?;
        Some(Object { number: MADE | self.next(), ..made })
    }

    /// Enters the object under `pc`. `permanent`: it is one of the initial set, which the loader never unloads. Not for
    /// handlers.
    pub fn add(&self, pc: u64, permanent: bool, reader: &mut Reader<'_>) -> Option<&Object> {
        let now = self.loads.now();
        let found = self.ask_loader(pc, reader)?;
        Some(self.identify(&found, reader, permanent, now)?.object)
    }

    /// Whether an object that may be unloaded is or was somewhere in `[start, end)`: rules that are cached by pc may be
    /// of its code. Not for handlers.
    pub fn may_have_been_at(&self, start: u64, end: u64) -> bool {
        self.removable().any(|object| object.start < end && start < object.end)
    }

    /// The objects that may be unloaded.
    fn removable(&self) -> impl Iterator<Item = &Object> {
        let count = self.removable_count.load(Ordering::Acquire).min(CELLS);
        let index = |place: &AtomicU32| (place.load(Ordering::Acquire) as usize).checked_sub(1);
        self.removable.iter().take(count).filter_map(move |place| self.cells.get(index(place)?).and_then(published))
    }

    /// Notes that this load of an object was reported to the recorder, from `time` on. Whatever was there before is
    /// gone, and must be reported again when it comes back. Async-signal-safe.
    pub fn was_reported(&self, loaded: Loaded<'_>, epoch: u32, time: u64) {
        let Loaded { object, load } = loaded;
        for other in self.removable() {
            if other.start < object.end && object.start < other.end && !core::ptr::eq(other, object) {
                other.reported.store(0, Ordering::Relaxed);
            }
        }
        object.reported_at.store(time, Ordering::Relaxed);
        object.reported.store(epoch, Ordering::Release);
        if !object.permanent && object.load.load(Ordering::Acquire) != load {
            // Another load of it was found meanwhile.
            object.reported.store(0, Ordering::Release);
        }
    }

    /// Whether both addresses lie in one loaded object, by the loader's own lookup. Async-signal-safe.
    pub fn are_of_one(&self, a: u64, b: u64) -> bool {
        let of = |address| self.ask_loader(address, &Reader::probed()).map(|found| found.link_map);
        of(a).is_some_and(|object| of(b) == Some(object))
    }

    /// Has the kernel make the pages that every process uses, all at once
    /// ([MADV_POPULATE_WRITE](https://man7.org/linux/man-pages/man2/madvise.2.html), Linux 5.14). Not for handlers.
    pub fn populate(&self) {
        const MADV_POPULATE_WRITE: usize = 23;
        let first = core::ptr::from_ref(self) as usize & !0xfff;
        let end = core::ptr::from_ref(&self.cells) as usize + TOGETHER * core::mem::size_of::<Cell>();
        let bytes = end.next_multiple_of(4096) - first;
        // SAFETY: memory of this object, which keeps its contents.
        unsafe { syscall::call(nr::MADVISE, [first, bytes, MADV_POPULATE_WRITE, 0, 0, 0]) };
    }

    /// By memory as `reader` reads it, if it is read at all.
    #[inline]
    fn ask_loader(&self, pc: u64, reader: &Reader<'_>) -> Option<DlFindObject> {
        let find = self.find.load(Ordering::Acquire);
        if find.is_null() {
            return self.search_list(pc, reader);
        }
        // SAFETY: `set_finder` stored a function of this very type.
        let find = unsafe { core::mem::transmute::<*mut c_void, DlFindObjectFn>(find) };
        let mut result =
            DlFindObject { flags: 0, map_start: 0, map_end: 0, link_map: 0, eh_frame: 0, reserved: [0; 7] };
        // SAFETY: `_dl_find_object` takes any pc, takes no lock and fills the structure.
        let r = unsafe { find(pc as *mut c_void, (&raw mut result).cast()) };
        (r == 0 && result.map_start <= pc && pc < result.map_end).then_some(result)
    }

    /// What the loader's list says is confirmed by its counters, so that its words need not be logged.
    #[cold]
    fn search_list(&self, pc: u64, reader: &Reader<'_>) -> Option<DlFindObject> {
        let reader = &mut reader.without_log();
        if self.musl.is_located() {
            return self.musl.find(pc, self.program(), reader);
        }
        self.list.find(pc, &self.loads, reader)
    }

    /// The number of the load of an object that was found.
    fn load_of(&self, found: &DlFindObject, now: Option<u64>, reader: &mut Reader<'_>) -> Option<u64> {
        if self.musl.is_located() {
            return MuslList::load_of(found, reader);
        }
        self.loads.load_of(found.link_map, now, reader)
    }

    /// A number that was not given before.
    fn next(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed).wrapping_add(1) & (MADE - 1)
    }

    /// `now`: [`Loads::now`] from before the loader was asked.
    fn identify(
        &self,
        found: &DlFindObject,
        reader: &mut Reader<'_>,
        permanent: bool,
        now: Option<u64>,
    ) -> Option<Loaded<'_>> {
        // If nothing distinguishes one load from another, this one counts as new.
        let numbered = self.load_of(found, now, reader);
        let load = numbered.unwrap_or_else(|| 1 << 31 | self.next() & ((1 << 31) - 1));
        let start = (found.map_start >> 12).wrapping_mul(0x9e37_79b9_7f4a_7c15) as usize >> 8;
        for probe in 0..PROBES {
            // The first few objects lie together, on one page: most programs have no more, and each page costs a fault.
            let place = match probe.checked_sub(TOGETHER) {
                None => start.wrapping_add(probe) % TOGETHER,
                Some(further) => TOGETHER + start.wrapping_add(further) % (CELLS - TOGETHER),
            };
            let cell = self.cells.get(place)?;
            if cell.state.load(Ordering::Acquire) == FREE {
                let number = place as u64 + 1;
                let object =
                    Object { number, load: AtomicU64::new(load), ..self.read_object(found, reader, permanent)? };
                if cell.state.compare_exchange(FREE, BUSY, Ordering::Acquire, Ordering::Relaxed).is_err() {
                    continue;
                }
                // SAFETY: this call took the cell from FREE to BUSY, so nothing else touches it until PUBLISHED.
                unsafe { (*cell.object.get()).write(object) };
                cell.state.store(PUBLISHED, Ordering::Release);
                if !permanent {
                    let next = self.removable_count.fetch_add(1, Ordering::AcqRel);
                    if let Some(entry) = self.removable.get(next) {
                        entry.store(place as u32 + 1, Ordering::Release);
                    }
                }
                return published(cell).map(|object| Loaded { object, load: if permanent { 0 } else { load } });
            }
            let Some(object) = published(cell).filter(|object| object.is_at(found)) else { continue };
            if object.permanent {
                return Some(Loaded { object, load: 0 });
            }
            if object.load.load(Ordering::Acquire) == load {
                return Some(Loaded { object, load });
            }
            if object.is_alike(found, reader) {
                object.load.store(load, Ordering::Release);
                object.reported.store(0, Ordering::Release);
                return Some(Loaded { object, load });
            }
        }
        None
    }

    fn read_object(&self, found: &DlFindObject, reader: &mut Reader<'_>, permanent: bool) -> Option<Object> {
        // struct link_map { ElfW(Addr) l_addr; char *l_name; ... } (link.h)
        let bias = reader.word(found.link_map)?;
        let image = self.image(found);
        let headers = Headers::read(image.start, bias, reader);
        let build_id = headers.as_ref().and_then(|h| h.build_id(bias, reader));
        let (build_id, build_id_at) = build_id.map_or((None, 0), |(id, at)| (Some(id), at));
        let unwind_key = headers.as_ref().map_or(0, |headers| headers.unwind_key(bias, reader));
        let facts_key = match (&build_id, &headers) {
            (Some(id), _) => object_key::of_build_id(id.as_bytes(), unwind_key),
            (None, Some(headers)) => headers.hash(reader),
            (None, None) => 0,
        };
        let telling = build_id.as_ref().is_some_and(|id| id.as_bytes().len() >= UNIQUE_BUILD_ID);
        Some(Object {
            start: found.map_start,
            end: found.map_end,
            image,
            link_map: found.link_map,
            eh_frame_hdr: found.eh_frame,
            sframe: headers.as_ref().and_then(|h| h.sframe(bias, image, reader)).unwrap_or_default(),
            last_page: headers.as_ref().and_then(|h| h.last_page(bias, reader)).unwrap_or(0),
            bases: bases::of(found.link_map, bias, image, reader),
            code: headers.as_ref().map(|h| Code::read(h, bias, reader)).unwrap_or_default(),
            bias,
            fingerprint: if telling { 0 } else { fingerprint_of(found, reader) },
            build_id_at,
            number: 0,
            load: AtomicU64::new(0),
            build_id: build_id.unwrap_or(BuildId::NONE),
            facts_key: facts_key.max(1),
            unwind_key,
            permanent,
            claim: Settled::new(),
            reported: AtomicU32::new(0),
            table: Settled::new(),
            reported_at: AtomicU64::new(0),
            confirmed: AtomicU64::new(0),
        })
    }
}

/// Which load of the object is there, as far as it was confirmed while the loader's counters were `loads`.
#[inline(always)]
fn confirmed(object: &Object, loads: u64) -> Option<u64> {
    if object.permanent {
        return Some(0);
    }
    let load = object.load.load(Ordering::Relaxed);
    (loads != 0 && object.confirmed.load(Ordering::Relaxed) == sealed(loads, load)).then_some(load)
}

fn published(cell: &Cell) -> Option<&Object> {
    // SAFETY: a PUBLISHED cell holds an object that never changes again.
    (cell.state.load(Ordering::Acquire) == PUBLISHED).then(|| unsafe { (*cell.object.get()).assume_init_ref() })
}

/// Over the first page of the mapping (ELF header, program headers, dynamic symbols) and the page that begins with the
/// unwind header: what two builds of one library hardly share. Unreadable words count as such.
fn fingerprint_of(found: &DlFindObject, reader: &mut Reader<'_>) -> u64 {
    const WORDS: u64 = 512;
    let mut h = FNV_START;
    for base in [found.map_start, found.eh_frame] {
        for i in 0..WORDS {
            let at = base.wrapping_add(i * 8);
            let word = if base == 0 || at >= found.map_end { None } else { reader.word(at) };
            h = (h ^ word.unwrap_or(0x5a5a)).wrapping_mul(0xff51_afd7_ed55_8ccd).rotate_left(31);
        }
    }
    h
}
