//! Which bytecode an instruction of baseline code belongs to
//! (<https://github.com/v8/v8/blob/11.3.244/src/baseline/bytecode-offset-iterator.h>): the code of a function's bytecodes
//! lies in their order, and a table has the number of bytes of each.

use crate::bytes::Bytes;
use crate::heap::{Heap, Object};

/// Limit of bytecodes that are passed.
const LIMIT: u32 = 16 << 10;
/// Bytecodes that make the operands of the next one wider: the even ones two bytes, the odd ones four.
const PREFIXES: u8 = 4;

/// The offset of the bytecode whose code covers, or ends at, this distance from the start of the code. `None`: the code
/// before the first one, or it cannot be read.
#[inline(never)]
pub fn bytecode_at(heap: &Heap<'_, '_>, code: Object, bytecode: Object, distance: u32) -> Option<u32> {
    let table = heap.field(code, heap.facts.code_offsets)?;
    let (table_length, table) = heap.array(heap.of_kind(table, heap.facts.type_bytes)?)?;
    let (length, _) = heap.array(bytecode)?;
    let first = bytecode.address.wrapping_add(heap.facts.bytecode_first.into());
    let mut lengths = Bytes::new(heap, table, table_length);
    let mut codes = Bytes::new(heap, first, length);
    let mut end = lengths.number()?;
    if distance <= end {
        return None;
    }
    let mut offset = 0u32;
    for _ in 0..LIMIT {
        end = end.checked_add(lengths.number()?)?;
        if distance <= end {
            return Some(offset);
        }
        let (mut size, mut bytecode, mut scale) = (0u32, codes.next()?, 0usize);
        if bytecode < PREFIXES {
            scale = if bytecode & 1 == 0 { 1 } else { 2 };
            (size, bytecode) = (1, codes.next()?);
        }
        let own = u32::from(*heap.facts.bytecode_sizes.get(scale)?.get(usize::from(bytecode))?);
        codes.skip(own.checked_sub(1)?)?;
        size = size.checked_add(own)?;
        offset = offset.checked_add(size)?;
    }
    None
}
