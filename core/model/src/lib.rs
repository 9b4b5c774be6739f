//! `core/src/registry/grace.rs`, the very file, over the model checker's atomics.

#[path = "../../src/registry/grace.rs"]
pub mod grace;

/// What [`grace`] imports.
pub mod sync {
    pub use loom::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

    /// Stores, with a full barrier behind. The checker takes sequentially consistent accesses for weaker ones, and knows
    /// fences.
    pub fn store_then_barrier(place: &AtomicU64, value: u64) {
        place.store(value, Ordering::SeqCst);
        barrier();
    }

    /// A full barrier.
    pub fn barrier() {
        loom::sync::atomic::fence(Ordering::SeqCst);
    }
}
