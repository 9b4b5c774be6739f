//! libunwind's local interface on x86-64 ([libunwind(3)](https://www.nongnu.org/libunwind/man/libunwind(3).html),
//! libunwind-common.h of version 1.6), under both sets of names that its header makes: `_ULx86_64_*` for programs that
//! define UNW_LOCAL_ONLY, `_Ux86_64_*` for others.
//!
//! `unw_getcontext` stays libunwind's: it stores registers. So do cursors of other processes, and all that asks about
//! an address: what a cursor of this object is asked about the function at its frame is asked from libunwind, about
//! that address.

pub mod cursor;
pub mod exports;
mod functions;
