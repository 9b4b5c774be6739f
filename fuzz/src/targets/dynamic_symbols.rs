//! An object's dynamic symbols, in memory that may be damaged.
//!
//! | bytes | |
//! |---|---|
//! | 8 | the address that is looked up, from the object's beginning |
//! | 8 | where its dynamic section is, likewise |
//! | rest | the object, as it is mapped |

use crate::input::Input;
use uunwind_core::memory::{Reader, Region};
use uunwind_crashes::report::symbols::{Names, NAME};

/// Where the object is mapped.
const BIAS: u64 = 0x7f00_0000_0000;
/// Symbols that one input may have looked at: a report's own limit takes seconds.
const BUDGET: u64 = 100_000;

pub fn run(data: &[u8]) -> bool {
    let mut input = Input::new(data);
    let (address, dynamic) = (input.u64(), input.u64());
    let regions = [Region { address: BIAS, bytes: input.rest() }];
    let mut names = Names::with_budget(BUDGET);
    let mut reader = Reader::recorded(&regions);
    let (dynamic, address) = (BIAS.wrapping_add(dynamic), BIAS.wrapping_add(address));
    let Some(name) = names.find_in(dynamic, BIAS, address, &mut reader) else { return false };
    assert!(name.bytes[0] != 0 && name.bytes[NAME - 1] == 0, "{name:?}");
    true
}
