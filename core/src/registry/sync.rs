//! The atomics of [`super::grace`] and [`super::life`], apart from them so that the model checker can put its own in their place.

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

/// Loads before it are not put off behind it.
#[inline]
pub fn acquire_fence() {
    core::sync::atomic::fence(Ordering::Acquire);
}

/// Stores behind it are not moved before it.
#[inline]
pub fn release_fence() {
    core::sync::atomic::fence(Ordering::Release);
}
