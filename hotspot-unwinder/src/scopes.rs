//! Which methods are inlined at an instruction of a compiled method. A table has an entry for each instruction at which
//! HotSpot may look at a frame (`PcDesc`); each leads to a record of the innermost method (`ScopeDesc`), and this to
//! the record of its caller
//! (<https://github.com/openjdk/jdk17u/blob/master/src/hotspot/share/code/scopeDesc.cpp>).

use crate::code::{Blob, Java};
use crate::method::{self, Room};
use crate::numbers::{Numbers, LONGEST};

/// Limit of methods inside each other, of entries in the table, and of a compiled method's metadata.
const DEEPEST: u32 = 64;
const ENTRIES: u64 = 1 << 20;
const METADATA: u32 = 1 << 20;

/// A method, at one of its bytecodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Scope {
    /// Where the caller's record is; 0: there is no caller.
    caller: u32,
    method: u64,
    index: i32,
}

/// The tables of a compiled method.
pub struct Scopes<'j, 'g, 'v> {
    java: &'j Java<'g, 'v>,
    /// The first entry, and the number of them.
    entries: u64,
    count: u64,
    records: u64,
    metadata: u64,
}

impl<'j, 'g, 'v> Scopes<'j, 'g, 'v> {
    /// Of this blob.
    #[inline(never)]
    pub fn of(java: &'j Java<'g, 'v>, blob: &Blob) -> Option<Scopes<'j, 'g, 'v>> {
        let facts = java.facts;
        let place = |place| java.place(blob.address, blob.code, place);
        let (entries, end) = (place(facts.nmethod_pcs)?, place(facts.nmethod_pcs_end)?);
        let count = end.checked_sub(entries)?.checked_div(facts.pc_size.into())?;
        let (records, metadata) = (place(facts.nmethod_scopes)?, place(facts.nmethod_metadata)?);
        (count <= ENTRIES).then_some(Scopes { java, entries, count, records, metadata })
    }

    /// The instruction of an entry: bytes from the start of the code.
    fn offset(&self, index: u64) -> Option<i32> {
        let entry = self.entries.wrapping_add(index.wrapping_mul(self.java.facts.pc_size.into()));
        self.java.half(entry, self.java.facts.pc_offset).map(|offset| offset as i32)
    }

    /// Where the innermost record of an entry is; 0: it has none.
    fn record(&self, index: u64) -> Option<u32> {
        let entry = self.entries.wrapping_add(index.wrapping_mul(self.java.facts.pc_size.into()));
        self.java.half(entry, self.java.facts.pc_scope)
    }

    /// The first entry at this instruction or after it.
    #[inline(never)]
    fn first_from(&self, offset: i32) -> Option<u64> {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low.wrapping_add(high) / 2;
            if self.offset(middle)? < offset {
                low = middle.wrapping_add(1);
            } else {
                high = middle;
            }
        }
        (low < self.count).then_some(low)
    }

    /// The entry of exactly this instruction.
    pub fn exactly(&self, offset: i32) -> Option<u64> {
        let index = self.first_from(offset)?;
        (self.offset(index)? == offset).then_some(index)
    }

    #[inline(never)]
    fn scope(&self, record: u32) -> Option<Scope> {
        let mut bytes = [0; 3 * LONGEST];
        if record == 0 || !self.java.guest.bytes(self.records.wrapping_add(record.into()), &mut bytes) {
            return None;
        }
        let mut numbers = Numbers::new(&bytes, self.java.facts.numbers)?;
        let (caller, method) = (numbers.unsigned()?, numbers.unsigned()?);
        // Counted from `InvocationEntryBci` on.
        let index = (numbers.unsigned()? as i32).wrapping_sub(1);
        let slot = method.checked_sub(1).filter(|slot| *slot < METADATA)?;
        let method = self.java.guest.word(self.metadata.wrapping_add(8 * u64::from(slot)))?;
        Some(Scope { caller, method, index })
    }

    /// The number of records from one on.
    fn depth(&self, record: u32) -> Option<u32> {
        let (mut record, mut depth) = (record, 0u32);
        while record != 0 {
            record = self.scope(record)?.caller;
            depth = depth.wrapping_add(1);
            if depth > DEEPEST {
                return None;
            }
        }
        Some(depth)
    }

    /// Emits the methods at a call, by its entry. `None`: nothing was emitted. False: not all of them.
    #[inline(never)]
    pub fn emit_at(&self, entry: u64, room: &mut Room) -> Option<bool> {
        self.emit_from(self.record(entry)?, room)
    }

    fn emit_from(&self, record: u32, room: &mut Room) -> Option<bool> {
        let depth = self.depth(record).filter(|depth| *depth > 0)?;
        let mut record = record;
        for emitted in 0..depth {
            let scope = self.scope(record);
            let is_emitted = scope.is_some_and(|scope| {
                record = scope.caller;
                method::emit(self.java, scope.method, u32::try_from(scope.index).ok(), room)
            });
            if !is_emitted {
                return (emitted > 0).then_some(false);
            }
        }
        Some(true)
    }

    /// Emits the methods at an instruction between two entries: those in which both are. `None` and false: as
    /// [`Scopes::emit_at`].
    #[inline(never)]
    pub fn emit_between(&self, offset: i32, room: &mut Room) -> Option<bool> {
        let after = self.first_from(offset)?;
        let both = after.checked_sub(1).and_then(|before| Some((self.record(before)?, self.record(after)?)));
        let (before, after) = both.filter(|(before, after)| *before != 0 && *after != 0)?;
        self.emit_from(self.common(before, after)?, room)
    }

    /// The innermost record from the second one on whose method, and all of whose callers, are those of the first one,
    /// too.
    fn common(&self, first: u32, second: u32) -> Option<u32> {
        let (mut a, mut b) = (first, second);
        let (depth_a, depth_b) = (self.depth(a)?, self.depth(b)?);
        for _ in depth_b..depth_a {
            a = self.scope(a)?.caller;
        }
        for _ in depth_a..depth_b {
            b = self.scope(b)?.caller;
        }
        let mut found = None;
        for _ in 0..DEEPEST {
            if a == 0 || b == 0 {
                break;
            }
            if a == b {
                return found.or(Some(b));
            }
            let (in_a, in_b) = (self.scope(a)?, self.scope(b)?);
            if in_a.method != in_b.method {
                found = None;
            } else if found.is_none() || in_a.index != in_b.index {
                // Calls of different methods by this one, or different calls: only the caller is certain.
                found = Some(b);
            }
            (a, b) = (in_a.caller, in_b.caller);
        }
        found
    }
}
