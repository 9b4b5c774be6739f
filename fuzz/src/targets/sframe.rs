//! SFrame: the bytes are a section, of any version and machine.
//!
//! | bytes | |
//! |---|---|
//! | 8 | the address at which the section is taken to lie |
//! | 4 x 3 | pcs to look up, relative to that address (signed) |
//! | rest | the section |
//!
//! More pcs are taken from the functions that the section describes.

use super::lookup::{by_sframe, check, START};
use crate::input::Input;
use uunwind_core::cursor::Cursor;
use uunwind_core::memory::{Reader, Region};
use uunwind_core::regs::aarch64;
use uunwind_core::span::Span;
use uunwind_sframe::function::Function;
use uunwind_sframe::row::Row;
use uunwind_sframe::rule::AArch64;
use uunwind_sframe::table::Table;
use uunwind_sframe::{find, find_for, visit, Fault, Section, Visitor};

/// Limit of functions that are looked up.
const FUNCTIONS: usize = 16;

#[derive(Default)]
struct Seen {
    pcs: Vec<u64>,
    rows: u64,
    faults: u64,
}

impl Visitor for Seen {
    fn function(&mut self, _: &Table, function: &Function) {
        if self.pcs.len() < FUNCTIONS {
            self.pcs.extend([function.start, function.range().end.wrapping_sub(1)]);
        }
    }

    fn row(&mut self, _: &Table, _: &Function, row: &Row) {
        self.rows += 1;
        assert!(row.at >= 28, "a row inside a header");
    }

    fn fault(&mut self, _: Fault) {
        self.faults += 1;
    }
}

pub fn run(data: &[u8]) -> bool {
    let mut input = Input::new(data);
    let origin = input.u64();
    let given: [u32; 3] = std::array::from_fn(|_| input.u32());
    let bytes = input.rest();
    let regions = [Region { address: START, bytes }];
    let mut reader = Reader::recorded(&regions);
    let section = Section { at: START, len: bytes.len() as u64, origin, text: Span::new(0, u64::MAX) };
    let mut seen = Seen::default();
    visit(&section, &mut reader, &mut seen);
    assert!(seen.rows * 2 <= bytes.len() as u64, "{} rows in {} bytes", seen.rows, bytes.len());
    seen.pcs.extend(given.iter().map(|pc| origin.wrapping_add_signed(i64::from(*pc as i32))));
    let mut taken = seen.rows > 0 && seen.faults == 0;
    for pc in seen.pcs {
        taken |= check(pc, by_sframe(find(&section, pc, &mut reader)), &mut reader).is_some();
        if let Ok(Ok(rule)) = find_for::<AArch64>(&section, pc, &mut reader).map(|answer| answer.rule) {
            let mut cursor = Cursor { regs: aarch64::Regs::new(pc, START, START + 64), exact: true };
            if let Ok(cfa) = rule.pack().cfa(&cursor, &mut reader) {
                let _ = rule.pack().advance(&mut cursor, cfa, &mut reader);
            }
        }
    }
    taken
}
