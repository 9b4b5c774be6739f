//! Location tables: four bytes with the first line, then the table.

use crate::input::Input;
use uunwind_python::lines::{entries, line};

pub fn run(data: &[u8]) -> bool {
    let mut input = Input::new(data);
    let first_line = input.u32();
    let table = input.rest();
    let (mut count, mut end) = (0, 0);
    for entry in entries(table, first_line) {
        assert!(entry.start == end && entry.end > entry.start, "{entry:?} after {end}");
        end = entry.end;
        count += 1;
        assert!(count <= table.len(), "more entries than bytes");
    }
    for position in [0, end / 2, end, u64::MAX] {
        line(table, first_line, position);
    }
    count > 0
}
