//! What the targets of languages share: a walk that calls one plugin, and the names that it has described.

use uunwind_core::cache::last_walk::LastWalk;
use uunwind_core::cursor::Cursor;
use uunwind_core::memory::Reader;
use uunwind_core::plugin::SCRATCH_BYTES;
use uunwind_core::stop_reason::StopReason;
use uunwind_core::walk::{walk, Env, Setting, SCRATCH};

/// Index of the plugin.
pub const INDEX: u8 = 1;
const UNTOUCHED: u8 = 0xa5;

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
