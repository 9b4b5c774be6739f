//! All code of a process: its files, the kernel's own object, and code that no file tells of.

use super::tell::tell;
use crate::exit::Failure;
use std::ffi::OsStr;
use std::fmt::Write;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use uunwind_analyse::unwind::doctor::diagnose;
use uunwind_analyse::unwind::Binary;

/// The vDSO is two pages; a larger one is not read.
const VDSO_LIMIT: u64 = 1 << 20;
/// What the kernel says behind the path of a file without a name.
const DELETED: &[u8] = b" (deleted)";

/// An executable mapping.
struct Mapping {
    start: u64,
    end: u64,
    permissions: String,
    /// A path, a name in brackets, or nothing.
    name: Vec<u8>,
}

/// Tells of every object with executable mappings, in order of addresses, and of every other executable mapping.
pub fn tell_all(pid: u32, most: usize) -> Result<String, Failure> {
    let maps = format!("/proc/{pid}/maps");
    let text = std::fs::read(&maps).map_err(|e| Failure::new(format!("process {pid}: cannot read {maps}: {e}")))?;
    let mappings = executable(&text);
    if mappings.is_empty() {
        return Err(Failure::new(format!("process {pid} has no executable mapping (a kernel thread, or ended)")));
    }
    let mut out = String::new();
    let mut told: Vec<&[u8]> = Vec::new();
    for mapping in &mappings {
        let name = String::from_utf8_lossy(&mapping.name);
        let binary = match &*mapping.name {
            path @ [b'/', ..] => {
                if told.contains(&path) {
                    continue;
                }
                told.push(path);
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
            Ok(diagnosis) => out.push_str(&tell(&name, &diagnosis, most)),
            // Writing to a string cannot fail.
            Err(why) => _ = writeln!(out, "{name}\n  not examined: {why}"),
        }
    }
    Ok(out)
}

/// The executable mappings in `/proc/PID/maps`: `address perms offset dev inode path` (proc(5)); a path may hold blanks.
fn executable(text: &[u8]) -> Vec<Mapping> {
    let mapping = |line: &[u8]| {
        let mut fields = line.splitn(6, |b| *b == b' ');
        let range = std::str::from_utf8(fields.next()?).ok()?;
        let permissions = String::from_utf8_lossy(fields.next()?).into_owned();
        let name = fields.nth(3).map_or(&[][..], <[u8]>::trim_ascii_start).to_vec();
        let (start, end) = range.split_once('-')?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        Some(Mapping { start: number(start)?, end: number(end)?, permissions, name })
    };
    text.split(|b| *b == b'\n').filter_map(mapping).filter(|mapping| mapping.permissions.contains('x')).collect()
}

/// A mapped file, as the process sees it: another root, or a file that has lost its name since.
fn file(pid: u32, mapping: &Mapping) -> Result<Binary, String> {
    let process = Path::new("/proc").join(pid.to_string());
    let path = PathBuf::from(OsStr::from_bytes(&mapping.name));
    let seen = process.join("root").join(path.strip_prefix("/").unwrap_or(&path));
    if !mapping.name.ends_with(DELETED) || seen.exists() {
        return Binary::open(&seen).map_err(|why| why.to_string());
    }
    // The kernel's link leads to files without a name; it needs CAP_CHECKPOINT_RESTORE.
    let link = process.join("map_files").join(format!("{:x}-{:x}", mapping.start, mapping.end));
    Binary::open(&link).map_err(|why| format!("the file was deleted or replaced while the process runs it ({why})"))
}

/// The vDSO lies in memory as a file would on disk.
fn vdso(pid: u32, mapping: &Mapping) -> io::Result<Binary> {
    let len = mapping.end.saturating_sub(mapping.start).min(VDSO_LIMIT);
    let mut bytes = vec![0; len as usize];
    File::open(format!("/proc/{pid}/mem"))?.read_exact_at(&mut bytes, mapping.start)?;
    Ok(Binary { path: "[vdso]".into(), bytes })
}

/// Code in no file: a JIT's, mostly.
fn nameless(mapping: &Mapping) -> String {
    let Mapping { start, end, permissions, name } = mapping;
    let name = if name.is_empty() { "anonymous".into() } else { String::from_utf8_lossy(name) };
    format!(
        "{name} {start:#x}..{end:#x} ({permissions})\n  \
         text           {} bytes in no file: code of a JIT, as a rule\n  \
         chosen         the window that its owner registers (uu_register_window, __register_frame); else a plugin that knows\n  \
         \x20              it (LuaJIT's code); else frame pointers, and marked. What is registered is not seen from outside.\n",
        end.saturating_sub(*start),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executable_mappings_are_told_with_their_names() {
        let text = b"5600-5700 r--p 00000000 08:01 12 /bin/a b\n\
                     5700-5800 r-xp 00000000 08:01 12                 /bin/a b\n\
                     7000-7100 rwxp 00000000 00:00 0 \n\
                     7fff0000-7fff1000 r-xp 00000000 00:00 0          [vdso]\n\
                     nonsense\n";
        let found: Vec<_> = executable(text).into_iter().map(|m| (m.start, m.end, m.permissions, m.name)).collect();
        let expected = [
            (0x5700, 0x5800, "r-xp", "/bin/a b"),
            (0x7000, 0x7100, "rwxp", ""),
            (0x7fff_0000, 0x7fff_1000, "r-xp", "[vdso]"),
        ];
        let expected =
            expected.map(|(start, end, perms, name)| (start, end, perms.to_owned(), name.as_bytes().to_vec()));
        assert_eq!(found, expected);
    }
}
