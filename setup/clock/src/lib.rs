//! Time and timed waits by the kernel's clock alone.
//!
//! Whatever is preloaded into this process may have put its own `clock_gettime`, `nanosleep` or `syscall` in the place
//! of libc's, as [libfaketime](https://github.com/wolfcw/libfaketime) does. The standard library calls those: its
//! `Instant` may stand, jump back or run fast then, and its timed waits, which hand the kernel a deadline of that
//! clock, may never end. Here the clock is read through the vDSO and the kernel is called directly (`rustix`, whose
//! calls are instructions of this program), and a wait is given a length, not a deadline.
//!
//! Waits without a limit may be the standard library's: what ends them is no clock.

mod bell;
pub mod channel;
mod cpu;
mod instant;

pub use bell::Bell;
pub use cpu::cpu_of;
pub use instant::{sleep, Instant};
