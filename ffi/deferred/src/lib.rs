//! Deferred requests: a stack that is asked for where it must not or cannot be taken yet, and taken once, at the
//! thread's next safe point, for everybody who asked.
//!
//! The safe point is where the kernel delivers the signal of `uu_thread_signal` that the thread sends itself: at once,
//! or, where that signal is blocked, as soon as it is not. The protocol is [`uunwind_core::slots::Deferred`]; why,
//! docs/design/deferred.md.
//!
//! ```text
//! clients   who may ask, and what is called with the stack
//! trigger   the request, its cookie, and what takes it back
//! send      the signal, sent from a place that its handler recognises
//! deliver   what the handler does
//! ```
//! A signal room: everything may be used in a handler, unless it says otherwise.
#![cfg_attr(not(test), no_std)]

pub mod clients;
mod deliver;
mod send;
pub mod trigger;

pub use clients::{register, unregister, Deliver, Delivery};
pub use trigger::{abandoned, cancel, is_pending, lost, trigger};
