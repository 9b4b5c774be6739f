//! Rules that are looked for in unwind data that a process has registered: what a walk may spend on it, and what it has
//! found. The data may be made to take long, and a list is searched from its beginning.

use crate::memory::Memory;
use std::collections::HashMap;
use uunwind_core::cursor::Cursor;
use uunwind_core::rule::Packed;
use uunwind_core::stop_reason::StopReason;

/// At most this number of reads is made in a walk for such rules: then no more searches begin.
pub const READS: u64 = 1 << 20;

/// The searches of one process's walks.
pub struct Searches {
    /// Reads that are left for this walk.
    pub left: u64,
    /// What this walk has found, by the code's generation, the pc, and whether it is exact: the program stands still.
    found: HashMap<(u64, u64, bool), Option<Packed>>,
    /// Number of frames whose rules were not looked for, since that had cost their walk too much.
    pub refused: u64,
    /// Pc and stack pointer of the last of them in this walk, which may be asked for again.
    last_refused: Option<(u64, u64)>,
}

impl Default for Searches {
    fn default() -> Searches {
        Searches { left: READS, found: HashMap::new(), refused: 0, last_refused: None }
    }
}

impl Searches {
    /// A walk begins.
    pub fn begin_walk(&mut self) {
        *self = Searches { refused: self.refused, ..Searches::default() };
    }

    /// What this walk has found for a frame, or else what a `search` finds. Once they have cost the walk too much,
    /// there is no rule.
    pub fn find(
        &mut self,
        generation: u64,
        cursor: &Cursor,
        memory: &Memory,
        search: impl FnOnce() -> Option<Packed>,
    ) -> Option<Packed> {
        let key = (generation, cursor.regs.pc, cursor.exact);
        if let Some(found) = self.found.get(&key) {
            return *found;
        }
        if self.left == 0 {
            let frame = Some((cursor.regs.pc, cursor.regs.sp()));
            self.refused += u64::from(self.last_refused != frame);
            self.last_refused = frame;
            return Some(Packed::failed(StopReason::NoRule));
        }
        let before = memory.reads_made();
        let rule = search();
        self.left = self.left.saturating_sub(memory.reads_made().wrapping_sub(before));
        self.found.insert(key, rule);
        rule
    }
}
