//! `libuunwind-setup.so`: what the recorder does for the programs that it records, for a program that uses the library
//! by itself.
//!
//! Linked with std, and opened by `uu_setup()` (`uu.h`) only. It reads the files of the loaded objects, and hands
//! libuunwind what walks need: rule tables, plugins, and the facts that the plugins' analyse halves find.
//!
//! ```text
//! state    what this process has been given so far, one immutable value; how it is changed, and what a fork does to it
//! plugins  finds plugins, opens them, and installs them in libuunwind
//! objects  what a loaded object needs: from the caches on disk, or analysed
//! facts    which plugin an object belongs to
//! kept     the cache on disk of what was found of a file
//! forked   what is loaded in the child of a fork, where the loader is not asked
//! follow   the thread that does all this again when something new was loaded
//!
//! symbolize  frames to functions, files and lines
//! mapped     objects as they are mapped
//! list       the answer, as a C program gets it
//! ```

pub mod facts;
mod follow;
mod forked;
pub mod kept;
mod list;
mod mapped;
mod objects;
mod plugins;
mod state;
mod symbolize;

use findshlibs::{SharedLibrary, TargetSharedLibrary};
use state::{Settled, State};
use std::path::PathBuf;
use uunwind_core::errno::{Errno, ENOEXEC};
use uunwind_core::library::{Library, BUILD, BY_ITSELF};
use uunwind_elf::FileId;

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
        let mut finder = objects::Finder::of_user(library, state);
        for (path, id) in objects {
            all_done &= state.done.contains(&id) || finder.give(state, &path, id)?;
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
    if forked::is_child() {
        objects = forked::objects();
    } else {
        TargetSharedLibrary::each(|object| objects.push(PathBuf::from(object.name())));
    }
    objects.retain(|path| !path.starts_with(VDSO));
    let all = objects.len();
    let with_id = |path: PathBuf| std::fs::metadata(&path).ok().map(|file| (path, FileId::of(&file)));
    let objects: Vec<_> = objects.into_iter().filter_map(with_id).collect();
    let all_have_files = objects.len() == all;
    (objects, all_have_files)
}

/// These bytes at a multiple of 8, for ever: a walk may read them at any time.
fn forever(bytes: Vec<u8>) -> &'static [u8] {
    if bytes.as_ptr().addr().is_multiple_of(align_of::<u64>()) {
        return bytes.leak();
    }
    // An allocator that gives bytes no more than their own alignment.
    let mut words = vec![0u64; bytes.len().div_ceil(size_of::<u64>())];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks(size_of::<u64>())) {
        let mut whole = [0; size_of::<u64>()];
        whole[..bytes.len()].copy_from_slice(bytes);
        *word = u64::from_ne_bytes(whole);
    }
    let words: &'static [u64] = words.leak();
    // SAFETY: as many bytes as there are at least.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), bytes.len()) }
}
