//! Stack ids: a 32-bit number for a stack, the same for equal ones, in memory that is bounded and never freed.

use crate::interned::Interned;

/// At most this number of MiB of stacks.
const MIB: usize = 512;
/// Most words of a stack: what the longest walk writes, rounded up.
pub const WORDS: usize = 16 * 1024;

static STACKS: Interned<18, MIB> = Interned::new();

/// The id of a stack; 0: it is empty, longer than [`WORDS`], or there is no room for it. Async-signal-safe.
pub fn add(frames: &[u64]) -> u32 {
    if frames.is_empty() || frames.len() > WORDS {
        return 0;
    }
    STACKS.add(frames)
}

/// The frames of a stack. `None`: no stack has this id. Async-signal-safe.
pub fn get(id: u32) -> Option<&'static [u64]> {
    STACKS.get(id)
}

/// Number of stacks that found no room.
pub fn lost() -> u64 {
    STACKS.lost()
}
