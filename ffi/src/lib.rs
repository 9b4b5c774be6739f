//! `libuu.so.0`: the home of a process's one registry, for C and for the sampler.
//!
//! A signal room, but for [`init`], which runs when the object is loaded. Exports are `uu_*` only.
#![cfg_attr(not(test), no_std)]

mod capture;
mod env;
mod init;
mod library;
mod state;
mod windows;

#[cfg(all(panic = "unwind", not(test)))]
extern crate std;

/// In the shipped object no panic path may be left: this handler calls a function that does not exist, so that a panic
/// path makes the link fail.
#[cfg(all(panic = "abort", not(test)))]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    extern "C" {
        fn uu_panic_path_left_in_signal_code() -> !;
    }
    // SAFETY: never linked, so never called.
    unsafe { uu_panic_path_left_in_signal_code() }
}
