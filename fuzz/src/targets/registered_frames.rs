//! Unwind data that JITs register: a list of CIEs and FDEs, one FDE, or an array of lists.
//!
//! | bytes | |
//! |---|---|
//! | 1 | shape: 0 a list, 1 one FDE, 2 an array |
//! | 4 | offset in the image at which it begins |
//! | rest | the image |

use crate::input::Input;
use uunwind_core::memory::{Reader, Region};
use uunwind_core::stop_reason::StopReason;
use uunwind_eh_frame::scan::{Scan, Shape};

/// Address of the image: low, so that damaged pointers of an array still lead into it.
const START: u64 = 0x1_0000;

pub fn run(data: &[u8]) -> bool {
    let mut input = Input::new(data);
    let shape = Shape::from_number(u32::from(input.u8() % 3)).unwrap_or(Shape::List);
    let begin = START + u64::from(input.u32() % 4096);
    let image = input.rest();
    let regions = [Region { address: START, bytes: image }];
    let mut reader = Reader::recorded(&regions);
    let mut scan = Scan::new(begin, shape);
    let mut found = 0u32;
    loop {
        match scan.step(&mut reader) {
            Ok(Some(entry)) => {
                assert!(entry.start < entry.end && entry.start != 0);
                assert!(scan.span.contains(entry.fde), "{entry:?} outside of {:?}", scan.span);
                found += 1;
                assert!(found == 1 || shape != Shape::One);
            }
            Ok(None) => break,
            Err(StopReason::BadUnwindInfo | StopReason::UnreadableUnwindInfo | StopReason::UnsupportedRule) => break,
            Err(other) => panic!("{other:?} is no reason of unwind data"),
        }
    }
    found > 0
}
