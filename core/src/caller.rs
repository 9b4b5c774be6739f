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

pub use cpu::Caller;

/// Defines a C entry that calls `$inner` with its arguments and the caller's registers, a `*const Caller`.
/// `$elsewhere`: where the address of a function stands that calls are passed on to, or null: the same entry of another
/// copy of the library, or of another library.
#[macro_export]
macro_rules! entry_with_caller {
    (
        $(#[$attribute:meta])*
        $name:ident($($argument:ident: $type:ty),*) -> $result:ty = $inner:path, $elsewhere:path
    ) => {
        $(#[$attribute])*
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> $result {
            core::arch::naked_asm!(
                ".cfi_startproc",
                $crate::unless_elsewhere!(),
                $crate::store_caller!($crate::next_argument!($($argument)*)),
                $crate::call!("{inner}"),
                $crate::drop_caller!(),
                "ret",
                $crate::jump_elsewhere!(),
                ".cfi_endproc",
                inner = sym $inner,
                elsewhere = sym $elsewhere,
            )
        }
    };
}
