//! The core of the universal unwinder: what a frame is, how a walk goes from one to its caller, and what it needs of a
//! process.
//!
//! A signal room: everything may run inside a signal handler, unless its comment says *Not for handlers*, as changes of
//! the registry do, which take a lock. No allocation, no thread-local, no panic, no unbounded loop; no lock that a
//! handler takes; foreign bytes only through [`memory::Reader`].
//!
//! ```text
//! cursor, regs     the current frame: pc, sp, fp, and the other registers that are known
//! rule             data that describes how to get from a frame to its caller
//! memory           the only way to read a stack, an object or a runtime: guarded, probed, recorded
//! objects, loads   the loaded objects, as the loader lists them, confirmed when it has loaded or unloaded anything
//! loaded           what the loaded objects name, looked up without the loader's help (not for handlers)
//! call_site        whether an address is a return address
//! caller           C entries that need their caller's registers
//! plugin           the contract with unwinders in DSOs
//! walk             the loop, and its environment (`walk::Env`), which a process, a test or a fuzzer provides
//! cache            all that remembers earlier work: rules by pc, short rules, the last whole walk, captured steps
//! slots, recovery  one slot a thread: who walks, and where a walk that faults comes back to
//! registry         windows of code that a JIT registered
//! frame, stop_reason   the result of a walk
//! library          the functions between `libuunwind.so` and the sampler; steps: what the drop-in object asks
//! ```
#![cfg_attr(not(test), no_std)]

pub mod array_vec;
pub mod cache;
pub mod call_site;
pub mod caller;
pub mod cursor;
pub mod errno;
pub mod exports;
pub mod frame;
pub mod headers;
pub mod library;
pub mod loaded;
pub mod loads;
pub mod memory;
pub mod object_key;
pub mod objects;
pub mod opening;
#[cfg(all(panic = "abort", not(test)))]
mod panic;
pub mod plugin;
pub mod recovery;
pub mod registry;
pub mod regs;
pub mod rule;
pub mod setup_wakeup;
pub mod slots;
pub mod span;
pub mod steps;
pub mod stop_reason;
pub mod syscall;
pub mod walk;
pub mod wire_enum;
