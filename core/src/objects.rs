//! The loaded objects of the process, asked from the loader and confirmed once a walk.
//!
//! glibc's `_dl_find_object` (2.35 and later, async-signal-safe, looked up with dlsym) tells the object under an
//! address. What we keep of an object (its facts, whether the recorder knows it) hangs on its *identity*: range, link
//! map, unwind header and a fingerprint of its headers, so that another library mapped where this one was is another
//! object, with another generation, and no rule cached for the first is used for the second. Objects of the initial set
//! never go away and are not read again.

mod object;
mod recent;

use crate::headers::Headers;
use crate::loads::Loads;
use crate::memory::Reader;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
pub use object::{BuildId, Object, BUILD_ID_LIMIT, FACTS_SETTLED, FACTS_UNKNOWN, TELLING_BUILD_ID};
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

/// Cells for objects.
pub const CELLS: usize = 2048;
const PROBES: usize = 64;
const TOGETHER: usize = 16;
const RECENT: usize = 512;

struct Cell {
    state: AtomicU32,
    object: core::cell::UnsafeCell<core::mem::MaybeUninit<Object>>,
}

const FREE: u32 = 0;
const BUSY: u32 = 1;
const PUBLISHED: u32 = 2;

/// The table of objects seen by this process.
pub struct Objects {
    find: AtomicPtr<c_void>,
    next_generation: AtomicU64,
    full: AtomicU32,
    program: (AtomicU64, AtomicU64),
    /// The cells of objects that may go away, in the order in which they came; 0 = not yet written.
    passing: [AtomicU32; CELLS],
    passing_count: AtomicUsize,
    /// Tells whether objects that are not permanent need be confirmed.
    loads: Loads,
    /// Objects by a page that was looked up in them: found again without asking the loader.
    recent: [Recent; RECENT],
    cells: [Cell; CELLS],
}

// SAFETY: a cell's object is written by the one that took it from FREE to BUSY, and read only after PUBLISHED.
unsafe impl Sync for Objects {}

/// What is under a pc.
#[derive(Clone, Copy, Debug)]
pub enum Lookup<'a> {
    /// This object.
    Object(&'a Object),
    /// No loaded object.
    Nothing,
    /// An object that the table has no room for: see [`Objects::make`].
    Full,
}

/// Objects that this walk has confirmed.
#[derive(Default)]
pub struct Memo<'a> {
    objects: [Option<&'a Object>; 8],
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
            next_generation: AtomicU64::new(0),
            full: AtomicU32::new(0),
            program: (AtomicU64::new(0), AtomicU64::new(0)),
            passing: [const { AtomicU32::new(0) }; CELLS],
            passing_count: AtomicUsize::new(0),
            loads: Loads::new(),
            recent: [const { Recent::new() }; RECENT],
            cells: [const {
                Cell {
                    state: AtomicU32::new(FREE),
                    object: core::cell::UnsafeCell::new(core::mem::MaybeUninit::uninit()),
                }
            }; CELLS],
        }
    }

    /// Tells where the loader's `_dl_find_object` is.
    pub fn set_finder(&self, find: DlFindObjectFn) {
        self.find.store(find as *mut c_void, Ordering::Release);
    }

    /// The loader's counters.
    pub fn loads(&self) -> &Loads {
        &self.loads
    }

    /// Tells the extent of the program's image: of its PT_LOAD segments.
    pub fn set_program(&self, start: u64, end: u64) {
        self.program.0.store(start, Ordering::Release);
        self.program.1.store(end, Ordering::Release);
    }

    fn image(&self, found: &DlFindObject) -> (u64, u64) {
        let mapped = (found.map_start, found.map_end);
        let program = (self.program.0.load(Ordering::Acquire), self.program.1.load(Ordering::Acquire));
        if program.0 <= mapped.0 && mapped.1 <= program.1 {
            program
        } else {
            mapped
        }
    }

    /// Whether objects can be found at all (glibc 2.35 or later).
    pub fn has_finder(&self) -> bool {
        !self.find.load(Ordering::Acquire).is_null()
    }

    /// Lookups that found no free cell.
    pub fn full(&self) -> u32 {
        self.full.load(Ordering::Relaxed)
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
            let valid = object.permanent || memo.loads != 0 && object.confirmed.load(Ordering::Relaxed) == memo.loads;
            if valid && object.start <= pc && pc < object.end {
                return Lookup::Object(object);
            }
        }
        if let Some(object) = memo.objects.iter().flatten().find(|o| o.start <= pc && pc < o.end) {
            return Lookup::Object(object);
        }
        let Some(found) = self.ask_loader(pc) else { return Lookup::Nothing };
        let Some(object) = self.identify(&found, reader, false) else { return Lookup::Full };
        // Confirmed while the counters stood still: valid as long as they do. The word changes for equal objects only.
        if memo.loads != 0 && self.loads.now() == Some(memo.loads) {
            object.confirmed.store(memo.loads, Ordering::Relaxed);
        }
        if let Some(recent) = recent {
            recent.put(page, object);
        }
        if let Some(place) = memo.objects.get_mut(usize::from(memo.next & 7)) {
            *place = Some(object);
        }
        memo.next = memo.next.wrapping_add(1);
        Lookup::Object(object)
    }

    /// Whether the object is still there. Async-signal-safe.
    pub fn confirm(&self, object: &Object, reader: &mut Reader<'_>) -> bool {
        let loads = self.loads.now();
        if loads.is_some_and(|loads| object.confirmed.load(Ordering::Relaxed) == loads) {
            return true;
        }
        self.ask_loader(object.start).is_some_and(|found| {
            found.map_start == object.start
                && found.map_end == object.end
                && found.link_map == object.link_map
                && found.eh_frame == object.eh_frame_hdr
                && (object.permanent || object.is_still_there(&found, reader))
        })
    }

    /// Where the object under `pc` is mapped; (0, 0) when there is none. Async-signal-safe.
    pub fn range(&self, pc: u64) -> (u64, u64) {
        self.ask_loader(pc).map_or((0, 0), |found| (found.map_start, found.map_end))
    }

    /// The object under `pc`, outside of the table: for a walk that met [`Lookup::Full`]. Its generation is its own, so
    /// nothing that was remembered of it is found again. Async-signal-safe.
    pub fn make(&self, pc: u64, reader: &mut Reader<'_>) -> Option<Object> {
        self.read_object(&self.ask_loader(pc)?, reader, false)
    }

    /// Enters the object under `pc`. `permanent`: it is one of the initial set, which the loader never unloads. Not for
    /// handlers.
    pub fn add(&self, pc: u64, permanent: bool, reader: &mut Reader<'_>) -> Option<&Object> {
        let found = self.ask_loader(pc)?;
        self.identify(&found, reader, permanent)
    }

    /// The recorder has been told that `object` is where it is, from `time` on. Whatever was there before is gone, and must
    /// be told again when it comes back. Async-signal-safe.
    pub fn was_reported(&self, object: &Object, epoch: u32, time: u64) {
        let count = self.passing_count.load(Ordering::Acquire).min(CELLS);
        for place in self.passing.iter().take(count) {
            let cell = (place.load(Ordering::Acquire) as usize).checked_sub(1).and_then(|i| self.cells.get(i));
            let Some(other) = cell.and_then(published) else { continue };
            if other.start < object.end && object.start < other.end && !core::ptr::eq(other, object) {
                other.reported.store(0, Ordering::Relaxed);
            }
        }
        object.reported_at.store(time, Ordering::Relaxed);
        object.reported.store(epoch, Ordering::Release);
    }

    /// All objects seen so far.
    pub fn iter(&self) -> impl Iterator<Item = &Object> {
        self.cells.iter().filter_map(published)
    }

    /// Whether both addresses lie in one loaded object, which the loader can tell. Async-signal-safe.
    pub fn are_of_one(&self, a: u64, b: u64) -> bool {
        let of = |address| self.ask_loader(address).map(|found| found.link_map);
        of(a).is_some_and(|object| of(b) == Some(object))
    }

    fn ask_loader(&self, pc: u64) -> Option<DlFindObject> {
        let find = self.find.load(Ordering::Acquire);
        if find.is_null() {
            return None;
        }
        // SAFETY: `set_finder` stored a function of this very type.
        let find = unsafe { core::mem::transmute::<*mut c_void, DlFindObjectFn>(find) };
        let mut result =
            DlFindObject { flags: 0, map_start: 0, map_end: 0, link_map: 0, eh_frame: 0, reserved: [0; 7] };
        // SAFETY: `_dl_find_object` takes any pc, takes no lock and fills the structure.
        let r = unsafe { find(pc as *mut c_void, (&raw mut result).cast()) };
        (r == 0 && result.map_start <= pc && pc < result.map_end).then_some(result)
    }

    fn identify(&self, found: &DlFindObject, reader: &mut Reader<'_>, permanent: bool) -> Option<&Object> {
        let start = (found.map_start >> 12).wrapping_mul(0x9e37_79b9_7f4a_7c15) as usize >> 8;
        for probe in 0..PROBES {
            // The first few objects lie together, on one page: most programs have no more, and each page costs a fault.
            let place = match probe.checked_sub(TOGETHER) {
                None => start.wrapping_add(probe) % TOGETHER,
                Some(further) => TOGETHER + start.wrapping_add(further) % (CELLS - TOGETHER),
            };
            let cell = self.cells.get(place)?;
            if cell.state.load(Ordering::Acquire) == FREE {
                let object = self.read_object(found, reader, permanent)?;
                if cell.state.compare_exchange(FREE, BUSY, Ordering::Acquire, Ordering::Relaxed).is_err() {
                    continue;
                }
                // SAFETY: this call took the cell from FREE to BUSY, so nobody else touches it until PUBLISHED.
                unsafe { (*cell.object.get()).write(object) };
                cell.state.store(PUBLISHED, Ordering::Release);
                if !permanent {
                    let next = self.passing_count.fetch_add(1, Ordering::AcqRel);
                    if let Some(entry) = self.passing.get(next) {
                        entry.store(place as u32 + 1, Ordering::Release);
                    }
                }
                return published(cell);
            }
            let Some(object) = published(cell) else { continue };
            if object.start == found.map_start
                && object.end == found.map_end
                && object.link_map == found.link_map
                && object.eh_frame_hdr == found.eh_frame
            {
                if object.permanent {
                    return Some(object);
                }
                if object.is_still_there(found, reader) {
                    return Some(object);
                }
            }
        }
        self.full.fetch_add(1, Ordering::Relaxed);
        None
    }

    fn read_object(&self, found: &DlFindObject, reader: &mut Reader<'_>, permanent: bool) -> Option<Object> {
        // struct link_map { ElfW(Addr) l_addr; char *l_name; ... } (link.h)
        let bias = reader.word(found.link_map)?;
        let image = self.image(found);
        let headers = Headers::read(image.0, bias, reader);
        let build_id = headers.as_ref().and_then(|h| h.build_id(bias, reader));
        let (build_id, build_id_at) = build_id.map_or((None, 0), |(id, at)| (Some(id), at));
        let facts_key = match (&build_id, &headers) {
            (Some(id), _) => fnv(FNV_START, id.as_bytes().iter().copied()),
            (None, Some(headers)) => headers.hash(reader),
            (None, None) => 0,
        };
        let telling = build_id.as_ref().is_some_and(|id| id.as_bytes().len() >= TELLING_BUILD_ID);
        Some(Object {
            start: found.map_start,
            end: found.map_end,
            image,
            link_map: found.link_map,
            eh_frame_hdr: found.eh_frame,
            sframe: headers.as_ref().and_then(|h| h.sframe(bias, image, reader)).unwrap_or((0, 0)),
            bias,
            fingerprint: if telling { 0 } else { fingerprint_of(found, reader) },
            build_id_at,
            generation: self.next_generation.fetch_add(1, Ordering::Relaxed).wrapping_add(1),
            build_id: build_id.unwrap_or(BuildId::NONE),
            facts_key: facts_key.max(1),
            permanent,
            facts: AtomicPtr::new(core::ptr::null_mut()),
            facts_len: AtomicUsize::new(0),
            plugin: AtomicU32::new(0),
            facts_state: AtomicU32::new(FACTS_UNKNOWN),
            facts_asked: AtomicU32::new(0),
            reported: AtomicU32::new(0),
            table: AtomicPtr::new(core::ptr::null_mut()),
            table_len: AtomicUsize::new(0),
            table_asked: AtomicU32::new(0),
            reported_at: AtomicU64::new(0),
            confirmed: AtomicU64::new(0),
        })
    }
}

fn published(cell: &Cell) -> Option<&Object> {
    // SAFETY: a PUBLISHED cell holds an object that never changes again.
    (cell.state.load(Ordering::Acquire) == PUBLISHED).then(|| unsafe { (*cell.object.get()).assume_init_ref() })
}

pub(crate) const FNV_START: u64 = 0xcbf2_9ce4_8422_2325;

pub(crate) fn fnv(start: u64, bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(start, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3))
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
