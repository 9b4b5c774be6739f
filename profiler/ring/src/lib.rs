//! The shared memory between the targets' signal handlers and the recorder.
//!
//! There are two memfds. The recorder creates both; targets find them through the environment ([`ENV_SESSION`]) as
//! `/proc/<recorder>/fd/<n>`, or ask the recorder for them ([`elsewhere`]), map them once and close the file:
//!
//! * the **session** ([`layout`]): written by targets, drained by the recorder. A header, a table of block states, and
//!   equal blocks. A process claims a *process block* (identity, counters, the table of names already sent); each of
//!   its threads claims a *thread block* (a ring with one writer and one reader);
//! * the **facts** ([`facts`]): written by the recorder, read by targets. They hold what the plugins' analyse halves
//!   found in ELF files, keyed by build-id, followed by rules made from code of JITs ([`code_rules`]), and by the rule
//!   tables ([`tables`]) with the same keys as the facts.
//!
//! The recorder treats everything in the session as hostile: it checks bounds and copies before it parses. Everything
//! in this crate may be used inside a signal handler: no allocation, no lock, no system call, no panic.
#![cfg_attr(not(test), no_std)]

pub mod code_map;
pub mod code_rules;
pub mod copy;
pub mod elsewhere;
pub mod facts;
pub mod frees;
pub mod gate;
pub mod injected;
pub mod labels;
pub mod layout;
pub mod names;
pub mod numbers;
pub mod openings;
pub mod record;
pub mod samples;
pub mod tables;
pub mod writer;

/// Environment variable that switches the preloaded object on:
/// `<recorder pid>:<session fd>:<facts fd>:<rate in Hz>:<flags>`, all decimal; with [`FLAG_ALLOC`] bytes
/// for the rate, with [`FLAG_LOCK`] ns.
pub const ENV_SESSION: &str = "UU_SESSION";

/// Environment variable with the objects that a recorded target opens, as absolute paths separated by colons: first
/// `libuunwind.so.0`, then the plugins; a plugin's place in the list (from 1) is its index in frames and names.
pub const ENV_OBJECTS: &str = "UU_SESSION_OBJECTS";

/// Environment variable by which a process finds the recorder that is not in its `/proc`: see [`elsewhere`].
pub const ENV_SOCKET: &str = "UU_SESSION_SOCKET";

/// Flag in [`ENV_SESSION`]: a sampling signal that a thread of the target sends itself with tgkill is taken as a
/// request for one sample ([`record::SampleKind::Explicit`]), not as the target's own signal.
pub const FLAG_EXPLICIT: u32 = 1;
/// Flag in [`ENV_SESSION`]: children (forked or exec'ed) are not recorded.
pub const FLAG_NO_CHILDREN: u32 = 2;
/// Flag in [`ENV_SESSION`]: no walk replays a part of an earlier one, so that every walk steps each of its frames.
pub const FLAG_NO_REPLAY: u32 = 4;
/// Flag in [`ENV_SESSION`]: stacks have the frames that await those that run, too: see
/// `uunwind_core::frame::FLAG_AWAITING`.
pub const FLAG_AWAITING: u32 = 8;
/// Flag of a recording, which targets ignore: threads that wait were sampled, too.
pub const FLAG_WALL: u32 = 32;
/// Flag in [`ENV_SESSION`]: samples have copies of stacks ([`copy`]), to be walked later.
pub const FLAG_COPIES: u32 = 16;
/// Flag in [`ENV_SESSION`]: each sample is walked, and has a copy of the same stack beside it, to compare both.
pub const FLAG_COPIES_BESIDE: u32 = 64;
/// Flag in [`ENV_SESSION`]: the sampling signal is SIGTRAP, which the recorder's perf events send beside the timers
/// (docs/design/kernel.md).
pub const FLAG_EVENTS: u32 = 128;
/// Flag of a recording, which targets ignore: samples have their stacks in the kernel, too.
pub const FLAG_KERNEL: u32 = 256;
/// Flag in [`ENV_SESSION`], with [`FLAG_EVENTS`]: perf events sample the user mode alone, and the timers system calls.
pub const FLAG_USER_MODE: u32 = 512;

/// Flag in [`ENV_SESSION`]: allocations are sampled, and no timer is armed. What stands for the rate is the number of
/// bytes from a sample to the next, on average; 1: every allocation is one.
pub const FLAG_ALLOC: u32 = 1024;

/// Flag in [`ENV_SESSION`]: waits for locks are sampled, and no timer is armed. What stands for the rate is the time in
/// ns from a sample to the next, on average; 1: every wait is one.
pub const FLAG_LOCK: u32 = 2048;

/// Flag in [`ENV_SESSION`], with [`FLAG_ALLOC`]: what the program maps itself, anonymously, counts as allocated, too.
pub const FLAG_MAPPINGS: u32 = 4096;

/// Upper half of the `si_value` of a sampler's timers: their signals are its own, whoever stops a thread before one.
pub const TICK_COOKIE: u64 = 0x7575_1a7e;

/// What distinguishes the recorder's perf events (`perf_event_attr.sig_data`, `si_perf_data`): no other event of the
/// thread's has this number.
pub const EVENT_COOKIE: u64 = u64::from_le_bytes(*b"uu-event");
