//! What the targets of languages share: memory of a process and its damage, a walk that calls one plugin, and the names
//! that it has described.

use crate::input::Input;
use uunwind_core::cache::last_walk::LastWalk;
use uunwind_core::cursor::Cursor;
use uunwind_core::memory::Reader;
use uunwind_core::plugin::SCRATCH_BYTES;
use uunwind_core::stop_reason::StopReason;
use uunwind_core::walk::{walk, Env, Setting, SCRATCH};

/// Index of the plugin.
pub const INDEX: u8 = 1;
/// Address of [`Memory`].
pub const BASE: u64 = 0x10_0000;
const UNTOUCHED: u8 = 0xa5;

/// A process's memory, which begins at [`BASE`] and is written to by address. What lies outside is not written.
pub struct Memory(pub Vec<u8>);

impl Memory {
    pub fn new(bytes: usize) -> Memory {
        Memory(vec![0; bytes])
    }

    pub fn put(&mut self, address: u64, bytes: &[u8]) {
        let place = usize::try_from(address.wrapping_sub(BASE)).ok();
        let room = place.and_then(|at| self.0.get_mut(at..at.checked_add(bytes.len())?));
        if let Some(room) = room {
            room.copy_from_slice(bytes);
        }
    }

    pub fn word(&mut self, address: u64, word: u64) {
        self.put(address, &word.to_le_bytes());
    }

    pub fn words(&mut self, address: u64, words: &[u64]) {
        words.iter().enumerate().for_each(|(at, word)| self.word(address + 8 * at as u64, *word));
    }

    pub fn half(&mut self, address: u64, half: u32) {
        self.put(address, &half.to_le_bytes());
    }

    pub fn short(&mut self, address: u64, short: u16) {
        self.put(address, &short.to_le_bytes());
    }
}

/// Damages the memory and the facts as the rest of the input says: 2 bytes offset in the memory and then the facts
/// (modulo their size), 1 byte length, the bytes.
pub fn damage(input: &mut Input<'_>, memory: &mut Memory, facts: &mut [u8]) {
    let bytes = memory.0.len();
    while !input.is_empty() {
        // The offset is reduced, since damage that hits nothing tests nothing.
        let at = usize::from(input.u16()) % (bytes + facts.len());
        let len = usize::from(input.u8());
        let new = input.bytes(len);
        match at.checked_sub(bytes) {
            None => memory.put(BASE + at as u64, new),
            Some(at) => {
                let room = facts.get_mut(at..).unwrap_or_default();
                let fits = room.len().min(new.len());
                room[..fits].copy_from_slice(&new[..fits]);
            }
        }
    }
}

/// Makes these walks one after the other, as a thread does, with the names described so far. Each may replay parts of
/// the previous one, and must emit what it would emit alone.
pub fn compared<W>(
    walks: impl IntoIterator<Item = W>,
    names: &mut Names,
    emit: impl Fn(&W, &mut Names, *mut LastWalk) -> Walked,
) {
    let mut last_walk = Box::new(LastWalk::new());
    for walk in walks {
        let alone = emit(&walk, &mut names.clone(), std::ptr::null_mut());
        let after_another = emit(&walk, names, &raw mut *last_walk);
        assert_eq!(alone, after_another, "alone, and after another walk");
    }
}

#[repr(align(16))]
struct Scratch([u8; SCRATCH]);

/// Code objects with their fingerprints: the id of each is its place, from 1 on.
pub type Names = Vec<(u64, u64)>;

/// The id of a name that was described before; 0: it was not.
pub fn find_name(names: &Names, code: u64, fingerprint: u64) -> u32 {
    names.iter().position(|name| *name == (code, fingerprint)).map_or(0, |index| index as u32 + 1)
}

/// The id of one that is described now.
pub fn add_name(names: &mut Names, code: u64, fingerprint: u64) -> u32 {
    names.push((code, fingerprint));
    names.len() as u32
}

/// How a walk ended, the numbers of its frames and of the doubtful ones; and its words.
pub type Walked = ((StopReason, u32, u32), Vec<u64>);

/// One walk from a leaf, of at most `room` words. `last_walk`: null, or the caller's alone. The facts of the plugin
/// must outlive it.
pub fn walk_once(
    leaf: Cursor,
    env: &mut impl Env,
    reader: &mut Reader<'_>,
    thread_pointer: u64,
    last_walk: *mut LastWalk,
    room: usize,
) -> Walked {
    let mut scratch = Box::new(Scratch([UNTOUCHED; SCRATCH]));
    let setting = Setting { thread_pointer, scratch: scratch.0.as_mut_ptr(), last_walk, ..Setting::EMPTY };
    let mut words = vec![0; room];
    // SAFETY: the scratch memory has SCRATCH bytes; the facts outlive the walk; the last walk is the caller's.
    let outcome = unsafe { walk(leaf, env, reader, &mut words, &setting) };
    let mut parts = scratch.0.chunks(SCRATCH_BYTES).enumerate().filter(|(part, _)| *part != usize::from(INDEX));
    let untouched = parts.all(|(_, bytes)| bytes == [UNTOUCHED; SCRATCH_BYTES]);
    assert!(untouched, "scratch memory of another plugin was written");
    words.truncate(outcome.words);
    ((outcome.stop, outcome.frames, outcome.desync), words)
}
