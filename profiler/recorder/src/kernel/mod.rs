//! The kernel's own samples of a thread: its stack in the kernel, by a
//! [perf event](https://man7.org/linux/man-pages/man2/perf_event_open.2.html) of the recorder's.
//!
//! * [`event`]: a CPU-clock event for one thread, and its ring; [`filter`]: which of its samples are taken;
//! * [`opener`]: who opens it; [`helper`]: a process with rights, which opens events for one without; [`grant`]: what
//!   these say to each other;
//! * [`clock`]: the events of all threads, and the names of the kernel's functions;
//! * [`stitch`]: a thread's samples of the kernel's, on the user stacks that it took of itself;
//! * [`records`]: the records of that ring;
//! * [`deferred`]: user stacks that the kernel takes later (Linux 6.19) are given to the samples that wait for them;
//! * [`functions`]: the kernel's functions by address.
//!
//! Why it is done this way is in docs/design/kernel.md.
//!
//! The entry points for fuzzing are [`records::records`], [`deferred::Merge`] and [`grant::Ask::read`], which accept
//! any bytes.

pub mod clock;
pub mod deferred;
pub mod event;
pub mod filter;
pub mod functions;
pub mod grant;
pub mod helper;
pub mod opener;
pub mod records;
pub mod stitch;
