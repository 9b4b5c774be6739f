//! Rule tables, as a target reads them; and their builder, for any `.eh_frame`.
//!
//! | bytes | |
//! |---|---|
//! | 1 | 0: the rest is a table; else: an `.eh_frame` section to build one of |
//! | 3 | addresses to look up: distances from the base, in 1/256 of the covered range |
//! | rest | the table or the section |

use crate::input::Input;
use uunwind_core::cursor::Cursor;
use uunwind_core::memory::{Reader, Region};
use uunwind_core::regs::Regs;
use uunwind_tables::format::{checksum, TableHead};
use uunwind_tables::{Table, TableAnswer};
use uunwind_tables_build::{build, Source};

/// Address of the section, and of code before it.
const SECTION: u64 = 0x40_0000;
const STACK: u64 = 0x7000_0000;

pub fn run(data: &[u8]) -> bool {
    let mut input = Input::new(data);
    let [kind, places @ ..] = input.u32().to_le_bytes();
    let bytes = input.rest();
    if kind == 0 {
        // Tables are 8-aligned.
        let mut words = vec![0u64; bytes.len().div_ceil(8)];
        // SAFETY: the words have room for the bytes; any bytes are words.
        let copy = unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast::<u8>(), bytes.len()) };
        copy.copy_from_slice(bytes);
        return look(copy, places, false);
    }
    let source = Source { debug: kind & 1 != 0, address: SECTION, bytes };
    match build(&[source], &[(0x1000, SECTION)], None, 7) {
        Ok(table) => {
            assert_eq!(TableHead::read(&table).map(|head| head.checksum), Some(checksum(&table)));
            assert!(look(&table, places, true), "what was built is no table");
            true
        }
        Err(_) => false,
    }
}

/// Looks addresses up. `built`: our builder made the table, so its promises hold.
fn look(bytes: &[u8], places: [u8; 3], built: bool) -> bool {
    let Ok(table) = Table::new(bytes) else { return false };
    let Some(head) = TableHead::read(bytes) else { return false };
    let extent = (u64::from(head.blocks) << head.shift).max(256);
    let stack: Vec<u8> = (0..64u64).flat_map(|n| (STACK + n * 24).to_le_bytes()).collect();
    let regions = [Region { address: STACK, bytes: &stack }];
    let mut reader = Reader::recorded(&regions);
    let given = places.map(|place| head.base.wrapping_add(extent / 256 * u64::from(place)));
    for address in given.into_iter().chain([head.base, head.base.wrapping_sub(1), 0, u64::MAX]) {
        let rule = match table.find(address) {
            TableAnswer::Short(rule) => rule.pack(),
            TableAnswer::Long(rule) => rule,
            TableAnswer::Ask => continue,
            TableAnswer::Nothing => {
                assert!(!built || table.function(address).is_none(), "{address:#x}: a function without a row");
                continue;
            }
        };
        if let Some(function) = table.function(address) {
            assert!(!built || function.contains(address), "{function:x?} around {address:#x}");
        }
        // Every rule can be executed.
        let mut cursor = Cursor { regs: Regs::full(address, [STACK; 16]), exact: true };
        if let Ok(cfa) = rule.cfa(&cursor, &mut reader) {
            let _ = rule.advance(&mut cursor, cfa, &mut reader);
        }
    }
    if built {
        let starts: Vec<u64> = table.rows().map(|(start, ..)| start).collect();
        assert!(starts.windows(2).all(|pair| pair[0] < pair[1]), "rows do not ascend");
        assert_eq!(starts.len(), table.row_count());
    }
    true
}
