//! `libuunwind-compat.so`: the interfaces by which programs take stacks today, answered by `libuunwind.so.0`.
//!
//! Preloaded, it stands before libc's `backtrace`, the unwinder's `_Unwind_Backtrace`, and the local interface of
//! libunwind. Exceptions stay the unwinder's: what asks about a context or cursor that is not of this object goes on
//! to whoever defined that function before. Where `libuunwind.so.0` is missing or of another build, everything does.
//! [docs/design/compat.md](../../../docs/design/compat.md) says why it is made so.
//!
//! ```text
//! library     libuunwind.so.0, in the process or in the folder above
//! next        the definitions that this object stands before
//! part        a part of a stack, and how it goes on
//! backtrace   backtrace, unw_backtrace
//! unwind      _Unwind_Backtrace, and the functions that its callbacks may call
//! libunwind   cursors (x86-64)
//! ```
//!
//! A signal room: the functions run in handlers of profilers. Not for handlers: what runs when the object is loaded,
//! and the first call if that comes earlier.
#![cfg_attr(not(test), no_std)]

pub mod backtrace;
pub mod library;
#[cfg(target_arch = "x86_64")]
pub mod libunwind;
mod next;
mod part;
pub mod unwind;

#[cfg(all(panic = "unwind", not(test)))]
extern crate std;
