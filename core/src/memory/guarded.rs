//! Guarded loads: ordinary loads at known instructions, which a fault handler may skip.
//!
//! Each load is one instruction in place, and leaves an entry in the section `uu_fixups`: where it is, and where to go on
//! when it faults. The fault handler asks [`Fixups::find`] with the faulting pc; the code there reports the failure and goes back.
//! No state, so it works on any thread and nests freely.
//!
//! ```text
//!   4:  mov value, [address]        uu_fixups: { 4, 6 }
//!   5:  ...                         6: failed = 1; jmp 5
//! ```

use crate::regs::UCONTEXT_PC;

/// Assembly: the instruction at the first label may fault, and execution goes on at the second one then.
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

/// Assembly that runs only behind a fault.
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
pub(super) use cpu::{any_changed, load_below, load_just_below, prefetch_by_words};
pub(super) use cpu::{copy, load, load_noting};

/// One guarded load: two distances in bytes, each from its own place.
#[repr(C)]
pub struct Fixup {
    /// To the load.
    pub load: i32,
    /// To where execution goes on when it faults.
    pub failed: i32,
}

/// The guarded loads of one object: all entries from `start` to before `end`. `repr(C)`: part of `struct uu_plugin`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Fixups {
    /// First entry.
    pub start: *const Fixup,
    /// Behind the last.
    pub end: *const Fixup,
}

// SAFETY: the entries are constants of an object that stays.
unsafe impl Sync for Fixups {}

// Each object has entries of its own, and must never meet another object's by the dynamic linker's symbol search.
core::arch::global_asm!(".hidden __start_uu_fixups", ".hidden __stop_uu_fixups");

extern "C" {
    /// The first entry of this object, by the linker.
    pub static __start_uu_fixups: Fixup;
    /// Behind its last.
    pub static __stop_uu_fixups: Fixup;
}

/// Those of this object. A macro, so that a static can hold them.
#[macro_export]
macro_rules! own_fixups {
    () => {
        $crate::memory::guarded::Fixups {
            start: &raw const $crate::memory::guarded::__start_uu_fixups,
            end: &raw const $crate::memory::guarded::__stop_uu_fixups,
        }
    };
}

static OWN: Fixups = own_fixups!();

/// Words of memory, as they were.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
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

impl Fixups {
    /// Of an object that has none.
    pub const NONE: Fixups = Fixups { start: core::ptr::null(), end: core::ptr::null() };

    /// Where to go on after a fault at `pc`; `None` when the fault was not in one of these loads. Async-signal-safe.
    pub fn find(&self, pc: u64) -> Option<u64> {
        let target = |place: *const i32| {
            // SAFETY: the place lies inside the table.
            (place as u64).wrapping_add_signed(i64::from(unsafe { place.read() }))
        };
        let mut entry = self.start;
        while entry < self.end {
            // SAFETY: entry lies inside the table, which holds entries only.
            let (load, failed) = unsafe { (&raw const (*entry).load, &raw const (*entry).failed) };
            if target(load) == pc {
                return Some(target(failed));
            }
            // SAFETY: at most one past the end.
            entry = unsafe { entry.add(1) };
        }
        None
    }

    /// Moves a context that faulted in one of these loads to its fix-up. False: it did not; the context is as it was.
    /// Async-signal-safe.
    ///
    /// # Safety
    /// The ucontext of the running handler of a fault.
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

/// [`Fixups::mend`] by the guarded loads of this object.
///
/// # Safety
/// As there.
pub unsafe fn mend(ucontext: *mut u8) -> bool {
    // SAFETY: passed on.
    unsafe { OWN.mend(ucontext) }
}
