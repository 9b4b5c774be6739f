//! The objects that the program began with: itself and what it needs, directly or through others. The loader never
//! unloads them, so they need not be confirmed at each walk. What was dlopen'ed before this library is not among them.
//!
//! Runs once, when the library is loaded, in normal context.

use crate::init::{dl_iterate_phdr, dynamic_section, segments, DlPhdrInfo};
use core::ffi::{c_char, c_int, c_void, CStr};
use core::mem::MaybeUninit;
use uunwind_core::memory::Reader;
use uunwind_live::state::OBJECTS;

const DT_NULL: u64 = 0;
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;
const DT_SONAME: u64 = 14;

/// One loaded object, in the loader's order: the initial ones come before all others.
#[derive(Clone, Copy)]
struct Loaded {
    bias: u64,
    name: *const c_char,
    /// Its dynamic section; null when it has none.
    dynamic: *const [u64; 2],
    strings: u64,
    text: u64,
    needed: bool,
}

const ROOM: usize = 128;

struct List {
    /// Not cleared: of most programs a few entries are used, and each page of the stack costs a fault.
    objects: [MaybeUninit<Loaded>; ROOM],
    len: usize,
}

impl List {
    fn used(&mut self) -> &mut [Loaded] {
        let used = self.objects.get_mut(..self.len).unwrap_or(&mut []);
        // SAFETY: `note` has written the first `len` entries; MaybeUninit<Loaded> has Loaded's layout.
        unsafe { core::slice::from_raw_parts_mut(used.as_mut_ptr().cast(), used.len()) }
    }
}

/// How many of the loaded objects are initial: they come first in the loader's order. Of more than 128 the rest is
/// left out, which costs time only.
#[inline(never)]
pub fn count() -> usize {
    let mut count = 0;
    each_needed(|index, _| count = index + 1);
    count
}

/// Makes the initial objects permanent.
#[inline(never)]
pub fn add() {
    each_needed(|_, object| {
        if object.text != 0 {
            let mut reader = Reader::probed();
            OBJECTS.add(object.text, true, &mut reader);
        }
    });
}

fn each_needed(mut use_it: impl FnMut(usize, &Loaded)) {
    let mut list = List { objects: [const { MaybeUninit::uninit() }; ROOM], len: 0 };
    // SAFETY: normal context; the callback gets `list`.
    unsafe { dl_iterate_phdr(note, (&raw mut list).cast()) };
    let objects = list.used();
    if let Some(program) = objects.first_mut() {
        program.needed = true;
    }
    // Each round follows the needs of what the rounds before have found; a chain is no longer than there are objects.
    for _ in 0..objects.len() {
        let mut found = false;
        for i in 0..objects.len() {
            let Some(user) = objects.get(i).copied().filter(|user| user.needed) else { continue };
            // SAFETY: the object is loaded, and stays so during this call.
            for name in unsafe { strings(&user, DT_NEEDED) } {
                // SAFETY: as above.
                let provider = objects.iter_mut().find(|o| unsafe { is_called(o, name) });
                if let Some(provider) = provider.filter(|provider| !provider.needed) {
                    provider.needed = true;
                    found = true;
                }
            }
        }
        if !found {
            break;
        }
    }
    for (index, object) in objects.iter().enumerate().filter(|(_, object)| object.needed) {
        use_it(index, object);
    }
}

unsafe extern "C" fn note(info: *mut DlPhdrInfo, _size: usize, list: *mut c_void) -> c_int {
    // SAFETY: the loader passes its structure, `add` its list.
    let (info, list) = unsafe { (&*info, &mut *list.cast::<List>()) };
    let Some(place) = list.objects.get_mut(list.len) else { return 1 };
    // SAFETY: the loader's own structure.
    let (dynamic, text) = unsafe {
        (dynamic_section(info).cast::<[u64; 2]>(), segments(info).find(|s| s.executable).map_or(0, |s| s.start))
    };
    let place =
        place.write(Loaded { bias: info.addr, name: info.name.cast(), dynamic, strings: 0, text, needed: false });
    // SAFETY: as above.
    place.strings = unsafe { entries(place) }.find(|[tag, _]| *tag == DT_STRTAB).map_or(0, |[_, at]| at);
    if place.strings < place.bias {
        // The loader leaves some dynamic sections (the vDSO's) as they are in the file.
        place.strings = place.strings.wrapping_add(place.bias);
    }
    list.len += 1;
    0
}

/// The entries of an object's dynamic section (gABI, "Dynamic Section"), at most 512.
///
/// # Safety
/// The object must be loaded.
unsafe fn entries(object: &Loaded) -> impl Iterator<Item = [u64; 2]> {
    let first = object.dynamic;
    (0..512)
        .take_while(move |_| !first.is_null())
        // SAFETY: a dynamic section ends with DT_NULL, which ends this iteration.
        .map(move |i| unsafe { first.add(i).read() })
        .take_while(|[tag, _]| *tag != DT_NULL)
}

/// The strings of all entries with this tag.
///
/// # Safety
/// The object must be loaded.
unsafe fn strings(object: &Loaded, tag: u64) -> impl Iterator<Item = &'static CStr> {
    let table = object.strings;
    // SAFETY: passed on.
    unsafe { entries(object) }
        .filter(move |entry| entry[0] == tag && table != 0)
        // SAFETY: an offset into the object's string table; objects looked at here stay loaded.
        .map(move |[_, offset]| unsafe { CStr::from_ptr(table.wrapping_add(offset) as *const c_char) })
}

/// Whether a need of this name is answered by the object: its soname, or the last part of its path.
///
/// # Safety
/// The object must be loaded.
unsafe fn is_called(object: &Loaded, name: &CStr) -> bool {
    // SAFETY: passed on.
    if unsafe { strings(object, DT_SONAME) }.any(|soname| soname == name) {
        return true;
    }
    if object.name.is_null() {
        return false;
    }
    // SAFETY: the loader's string.
    let path = unsafe { CStr::from_ptr(object.name) }.to_bytes();
    path.rsplit(|b| *b == b'/').next() == Some(name.to_bytes()) && !name.is_empty()
}
