//! GDB's JIT list, as the recorder reads it from another process: memory that changes between two reads.
//!
//! | bytes | |
//! |---|---|
//! | 2 | size of the second memory in bytes |
//! | that size | the second memory, read after the first |
//! | rest | the first memory, from address 0x1000 on: the list's head first |

use crate::alloc;
use crate::input::Input;
use uunwind_recorder::jit::gdb::{Descriptor, Memory};
use uunwind_recorder::jit::table::Table;

/// Address of the memory's first byte.
const BASE: u64 = 0x1000;
/// How often each of the two is read.
const LOOKS: u64 = 3;

struct World<'a>(&'a [u8]);

impl Memory for World<'_> {
    fn read(&self, address: u64, len: usize) -> Option<Vec<u8>> {
        let from = usize::try_from(address.checked_sub(BASE)?).ok()?;
        Some(self.0.get(from..from.checked_add(len)?)?.to_vec())
    }
}

pub fn run(data: &[u8]) -> bool {
    let mut input = Input::new(data);
    let len = usize::from(input.u16());
    let second = input.bytes(len);
    let first = input.rest();
    let (mut list, mut table) = (Descriptor::new(BASE, 0), Table::default());
    for (world, from) in [(first, 1), (second, 10), (first, 20)] {
        for time in from..from + LOOKS {
            list.look(&World(world), &mut table, || time, true);
            // Only the objects' own names are kept: at most a string table's length for each symbol of 24 bytes.
            assert!(
                table.codes.len() as u64 <= 3 * LOOKS * (data.len() as u64 / 24 + 1) * (data.len() as u64 / 32 + 1)
            );
        }
    }
    assert!(table.events.iter().all(|event| (event.code as usize) < table.codes.len()));
    drop(list);
    let kept = table.codes.iter().map(|code| code.name.len()).sum::<usize>() + 512 * table.events.len();
    assert!(
        alloc::held() <= data.len() + 4 * kept + alloc::FREE,
        "{} bytes held for {kept} bytes of names",
        alloc::held()
    );
    !table.codes.is_empty()
}
