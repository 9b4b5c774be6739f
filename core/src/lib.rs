//! The core of the universal unwinder: what a frame is, how a walk goes from one to the next, and who is asked.
//!
//! A signal room: everything here may run inside a signal handler. No allocation, no lock, no thread-local, no panic, no
//! unbounded loop; foreign bytes only through [`memory::Reader`].
//!
//! ```text
//! cursor, regs     the frame in hand: pc, sp, fp, and which other registers are known
//! rule             data that tells how to get from a frame to its caller
//! memory           the only way to read a stack, an object or a runtime: guarded, probed, recorded
//! objects, loads   the loaded objects, asked from the loader, and confirmed when it has loaded or unloaded anything
//! pc_cache         pc -> rule, pc -> function; shared by all threads, without locks
//! short_rule       the same for what most frames need, in one word
//! plugin           the contract with unwinders in DSOs
//! walk             the loop
//! reuse            what the last walk read: if it still reads the same, the rest of the stack is the same
//! chain            the same for plain frames alone, step by step
//! slots, recovery  one slot a thread: who walks, and where a walk that faults comes back to
//! registry         windows of code that a JIT registered
//! frame, stop_reason   what a walk leaves behind
//! ```
#![cfg_attr(not(test), no_std)]

#[cfg(target_arch = "x86_64")]
pub mod chain;
#[cfg(target_arch = "aarch64")]
#[path = "chain/none.rs"]
pub mod chain;
pub mod cursor;
pub mod frame;
mod headers;
pub mod library;
pub mod loads;
pub mod memory;
pub mod objects;
#[cfg(all(panic = "abort", not(test)))]
mod panic;
pub mod pc_cache;
pub mod plugin;
pub mod recovery;
pub mod registry;
pub mod regs;
pub mod reuse;
pub mod rule;
#[cfg(target_arch = "x86_64")]
pub mod short_rule;
#[cfg(target_arch = "aarch64")]
#[path = "short_rule/none.rs"]
pub mod short_rule;
pub mod slots;
pub mod stop_reason;
pub mod syscall;
pub mod walk;
