//! The places of uu's own objects, relative to the `uu` command itself.

use crate::exit::Failure;
use std::path::{Path, PathBuf};

/// The installed objects.
pub struct Layout {
    /// `bin/uu`, this command.
    pub command: PathBuf,
    /// `lib/libuunwind.so.0`.
    pub library: PathBuf,
    /// `lib/uu/libuunwind-preload.so`.
    pub preload: PathBuf,
    /// `lib/uu/libuunwind-alloc.so`.
    pub alloc: PathBuf,
    /// `lib/uu/libuunwind-lock.so`.
    pub lock: PathBuf,
    /// `lib/uu/libuunwind-inject.so`.
    pub inject: PathBuf,
    /// `lib/uu/libuunwind-crash.so`.
    pub crash: PathBuf,
    /// `lib/uu/plugins`.
    pub plugins: PathBuf,
}

/// Checks that /proc shows this process under the pid that it has: everything about a program is read there.
pub fn check_proc() -> Result<(), Failure> {
    let shown =
        std::fs::read_link("/proc/self").map_err(|e| Failure::new(format!("/proc/self cannot be read: {e}")))?;
    let own = std::process::id();
    if shown.as_os_str().to_str() == Some(&own.to_string()) {
        return Ok(());
    }
    Err(Failure::new(format!(
        "/proc belongs to another pid namespace: uu is process {own}, and there it is {}. Mount it anew where uu runs \
         (bwrap --proc /proc, unshare --mount-proc)",
        shown.display()
    )))
}

/// Checks that the kernel's pages have the size for which the layouts of shared memory are made.
pub fn check_pages() -> Result<(), Failure> {
    const PAGE: usize = 4096;
    match rustix::param::page_size() {
        PAGE => Ok(()),
        other => Err(Failure::new(format!(
            "this kernel has pages of {other} bytes, and uu records with pages of {PAGE} bytes only so far. Boot a kernel \
             that has those"
        ))),
    }
}

/// Finds the objects next to this command: `bin/uu` and `lib/` have the same parent. Where systems have libraries of 64
/// bits apart, `lib/` is `lib64/`.
pub fn find() -> Result<Layout, Failure> {
    let exe = std::env::current_exe().map_err(|e| Failure::new(format!("cannot find where uu is installed: {e}")))?;
    let root = exe.parent().and_then(Path::parent).unwrap_or(Path::new("/"));
    let is_there = |lib: &PathBuf| lib.join("libuunwind.so.0").is_file();
    let lib = ["lib", "lib64"].map(|folder| root.join(folder)).into_iter().find(is_there);
    let lib = lib.unwrap_or_else(|| root.join("lib"));
    let layout = Layout {
        command: exe.clone(),
        library: lib.join("libuunwind.so.0"),
        preload: lib.join("uu/libuunwind-preload.so"),
        alloc: lib.join("uu/libuunwind-alloc.so"),
        lock: lib.join("uu/libuunwind-lock.so"),
        inject: lib.join("uu/libuunwind-inject.so"),
        crash: lib.join("uu/libuunwind-crash.so"),
        plugins: lib.join("uu/plugins"),
    };
    for object in [&layout.library, &layout.preload] {
        if !object.is_file() {
            return Err(Failure::new(format!(
                "{} is missing: uu needs it beside {}. Install uu as a whole, or build it with ci/build and run target/uu/bin/uu",
                object.display(),
                exe.display()
            )));
        }
    }
    Ok(layout)
}
