//! Everything in the core that remembers earlier work.
//!
//! A replay is exact by one argument: **a walk is a function of what it reads**. An entry is stored together with all
//! of its inputs, or under a key that stands for them, and is used only where each of them still has the same value.
//! Nothing is guessed: what cannot be compared is not cached. Two kinds of inputs exist:
//!
//! * *words of the process*: registers, stack, interpreter memory. They are compared with what they were, word by word;
//! * *what is mapped and registered*: objects, windows, plugins, facts. Each is identified by a number that is never
//!   reused: the generation of a load or of a window, or a *validity epoch*, which changes with each of its inputs.
//!   That of captures has the loader's counters and our count of changes: plugins, marks, tables, and windows where code
//!   was cached. That of whole walks has the same count and, in a recording, that of the recorder's facts; the objects
//!   that may be unloaded are compared one by one. An address alone is never a key, since something else may be put in
//!   its place.
//!
//! | cache | in | key | valid while | owner | size | hits counted |
//! |---|---|---|---|---|---|---|
//! | rules and functions by pc | [`rules`] | pc, generation of the load or window | the generation is current | process | a page of each at first, 2 MiB and 128 KiB at last; a torn entry misses (Hyatt's hashing) | no |
//! | what was met once | [`met`] | 4 bytes of code | always: a hint | process | 64 KiB | no |
//! | rules of addresses that were met once | [`first`] | pc, generation of the load | the generation is current | process | 2,048 rules; a torn entry misses | no |
//! | rules in one word | [`short`] | pc; validity epoch (captures) or generation (samples) | the epoch is the process's, or the generation is that of the object or window under the pc | process | 1 MiB, 16 bytes an entry | no |
//! | last whole walk | [`last_walk`] | registers and every word read | validity epochs (`Stamp`), words, objects' generations | thread (the sampler's memory, and `uu_walk`'s) | [`last_walk::LAST_WALK_BYTES`], with the next row | frames reused, in the summary |
//! | plugins' answers | [`read_memo`] | plugin, five words, every word read | validity epoch and words | inside the last walk | 256 answers | with the last walk |
//! | step cache: last captured steps | [`steps`] | pc, sp | validity epoch, and one word a step | thread (slot) | 2 halves of 512 steps | no |
//! | verified tail | `steps::tail` | pc and sp of its first frame | its words, those of the validity epoch among them | inside the steps | one, 512 frames | no |
//! | verified prefixes | `steps::prefix` | pc, sp, and rbp where it counts | its words; the reply, for the capacities that it serves | inside the tail | four, 8 frames each | no |
//!
//! Others lie beside what they belong to: the objects by page ([`crate::objects`]), the windows by pc
//! ([`crate::registry`]), the names that a recorder has received (`profiler/ring`), and what the library keeps for
//! programs without a recorder (`ffi/stacks`). `docs/design/caches.md` has a
//! row for every key of the project: what if its owner died and another took its place, and the test that shows it.
//!
//! In the code, `stamp` is a validity epoch, and `salt` what is mixed into a short rule's key: such an epoch, or a
//! generation. The registry's `epoch` and `mark` are something else: by them writers wait for walks
//! ([`crate::registry::grace`]).
//!
//! `short` and `steps` serve plain frames and exist for x86-64; on other CPUs their lookups miss.

pub mod first;
pub mod last_walk;
pub mod met;
pub mod query;
pub mod read_memo;
pub mod rules;
#[cfg_attr(not(target_arch = "x86_64"), path = "unsupported/mod.rs")]
mod x86_64;

pub use x86_64::{short, steps};
