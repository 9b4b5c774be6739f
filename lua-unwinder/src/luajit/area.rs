//! Code areas: the mappings that LuaJIT writes traces into. No object covers them, and they begin with a header that tells a
//! debugger's unwinder whose they are, so that one can be recognised by looking.

use super::Vm;

/// Pages are looked through for the header downwards from a pc.
const PAGE: u64 = 4096;
/// Most pages of an area.
const PAGES: u64 = 256;
/// The link to the next area, and the size of this one, stand before the unwind entry.
const SIZE: u64 = 8;
const CIE: u64 = 16;
/// How the unwind entry begins: its length, no id, version 1, "zPR".
const BEGIN: [u64; 2] = [0x1c, u64::from_le_bytes([1, b'z', b'P', b'R', 0, 1, 0x78, 16])];
/// The function in it that is to catch errors: in the object of the VM.
const HANDLER: u64 = CIE + 18;

/// Does `pc` lie in a code area of this VM?
pub fn holds(vm: &Vm<'_>, pc: u64) -> bool {
    let page = pc & !(PAGE - 1);
    for below in 0..PAGES {
        let area = page.wrapping_sub(below.wrapping_mul(PAGE));
        match starts(vm, area) {
            // What cannot be read ends the mapping that the pc lies in.
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
