//! `libuunwind-alloc.so`: the preloaded sampler, with functions that stand in front of those of malloc(3) and mmap(2).
//!
//! `uu record --mode alloc` preloads it in place of `libuunwind-preload.so`, all of which it has: so no other program
//! that is recorded meets anything of this. An allocation is passed to the real function first, which is the next one
//! that the loader finds: libc's, or that of a library such as jemalloc. Then its bytes are counted down for the
//! thread; when they are used up, a sample is taken, and its address is kept until it is freed.
//!
//! No thread-locals, no locks, nothing that allocates: the functions may be called before this object's constructor,
//! by the loader, in handlers, in the child of a fork and after a thread's destructors. Until the process is recorded
//! they pass calls on, and do nothing else.
//!
//! ```text
//! interpose  the functions of malloc(3)
//! mappings   those of mmap(2)
//! operators  those of C++, where they do not call malloc
//! cpu        their entries, in assembly
//! ranges     what these map and unmap, and how it is counted
//! counted    what is counted of a call that allocates or frees
//! live       the sampled allocations that live, by address
//! real       how the next functions are called
//! hooks      the same in a running process, where calls are led through a gate
//! ```
#![cfg_attr(not(test), no_std)]

mod counted;
#[cfg(not(feature = "no-entry-points"))]
#[cfg_attr(target_arch = "x86_64", path = "cpu/x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "cpu/aarch64.rs")]
mod cpu;
#[cfg(feature = "no-entry-points")]
pub mod hooks;
#[cfg(not(feature = "no-entry-points"))]
pub mod interpose;
mod live;
#[cfg(not(feature = "no-entry-points"))]
pub mod mappings;
#[cfg(not(feature = "no-entry-points"))]
pub mod operators;
mod ranges;
#[cfg(not(feature = "no-entry-points"))]
mod real;

#[cfg(all(panic = "unwind", not(test)))]
extern crate std;
