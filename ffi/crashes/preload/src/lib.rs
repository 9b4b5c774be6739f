//! `libuunwind-crash.so`: crash reports of programs that know nothing of them.
//!
//! Preloaded, with `UU_REPORT_CRASHES` in the environment: the number of an open file descriptor, or a path, in which
//! `%p` becomes the process id; with `UU_REPORT_CRASHES_FORMAT=json`, JSON lines; with `UU_REPORT_CRASHES_NAMER`, the
//! path of `uu`, names and lines after them. It calls `uu_setup()` and
//! `uu_report_crashes()` of `libuunwind.so.0`, which `uu run` preloads, too; otherwise it opens the one in the folder
//! above its own. Without the variable it does nothing, as in programs with the rights of others (AT_SECURE). Children
//! inherit both variables and report, too. In a program with an allocator of its own, which may be set up in `main`,
//! `uu_setup()` waits for the program's first thread.
//!
//! ```text
//! start    the constructor
//! threads  an alternate signal stack for each thread
//! ```
#![cfg_attr(not(test), no_std)]

mod start;
pub mod threads;

#[cfg(all(panic = "unwind", not(test)))]
extern crate std;
