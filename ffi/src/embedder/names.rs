//! What an embedder's frames are called: told once, copied, and never forgotten, because samples of long ago speak of it.

use core::ffi::c_char;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use uunwind_core::registry::lock::Lock;
use uunwind_core::syscall;

/// Bytes of a text that are kept: as many as a recording keeps.
const TEXT: usize = uunwind_core::plugin::TEXT_LIMIT as usize;
/// Names in one chunk, and chunks.
const CHUNK: usize = 4096;
const CHUNKS: usize = 256;
/// Lists of names with the same hash.
const LISTS: usize = 1 << 14;
/// Bytes of memory asked for at once, for texts.
const ARENA: usize = 256 * 1024;

/// A name. Never changed once its id was given out.
#[repr(C)]
pub struct Name {
    /// Address and length of the function's name.
    pub function: (u64, u32),
    /// The same of the file's.
    pub file: (u64, u32),
    /// Line on which the function begins.
    pub first_line: u32,
    /// The next one in its list.
    next: u32,
}

/// The names of the process.
pub static NAMES: Names = Names {
    lock: Lock::new(),
    count: AtomicU32::new(0),
    chunks: [const { AtomicPtr::new(core::ptr::null_mut()) }; CHUNKS],
    lists: [const { AtomicU32::new(0) }; LISTS],
    arena: (AtomicU64::new(0), AtomicU64::new(0)),
};

/// Ids count from 1.
pub struct Names {
    lock: Lock,
    /// Names given out. Published (release) after the name.
    count: AtomicU32,
    chunks: [AtomicPtr<Name>; CHUNKS],
    lists: [AtomicU32; LISTS],
    /// Where the next text goes, and where its memory ends.
    arena: (AtomicU64, AtomicU64),
}

/// The bytes of a C string, at most [`TEXT`]; of a null pointer, none.
///
/// # Safety
/// Null, or NUL-terminated and unchanged while the result is used.
pub unsafe fn text<'a>(text: *const c_char) -> &'a [u8] {
    if text.is_null() {
        return &[];
    }
    let text = text.cast::<u8>();
    // SAFETY: bytes are looked at one after the other, up to the NUL.
    let len = (0..TEXT).find(|at| unsafe { text.add(*at).read() } == 0).unwrap_or(TEXT);
    // SAFETY: as said.
    unsafe { core::slice::from_raw_parts(text, len) }
}

impl Names {
    /// The name with this id. Async-signal-safe.
    pub fn get(&self, id: u32) -> Option<&'static Name> {
        if id == 0 || id > self.count.load(Ordering::Acquire) {
            return None;
        }
        let index = id as usize - 1;
        let chunk = self.chunks.get(index / CHUNK)?.load(Ordering::Acquire);
        if chunk.is_null() {
            return None;
        }
        // SAFETY: a chunk has CHUNK names, is never given back, and this one was written before `count`.
        Some(unsafe { &*chunk.add(index % CHUNK) })
    }

    /// The id of this name, now and for ever; 0: no room. Not for handlers.
    pub fn intern(&self, function: &[u8], file: &[u8], first_line: u32) -> u32 {
        self.lock.with(|| self.find_or_add(function, file, first_line)).flatten().unwrap_or(0)
    }

    fn find_or_add(&self, function: &[u8], file: &[u8], first_line: u32) -> Option<u32> {
        let list = self.lists.get(hash(function, file, first_line) as usize % LISTS)?;
        let first = list.load(Ordering::Relaxed);
        let mut id = first;
        for _ in 0..CHUNK * CHUNKS {
            let Some(name) = self.get(id) else { break };
            // SAFETY: texts of names stay, and were written before `count`.
            if unsafe { is(name.function, function) && is(name.file, file) } && name.first_line == first_line {
                return Some(id);
            }
            id = name.next;
        }
        let index = self.count.load(Ordering::Relaxed) as usize;
        let chunk = self.chunks.get(index / CHUNK)?;
        if chunk.load(Ordering::Relaxed).is_null() {
            chunk.store(map(CHUNK * size_of::<Name>())? as *mut Name, Ordering::Release);
        }
        let name = Name { function: self.keep(function)?, file: self.keep(file)?, first_line, next: first };
        // SAFETY: inside the chunk, at a place that nobody looks at before `count` says so.
        unsafe { chunk.load(Ordering::Relaxed).add(index % CHUNK).write(name) };
        self.count.store(index as u32 + 1, Ordering::Release);
        list.store(index as u32 + 1, Ordering::Release);
        Some(index as u32 + 1)
    }

    /// Copies a text.
    fn keep(&self, text: &[u8]) -> Option<(u64, u32)> {
        let (next, end) = &self.arena;
        if end.load(Ordering::Relaxed).wrapping_sub(next.load(Ordering::Relaxed)) < text.len() as u64 {
            let memory = map(ARENA)?;
            next.store(memory, Ordering::Relaxed);
            end.store(memory + ARENA as u64, Ordering::Relaxed);
        }
        let at = next.load(Ordering::Relaxed);
        // SAFETY: room for a text of at most TEXT bytes, in memory that nobody else knows of.
        unsafe { core::ptr::copy_nonoverlapping(text.as_ptr(), at as *mut u8, text.len()) };
        next.store(at + text.len() as u64, Ordering::Relaxed);
        Some((at, text.len() as u32))
    }

    /// In the child of a fork: what another thread was adding has no id yet, and gets none.
    pub fn after_fork(&self) {
        self.lock.was_lost();
    }
}

/// # Safety
/// `(address, len)` must be readable.
unsafe fn is((address, len): (u64, u32), text: &[u8]) -> bool {
    // SAFETY: passed on.
    len as usize == text.len() && unsafe { core::slice::from_raw_parts(address as *const u8, text.len()) } == text
}

/// FNV-1a.
fn hash(function: &[u8], file: &[u8], line: u32) -> u64 {
    let bytes = function.iter().chain(&[0]).chain(file).copied().chain(line.to_le_bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3));
    hash ^ (hash >> 32)
}

/// Memory of its own.
fn map(bytes: usize) -> Option<u64> {
    use syscall::nr::MMAP;
    const READ_WRITE: usize = 3;
    const PRIVATE_ANONYMOUS: usize = 0x22;
    // SAFETY: a new mapping at an address of the kernel's choice.
    let at = unsafe { syscall::call(MMAP, [0, bytes, READ_WRITE, PRIVATE_ANONYMOUS, usize::MAX, 0]) };
    u64::try_from(at).ok().filter(|at| *at != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_id_for_ever() {
        let first = NAMES.intern(b"f", b"a.lang", 1);
        let others =
            [NAMES.intern(b"f", b"a.lang", 2), NAMES.intern(b"f", b"b.lang", 1), NAMES.intern(b"fa", b".lang", 1)];
        assert!(first != 0 && others.iter().all(|id| *id != 0 && *id != first));
        for number in 0..10_000u32 {
            NAMES.intern(format!("function {number}").as_bytes(), b"many.lang", number);
        }
        assert_eq!(NAMES.intern(b"f", b"a.lang", 1), first);
        let many = NAMES.intern(b"function 7777", b"many.lang", 7777);
        let name = NAMES.get(many).expect("given out");
        // SAFETY: texts of names stay.
        assert!(unsafe { is(name.function, b"function 7777") && is(name.file, b"many.lang") });
        assert_eq!((name.first_line, many), (7777, NAMES.intern(b"function 7777", b"many.lang", 7777)));
        assert!(NAMES.get(0).is_none() && NAMES.get(u32::MAX).is_none());
    }

    #[test]
    fn texts_are_cut_at_the_end() {
        let long = [b'x'; 3000];
        // SAFETY: null, and a string with a NUL behind more bytes than are looked at.
        assert_eq!(unsafe { (text(core::ptr::null()).len(), text(long.as_ptr().cast()).len()) }, (0, TEXT));
    }
}
