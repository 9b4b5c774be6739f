//! C entries whose current frame may be their caller's: they store its registers and pass their address on, after the
//! C arguments.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;
#[cfg(target_arch = "aarch64")]
use aarch64 as cpu;
#[cfg(target_arch = "x86_64")]
use x86_64 as cpu;

pub(crate) use cpu::Caller;
// The instructions that entries consist of, as texts for `concat!` and `naked_asm!`.
pub(crate) use cpu::{call, drop_caller, jump_elsewhere, next_argument, store_caller, unless_elsewhere};

/// Defines a C entry that calls `$inner` with its arguments and the caller's registers, a `*const Caller`.
/// `$elsewhere`: where the address of the same entry of another copy of the library stands, if that is the process's
/// one; then the call is passed on.
macro_rules! entry_with_caller {
    (
        $(#[$attribute:meta])*
        $name:ident($($argument:ident: $type:ty),*) -> $result:ty = $inner:path, $elsewhere:path
    ) => {
        $(#[$attribute])*
        #[unsafe(naked)]
        #[cfg_attr(not(feature = "no-entry-points"), no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> $result {
            core::arch::naked_asm!(
                ".cfi_startproc",
                $crate::caller::unless_elsewhere!(),
                $crate::caller::store_caller!($crate::caller::next_argument!($($argument)*)),
                $crate::caller::call!("{inner}"),
                $crate::caller::drop_caller!(),
                "ret",
                $crate::caller::jump_elsewhere!(),
                ".cfi_endproc",
                inner = sym $inner,
                elsewhere = sym $elsewhere,
            )
        }
    };
}
pub(crate) use entry_with_caller;
