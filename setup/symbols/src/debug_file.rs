//! Separate debug files: what strip(1) has taken out of a file, found where debuggers look for it
//! ([Separate Debug Files](https://sourceware.org/gdb/current/onlinedocs/gdb.html/Separate-Debug-Files.html)): by
//! build-id, by the link in `.gnu_debuglink`, and by debuginfod's client if a server is set. One that does not belong
//! to the file is not used. Any bytes may be passed.

use crate::{hex, Elf};
use flate2::Crc;
use object::Object;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use uunwind_clock::Instant;
use uunwind_elf::blocks::Blocks;
use uunwind_elf::files;

/// The folder of debug files.
pub const ROOT: &str = "/usr/lib/debug";
/// Most bytes of which a checksum is computed.
const LIMIT: u64 = 1 << 30;
/// Longest time for debuginfod's client, which may load the file from a server.
const PATIENCE: Duration = Duration::from_secs(30);

/// The debug file of an ELF file, if there is one on this machine. `folders`: searched before the system's.
pub fn find(path: &Path, real: &Path, build_id: &[u8], folders: &[PathBuf]) -> Option<PathBuf> {
    let mut roots = folders.iter().map(PathBuf::as_path).chain([Path::new(ROOT)]);
    roots.find_map(|root| find_in(root, path, real, build_id))
}

/// The same under another folder. `real`: where the file lies, if `path` is a descriptor.
fn find_in(root: &Path, path: &Path, real: &Path, build_id: &[u8]) -> Option<PathBuf> {
    let by_id = by_build_id(root, build_id).filter(|file| has_id(file, build_id));
    by_id.or_else(|| {
        let (name, crc) = link(path)?;
        let folder = real.parent()?;
        let below_root = root.join(folder.strip_prefix("/").unwrap_or(folder)).join(&name);
        let mut candidates = [folder.join(&name), folder.join(".debug").join(&name), below_root].into_iter();
        // A file that has an identity must have the same; otherwise, its checksum decides.
        let belongs = |file: &PathBuf| match build_id {
            [] => checksum(file) == Some(crc),
            _ => has_id(file, build_id),
        };
        candidates.find(|file| file != real && belongs(file))
    })
}

/// The path of a debug file below a folder of such files.
pub fn by_build_id(root: &Path, build_id: &[u8]) -> Option<PathBuf> {
    let (first, rest) = build_id.split_first().filter(|(_, rest)| !rest.is_empty())?;
    Some(root.join(".build-id").join(hex(&[*first])).join(format!("{}.debug", hex(rest))))
}

/// Whether a file has this build-id: the section's, for a debug file's segments may lie anywhere.
pub fn has_id(path: &Path, build_id: &[u8]) -> bool {
    let Ok(file) = files::open(path) else { return false };
    let cache = Blocks::new(file);
    let Ok(elf) = object::File::parse(&cache) else { return false };
    let found = elf.build_id().ok().flatten().map(<[u8]>::to_vec);
    found.or_else(|| Elf::read(path).ok().map(|elf| elf.build_id)).is_some_and(|found| found == build_id)
}

/// The file name and checksum in `.gnu_debuglink`. A name with a path would lead elsewhere.
fn link(path: &Path) -> Option<(PathBuf, u32)> {
    let cache = Blocks::new(files::open(path).ok()?);
    let elf = object::File::parse(&cache).ok()?;
    let (name, crc) = elf.gnu_debuglink().ok()??;
    let name =
        std::str::from_utf8(name).ok().filter(|name| !name.is_empty() && !name.contains('/') && *name != "..")?;
    Some((PathBuf::from(name), crc))
}

/// CRC-32 (IEEE) over a whole file.
fn checksum(path: &Path) -> Option<u32> {
    let mut file: File = files::open(path).ok().filter(|file| file.metadata().is_ok_and(|m| m.len() <= LIMIT))?;
    let (mut crc, mut part) = (Crc::new(), vec![0; 1 << 20]);
    loop {
        match file.read(&mut part).ok()? {
            0 => return Some(crc.sum()),
            read => crc.update(part.get(..read)?),
        }
    }
}

/// The debug file that debuginfod's client finds, if the user has set a server
/// ([debuginfod-find(1)](https://man7.org/linux/man-pages/man1/debuginfod-find.1.html)).
pub fn ask_server(build_id: &[u8]) -> Option<PathBuf> {
    let is_set = std::env::var_os("DEBUGINFOD_URLS").is_some_and(|urls| !urls.is_empty());
    if !is_set || build_id.is_empty() || IS_SILENT.load(Ordering::Relaxed) {
        return None;
    }
    let begun = Instant::now();
    let found = ask(Path::new("debuginfod-find"), build_id, PATIENCE);
    if found.is_none() && begun.elapsed() >= PATIENCE {
        IS_SILENT.store(true, Ordering::Relaxed);
    }
    found
}

/// The server did not answer in time, and is not asked again by this process: each object would wait as long.
static IS_SILENT: AtomicBool = AtomicBool::new(false);

fn ask(client: &Path, build_id: &[u8], patience: Duration) -> Option<PathBuf> {
    let mut client = Command::new(client);
    client.arg("debuginfo").arg(hex(build_id)).env_remove("DEBUGINFOD_PROGRESS").env_remove("DEBUGINFOD_VERBOSE");
    let mut child = client.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?;
    let begun = Instant::now();
    while child.try_wait().ok()?.is_none() {
        if begun.elapsed() >= patience {
            let _ = child.kill();
            let _ = child.wait();
            return None;
        }
        uunwind_clock::sleep(Duration::from_millis(5));
    }
    // A path is shorter than what a pipe holds.
    let mut said = String::new();
    child.stdout.take()?.take(1 << 16).read_to_string(&mut said).ok()?;
    let path = PathBuf::from(said.trim_end());
    has_id(&path, build_id).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{run, SOURCE};

    /// A stripped program and its debug file, beside it; with a build-id or without.
    fn stripped(test: &str, id: &str, debug: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("uu-debug-{test}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(folder.join(".debug")).expect("a folder");
        std::fs::write(folder.join("a.c"), SOURCE).expect("a source");
        run(
            &folder,
            &format!(
                "gcc {debug} -O1 -Wl,--build-id={id} -o a a.c; nm a | grep ' hidden$' >nm; objcopy --only-keep-debug a a.debug; \
                 strip a; objcopy --add-gnu-debuglink=a.debug a"
            ),
        );
        folder
    }

    fn found(folder: &Path) -> Option<PathBuf> {
        let program = folder.join("a");
        let id = Elf::read(&program).expect("ELF").build_id;
        find_in(&folder.join("root"), &program, &program, &id)
    }

    #[test]
    fn files_are_found_where_debuggers_look() {
        for id in ["sha1", "none"] {
            let folder = stripped(&format!("places-{id}"), id, "-g");
            let beside = folder.join("a.debug");
            assert_eq!(found(&folder), Some(beside.clone()), "beside");
            let below = folder.join("root").join(folder.strip_prefix("/").expect("absolute"));
            std::fs::create_dir_all(&below).expect("a folder");
            for place in [folder.join(".debug/a.debug"), below.join("a.debug")] {
                std::fs::rename(&beside, &place).expect("moved");
                assert_eq!(found(&folder), Some(place.clone()));
                std::fs::rename(&place, &beside).expect("moved back");
            }
            // Another program's file is none.
            std::fs::write(folder.join("a.c"), "int main(void) { return 3; }").expect("a source");
            run(&folder, &format!("gcc -g -Wl,--build-id={id} -o b a.c; objcopy --only-keep-debug b a.debug"));
            assert_eq!(found(&folder), None, "{id}: of another program");
            std::fs::write(&beside, "no ELF file").expect("a file");
            assert_eq!(found(&folder), None, "{id}: no ELF file");
            std::fs::remove_dir_all(&folder).expect("removed");
        }
    }

    #[test]
    fn a_build_id_leads_to_a_file_that_has_it() {
        let folder = stripped("id", "sha1", "-g");
        let id = Elf::read(&folder.join("a")).expect("ELF").build_id;
        let place = by_build_id(&folder.join("root"), &id).expect("a path");
        std::fs::create_dir_all(place.parent().expect("a folder")).expect("a folder");
        std::fs::rename(folder.join("a.debug"), &place).expect("moved");
        assert_eq!(found(&folder), Some(place.clone()));
        let other = by_build_id(&folder.join("root"), &[id[0], 1, 2]).expect("a path");
        std::fs::rename(&place, &other).expect("moved");
        assert_eq!(find_in(&folder.join("root"), &folder.join("a"), &folder.join("a"), &[id[0], 1, 2]), None);
        std::fs::remove_dir_all(&folder).expect("removed");
    }

    #[test]
    fn a_client_is_asked_and_not_believed() {
        let folder = stripped("client", "sha1", "-g");
        let id = Elf::read(&folder.join("a")).expect("ELF").build_id;
        let asked = |script: &str| {
            let client = folder.join("client");
            run(&folder, &format!("printf '#!/bin/sh\n{script}\n' >client; chmod 755 client"));
            ask(&client, &id, Duration::from_secs(2))
        };
        let debug = folder.join("a.debug");
        assert_eq!(
            asked(&format!("test \"$*\" = \"debuginfo {}\" && echo {}", hex(&id), debug.display())),
            Some(debug.clone())
        );
        assert_eq!(asked(&format!("echo {}", folder.join("a.c").display())), None);
        assert_eq!(asked("exit 2"), None);
        let begun = Instant::now();
        assert_eq!(asked("exec sleep 100"), None);
        assert!(begun.elapsed() < Duration::from_secs(50));
        std::fs::remove_dir_all(&folder).expect("removed");
    }

    /// A file without a link, as distributions ship it with its debug file in another package. nm is the oracle.
    #[test]
    fn the_debug_files_of_this_machine_are_found() {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
        let libc =
            maps.lines().find_map(|line| line.split(' ').next_back().filter(|path| path.ends_with("/libc.so.6")));
        let libc = Path::new(libc.expect("the C library"));
        let id = Elf::read(libc).expect("ELF").build_id;
        let Some(debug) = by_build_id(Path::new(ROOT), &id).filter(|path| path.exists()) else {
            uunwind_skips::skipped("debug files of this machine", "it has none of the C library");
            return;
        };
        let folder = std::env::temp_dir().join(format!("uu-debug-libc-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        run(&folder, &format!("objcopy --remove-section=.gnu_debuglink {} libc.so.6", libc.display()));
        let nm = Command::new("nm").arg(&debug).output().expect("nm").stdout;
        let nm = String::from_utf8_lossy(&nm).into_owned();
        // A function without a name in the dynamic table.
        let line = nm.lines().find(|line| line.ends_with(" t _int_malloc")).expect("a local function");
        let address = u64::from_str_radix(line.split(' ').next().expect("an address"), 16).expect("hexadecimal");
        let files = [folder.join("libc.so.6")];
        let mapped = crate::Mapped { build_id: &id, headers_key: 0, files: &files, folders: &[] };
        let answer = crate::look_up(&mapped, &[address], &[]).expect("an answer");
        let symbol = answer.symbols.first().expect("a symbol");
        assert!(symbol.name == "_int_malloc" && symbol.file.ends_with("malloc.c") && symbol.line > 0, "{symbol:?}");
        std::fs::remove_dir_all(&folder).expect("removed");
    }

    /// nm, before the program was stripped, is the oracle. A debug file may have symbols without lines.
    #[test]
    fn a_stripped_function_gets_its_name_and_line() {
        for (debug, line) in [("-g", 1), ("-g0", 0)] {
            let folder = stripped(&format!("named{debug}"), "sha1", debug);
            let nm = std::fs::read_to_string(folder.join("nm")).expect("nm");
            let address = u64::from_str_radix(nm.split(' ').next().expect("an address"), 16).expect("hexadecimal");
            let program = folder.join("a");
            let id = Elf::read(&program).expect("ELF").build_id;
            let files = [program];
            let mapped = crate::Mapped { build_id: &id, headers_key: 0, files: &files, folders: &[] };
            let named = || {
                let answer = crate::look_up(&mapped, &[address], &[]).expect("an answer");
                let symbol = answer.symbols.first().expect("a symbol").clone();
                (symbol.name, symbol.line)
            };
            assert_eq!(named(), ("hidden".to_owned(), line), "{debug}");
            std::fs::remove_file(folder.join("a.debug")).expect("removed");
            assert_eq!(named(), (String::new(), 0), "{debug}");
            std::fs::remove_dir_all(&folder).expect("removed");
        }
    }
}
