//! The plugin of many faces (`targets/native/faces.c`): `UU_FACE` says how it misbehaves.

use crate::{compile, paths};
use std::path::{Path, PathBuf};

fn plugin(dir: &Path, name: &str, more: &[&str]) -> PathBuf {
    let include = format!("-I{}", paths::root().join("ffi/include").display());
    let options = [&["-shared", "-fPIC", "-Wl,-z,now", "-Werror", &include], more].concat();
    compile::gcc(dir, name, &["native/faces.c"], &options)
}

/// The plugin that misbehaves.
pub fn bad(dir: &Path) -> PathBuf {
    plugin(dir, "bad.so", &[])
}

/// The plugin that behaves.
pub fn good(dir: &Path) -> PathBuf {
    plugin(dir, "good.so", &["-DGOOD"])
}

/// The library that the misbehaving plugin claims.
pub fn library(dir: &Path) -> PathBuf {
    compile::gcc(dir, "libfaces.so", &["native/faces_host.c"], &["-shared", "-fPIC", "-DLIBRARY"])
}

/// The linker's option that makes a program claimed by the misbehaving plugin.
pub const CLAIMED: &str = "-Wl,--defsym=faces_bad_mark=main";

/// The same, for the plugin that behaves.
pub const CLAIMED_BY_GOOD: &str = "-Wl,--defsym=faces_good_mark=main";
