//! Code whose unwind information is not true at all of its instructions, by what an object exports: what the table says
//! there instead.
//!
//! - `swapcontext` of glibc goes on saying that the return address is at the stack pointer after it has taken another
//!   stack (`uunwind_sources::overrides_tables` has the rule);
//! - greenlet runs each greenlet in `inner_bootstrap`, on the stack of whoever started it: what lies beyond is not the
//!   greenlet's, and other greenlets overwrite it. And while it switches, the stack pointer is the new one before the
//!   stack's contents are (`uunwind_sources::transit`). Walks know both without a table (`Object::bases`). greenlet 1
//!   runs them in `g_initialstub`, which whoever starts one passes through, too: nothing there says whose stack it is.

use super::rule_set::RuleSet;
use object::elf::{PF_X, PT_LOAD};
use uunwind_core::memory::{Reader, Region};
use uunwind_core::stop_reason::StopReason;
use uunwind_elf::{Image, Span, Symbol};

/// What the table says of `[from, to)`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Special {
    /// First address, without load bias.
    pub from: u64,
    /// End, exclusive, without load bias.
    pub to: u64,
    /// Number of its rule in the table under construction.
    pub number: u32,
}

/// A longer `swapcontext` is another one; the longest that is looked at, in bytes.
const MOST_SWAPCONTEXT: u64 = 4096;
/// What modules of greenlet export: since version 1.0, and before.
const GREENLET: [&str; 2] = ["PyInit__greenlet", "PyInit_greenlet"];
/// What its functions are called that run a greenlet (version 2 and later), and those that also start one.
const RUNS_GREENLET: &str = "_ZN8greenlet12UserGreenlet15inner_bootstrap";
const STARTS_AND_RUNS: &str = "g_initialstub";

/// All of them in an object.
pub fn of(image: &Image, rules: &mut RuleSet) -> Vec<Special> {
    let mut all = swapcontext(image, rules);
    if GREENLET.iter().any(|name| image.symbol(name).is_some()) {
        all.extend(greenlet_bases(image, rules));
        all.extend(greenlet_switches(image, rules));
    }
    all
}

fn swapcontext(image: &Image, rules: &mut RuleSet) -> Vec<Special> {
    let Some(Symbol { address: start, size }) = image.symbol("swapcontext").filter(|s| s.size <= MOST_SWAPCONTEXT)
    else {
        return Vec::new();
    };
    let mut code = vec![0; size as usize];
    if !image.read_address(start, &mut code) {
        return Vec::new();
    }
    let regions = [Region { address: start, bytes: &code }];
    let mut reader = Reader::recorded(&regions);
    let found = (start..start + size).filter_map(|pc| Some((pc, uunwind_sources::overrides_tables(pc, &mut reader)?)));
    found.map(|(pc, rule)| Special { from: pc, to: pc + 1, number: rules.number(&rule) }).collect()
}

/// Where greenlets begin: the ends of their stacks, or where it is not known whose stack it is.
fn greenlet_bases(image: &Image, rules: &mut RuleSet) -> Vec<Special> {
    let all_of = |name, number| {
        let special = move |found: Symbol| {
            let span = Span::sized(found.address, found.size);
            Special { from: span.start, to: span.end, number }
        };
        image.symbols_with_prefix(name).into_iter().map(special).collect::<Vec<_>>()
    };
    let found = all_of(RUNS_GREENLET, rules.failed(StopReason::SwitchedStack));
    if !found.is_empty() {
        return found;
    }
    let number = rules.failed(StopReason::StackInTransit);
    let found = all_of(STARTS_AND_RUNS, number);
    if !found.is_empty() {
        return found;
    }
    // Its symbols are stripped: any function may be it.
    let code = image.segments().iter().filter(|s| s.kind == PT_LOAD && s.flags & PF_X != 0);
    code.map(|s| Special { from: s.address, to: s.address + s.file_size, number }).collect()
}

/// Where the stack is in transit between two greenlets, by the code.
fn greenlet_switches(image: &Image, rules: &mut RuleSet) -> Vec<Special> {
    let number = rules.failed(StopReason::StackInTransit);
    let mut all = Vec::new();
    for segment in image.segments().iter().filter(|s| s.kind == PT_LOAD && s.flags & PF_X != 0) {
        let Some(code) = image.read_file(segment.offset, segment.file_size) else { continue };
        for at in 0..code.len() {
            if let Some(transit) = code.get(at..).and_then(uunwind_sources::transit) {
                let place = |offset: usize| segment.address + (at + offset) as u64;
                all.push(Special { from: place(transit.start), to: place(transit.end), number });
            }
        }
    }
    all
}

/// The rows of a function at `start` of `len` bytes (offset and number, ascending, the first one at 0), with what is
/// special put in.
pub fn put_in(special: &[Special], start: u64, len: u32, rows: &mut Vec<(u32, u32)>) {
    for one in special {
        let end = start + u64::from(len);
        if one.to <= start || end <= one.from {
            continue;
        }
        let (from, to) = (one.from.saturating_sub(start) as u32, one.to.min(end).wrapping_sub(start) as u32);
        let Some(after) = rows.iter().rev().find(|(at, _)| *at <= to).map(|(_, number)| *number) else { continue };
        rows.retain(|(at, _)| *at < from || to < *at);
        let place = rows.partition_point(|(at, _)| *at < from);
        rows.insert(place, (from, one.number));
        if to < len {
            rows.insert(place + 1, (to, after));
        }
    }
    rows.dedup_by_key(|(_, number)| *number);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_cut_where_something_special_lies() {
        let rows = vec![(0, 10), (4, 11), (8, 12)];
        let put = |from: u64, to: u64| {
            let mut rows = rows.clone();
            put_in(&[Special { from, to, number: 99 }], 100, 16, &mut rows);
            rows
        };
        assert_eq!(put(90, 100), rows);
        assert_eq!(put(116, 120), rows);
        assert_eq!(put(90, 200), [(0, 99)]);
        assert_eq!(put(100, 104), [(0, 99), (4, 11), (8, 12)]);
        assert_eq!(put(102, 105), [(0, 10), (2, 99), (5, 11), (8, 12)]);
        assert_eq!(put(105, 112), [(0, 10), (4, 11), (5, 99), (12, 12)]);
        assert_eq!(put(110, 116), [(0, 10), (4, 11), (8, 12), (10, 99)]);
    }
}
