//! Which kinds of registrations a process has, without reading them.

use super::libgcc::Root;
use super::{windows, Registered};
use crate::memory::Memory;
use uunwind_core::memory::Reader;

impl Registered {
    /// What the process has registered at this moment, in words; `None`: nothing that is found.
    pub fn kind(&self, memory: &Memory) -> Option<&'static str> {
        let mut reader = memory.quiet_reader();
        let roots = self.windows.iter().copied();
        let mut roots = roots.chain(self.unread.iter().filter_map(|at| windows::Root::read(*at, &mut reader)));
        let has_windows = roots.any(|root| root.has_windows(&mut memory.quiet_reader()));
        let has_objects = |head: &u64, reader: &mut Reader<'_>| {
            reader.u32(*head) == Some(1) && reader.word(head.wrapping_add(16)).is_some_and(|first| first != 0)
        };
        let reader = &mut memory.quiet_reader();
        if has_windows {
            Some("windows of uu.h")
        } else if self.gdb.iter().any(|head| has_objects(head, reader)) {
            Some("objects in GDB's JIT interface")
        } else if self.libgcc.iter().any(|root| has_frames(*root, reader)) {
            Some("unwind data with __register_frame")
        } else {
            None
        }
    }
}

/// Whether a list or a tree of libgcc's has an entry. A tree's node: a lock, the number of entries.
fn has_frames(root: Root, reader: &mut Reader<'_>) -> bool {
    let first = reader.word(root.at()).unwrap_or(0);
    first != 0
        && match root {
            Root::List(_) => true,
            Root::Tree(_) => reader.u32(first.wrapping_add(8)).is_some_and(|count| count != 0),
        }
}
