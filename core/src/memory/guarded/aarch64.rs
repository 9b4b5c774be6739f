//! AArch64.

use crate::memory::group::{Member, MEMBER_WORDS};

// An entry about no load, in each object: where there is none, the linker does not define the section's ends.
core::arch::global_asm!(".pushsection uu_fixups,\"aR\",@progbits", ".balign 4", ".long 0, 0", ".popsection");

/// Whether the counter is readable: on AArch64 always.
#[inline(always)]
pub fn may_read_tsc() -> bool {
    true
}

/// Loads a word; `None` if the load faults.
#[inline(always)]
pub(in crate::memory) fn load(address: u64) -> Option<u64> {
    let mut failed = 0;
    let value = load_noting(address, &mut failed);
    (failed == 0).then_some(value)
}

/// Loads a word; if the load faults, 0, and `failed` becomes 1.
#[inline(always)]
pub(in crate::memory) fn load_noting(address: u64, failed: &mut u32) -> u64 {
    let value: u64;
    // SAFETY: a load that faults is moved to its fix-up by the handler that Reader::new's caller guaranteed. It writes
    // only its outputs.
    unsafe {
        core::arch::asm!(
            "4: ldr {value}, [{address}]",
            "5:",
            when_failed!("6: mov {value}, xzr", "mov {failed:w}, #1", "b 5b"),
            fixup!("4b", "6b"),
            address = in(reg) address,
            value = out(reg) value,
            failed = inout(reg) *failed,
            options(nostack, readonly, preserves_flags)
        );
    }
    value
}

/// As [`load_noting`], of the word at an offset from an address.
#[inline(always)]
pub(in crate::memory) fn load_at(address: u64, offset: u64, failed: &mut u32) -> u64 {
    load_noting(address.wrapping_add(offset), failed)
}

/// How many of these structures, from the first on, have the same words as before: those at these offsets from each.
pub(in crate::memory) fn same_members(members: &[Member], offsets: [u64; MEMBER_WORDS]) -> usize {
    let mut failed = 0;
    let mut same = |address, word: u64, offset| load_at(address, offset, &mut failed) == word && failed == 0;
    let is_same =
        |member: &&Member| member.words.iter().zip(offsets).all(|(word, offset)| same(member.address, *word, offset));
    members.iter().take_while(is_same).count()
}

/// Copies `len` bytes; false if a byte is unreadable.
///
/// # Safety
/// `out` must be valid for writes of `len` bytes.
pub(in crate::memory) unsafe fn copy(out: *mut u8, address: u64, len: usize) -> bool {
    let mut left = len;
    // SAFETY: as for `load`; the caller guarantees `out`. A fault leaves the number of missing bytes in `left`.
    unsafe {
        core::arch::asm!(
            "2: cbz {left}, 5f",
            "4: ldrb {byte:w}, [{from}], #1",
            "strb {byte:w}, [{to}], #1",
            "sub {left}, {left}, #1",
            "b 2b",
            "5:",
            fixup!("4b", "5b"),
            left = inout(reg) left,
            from = inout(reg) address => _,
            to = inout(reg) out => _,
            byte = out(reg) _,
            options(nostack, preserves_flags)
        );
    }
    left == 0
}
