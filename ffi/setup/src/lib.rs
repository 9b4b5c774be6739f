//! `libuunwind-setup.so`: what the recorder does for the programs that it records, for a program that uses the library
//! by itself.
//!
//! Linked with std, and opened by `uu_setup()` (`uu.h`) only. It reads the files of the loaded objects, and hands
//! libuunwind what walks need: rule tables, plugins, and the facts that the plugins' analyse halves find.
//!
//! ```text
//! state    what this process has been given so far, one immutable value; how it is changed, and what a fork does to it
//! plugins  finds plugins, opens them, and installs them in libuunwind
//! facts    which plugin an object belongs to: from the cache on disk, or analysed
//! kept     that cache
//! ```

mod facts;
mod kept;
mod plugins;
mod state;

use findshlibs::{SharedLibrary, TargetSharedLibrary};
use std::path::PathBuf;
use uunwind_core::library::{Library, BUILD};
use uunwind_elf::Image;
use uunwind_tables_build::Cache;

/// libuunwind is of another build.
const ENOEXEC: i32 = 8;
/// There is no room for all tables, or all facts.
const ENOMEM: i32 = 12;
/// libuunwind has a table, or facts, for this object.
const EEXIST: i32 = 17;

/// Gives libuunwind the plugins that are there, a table for every loaded object that has unwind information, and each
/// object's owner and facts. Returns how many objects have a table now, or a negative errno.
///
/// # Safety
/// `library` must be a libuunwind's table of functions.
#[no_mangle]
pub unsafe extern "C" fn uu_setup_process(library: *const Library) -> i32 {
    // SAFETY: the caller passes its table; size and build are checked before anything else is read.
    let library = unsafe { &*library };
    if library.size as usize != size_of::<Library>() || library.build != BUILD {
        return -ENOEXEC;
    }
    state::change(|state| {
        if !state.plugins_are_open {
            plugins::open_all(library, state);
        }
        let mut paths: Vec<PathBuf> = Vec::new();
        TargetSharedLibrary::each(|object| paths.push(object.name().into()));
        let cache = Cache::of_user();
        let mut analysts = facts::Analysts::default();
        for path in paths {
            let Ok(image) = Image::open(&path) else { continue };
            let key = uunwind_elf::key_of(&image).0;
            if state.done.contains(&key) {
                continue;
            }
            let answered = facts::add(library, state, &image, key, &mut analysts)?;
            if !state.tables.contains(&key) && add_table(library, &cache, &image, key)? {
                state.tables.insert(key);
            }
            if answered {
                state.done.insert(key);
            }
        }
        Ok(i32::try_from(state.tables.len()).unwrap_or(i32::MAX))
    })
    .unwrap_or_else(|error: i32| -error)
}

/// False: the object has no unwind information.
fn add_table(library: &Library, cache: &Cache, image: &Image, key: u64) -> Result<bool, i32> {
    let Ok((table, _)) = cache.table(image) else { return Ok(false) };
    let words = forever(&table);
    // SAFETY: libuunwind's function; the table stays.
    match unsafe { (library.add_table)(key, words.as_ptr().cast(), table.len()) } {
        0 => Ok(true),
        // Somebody else has been here.
        error if error == -EEXIST => Ok(true),
        error if error == -ENOMEM => Err(ENOMEM),
        _ => Ok(false),
    }
}

/// A copy of these bytes at a multiple of 8, for ever: a walk may read it at any time.
fn forever(bytes: &[u8]) -> &'static [u64] {
    let word = |chunk: &[u8]| {
        let mut word = [0; 8];
        for (to, from) in word.iter_mut().zip(chunk) {
            *to = *from;
        }
        u64::from_le_bytes(word)
    };
    bytes.chunks(8).map(word).collect::<Vec<u64>>().leak()
}
