//! The library's state in a process: one of each.

use crate::runtime_locks::Runtimes;
use core::sync::atomic::{AtomicU32, AtomicU64};
use uunwind_core::cache::first::FirstRules;
use uunwind_core::cache::met::Met;
use uunwind_core::cache::rules::PcCache;
use uunwind_core::cache::short::ShortRules;
use uunwind_core::objects::Objects;
use uunwind_core::plugin::installed::Installed;
use uunwind_core::registry::Registry;
use uunwind_core::setup_wakeup::Due;
use uunwind_core::slots::Slots;
use uunwind_core::walk::PLUGIN_INDICES;

/// Loaded objects.
pub static OBJECTS: Objects = Objects::new();
/// Rules by pc: at most 65,536 (2 MiB of address space; pages become resident as it fills).
pub static RULES: PcCache<32768> = PcCache::new();
/// The addresses that captures and walks with probed reads have met ([`crate::env::Live`] keeps their short rules from
/// the second time on).
pub static MET: Met<8192> = Met::new();
/// How often a capture has found a rule among [`RULES`], up to a limit.
pub static FOUND_AGAIN: AtomicU32 = AtomicU32::new(0);
/// The rules of the last 2,048 addresses that were met for the first time by them.
pub static FIRST: FirstRules<2048, 4096> = FirstRules::new();
/// Short rules by pc: at most 65,536 (1 MiB of address space; only the lines in use occupy the processor's caches).
pub static SHORT_RULES: ShortRules<131072> = ShortRules::new();
/// Ranges of functions in objects that a plugin claims, and name ids of functions in windows, by pc.
pub static FUNCTIONS: PcCache<2048> = PcCache::new();
/// Loaded runtimes whose plugin says how a thread stands to their lock, or steps in the code that they make.
pub static RUNTIMES: Runtimes = Runtimes::new();
/// Windows of code that a JIT registered.
pub static REGISTRY: Registry = Registry::new();
/// One slot for each walking thread.
pub static SLOTS: Slots = Slots::new();
/// Plugins by index; 0 stays empty.
pub static PLUGINS: Installed<PLUGIN_INDICES> = Installed::new();
/// Number of changes that may change the result of a walk without changing a word that it reads
/// ([`crate::replay_dependencies::changed`]).
pub static CHANGES: AtomicU64 = AtomicU64::new(0);
/// What walks say to the thread of the set-up, if there is one.
pub static DUE: Due = Due::new();
/// See `uunwind_core::plugin::View::tsd_offset`.
pub static TSD_OFFSET: AtomicU64 = AtomicU64::new(0);
