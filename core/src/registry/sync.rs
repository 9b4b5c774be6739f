//! The atomics of [`super::grace`] and `life`, in a module of their own so that the model checker can replace
//! them.

pub use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// A store followed by a full barrier: on x86-64 one exchange, which costs less than a store and a fence.
#[inline]
pub fn store_then_barrier(place: &AtomicU64, value: u64) {
    place.store(value, Ordering::SeqCst);
}

/// A full barrier.
#[inline]
pub fn barrier() {
    core::sync::atomic::fence(Ordering::SeqCst);
}

/// Loads before it are not moved after it.
#[inline]
pub fn acquire_fence() {
    core::sync::atomic::fence(Ordering::Acquire);
}

/// Stores after it are not moved before it.
#[inline]
pub fn release_fence() {
    core::sync::atomic::fence(Ordering::Release);
}
