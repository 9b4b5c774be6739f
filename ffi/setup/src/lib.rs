//! `libuu-setup.so`: what the recorder does for the programs that it records, for a program that uses the library by itself.
//!
//! Linked with std, and opened by `uu_setup()` (`uu.h`) only. It reads the files of the loaded objects, builds their rule
//! tables or takes them from the user's cache, and hands them to libuu, which uses them from the next walk on.

use findshlibs::{SharedLibrary, TargetSharedLibrary};
use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Mutex;
use uunwind_analyse::elf::Image;
use uunwind_analyse::rules::{of_image, Cache};
use uunwind_core::library::{Library, BUILD};

/// libuu is of another build.
const ENOEXEC: i32 = 8;
/// There is no room for all tables.
const ENOMEM: i32 = 12;
/// Libuu has a table for this object.
const EEXIST: i32 = 17;

/// Keys of the objects that libuu has tables for.
static KNOWN: Mutex<Option<HashSet<u64>>> = Mutex::new(None);

/// Gives libuu a table for every loaded object that has unwind information. Returns how many objects have one now, or a
/// negative errno.
///
/// # Safety
/// `library` must be a libuu's table of functions.
#[no_mangle]
pub unsafe extern "C" fn uu_setup_tables(library: *const Library) -> i32 {
    // SAFETY: the caller passes its table; size and build are looked at before anything else.
    let library = unsafe { &*library };
    if library.size as usize != size_of::<Library>() || library.build != BUILD {
        return -ENOEXEC;
    }
    let mut paths: Vec<PathBuf> = Vec::new();
    TargetSharedLibrary::each(|object| paths.push(object.name().into()));
    let mut known = KNOWN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let known = known.get_or_insert_default();
    let cache = Cache::of_user();
    for path in paths {
        let Ok(image) = Image::open(&path) else { continue };
        let (key, build_id) = uunwind_analyse::key_of(&image);
        if known.contains(&key) {
            continue;
        }
        let Ok((table, _)) = cache.get(&build_id.unwrap_or_default(), key, || of_image(&image, key)) else { continue };
        // For ever: a walk may read it at any time.
        let words: &'static [u64] = aligned(&table).leak();
        // SAFETY: libuu's function; the table stays.
        match unsafe { (library.add_table)(key, words.as_ptr().cast(), table.len()) } {
            0 => {}
            // Somebody else has been here.
            error if error == -EEXIST => {}
            error if error == -ENOMEM => return error,
            _ => continue,
        }
        known.insert(key);
    }
    i32::try_from(known.len()).unwrap_or(i32::MAX)
}

/// The same bytes at a multiple of 8. Tables are whole words but for the last half.
fn aligned(bytes: &[u8]) -> Vec<u64> {
    let word = |chunk: &[u8]| {
        let mut word = [0; 8];
        for (to, from) in word.iter_mut().zip(chunk) {
            *to = *from;
        }
        u64::from_le_bytes(word)
    };
    bytes.chunks(8).map(word).collect()
}
