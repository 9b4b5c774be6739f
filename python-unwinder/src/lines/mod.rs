//! Positions in CPython code objects to lines: decoders for the line tables of all served versions, a file each.

pub mod python_3_10;
pub mod python_3_11;
pub mod python_3_8;

use crate::facts::{TABLE_PYTHON_310, TABLE_PYTHON_311, TABLE_PYTHON_38};
use uunwind_core::plugin::Position;

/// Position in a function that has not begun (up to 3.10): its line is the first line. Positions of instructions are
/// even.
pub const NOT_BEGUN: u64 = 1;

/// The plugin's `line`: signal code, as the rest of this crate.
pub(crate) fn line_of(position: &Position, table: &[u8]) -> u32 {
    // Without a table, not even the first line is known to be the one; that of a function on one line is empty up to
    // 3.9.
    if table.is_empty() && position.table_kind != TABLE_PYTHON_38 {
        return 0;
    }
    line(position.table_kind, table, position.first_line, position.position).unwrap_or(0)
}

/// The line at a byte position of a code object, by its table. Where the compiler gave none, the line of the preceding
/// code; `first_line` if nothing precedes it, the table is empty, or up to 3.10 the position is [`NOT_BEGUN`]. `None`:
/// no such kind of table.
pub fn line(kind: u32, table: &[u8], first_line: u32, position: u64) -> Option<u32> {
    if position == NOT_BEGUN && matches!(kind, TABLE_PYTHON_38 | TABLE_PYTHON_310) {
        return Some(first_line);
    }
    match kind {
        TABLE_PYTHON_311 => Some(at(python_3_11::entries(table, first_line), first_line, position)),
        TABLE_PYTHON_310 => Some(at(python_3_10::entries(table, first_line), first_line, position)),
        TABLE_PYTHON_38 => Some(python_3_8::line(table, first_line, position)),
        _ => None,
    }
}

/// A range of byte positions and its line; `None`: the compiler gave it no line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lines {
    /// First byte position of the range.
    pub start: u64,
    /// End of the range, exclusive.
    pub end: u64,
    /// Line number, from 1 on; `None`: the compiler gave none.
    pub line: Option<u32>,
}

fn at(entries: impl Iterator<Item = Lines>, first_line: u32, position: u64) -> u32 {
    let mut last = first_line;
    for entry in entries {
        last = entry.line.unwrap_or(last);
        if position < entry.end {
            break;
        }
    }
    last
}
