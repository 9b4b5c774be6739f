//! `.eh_frame` without its index, as objects linked with `--no-eh-frame-hdr` and windows have it: the bytes are a list
//! of CIEs and FDEs, which is searched from its start.
//!
//! | bytes | |
//! |---|---|
//! | 4 x 3 | pcs to look up, relative to the list (signed) |
//! | rest | the list |
//!
//! More pcs are taken from the entries themselves, which are also looked up by their address.

use super::lookup::{by_eh_frame, check, START};
use crate::input::Input;
use uunwind_core::memory::{Reader, Region};
use uunwind_core::span::Span;
use uunwind_core::stop_reason::StopReason;
use uunwind_eh_frame::scan::{Scan, Shape};
use uunwind_eh_frame::{find_at, find_in_list};

/// Entries that are looked up.
const ENTRIES: usize = 8;

pub fn run(data: &[u8]) -> bool {
    let mut input = Input::new(data);
    let given: [u32; 3] = std::array::from_fn(|_| input.u32());
    let list = input.rest();
    let regions = [Region { address: START, bytes: list }];
    let bounds = Span::sized(START, list.len() as u64);
    let mut reader = Reader::recorded(&regions);
    let mut taken = false;
    for pc in given.map(|pc| START.wrapping_add_signed(i64::from(pc as i32))) {
        taken |= check(pc, by_eh_frame(find_in_list(bounds, pc, pc, &mut reader)), &mut reader).is_some();
    }
    let mut scan = Scan::new(START, Shape::List);
    for _ in 0..ENTRIES {
        let Ok(Some(entry)) = scan.step(&mut reader) else { break };
        for pc in [entry.start, entry.end - 1] {
            let by_search = find_in_list(bounds, pc, pc, &mut reader);
            let by_place = find_at(entry.fde, bounds, pc, pc, &mut reader);
            // An entry covers the pc: the search finds that one or an earlier one, or fails at a damaged one before it.
            assert!(by_place.is_err() || by_search != Err(StopReason::NoRule), "{pc:#x} is not found");
            taken |= check(pc, by_eh_frame(by_search), &mut reader).is_some();
            check(pc, by_eh_frame(by_place), &mut reader);
        }
    }
    taken
}
