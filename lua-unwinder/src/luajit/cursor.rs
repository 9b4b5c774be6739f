//! What one walk remembers between the native frames of LuaJIT that it shows to the plugin: for each Lua thread, where its next
//! group of Lua frames begins, and which C frame that belongs to.

use core::mem::{align_of, size_of};

/// Threads whose frames may be interleaved with each other in one walk. A thread that is told to its end takes no room.
const THREADS: usize = 8;

/// Frames, emitted or skipped, that one walk looks at in all; a thread's stack holds fewer.
const STEPS: u64 = 1 << 17;

/// Where a walk stands in one thread's chain.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Chain {
    /// The `lua_State`; 0 = free.
    pub thread: u64,
    /// Base of the next frame.
    pub base: u64,
    /// The C frame that it belongs to.
    pub cframe: u64,
}

/// All-zero is a fresh cursor.
#[repr(C)]
pub struct Cursor {
    chains: [Chain; THREADS],
    /// What the interpreter's base register held in a leaf function that it called: the base, in the frame that follows.
    pub hint: u64,
    /// Which chain is given up next.
    next: u64,
    /// Steps taken so far: a bound of the work, on which no answer depends.
    steps: u64,
}

/// Bytes of the walk's scratch memory that LuaJIT uses; the other family has the rest.
pub const BYTES: usize = size_of::<Cursor>();
/// Bytes at their end that are no part of the state of a walk.
pub const STATELESS_BYTES: usize = size_of::<u64>();

impl Cursor {
    /// The cursor in the last bytes of the plugin's scratch memory. `None`: there is none.
    ///
    /// # Safety
    /// `scratch` must be null or point to `len` bytes that only this plugin uses during the call, zeroed when it was first
    /// called in the walk.
    pub unsafe fn of<'s>(scratch: *mut u8, len: usize) -> Option<&'s mut Cursor> {
        let at = len.checked_sub(BYTES)?;
        if scratch.is_null() || !(scratch as usize).wrapping_add(at).is_multiple_of(align_of::<Cursor>()) {
            return None;
        }
        // SAFETY: the bytes lie inside the scratch memory, which is aligned (just checked), ours alone, and holds zeroes or a
        // cursor, both valid integers.
        Some(unsafe { &mut *scratch.add(at).cast::<Cursor>() })
    }

    /// The chain of a thread, if it was met before and is not at its end.
    pub fn find(&mut self, thread: u64) -> Option<&mut Chain> {
        self.chains.iter_mut().find(|chain| chain.thread == thread)
    }

    /// Begins a chain. When there is no room, the oldest is given up.
    pub fn begin(&mut self, chain: Chain) {
        let free = self.chains.iter().position(|chain| chain.thread == 0);
        let index = free.unwrap_or((self.next as usize) % THREADS);
        self.next = self.next.wrapping_add(u64::from(free.is_none()));
        if let Some(place) = self.chains.get_mut(index) {
            *place = chain;
        }
    }

    /// The thread has no more frames.
    pub fn end(&mut self, thread: u64) {
        for chain in self.chains.iter_mut().filter(|chain| chain.thread == thread) {
            chain.thread = 0;
        }
    }

    /// Takes so many steps of those that a walk may take. False: there are no more.
    pub fn step(&mut self, steps: u64) -> bool {
        self.steps = self.steps.saturating_add(steps);
        self.steps < STEPS
    }
}
