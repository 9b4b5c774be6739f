//! `core/src/registry/grace.rs`, `life.rs` and `core/src/slots/deferred.rs`, the very files, over the model checker's
//! atomics.

#[path = "../../src/registry/grace.rs"]
pub mod grace;

#[path = "../../src/registry/life.rs"]
pub mod life;

#[path = "../../src/slots/deferred.rs"]
pub mod deferred;

/// What they import.
pub mod sync {
    pub use loom::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

    /// Stores, with a full barrier after it. The checker takes sequentially consistent accesses for weaker ones, and
    /// knows fences.
    pub fn store_then_barrier(place: &AtomicU64, value: u64) {
        place.store(value, Ordering::SeqCst);
        barrier();
    }

    /// A full barrier.
    pub fn barrier() {
        loom::sync::atomic::fence(Ordering::SeqCst);
    }

    /// Loads before it are not moved after it.
    pub fn acquire_fence() {
        loom::sync::atomic::fence(Ordering::Acquire);
    }

    /// Stores after it are not moved before it.
    pub fn release_fence() {
        loom::sync::atomic::fence(Ordering::Release);
    }
}
