//! Line tables: four bytes with the first line, then the table, read as each kind.

use crate::input::Input;
use uunwind_built_in::python::signal::facts::{TABLE_PYTHON_310, TABLE_PYTHON_311, TABLE_PYTHON_38};
use uunwind_built_in::python::signal::lines::{line, python_3_10, python_3_11};

pub fn run(data: &[u8]) -> bool {
    let mut input = Input::new(data);
    let first_line = input.u32();
    let table = input.rest();
    let (mut count, mut end) = (0, 0);
    for entry in python_3_11::entries(table, first_line) {
        assert!(entry.start == end && entry.end > entry.start, "{entry:?} after {end}");
        end = entry.end;
        count += 1;
        assert!(count <= table.len(), "more entries than bytes");
    }
    let mut end_3_10 = 0;
    for entry in python_3_10::entries(table, first_line) {
        assert!(entry.start == end_3_10 && entry.end > entry.start, "{entry:?} after {end_3_10}");
        end_3_10 = entry.end;
    }
    for position in [0, end / 2, end, end_3_10, u64::MAX] {
        for kind in [TABLE_PYTHON_311, TABLE_PYTHON_310, TABLE_PYTHON_38] {
            assert!(line(kind, table, first_line, position).is_some());
        }
    }
    count > 0
}
