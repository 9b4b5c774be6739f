//! Code areas: the mappings that LuaJIT writes traces into. No object covers them. They begin with an `MCLink` and an
//! unwind entry, by which they can be recognised: <https://github.com/LuaJIT/LuaJIT/blob/v2.1/src/lj_mcode.c> and
//! `lj_err_register_mcode` in <https://github.com/LuaJIT/LuaJIT/blob/v2.1/src/lj_err.c>.

use super::Vm;

/// The pages from the pc downwards are searched for the header.
const PAGE: u64 = 4096;
/// Limit of pages in an area.
const PAGES: u64 = 256;
/// Offsets in an area: `MCLink.size`, and the unwind entry after the `MCLink`.
const SIZE: u64 = 8;
const CIE: u64 = 16;
/// The first bytes of the unwind entry: its length, the CIE id, version 1, "zPR", alignments and return register.
const BEGIN: [u64; 2] = [0x1c, u64::from_le_bytes([1, b'z', b'P', b'R', 0, 1, 0x78, 16])];
/// Offset of the personality routine's address, which lies in the VM's object.
const HANDLER: u64 = CIE + 18;

/// Does the process address `pc` lie in a code area of this VM?
pub fn holds(vm: &Vm<'_>, pc: u64) -> bool {
    let page = pc & !(PAGE - 1);
    for below in 0..PAGES {
        let area = page.wrapping_sub(below.wrapping_mul(PAGE));
        match starts(vm, area) {
            // An unreadable page: the mapping of the pc begins above it.
            None => return false,
            Some(false) => {}
            Some(true) => return vm.word(area.wrapping_add(SIZE)).is_some_and(|size| pc.wrapping_sub(area) < size),
        }
    }
    false
}

fn starts(vm: &Vm<'_>, area: u64) -> Option<bool> {
    let word = |offset: u64| vm.word(area.wrapping_add(offset));
    let begins = [word(CIE)?, word(CIE + 8)?] == BEGIN;
    Some(begins && vm.same_object(word(HANDLER)?))
}
