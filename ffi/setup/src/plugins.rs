//! Opens plugins in this process and installs them in libuunwind: uu's own from the folder beside this object, and
//! those that the environment lists.

use crate::state::{Installed, State};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicPtr, Ordering};
use uunwind_built_in::HALVES;
use uunwind_core::library::Library;
use uunwind_core::plugin::{padded, Entry};
use uunwind_elf::{FileId, Image};
use uunwind_loader::{files_in, open, Plugin, ENV_PLUGINS, MOST};

/// A plugin that is open in this process.
pub struct Opened {
    file: PathBuf,
    plugin: Plugin,
    entry: Entry,
}

/// Opens the plugins that are not installed yet. One that cannot be used is left out, and looked for again by the next
/// call.
pub fn open_new(state: &State, files: &[PathBuf]) -> Vec<Opened> {
    let files = files.iter().filter(|file| !state.opened.contains(*file));
    files
        .filter_map(|file| {
            let opened = open(file, HALVES).ok()?;
            Some(Opened { file: file.clone(), plugin: opened.plugin, entry: opened.entry })
        })
        .collect()
}

/// The folder of uu's own, then the files and folders of the environment, in the order in which an object is offered to
/// them.
fn places() -> Vec<PathBuf> {
    let mut places: Vec<PathBuf> = folder().map(|folder| folder.join("plugins")).into_iter().collect();
    // SAFETY: getauxval has no preconditions.
    if unsafe { libc::getauxval(libc::AT_SECURE) } == 0 {
        let listed = std::env::var_os(ENV_PLUGINS).unwrap_or_default();
        places.extend(std::env::split_paths(&listed).filter(|place| !place.as_os_str().is_empty()));
    }
    places
}

/// [`places`], with what is there: a plugin that is added to a folder, or replaced, changes the folder's times.
pub fn places_now() -> Vec<(PathBuf, Option<FileId>)> {
    let now = |place: PathBuf| {
        let file = std::fs::metadata(&place).ok();
        (place, file.map(|file| FileId::of(&file)))
    };
    places().into_iter().map(now).collect()
}

/// The plugins' files, in the same order.
pub fn files() -> Vec<PathBuf> {
    let own = usize::from(folder().is_some());
    let mut files = Vec::new();
    for (index, place) in places().into_iter().enumerate() {
        let is_folder = index < own || place.is_dir();
        files.extend(if is_folder { files_in(&place).unwrap_or_default() } else { vec![place] });
    }
    files
}

/// Installs a plugin, unless one of this name is installed, or there is no room.
pub fn install(library: &Library, state: &mut State, opened: Opened) {
    let Plugin { name, built_in, .. } = opened.plugin;
    if state.plugins.iter().any(|other| other.name == name) {
        state.opened.insert(opened.file);
        return;
    }
    // SAFETY: libuunwind's function. A recorder may have installed it before.
    let mut index = unsafe { (library.plugin_index)(&padded(&name)) };
    if index == 0 {
        let free = (1..=MOST as u32).find(|index| {
            // SAFETY: libuunwind's function; the entry lies in an object that is never closed.
            unsafe { (library.add_plugin)(*index, opened.entry) == 0 }
        });
        let Some(free) = free else { return };
        index = free;
    }
    state.plugins.push(Installed { name, index, built_in });
    if !built_in {
        state.foreign.push(opened.file.clone());
    }
    state.opened.insert(opened.file);
}

/// This object's file. Only the first call asks the loader, and each call that comes before its answer: a lock would be
/// held for ever in the child of a fork meanwhile.
pub fn own_file() -> Option<&'static Path> {
    static OWN: AtomicPtr<Option<PathBuf>> = AtomicPtr::new(std::ptr::null_mut());
    let mut own = OWN.load(Ordering::Acquire);
    if own.is_null() {
        own = Box::into_raw(Box::new(find_own_file()));
        if let Err(first) = OWN.compare_exchange(std::ptr::null_mut(), own, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: made above, and shown to nobody.
            drop(unsafe { Box::from_raw(own) });
            own = first;
        }
    }
    // SAFETY: not null, and what was stored lives on.
    unsafe { &*own }.as_deref()
}

fn find_own_file() -> Option<PathBuf> {
    let mut info: libc::Dl_info = libc::Dl_info {
        dli_fname: std::ptr::null(),
        dli_fbase: std::ptr::null_mut(),
        dli_sname: std::ptr::null(),
        dli_saddr: std::ptr::null_mut(),
    };
    // SAFETY: an address of this object, and a place for the answer.
    if unsafe { libc::dladdr(find_own_file as *const libc::c_void, &mut info) } == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the loader's string, which lives as long as this object.
    let own = unsafe { std::ffi::CStr::from_ptr(info.dli_fname) };
    Some(PathBuf::from(std::ffi::OsStr::from_bytes(own.to_bytes())))
}

/// The folder of this object.
pub fn folder() -> Option<PathBuf> {
    own_file().and_then(Path::parent).map(Path::to_owned)
}

/// Whether it is the file of this object.
pub fn is_own(image: &Image) -> bool {
    let own = own_file().and_then(|own| std::fs::metadata(own).ok());
    own.zip(image.metadata()).is_some_and(|(own, file)| FileId::of(&own) == FileId::of(&file))
}
