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

use crate::regs::UCONTEXT_PC;

#[cfg_attr(target_arch = "x86_64", path = "guarded/x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "guarded/aarch64.rs")]
mod cpu;

pub use cpu::may_read_tsc;
#[cfg(target_arch = "x86_64")]
pub(super) use cpu::{any_changed, load_below, load_just_below};
pub(super) use cpu::{copy, load, load_noting};

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

/// Words of the stack, as they were.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Words {
    /// The addresses behind them.
    pub behind: [u64; Words::COUNT],
    /// What they were.
    pub was: [u64; Words::COUNT],
}

impl Words {
    /// So many are compared together.
    pub const COUNT: usize = 8;
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
    // SAFETY: the pc lies inside the context.
    let pc = unsafe { ucontext.add(UCONTEXT_PC as usize).cast::<u64>() };
    // SAFETY: as above.
    let next = fixup(unsafe { pc.read() });
    if let Some(next) = next {
        // SAFETY: as above.
        unsafe { pc.write(next) };
    }
    next.is_some()
}
