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
//! follow   the thread that does all this again when something new was loaded
//!
//! symbolize  frames to functions, files and lines
//! mapped     objects as they are mapped
//! list       the answer, as a C program gets it
//! ```

pub mod facts;
mod follow;
pub mod kept;
mod list;
mod mapped;
mod plugins;
mod state;
mod symbolize;

use findshlibs::{SharedLibrary, TargetSharedLibrary};
use state::{FileId, Settled, State};
use std::path::PathBuf;
use uunwind_core::errno::{Errno, EEXIST, ENOEXEC, ENOMEM};
use uunwind_core::library::{Library, BUILD, BY_ITSELF};
use uunwind_elf::Image;
use uunwind_tables_build::Cache;

/// The loader's name of the vDSO.
const VDSO: &str = "linux-vdso.so.1";

/// As `uu_setup_with()` of `uu.h`.
///
/// # Safety
/// `library` must be a libuunwind's table of functions, which is never unloaded.
#[no_mangle]
pub unsafe extern "C" fn uu_setup_process(library: *const Library, flags: u32) -> i32 {
    // SAFETY: the caller passes its table; size and build are checked before anything else is read.
    let library: &'static Library = unsafe { &*library };
    if library.size as usize != size_of::<Library>() || library.build != BUILD {
        return -ENOEXEC;
    }
    let tables = prepare(library);
    if flags & BY_ITSELF == 0 || tables < 0 {
        return tables;
    }
    follow::begin(library).map_or_else(|error| -error, |()| tables)
}

/// Gives libuunwind the plugins that are there, a table for every loaded object that has unwind information, and each
/// object's owner and facts. Returns how many objects have a table now, or a negative errno.
fn prepare(library: &Library) -> i32 {
    // All that calls the loader comes before the lock (`state::change`).
    let state = state::current();
    let places = plugins::places_now();
    let settled = |loads| Settled { loads, plugins: places.clone() };
    if state.settled.is_some() && state.settled == state::loads().map(settled) {
        return count(&state);
    }
    let files = plugins::files();
    let plugins = plugins::open_new(&state, &files);
    // Before the objects are listed: one that is loaded meanwhile changes the counts.
    let loads = state::loads();
    let (objects, all_have_files) = loaded();
    state::change(|state| {
        let mut all_done = all_have_files;
        state.settled = None;
        for plugin in plugins {
            plugins::install(library, state, plugin);
        }
        let cache = Cache::of_user();
        let (store, mut analysts) = (kept::Store::of_user(state), facts::Analysts::default());
        for (path, id) in objects {
            if state.done.contains(&id) {
                continue;
            }
            let Ok(image) = Image::open(&path) else {
                all_done = false;
                continue;
            };
            let key = uunwind_elf::key_of(&image).0;
            let answered = facts::add(library, state, &store, &image, key, &mut analysts)?;
            // Walks that interrupt a set-up meet this object, and no others: its rules are read in place.
            if !plugins::is_own(&image) && !state.tables.contains(&key) && add_table(library, &cache, &image, key)? {
                state.tables.insert(key);
            }
            // Of the file that was read, whatever is at its path now.
            let id = image.metadata().filter(|_| answered).map(|file| FileId::of(&file));
            all_done &= id.is_some();
            state.done.extend(id);
        }
        all_done &= files.iter().all(|file| state.opened.contains(file));
        state.settled = loads.filter(|_| all_done).map(settled);
        Ok(count(state))
    })
    .unwrap_or_else(|error: Errno| -error)
}

fn count(state: &State) -> i32 {
    i32::try_from(state.tables.len()).unwrap_or(i32::MAX)
}

/// The loaded objects that have a file, and whether that is all of them but the vDSO, which has none.
fn loaded() -> (Vec<(PathBuf, FileId)>, bool) {
    let mut objects = Vec::new();
    TargetSharedLibrary::each(|object| objects.push(PathBuf::from(object.name())));
    objects.retain(|path| !path.starts_with(VDSO));
    let all = objects.len();
    let with_id = |path: PathBuf| std::fs::metadata(&path).ok().map(|file| (path, FileId::of(&file)));
    let objects: Vec<_> = objects.into_iter().filter_map(with_id).collect();
    let all_have_files = objects.len() == all;
    (objects, all_have_files)
}

/// False: the object has no unwind information.
fn add_table(library: &Library, cache: &Cache, image: &Image, key: u64) -> Result<bool, Errno> {
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
