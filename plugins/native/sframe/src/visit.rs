//! Everything in a section, in order, with every check: for dumps, for the registration of a table, for tests.

use crate::bytes::{Input, Section};
use crate::check::{Check, Fault};
use crate::function::Function;
use crate::row::Row;
use crate::table::Table;
use uunwind_core::memory::Reader;

/// Receives the contents of a section.
pub trait Visitor {
    /// The beginning of a table.
    fn table(&mut self, _table: &Table) {}
    /// A function of that table.
    fn function(&mut self, _table: &Table, _function: &Function) {}
    /// A row of that function.
    fn row(&mut self, _table: &Table, _function: &Function, _row: &Row) {}
    /// A fault in what was passed last, or in what would have come next.
    fn fault(&mut self, fault: Fault);
}

/// Passes a whole section to a visitor. The work is bounded by the section's length: a few dozen reads for each byte.
/// Allocation-free and async-signal-safe, but too long for a handler.
pub fn visit(section: &Section, reader: &mut Reader<'_>, visitor: &mut impl Visitor) {
    let mut input = Input::new(section, reader);
    let mut at = 0;
    loop {
        match Table::read(at, &mut input) {
            Ok(None) => return,
            Ok(Some(table)) => {
                visitor.table(&table);
                functions(&table, &mut input, visitor);
                // At least after its own header.
                at = table.next;
            }
            Err(fault) => return visitor.fault(fault),
        }
    }
}

fn functions(table: &Table, input: &mut Input<'_, '_>, visitor: &mut impl Visitor) {
    let mut before = 0;
    let mut total = 0u64;
    let mut whole = true;
    // Tables may give the same rows to many functions; hostile ones are limited to the number that the section can
    // hold.
    let mut budget = table.rows_span.len();
    for n in 0..table.functions {
        let function = match table.function(n, input) {
            Ok(function) => function,
            Err(fault) => {
                whole = false;
                visitor.fault(fault);
                continue;
            }
        };
        visitor.function(table, &function);
        if table.is_sorted() && function.start < before {
            visitor.fault(Fault { check: Check::Sorted, at: function.at, found: function.start });
        }
        before = function.start;
        total += u64::from(function.rows);
        let Some(left) = budget.checked_sub(u64::from(function.rows)) else {
            whole = false;
            visitor.fault(Fault { check: Check::RowCount, at: function.at, found: u64::from(function.rows) });
            continue;
        };
        budget = left;
        let mut rows = function.rows();
        loop {
            match rows.next(&function, table, input) {
                Ok(None) => break,
                Ok(Some(row)) => {
                    visitor.row(table, &function, &row);
                    if let Err(fault) = row.check(table.machine) {
                        visitor.fault(fault);
                    }
                }
                Err(fault) => {
                    visitor.fault(fault);
                    break;
                }
            }
        }
    }
    if whole && total != u64::from(table.rows) {
        visitor.fault(Fault { check: Check::TotalRows, at: table.at + 12, found: u64::from(table.rows) });
    }
}
