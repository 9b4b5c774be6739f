//! The objects that the program began with: itself and what it needs, directly or through others. The loader never
//! unloads them, so they need not be confirmed at each walk. What was dlopen'ed before this library is not among them.
//!
//! Runs once, when the library is loaded, in normal context.

use crate::init::dl_iterate_phdr;
use core::ffi::{c_char, c_int, c_void, CStr};
use core::mem::MaybeUninit;
use uunwind_core::loaded::{Dynamic, PhdrInfo, DT_NEEDED, DT_SONAME};
use uunwind_core::memory::Reader;
use uunwind_live::state::OBJECTS;

/// One loaded object, in the loader's order: the initial ones come before all others.
#[derive(Clone, Copy)]
struct Loaded {
    name: *const c_char,
    dynamic: Dynamic,
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
            for name in user.dynamic.strings(DT_NEEDED) {
                // SAFETY: all of them stay loaded during this call.
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

unsafe extern "C" fn note(info: *mut PhdrInfo, _size: usize, list: *mut c_void) -> c_int {
    // SAFETY: the loader passes its structure, `add` its list.
    let (info, list) = unsafe { (&*info, &mut *list.cast::<List>()) };
    let Some(place) = list.objects.get_mut(list.len) else { return 1 };
    // SAFETY: the loader's own structure, of an object that stays loaded during `each_needed`.
    let (dynamic, text) = unsafe { (info.dynamic(), info.segments().find(|s| s.executable).map_or(0, |s| s.start)) };
    place.write(Loaded { name: info.name.cast(), dynamic, text, needed: false });
    list.len += 1;
    0
}

/// Whether a need of this name is answered by the object: its soname, or the last part of its path.
///
/// # Safety
/// The object must be loaded.
unsafe fn is_called(object: &Loaded, name: &CStr) -> bool {
    if object.dynamic.strings(DT_SONAME).any(|soname| soname == name) {
        return true;
    }
    if object.name.is_null() {
        return false;
    }
    // SAFETY: the loader's string.
    let path = unsafe { CStr::from_ptr(object.name) }.to_bytes();
    path.rsplit(|b| *b == b'/').next() == Some(name.to_bytes()) && !name.is_empty()
}
