//! Guarded loads: ordinary loads at listed instructions, which a fault handler may skip.
//!
//! Each load is one inlined instruction, and has an entry in the section `uu_fixups`: its address, and the address at
//! which execution continues when it faults. The fault handler calls [`Fixups::find`] with the faulting pc; the code
//! there reports the failure and jumps back. There is no state, so this works on any thread and nests freely.
//!
//! ```text
//!   4:  mov value, [address]        uu_fixups: { 4, 6 }
//!   5:  ...                         6: failed = 1; jmp 5
//! ```

use crate::regs::UCONTEXT_PC;

/// Assembly: the instruction at the first label may fault; execution then continues at the second label.
macro_rules! fixup {
    ($load:expr, $failed:literal) => {
        concat!(
            ".pushsection uu_fixups,\"aR\",@progbits\n",
            ".balign 4\n",
            concat!(".long ", $load, " - .\n"),
            concat!(".long ", $failed, " - .\n"),
            ".popsection"
        )
    };
}

/// Assembly that is executed only after a fault.
macro_rules! when_failed {
    ($($line:literal),+) => {
        concat!(".pushsection .text.uu_failed,\"ax\",@progbits\n", $($line, "\n",)+ ".popsection")
    };
}

#[cfg_attr(target_arch = "x86_64", path = "guarded/x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "guarded/aarch64.rs")]
mod cpu;

pub use cpu::may_read_tsc;
#[cfg(target_arch = "x86_64")]
pub(super) use cpu::{any_changed, copy_same, load_below, load_just_below, prefetch_by_words, CANDIDATES_BYTES};
pub(super) use cpu::{copy, load, load_at, load_noting, same_members};

/// One guarded load: two distances in bytes, each from its own field.
#[repr(C)]
pub struct Fixup {
    /// Distance in bytes from this field to the load instruction.
    pub load: i32,
    /// Distance to the instruction at which execution continues when the load faults.
    pub failed: i32,
}

/// The guarded loads of one object: the entries from `start` up to `end`. `repr(C)`: part of `struct uu_plugin`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Fixups {
    /// The first entry; null if there are none.
    pub start: *const Fixup,
    /// End of the entries, exclusive.
    pub end: *const Fixup,
}

// SAFETY: the entries are constants of an object that is never unloaded.
unsafe impl Sync for Fixups {}

// Each object has its own entries; the dynamic linker's symbol search must not find another object's.
core::arch::global_asm!(".hidden __start_uu_fixups", ".hidden __stop_uu_fixups");

extern "C" {
    /// First entry of this object, defined by the linker.
    pub static __start_uu_fixups: Fixup;
    /// End of this object's entries, defined by the linker.
    pub static __stop_uu_fixups: Fixup;
}

/// The guarded loads of this object. A macro, so that a static can hold the value.
#[macro_export]
macro_rules! own_fixups {
    () => {
        $crate::memory::guarded::Fixups {
            start: &raw const $crate::memory::guarded::__start_uu_fixups,
            end: &raw const $crate::memory::guarded::__stop_uu_fixups,
        }
    };
}

/// Limit of a fix-up's length, in bytes.
const STUB: u64 = 24;

static OWN: Fixups = own_fixups!();

/// Words of memory with their previous values.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub struct Words {
    /// The addresses at which they end (process addresses): each word lies just below its own.
    pub above: [u64; Words::COUNT],
    /// Their previous values, in the same order.
    pub was: [u64; Words::COUNT],
}

impl Words {
    /// Number of words that are compared together.
    pub const COUNT: usize = 4;
}

impl Fixups {
    /// The value of an object without guarded loads.
    pub const NONE: Fixups = Fixups { start: core::ptr::null(), end: core::ptr::null() };

    /// The address at which execution continues after a fault at `pc`; `None` if `pc` is none of these loads.
    /// Async-signal-safe.
    pub fn find(&self, pc: u64) -> Option<u64> {
        let mut entry = self.start;
        while entry < self.end {
            // SAFETY: entry lies inside the table, which holds entries only.
            let (load, failed) = unsafe { (target(&raw const (*entry).load), target(&raw const (*entry).failed)) };
            if load == pc {
                return Some(failed);
            }
            // SAFETY: at most one past the end.
            entry = unsafe { entry.add(1) };
        }
        None
    }

    /// The guarded load whose fix-up contains the instruction at `pc`. Fix-ups are a few instructions that no unwind
    /// information describes. They push nothing and change no callee-saved register that the function around the load
    /// has not saved, so the frame is as it was at the load. `None`: `pc` lies in no fix-up. Async-signal-safe.
    pub fn load_of(&self, pc: u64) -> Option<u64> {
        let mut nearest: Option<(u64, u64)> = None;
        let mut entry = self.start;
        while entry < self.end {
            // SAFETY: entry lies inside the table, which holds entries only.
            let (load, failed) = unsafe { (target(&raw const (*entry).load), target(&raw const (*entry).failed)) };
            let distance = pc.wrapping_sub(failed);
            if distance < STUB && nearest.is_none_or(|(least, _)| distance < least) {
                nearest = Some((distance, load));
            }
            // SAFETY: at most one past the end.
            entry = unsafe { entry.add(1) };
        }
        nearest.map(|(_, load)| load)
    }

    /// Moves a context that faulted in one of these loads to its fix-up. False if it faulted elsewhere; the context is
    /// then unchanged.
    /// Async-signal-safe.
    ///
    /// # Safety
    /// `ucontext` must be the context of the fault that the calling handler handles.
    pub unsafe fn mend(&self, ucontext: *mut u8) -> bool {
        // SAFETY: the pc lies inside the context.
        let pc = unsafe { ucontext.add(UCONTEXT_PC as usize).cast::<u64>() };
        // SAFETY: as above.
        let next = self.find(unsafe { pc.read() });
        if let Some(next) = next {
            // SAFETY: as above.
            unsafe { pc.write(next) };
        }
        next.is_some()
    }
}

/// The address that an entry's field points to.
///
/// # Safety
/// `place` must be valid for reads.
unsafe fn target(place: *const i32) -> u64 {
    // SAFETY: passed on.
    (place as u64).wrapping_add_signed(i64::from(unsafe { place.read() }))
}

/// [`Fixups::load_of`] for the guarded loads of this object.
pub fn load_of(pc: u64) -> Option<u64> {
    OWN.load_of(pc)
}

/// [`Fixups::mend`] for the guarded loads of this object.
///
/// # Safety
/// As for [`Fixups::mend`].
pub unsafe fn mend(ucontext: *mut u8) -> bool {
    // SAFETY: passed on.
    unsafe { OWN.mend(ucontext) }
}
