//! `libuunwind-crash.so`: crash reports of programs that know nothing of them.
//!
//! Preloaded, with `UU_REPORT_CRASHES` in the environment: the number of an open file descriptor, or a path, in which
//! `%p` becomes the process id; with `UU_REPORT_CRASHES_FORMAT=json`, JSON lines. It opens `libuunwind.so.0`, which
//! lies in the folder above its own, and calls `uu_setup()` and `uu_report_crashes()`. Without the variable it does
//! nothing, as in programs with the rights of others (AT_SECURE). Children inherit both variables and report, too.
//!
//! ```text
//! start    the constructor
//! threads  an alternate signal stack for each thread
//! ```
#![cfg_attr(not(test), no_std)]

mod start;
pub mod threads;

// Its panic handler: a panic path that is left here fails the link.
use uunwind_core as _;

#[cfg(all(panic = "unwind", not(test)))]
extern crate std;
