//! The atomics of [`super::grace`], apart from it so that the model checker can put its own in their place.

pub use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// Stores, with a full barrier behind: on x86-64 one exchange, which costs less than a store and a fence.
#[inline]
pub fn store_then_barrier(place: &AtomicU64, value: u64) {
    place.store(value, Ordering::SeqCst);
}

/// A full barrier.
#[inline]
pub fn barrier() {
    core::sync::atomic::fence(Ordering::SeqCst);
}
