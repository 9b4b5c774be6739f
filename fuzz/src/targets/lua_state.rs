//! Pointers that a program registers as `lua_State`, which are checked before they are used.
//!
//! | bytes | |
//! |---|---|
//! | 2 | offset of the state in memory, in words (modulo its size) |
//! | rest | memory, as words; its first byte is at `0x10_0000` |

use crate::input::Input;
use uunwind_built_in::lua::signal::registered::global_of;
use uunwind_core::memory::{Reader, Region};

const BASE: u64 = 0x10_0000;
const BYTES: usize = 4096;

pub fn run(data: &[u8]) -> bool {
    let mut input = Input::new(data);
    let state = BASE + u64::from(input.u16()) * 8 % BYTES as u64;
    let mut memory = [0; BYTES];
    let given = input.bytes(BYTES);
    memory[..given.len()].copy_from_slice(given);
    let regions = [Region { address: BASE, bytes: &memory }];
    let mut reader = Reader::recorded(&regions);
    let Some(global) = global_of(&mut reader, state) else { return false };
    assert!(reader.word(global).is_some(), "a global state that cannot be read");
    true
}
