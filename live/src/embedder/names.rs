//! Names of an embedder's functions (`uu_intern`): copied once and never freed, because earlier samples refer to them.

use core::ffi::c_char;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use uunwind_core::registry::lock::Lock;
use uunwind_core::syscall;

/// Limit of a text in bytes: one more than a description may have, so that who cuts it there knows that it was longer.
const TEXT: usize = uunwind_core::plugin::TEXT_LIMIT as usize + 1;
/// Number of names in a chunk, and limit of the number of chunks.
const CHUNK: usize = 4096;
const CHUNKS: usize = 256;
/// Number of hash lists.
const LISTS: usize = 1 << 14;
/// Bytes of memory that are mapped at once for texts.
const ARENA: usize = 256 * 1024;

/// A name. It does not change after its id was returned.
#[repr(C)]
pub struct Name {
    /// The function's name: process address and length in bytes.
    pub function: (u64, u32),
    /// The file's name: process address and length in bytes.
    pub file: (u64, u32),
    /// Line on which the function begins.
    pub first_line: u32,
    /// Id of the next name in the hash list; 0: the last.
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

/// A table of names. Ids count from 1.
pub struct Names {
    lock: Lock,
    /// Number of names. Stored (release) after the name.
    count: AtomicU32,
    chunks: [AtomicPtr<Name>; CHUNKS],
    /// Id of the first name of each hash list; 0: the list is empty.
    lists: [AtomicU32; LISTS],
    /// Address of the next text, and the end of the memory for texts.
    arena: (AtomicU64, AtomicU64),
}

/// The bytes of a C string, at most `TEXT`; of a null pointer, none.
///
/// # Safety
/// Null, or NUL-terminated and unchanged while the result is used.
pub unsafe fn text<'a>(text: *const c_char) -> &'a [u8] {
    if text.is_null() {
        return &[];
    }
    let text = text.cast::<u8>();
    // SAFETY: bytes are read one after the other, up to the NUL.
    let len = (0..TEXT).find(|at| unsafe { text.add(*at).read() } == 0).unwrap_or(TEXT);
    // SAFETY: all `len` bytes were read just now.
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
        // SAFETY: a chunk has CHUNK names and is never unmapped, and this name was written before `count`.
        Some(unsafe { &*chunk.add(index % CHUNK) })
    }

    /// The id of this name, which never changes; 0: no room. Not for handlers.
    pub fn intern(&self, function: &[u8], file: &[u8], first_line: u32) -> u32 {
        self.lock.with(|| self.find_or_add(function, file, first_line)).flatten().unwrap_or(0)
    }

    fn find_or_add(&self, function: &[u8], file: &[u8], first_line: u32) -> Option<u32> {
        let list = self.lists.get(hash(function, file, first_line) as usize % LISTS)?;
        let first = list.load(Ordering::Relaxed);
        let mut id = first;
        for _ in 0..CHUNK * CHUNKS {
            let Some(name) = self.get(id) else { break };
            // SAFETY: texts of names are never freed, and were written before `count`.
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
        // SAFETY: inside the chunk, at an index that no reader uses before `count` includes it.
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
        // SAFETY: the arena has room for the text, and this part of it was never given out.
        unsafe { core::ptr::copy_nonoverlapping(text.as_ptr(), at as *mut u8, text.len()) };
        next.store(at + text.len() as u64, Ordering::Relaxed);
        Some((at, text.len() as u32))
    }

    /// Releases the lock in the child of a fork. A name that another thread was adding gets no id.
    pub fn after_fork(&self) {
        self.lock.was_lost();
    }
}

/// Whether a stored text equals `text`.
///
/// # Safety
/// `len` bytes at `address` must be readable.
unsafe fn is((address, len): (u64, u32), text: &[u8]) -> bool {
    // SAFETY: passed on.
    len as usize == text.len() && unsafe { core::slice::from_raw_parts(address as *const u8, text.len()) } == text
}

/// FNV-1a, folded so that its low bits depend on all of it.
fn hash(function: &[u8], file: &[u8], line: u32) -> u64 {
    let bytes = function.iter().chain(&[0]).chain(file).copied().chain(line.to_le_bytes());
    let hash = uunwind_core::object_key::fnv(uunwind_core::object_key::FNV_START, bytes);
    hash ^ (hash >> 32)
}

/// A new anonymous mapping of `bytes` bytes.
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
        let name = NAMES.get(many).expect("an id that was returned");
        // SAFETY: texts of names are never freed.
        assert!(unsafe { is(name.function, b"function 7777") && is(name.file, b"many.lang") });
        assert_eq!((name.first_line, many), (7777, NAMES.intern(b"function 7777", b"many.lang", 7777)));
        assert!(NAMES.get(0).is_none() && NAMES.get(u32::MAX).is_none());
    }

    #[test]
    fn texts_are_cut_at_the_end() {
        let long = [b'x'; 3000];
        // SAFETY: null, and more bytes than are read.
        assert_eq!(unsafe { (text(core::ptr::null()).len(), text(long.as_ptr().cast()).len()) }, (0, TEXT));
    }
}
