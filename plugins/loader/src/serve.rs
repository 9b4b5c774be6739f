//! The plugin's process: opens one plugin, tells what it is, and analyses files as it is asked to. Whatever the plugin does
//! happens here: it may crash, hang or eat its memory, and uu goes on.

use crate::open::{open, Opened};
use crate::wire::{encode_answer, encode_hello, receive, send, Answer};
use std::ffi::{c_char, c_void, CStr, CString, OsStr};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use uunwind_analyse::elf::Image;
use uunwind_core::plugin::{Analyse, ObjectFile, FACTS_LIMIT};

/// Memory that an analyse half may take, in bytes.
const MEMORY: u64 = 1 << 30;
/// Bytes of a note that are kept.
const NOTE_LIMIT: usize = 1024;

/// Serves the plugin at `path` until standard input ends. Standard input and output are the two ends of [`crate::Server`].
pub fn serve(path: &Path) {
    let Ok(mut out) = private_output() else { return };
    restrict();
    let opened = open(path);
    let hello = encode_hello(&opened.as_ref().map(|o| o.plugin.clone()).map_err(clone_trouble));
    if send(&mut out, &hello).is_err() {
        return;
    }
    let Ok(Opened { analyse: Some(analyse), .. }) = opened else { return };
    let mut input = io::stdin().lock();
    while let Some(file) = receive(&mut input) {
        let answer = answer(analyse, Path::new(OsStr::from_bytes(&file)));
        if send(&mut out, &encode_answer(&answer)).is_err() {
            return;
        }
    }
}

/// `Trouble` holds an `io::Error`, so it is no `Clone`; what travels is.
fn clone_trouble(trouble: &crate::Trouble) -> crate::Trouble {
    match trouble {
        crate::Trouble::NotLoadable(why) => crate::Trouble::NotLoadable(why.clone()),
        crate::Trouble::Unreadable(error) => crate::Trouble::NotLoadable(error.to_string()),
        crate::Trouble::Refused(refusal) => crate::Trouble::Refused(*refusal),
        crate::Trouble::NoEntry => crate::Trouble::NoEntry,
        _ => crate::Trouble::NoName,
    }
}

/// Standard output under another number: what a plugin prints must not get among the answers, and goes to standard error.
fn private_output() -> io::Result<File> {
    // SAFETY: plain system calls on descriptors of this process; the new one is ours alone.
    unsafe {
        let fd = libc::fcntl(1, libc::F_DUPFD_CLOEXEC, 3);
        if fd < 0 || libc::dup2(2, 1) < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(File::from_raw_fd(fd))
    }
}

/// Ends with uu, leaves no core file, and takes no more memory than it may.
fn restrict() {
    let limit = |resource, bytes| {
        let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
        // SAFETY: reads one structure.
        unsafe { libc::setrlimit(resource, &limit) };
    };
    limit(libc::RLIMIT_DATA, MEMORY);
    limit(libc::RLIMIT_CORE, 0);
    // SAFETY: a plain system call.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
}

fn answer(analyse: Analyse, path: &Path) -> Answer {
    let nothing = Answer { outcome: 0, key: 0, facts: Vec::new(), note: String::new() };
    let Ok(image) = Image::open(path) else { return nothing };
    let Ok(Some(file)) = Mapped::open(path) else { return nothing };
    let (key, build_id) = uunwind_analyse::key_of(&image);
    let mut host = Host { image, note: String::new() };
    let c_path = CString::new(path.as_os_str().as_bytes()).unwrap_or_default();
    let object = ObjectFile {
        size: size_of::<ObjectFile>() as u32,
        reserved: 0,
        path: c_path.as_ptr(),
        data: file.base,
        len: file.len,
        build_id: build_id.as_ref().map_or(std::ptr::null(), |id| id.as_ptr()),
        build_id_len: build_id.as_ref().map_or(0, Vec::len),
        host: (&raw mut host).cast(),
        symbol,
        read,
        note,
    };
    let mut facts = vec![0; FACTS_LIMIT];
    // SAFETY: the plugin's function, a filled object, and a place of the size that is told. What else it does is its own affair,
    // in a process of its own.
    let outcome = unsafe { analyse(&object, facts.as_mut_ptr(), facts.len()) } as i64;
    facts.truncate(usize::try_from(outcome).unwrap_or(0));
    Answer { outcome, key, facts, note: host.note }
}

/// A file, mapped read-only.
struct Mapped {
    base: *const u8,
    len: usize,
}

impl Mapped {
    /// `None` for an empty file.
    fn open(path: &Path) -> io::Result<Option<Mapped>> {
        let file = File::open(path)?;
        let len = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
        if len == 0 {
            return Ok(None);
        }
        // SAFETY: a new mapping at an address of the kernel's choice. The file may change or shrink: only the plugin looks at
        // it, and that it is hostile is said.
        let base =
            unsafe { libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ, libc::MAP_PRIVATE, file.as_raw_fd(), 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Some(Mapped { base: base.cast(), len }))
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: `open` made this mapping.
        unsafe { libc::munmap(self.base.cast_mut().cast(), self.len) };
    }
}

/// What `ObjectFile::host` points to.
struct Host {
    image: Image,
    note: String,
}

unsafe extern "C" fn symbol(host: *mut c_void, name: *const c_char, address: *mut u64, size: *mut u64) -> bool {
    // SAFETY: the plugin passes back `ObjectFile::host` and a NUL-terminated name.
    let (host, name) = unsafe { (&*host.cast::<Host>(), CStr::from_ptr(name)) };
    let Some((at, bytes)) = name.to_str().ok().and_then(|name| host.image.any_symbol(name)) else { return false };
    // SAFETY: the plugin passes two places.
    unsafe {
        address.write(at);
        size.write(bytes);
    }
    true
}

unsafe extern "C" fn read(host: *mut c_void, address: u64, out: *mut u8, len: usize) -> bool {
    // SAFETY: as above; the plugin passes a place for `len` bytes.
    let (host, out) = unsafe { (&*host.cast::<Host>(), std::slice::from_raw_parts_mut(out, len)) };
    host.image.read_address(address, out)
}

unsafe extern "C" fn note(host: *mut c_void, text: *const c_char) {
    // SAFETY: as above.
    let (host, text) = unsafe { (&mut *host.cast::<Host>(), CStr::from_ptr(text)) };
    let text = text.to_bytes();
    let text = String::from_utf8_lossy(text.get(..NOTE_LIMIT).unwrap_or(text));
    host.note = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
}
