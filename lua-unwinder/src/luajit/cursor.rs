//! What one walk keeps between native frames of LuaJIT: for each Lua thread, where its next group of Lua frames begins,
//! and which C frame hosts that.

use core::mem::size_of;
use uunwind_core::plugin::guest::Guest;
use uunwind_core::plugin::SCRATCH_BYTES;

/// Limit of threads whose frames are interleaved in one walk. A thread whose frames are all emitted does not count.
const THREADS: usize = 8;

/// Limit of frames, emitted or skipped, in one walk; a thread's stack holds fewer.
const STEPS: u64 = 1 << 17;

uunwind_core::plain! {
    /// The position of a walk in one thread's frames.
    pub struct Chain {
        /// Process address of the `lua_State`; 0: the entry is free.
        pub thread: u64,
        /// Base of the next frame to be emitted.
        pub base: u64,
        /// Address of the C frame that hosts it.
        pub cframe: u64,
    }
}

uunwind_core::plain! {
    /// The positions of one walk. All bytes zero: nothing was met yet.
    pub struct Cursor {
        chains: [Chain; THREADS],
        /// The interpreter's base register in a leaf function that it called: the base, when the walk comes to the
        /// interpreter's frame.
        pub hint: u64,
        /// Index of the entry that is replaced next when all are used.
        next: u64,
        /// Number of frames so far, for [`STEPS`]. No answer depends on it.
        steps: u64,
    }
}

/// Bytes of the walk's scratch memory that LuaJIT uses; the other family has the rest.
pub const BYTES: usize = size_of::<Cursor>();
/// Bytes at their end on which no answer depends.
pub const STATELESS_BYTES: usize = size_of::<u64>();

impl Cursor {
    /// The cursor in the last bytes of the plugin's scratch memory. `None`: there is none.
    pub fn of<'v>(guest: &Guest<'v>) -> Option<&'v mut Cursor> {
        guest.scratch(SCRATCH_BYTES - BYTES)
    }

    /// The position in a thread's frames, if the walk has met it before and frames are left.
    pub fn find(&mut self, thread: u64) -> Option<&mut Chain> {
        self.chains.iter_mut().find(|chain| chain.thread == thread)
    }

    /// Adds a thread's position. When all entries are used, the oldest is replaced.
    pub fn begin(&mut self, chain: Chain) {
        let free = self.chains.iter().position(|chain| chain.thread == 0);
        let index = free.unwrap_or((self.next as usize) % THREADS);
        self.next = self.next.wrapping_add(u64::from(free.is_none()));
        if let Some(place) = self.chains.get_mut(index) {
            *place = chain;
        }
    }

    /// Removes a thread's position.
    pub fn end(&mut self, thread: u64) {
        for chain in self.chains.iter_mut().filter(|chain| chain.thread == thread) {
            chain.thread = 0;
        }
    }

    /// Counts frames. False: the walk has reached its limit.
    pub fn step(&mut self, steps: u64) -> bool {
        self.steps = self.steps.saturating_add(steps);
        self.steps < STEPS
    }
}
