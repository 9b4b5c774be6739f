//! All code of a process: its files, the vDSO, and code that lies in no file.

use super::describe::describe;
use crate::exit::Failure;
use std::ffi::OsStr;
use std::fmt::Write;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use uunwind_doctor::doctor::diagnose;
use uunwind_doctor::Binary;
use uunwind_elf::maps::{self, Mapping};
use uunwind_elf::process;

/// Size limit of the vDSO, in bytes: it is two pages long.
const VDSO_LIMIT: u64 = 1 << 20;
/// The suffix that the kernel appends to the path of a file without a name.
const DELETED: &[u8] = b" (deleted)";

/// Describes every object with executable mappings, in order of addresses, and every other executable mapping.
pub fn describe_all(pid: u32, most: usize) -> Result<String, Failure> {
    let unreadable = |e| Failure::new(format!("process {pid}: cannot read what it has mapped: {e}"));
    let mappings: Vec<Mapping> = maps::of(pid).map_err(unreadable)?.filter(Mapping::is_executable).collect();
    if mappings.is_empty() {
        return Err(Failure::new(format!("process {pid} has no executable mapping (a kernel thread, or ended)")));
    }
    let mut out = String::new();
    let mut described: Vec<&[u8]> = Vec::new();
    for mapping in &mappings {
        let name = String::from_utf8_lossy(&mapping.name);
        let binary = match &*mapping.name {
            path @ [b'/', ..] => {
                if described.contains(&path) {
                    continue;
                }
                described.push(path);
                file(pid, mapping)
            }
            b"[vdso]" => vdso(pid, mapping).map_err(|e| format!("process {pid}: cannot read its memory: {e}")),
            b"[vsyscall]" => Err("three system calls that the kernel carries out itself; no walk begins there".into()),
            _ => {
                out.push_str(&nameless(mapping));
                continue;
            }
        };
        match binary.and_then(|binary| diagnose(&binary).map_err(|why| why.to_string())) {
            Ok(diagnosis) => out.push_str(&describe(&name, &diagnosis, most)),
            // Writing to a string cannot fail.
            Err(why) => _ = writeln!(out, "{name}\n  not examined: {why}"),
        }
    }
    Ok(out)
}

/// A mapped file, found through the process: it may have another root, or the file may have lost its name since.
fn file(pid: u32, mapping: &Mapping) -> Result<Binary, String> {
    let path = PathBuf::from(OsStr::from_bytes(&mapping.name));
    let seen = process::file(pid, "root").join(path.strip_prefix("/").unwrap_or(&path));
    if !mapping.name.ends_with(DELETED) || seen.exists() {
        return Binary::open(&seen).map_err(|why| why.to_string());
    }
    // The kernel's link leads to files without a name as well; it needs CAP_CHECKPOINT_RESTORE.
    let link = process::mapped_file(pid, mapping.start, mapping.end);
    Binary::open(&link).map_err(|why| format!("the file was deleted or replaced while the process runs it ({why})"))
}

/// The vDSO, which lies in memory as an ELF file lies on disk.
fn vdso(pid: u32, mapping: &Mapping) -> io::Result<Binary> {
    let len = mapping.end.saturating_sub(mapping.start).min(VDSO_LIMIT);
    let mut bytes = vec![0; len as usize];
    File::open(process::file(pid, "mem"))?.read_exact_at(&mut bytes, mapping.start)?;
    Ok(Binary { path: "[vdso]".into(), bytes })
}

/// Describes code in no file, in most cases a JIT's.
fn nameless(mapping: &Mapping) -> String {
    let Mapping { start, end, permissions, name, .. } = mapping;
    let name = if name.is_empty() { "anonymous".into() } else { String::from_utf8_lossy(name) };
    format!(
        "{name} {start:#x}..{end:#x} ({permissions})\n  \
         text           {} bytes in no file: code of a JIT, as a rule\n  \
         chosen         the window that its owner registers (uu_register_window, __register_frame); else a plugin that knows\n  \
         \x20              it (LuaJIT's code); else frame pointers, and marked. What is registered is not seen from outside.\n",
        end.saturating_sub(*start),
    )
}
