//! Where in the source a frame is, by the table that V8 keeps for bytecode: an entry for each place, with the distance
//! in code and in the source from the entry before
//! (<https://github.com/v8/v8/blob/11.3.244/src/codegen/source-position-table.cc>). Whether a statement begins there is
//! in the sign of the first; in Node 26, it is one of two flags below its bits (as its `Advance` decodes it).

use crate::heap::{Heap, Object};

/// Bytes that are read at once, and limit of those of one table.
const CHUNK: usize = 64;
const LIMIT: u32 = 64 << 10;

/// The position in the source, in characters from the start of the script, that bytecode at this offset belongs to.
pub fn of_bytecode(heap: &Heap<'_, '_>, bytecode: Object, offset: u32) -> Option<u32> {
    let key = [bytecode.address, offset.into(), 2, heap.guest.view().facts as u64, heap.guest.view().bias];
    if let Some([position, _]) = heap.guest.recall(&key) {
        return u32::try_from(position).ok();
    }
    let table = heap.field(bytecode, heap.facts.bytecode_positions)?;
    let table = heap.of_kind(table, heap.facts.type_bytes)?;
    let position = script_offset(find(heap, table, offset)?)?;
    heap.guest.remember(&key, &[position.into(), 0]);
    Some(position)
}

/// `SourcePosition::InliningId`. `None`: it is in the function itself.
pub fn inlining(raw: u64) -> Option<u32> {
    const ID: u64 = (1 << 16) - 1;
    (raw >> 31 & ID).checked_sub(1).map(|id| id as u32)
}

/// `SourcePosition::ScriptOffset`. `None`: it has none.
pub fn script_offset(raw: u64) -> Option<u32> {
    const OFFSET: u64 = (1 << 30) - 1;
    (raw & 1 == 0).then(|| (raw >> 1 & OFFSET).checked_sub(1))?.and_then(|offset| u32::try_from(offset).ok())
}

/// The raw position of the last entry at or before an offset.
#[inline(never)]
pub fn find(heap: &Heap<'_, '_>, table: Object, offset: u32) -> Option<u64> {
    let (length, address) = heap.array(table)?;
    let mut entries = Entries::new(heap.facts.position_flags.into());
    let mut chunk = [0; CHUNK];
    let mut at = 0;
    while at < length.min(LIMIT) {
        let size = (length - at).min(CHUNK as u32);
        let bytes = chunk.get_mut(..size as usize)?;
        if !heap.guest.bytes(address.wrapping_add(at.into()), bytes) {
            return None;
        }
        for byte in bytes {
            if entries.feed(*byte, offset) {
                return entries.found;
            }
        }
        at = at.saturating_add(size);
    }
    entries.found
}

/// The entries of a table, as its bytes come.
struct Entries {
    /// `Facts::position_flags`
    flags: u32,
    number: u64,
    shift: u32,
    is_position: bool,
    code: i64,
    position: i64,
    found: Option<u64>,
}

impl Entries {
    /// Before the first one, which stands for the function's entry: `kFunctionEntryBytecodeOffset`.
    fn new(flags: u32) -> Entries {
        Entries { flags, number: 0, shift: 0, is_position: false, code: -1, position: 0, found: None }
    }

    /// True: this byte's entry, which is whole, is beyond the offset.
    fn feed(&mut self, byte: u8, offset: u32) -> bool {
        self.number |= u64::from(byte & 0x7f).checked_shl(self.shift).unwrap_or(0);
        self.shift = self.shift.saturating_add(7);
        if byte & 0x80 != 0 {
            return false;
        }
        let number = self.number;
        let value = (number >> 1) as i64 ^ ((number & 1) as i64).wrapping_neg();
        (self.number, self.shift) = (0, 0);
        if !self.is_position {
            let distance = match self.flags {
                0 if value < 0 => value.wrapping_add(1).wrapping_neg(),
                0 => value,
                flags => number.checked_shr(flags).unwrap_or(0) as i64,
            };
            self.code = self.code.wrapping_add(distance);
            self.is_position = true;
            return false;
        }
        self.is_position = false;
        if self.code > i64::from(offset) {
            return true;
        }
        self.position = self.position.wrapping_add(value);
        self.found = Some(self.position as u64);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at<const N: usize>(table: &[u8], flags: u32, offsets: [u32; N]) -> [Option<u32>; N] {
        offsets.map(|offset| {
            let mut entries = Entries::new(flags);
            let _ = table.iter().any(|byte| entries.feed(*byte, offset));
            entries.found.and_then(script_offset)
        })
    }

    /// The table of `function forever(){ for(;;) top(20); }` in Node 20.20.2, at 471 in its file.
    #[test]
    fn a_table_is_read() {
        let table = [0x01, 0xe0, 0x0e, 0x02, 0x30, 0x0d, 0x00, 0x09, 0x1f];
        assert_eq!(at(&table, 0, [0, 6, 9, 10]), [483, 483, 483, 475].map(Some));
    }

    /// The table of `constructor(n) { this.n = n; cap(); }` in Node 26.12.1, as `node --print-bytecode` has it.
    #[test]
    fn a_table_with_flags_is_read() {
        let table = [0x02, 0x6c, 0x07, 0x28, 0x0a, 0x1c, 0x13, 0x24, 0x16, 0x00, 0x13, 0x24];
        assert_eq!(at(&table, 2, [0, 1, 2, 5, 6, 11, 15]), [36, 36, 43, 43, 52, 52, 61].map(Some));
    }
}
