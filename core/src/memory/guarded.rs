//! Guarded loads: an ordinary load at a known instruction, which a fault handler may skip.
//!
//! The fault handler asks [`fixup`] with the faulting pc; where it answers, execution goes on at the address given,
//! which reports the failure to the caller. No state, so it works on any thread and nests freely.

core::arch::global_asm!(
    ".pushsection .text.uu_guarded,\"ax\",@progbits",
    ".hidden uu_guarded_load",
    ".globl uu_guarded_load",
    ".type uu_guarded_load,@function",
    ".balign 16",
    "uu_guarded_load:",
    ".cfi_startproc",
    ".hidden uu_guarded_load_at",
    ".globl uu_guarded_load_at",
    "uu_guarded_load_at:",
    "mov rax, [rdi]",
    "xor edx, edx",
    "ret",
    ".hidden uu_guarded_load_failed",
    ".globl uu_guarded_load_failed",
    "uu_guarded_load_failed:",
    "xor eax, eax",
    "mov edx, 1",
    "ret",
    ".cfi_endproc",
    ".size uu_guarded_load, .-uu_guarded_load",
    ".hidden uu_guarded_copy",
    ".globl uu_guarded_copy",
    ".type uu_guarded_copy,@function",
    ".balign 16",
    "uu_guarded_copy:",
    ".cfi_startproc",
    "mov rcx, rdx",
    ".hidden uu_guarded_copy_at",
    ".globl uu_guarded_copy_at",
    "uu_guarded_copy_at:",
    "rep movsb",
    ".hidden uu_guarded_copy_failed",
    ".globl uu_guarded_copy_failed",
    "uu_guarded_copy_failed:",
    "mov rax, rcx",
    "ret",
    ".cfi_endproc",
    ".size uu_guarded_copy, .-uu_guarded_copy",
    ".popsection",
);

#[repr(C)]
struct Loaded {
    value: u64,
    failed: u64,
}

extern "C" {
    fn uu_guarded_load(address: u64) -> Loaded;
    fn uu_guarded_copy(out: *mut u8, address: u64, len: usize) -> usize;
    static uu_guarded_load_at: u8;
    static uu_guarded_load_failed: u8;
    static uu_guarded_copy_at: u8;
    static uu_guarded_copy_failed: u8;
}

/// Where to go on after a fault at `pc`; `None` when the fault was not in a guarded load. Async-signal-safe.
pub fn fixup(pc: u64) -> Option<u64> {
    let at = |label: *const u8| label as u64;
    if pc == at(&raw const uu_guarded_load_at) {
        return Some(at(&raw const uu_guarded_load_failed));
    }
    if pc == at(&raw const uu_guarded_copy_at) {
        return Some(at(&raw const uu_guarded_copy_failed));
    }
    None
}

/// Loads a word; `None` when it faults.
#[inline]
pub(super) fn load(address: u64) -> Option<u64> {
    // SAFETY: a load that faults is moved to its fix-up by the handler that Reader::new's caller vouched for.
    let loaded = unsafe { uu_guarded_load(address) };
    (loaded.failed == 0).then_some(loaded.value)
}

/// Copies `len` bytes; false when a byte could not be read.
///
/// # Safety
/// `out` must be valid for writes of `len` bytes.
pub(super) unsafe fn copy(out: *mut u8, address: u64, len: usize) -> bool {
    // SAFETY: as for `load`; the caller vouches for `out`.
    unsafe { uu_guarded_copy(out, address, len) == 0 }
}
