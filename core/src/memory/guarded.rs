//! Guarded loads: ordinary loads at known instructions, which a fault handler may skip.
//!
//! Each load is one instruction in place, and leaves an entry in the section `uu_fixups`: where it is, and where to go on
//! when it faults. The fault handler asks [`fixup`] with the faulting pc; the code there reports the failure and goes back.
//! No state, so it works on any thread and nests freely.
//!
//! ```text
//!   4:  mov value, [address]        uu_fixups: { 4, 6 }
//!   5:  ...                         6: failed = 1; jmp 5
//! ```

use crate::regs::{GREG_RIP, UCONTEXT_GREGS};

/// One entry: two distances, each from its own place.
#[repr(C)]
struct Fixup {
    load: i32,
    failed: i32,
}

// Each object has entries of its own, and must never meet another object's by the dynamic linker's symbol search.
core::arch::global_asm!(".hidden __start_uu_fixups", ".hidden __stop_uu_fixups");

extern "C" {
    /// First and last entry, by the linker.
    static __start_uu_fixups: Fixup;
    static __stop_uu_fixups: Fixup;
}

/// Where to go on after a fault at `pc`; `None` when the fault was not in a guarded load. Async-signal-safe.
pub fn fixup(pc: u64) -> Option<u64> {
    let target = |place: *const i32| {
        // SAFETY: the place lies inside the section.
        (place as u64).wrapping_add_signed(i64::from(unsafe { place.read() }))
    };
    let mut entry = &raw const __start_uu_fixups;
    let end = &raw const __stop_uu_fixups;
    while entry < end {
        // SAFETY: entry lies inside the section, which holds entries only.
        let (load, failed) = unsafe { (&raw const (*entry).load, &raw const (*entry).failed) };
        if target(load) == pc {
            return Some(target(failed));
        }
        // SAFETY: at most one past the end.
        entry = unsafe { entry.add(1) };
    }
    None
}

/// Moves a context that faulted in a guarded instruction of this object to its fix-up. False: it did not; the context is as it
/// was. Async-signal-safe.
///
/// # Safety
/// The ucontext of the running handler of a fault.
pub unsafe fn mend(ucontext: *mut u8) -> bool {
    // SAFETY: rip lies in gregs.
    let rip = unsafe { ucontext.add((UCONTEXT_GREGS + 8 * GREG_RIP) as usize).cast::<u64>() };
    // SAFETY: as above.
    let next = fixup(unsafe { rip.read() });
    if let Some(next) = next {
        // SAFETY: as above.
        unsafe { rip.write(next) };
    }
    next.is_some()
}

/// Whether the time stamp counter may be read: a process may forbid itself that (prctl(2), PR_SET_TSC; strict seccomp(2) does),
/// and then the vDSO's clocks fault. Faults must be led to [`mend`].
#[inline(always)]
pub fn may_read_tsc() -> bool {
    let mut failed = 0u32;
    // SAFETY: it writes nothing but its outputs; a fault is moved to the fix-up.
    unsafe {
        core::arch::asm!(
            "4: rdtsc",
            "5:",
            ".pushsection .text.uu_failed,\"ax\",@progbits",
            "6: mov {failed:e}, 1",
            "jmp 5b",
            ".popsection",
            ".pushsection uu_fixups,\"aR\",@progbits",
            ".balign 4",
            ".long 4b - .",
            ".long 6b - .",
            ".popsection",
            failed = inout(reg) failed,
            out("eax") _,
            out("edx") _,
            options(nostack, nomem, preserves_flags)
        );
    }
    failed == 0
}

/// Loads a word; `None` when it faults.
#[inline(always)]
pub(super) fn load(address: u64) -> Option<u64> {
    let value: u64;
    let mut failed = 0u32;
    // SAFETY: a load that faults is moved to its fix-up by the handler that Reader::new's caller vouched for. It writes
    // nothing but its outputs.
    unsafe {
        core::arch::asm!(
            "4: mov {value}, [{address}]",
            "5:",
            ".pushsection .text.uu_failed,\"ax\",@progbits",
            "6: xor {value:e}, {value:e}",
            "mov {failed:e}, 1",
            "jmp 5b",
            ".popsection",
            ".pushsection uu_fixups,\"aR\",@progbits",
            ".balign 4",
            ".long 4b - .",
            ".long 6b - .",
            ".popsection",
            address = in(reg) address,
            value = out(reg) value,
            failed = inout(reg) failed,
            options(nostack, readonly)
        );
    }
    (failed == 0).then_some(value)
}

/// Copies `len` bytes; false when a byte could not be read.
///
/// # Safety
/// `out` must be valid for writes of `len` bytes.
pub(super) unsafe fn copy(out: *mut u8, address: u64, len: usize) -> bool {
    let mut left = len;
    // SAFETY: as for `load`; the caller vouches for `out`. A fault leaves in rcx what was not copied, and the fix-up is the
    // next instruction.
    unsafe {
        core::arch::asm!(
            "4: rep movsb",
            "5:",
            ".pushsection uu_fixups,\"aR\",@progbits",
            ".balign 4",
            ".long 4b - .",
            ".long 5b - .",
            ".popsection",
            inout("rcx") left,
            inout("rdi") out => _,
            inout("rsi") address => _,
            options(nostack, preserves_flags)
        );
    }
    left == 0
}
