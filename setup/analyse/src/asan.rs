//! AddressSanitizer's runtime, which refuses to run when another object is preloaded before it.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The sanitizer's runtime (of gcc or clang) among the objects that a program needs.
pub fn runtime(objects: &[PathBuf]) -> Option<PathBuf> {
    let is_runtime = |path: &&PathBuf| {
        let name = Path::new(path).file_name().map(OsStrExt::as_bytes).unwrap_or_default();
        name.starts_with(b"libasan.so") || name.starts_with(b"libclang_rt.asan")
    };
    objects.iter().find(is_runtime).cloned()
}
