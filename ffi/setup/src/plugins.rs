//! Opens plugins in this process and installs them in libuunwind: uu's own from the folder beside this object, and
//! those that the environment lists.

use crate::state::{Installed, State};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use uunwind_built_in::HALVES;
use uunwind_core::library::Library;
use uunwind_core::plugin::padded;
use uunwind_loader::{files_in, open, ENV_PLUGINS, MOST};

/// Opens and installs all plugins. One that cannot be used is left out.
pub fn open_all(library: &Library, state: &mut State) {
    state.plugins_are_open = true;
    let own = folder().map(|folder| folder.join("plugins"));
    let own: Vec<PathBuf> = own.and_then(|own| files_in(&own).ok()).unwrap_or_default();
    for path in &own {
        install(library, state, path);
    }
    // SAFETY: getauxval has no preconditions.
    if unsafe { libc::getauxval(libc::AT_SECURE) } != 0 {
        return;
    }
    for listed in std::env::split_paths(&std::env::var_os(ENV_PLUGINS).unwrap_or_default()) {
        let files = if listed.is_dir() { files_in(&listed).unwrap_or_default() } else { vec![listed] };
        for path in files {
            if install(library, state, &path) {
                state.foreign.push(path);
            }
        }
    }
}

/// False: it cannot be used, or was there before.
fn install(library: &Library, state: &mut State, path: &Path) -> bool {
    let Ok(opened) = open(path, HALVES) else { return false };
    let name = opened.plugin.name;
    if state.plugins.iter().any(|other| other.name == name) {
        return false;
    }
    // SAFETY: libuunwind's function. A recorder may have installed it before.
    let mut index = unsafe { (library.plugin_index)(&padded(&name)) };
    if index == 0 {
        let free = (1..=MOST as u32).find(|index| {
            // SAFETY: libuunwind's function; the entry lies in an object that is never closed.
            unsafe { (library.add_plugin)(*index, opened.entry) == 0 }
        });
        index = free.unwrap_or(0);
    }
    if index != 0 {
        state.plugins.push(Installed { name, index });
    }
    index != 0
}

/// The folder of this object.
pub fn folder() -> Option<PathBuf> {
    let mut info: libc::Dl_info = libc::Dl_info {
        dli_fname: std::ptr::null(),
        dli_fbase: std::ptr::null_mut(),
        dli_sname: std::ptr::null(),
        dli_saddr: std::ptr::null_mut(),
    };
    // SAFETY: an address of this object, and a place for the answer.
    if unsafe { libc::dladdr(folder as *const libc::c_void, &mut info) } == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the loader's string, which lives as long as this object.
    let own = unsafe { std::ffi::CStr::from_ptr(info.dli_fname) };
    Path::new(std::ffi::OsStr::from_bytes(own.to_bytes())).parent().map(Path::to_owned)
}
