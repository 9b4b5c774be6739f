//! What a process keeps: one of each, here and nowhere else.

use core::sync::atomic::AtomicU64;
use uunwind_core::objects::Objects;
use uunwind_core::pc_cache::PcCache;
use uunwind_core::plugin::installed::Installed;
use uunwind_core::registry::Registry;
use uunwind_core::short_rule::ShortRules;
use uunwind_core::slots::Slots;
use uunwind_core::walk::MAX_PLUGINS;

/// Loaded objects.
pub static OBJECTS: Objects = Objects::new();
/// Rules, by pc: 65,536 of them at most (2 MiB of address space, touched as it fills).
pub static RULES: PcCache<32768> = PcCache::new();
/// Short rules, by pc: 65,536 of them (1 MiB of address space, of which only the lines in use take room in the caches).
pub static SHORT_RULES: ShortRules<131072> = ShortRules::new();
/// Unwind ranges of functions in objects that a plugin claims, by pc.
pub static FUNCTIONS: PcCache<2048> = PcCache::new();
/// Windows of code that a JIT registered.
pub static REGISTRY: Registry = Registry::new();
/// One slot for each walking thread.
pub static SLOTS: Slots = Slots::new();
/// Plugins by index; 0 stays empty.
pub static PLUGINS: Installed<{ MAX_PLUGINS + 1 }> = Installed::new();
/// Counts what changes walks' answers and is no word that they read (`met.rs`).
pub static CHANGES: AtomicU64 = AtomicU64::new(0);
/// See `uunwind_core::plugin::View::tsd_offset`.
pub static TSD_OFFSET: AtomicU64 = AtomicU64::new(0);
