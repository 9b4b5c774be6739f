//! What Python calls the threads of a process, read from any memory.
//!
//! | bytes | |
//! |---|---|
//! | `size_of::<Facts>()` | the facts |
//! | 8 | load bias |
//! | rest | memory that can be read: 8 bytes address, 2 bytes length, the bytes |

use crate::input::Input;
use std::cell::Cell;
use std::mem::size_of;
use uunwind_built_in::python::signal::facts::Facts;
use uunwind_built_in::python::Python;
use uunwind_language::{Half, Memory};

/// Most reads of a look, which has a budget of bytes: each read counts as 128 of them at least.
const READS: usize = (16 << 20) / 128;

/// Aligned as an allocation is.
#[repr(align(16))]
struct Given([u8; size_of::<Facts>()]);

struct World<'a> {
    parts: Vec<(u64, &'a [u8])>,
    reads: Cell<usize>,
}

impl Memory for World<'_> {
    fn read(&self, address: u64, into: &mut [u8]) -> bool {
        self.reads.set(self.reads.get() + 1);
        let part = self.parts.iter().find_map(|(start, bytes)| {
            let from = usize::try_from(address.checked_sub(*start)?).ok()?;
            bytes.get(from..from.checked_add(into.len())?)
        });
        part.map(|part| into.copy_from_slice(part)).is_some()
    }
}

pub fn run(data: &[u8]) -> bool {
    let mut input = Input::new(data);
    let mut facts = Given([0; size_of::<Facts>()]);
    let given = input.bytes(facts.0.len());
    facts.0[..given.len()].copy_from_slice(given);
    let bias = input.u64();
    let mut world = World { parts: Vec::new(), reads: Cell::new(0) };
    while !input.is_empty() {
        let (address, len) = (input.u64(), usize::from(input.u16()));
        world.parts.push((address, input.bytes(len)));
    }
    let mut known = Vec::new();
    let first = Python.thread_names(&facts.0, bias, &world, &mut known);
    // The second look begins where the first one ended.
    world.reads.set(0);
    let _ = Python.thread_names(&facts.0, bias, &world, &mut known);
    assert!(world.reads.get() <= READS && known.len() <= 2 * 64);
    !first.is_empty()
}
