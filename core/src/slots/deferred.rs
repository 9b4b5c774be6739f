//! A thread's deferred request: who wants its stack at the next safe point, and the cookie by which they will know it.
//!
//! One word says everything, and every change of it is one compare-and-swap: a handler that interrupts a change, and
//! asks or delivers itself, makes that change fail and begin again. Threads take part that look for requests whose
//! owner has ended.
//!
//! ```text
//! 63             19   18     17       16      15    0
//! | count          | SENT | SERVED | ASKED | clients |
//!
//! ask      set ASKED and the client's bit; who sets ASKED sends the signal, and all get the same count
//! sent     set SENT, if the signal has not arrived: it is blocked, and will
//! begin    the signal's handler sets SERVED; more clients may ask, also those that have their stack
//! next     the clients that have not been served; if there are none: count + 1, all bits 0
//! void     count + 1, all bits 0: nothing will be delivered
//! ```
//! So a count has at most one stack: it is given up by the change that ends its delivery, and only if no client that
//! got it waits. After that, who still has the word from before changes nothing.
//!
//! This file is also compiled by the model checker (`core/model`), with its own `sync`.

use super::sync::{AtomicU64, Ordering};

/// Number of clients that a process can have.
pub const CLIENTS: u32 = 16;

const CLIENT_BITS: u64 = (1 << CLIENTS) - 1;
const ASKED: u64 = 1 << CLIENTS;
const SERVED: u64 = 1 << (CLIENTS + 1);
const SENT: u64 = 1 << (CLIENTS + 2);
const COUNT: u64 = 1 << (CLIENTS + 3);
/// How often a change is tried. It fails when the thread itself, in a handler, or a thread that looks for requests of
/// ended ones, changed the word: a client's bit at a time.
const TRIES: u32 = 64;

/// The request of one thread. All-zero: nothing is asked.
#[derive(Debug)]
pub struct Deferred(AtomicU64);

/// What [`Deferred::ask`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The number of the thread's request: with the thread's slot, the cookie.
    pub count: u64,
    /// The caller is the first one, and has to send the signal.
    pub is_first: bool,
}

impl Deferred {
    #[cfg(not(uu_model))]
    /// Nothing is asked.
    #[allow(clippy::new_without_default, reason = "made once, in a static")]
    pub const fn new() -> Deferred {
        Deferred(AtomicU64::new(0))
    }

    #[cfg(uu_model)]
    /// Nothing is asked.
    #[allow(clippy::new_without_default, reason = "as in the product")]
    pub fn new() -> Deferred {
        Deferred(AtomicU64::new(0))
    }

    /// Adds a client (below [`CLIENTS`]) to the request of the calling thread, whose this is. `None`: no such client,
    /// or the word was changed all the time. Async-signal-safe.
    #[inline]
    pub fn ask(&self, client: u32) -> Option<Asked> {
        if client >= CLIENTS {
            return None;
        }
        let bit = 1 << client;
        for _ in 0..TRIES {
            let now = self.0.load(Ordering::Acquire);
            let asked = Asked { count: now / COUNT, is_first: now & ASKED == 0 };
            if now & bit != 0 && !asked.is_first || self.change(now, now | ASKED | bit) {
                return Some(asked);
            }
        }
        None
    }

    /// The signal of the request with this count was sent, and waits.
    #[inline]
    pub fn sent(&self, count: u64) {
        for _ in 0..TRIES {
            let now = self.0.load(Ordering::Acquire);
            let is_waiting = now / COUNT == count && now & (ASKED | SERVED) == ASKED;
            if !is_waiting || self.change(now, now | SENT) {
                return;
            }
        }
    }

    /// The count of the request whose signal was not sent yet, if there is one: who asked first is about to.
    pub fn unsent(&self) -> Option<u64> {
        let now = self.0.load(Ordering::Acquire);
        (now & (ASKED | SERVED | SENT) == ASKED).then_some(now / COUNT)
    }

    /// Whether this client (below [`CLIENTS`]) waits for the stack of the request with this count.
    pub fn waits(&self, count: u64, client: u32) -> bool {
        let now = self.0.load(Ordering::Acquire);
        now / COUNT == count && now & (CLIENT_BITS & 1 << client) != 0
    }

    /// Begins the delivery on the thread whose request this is; its count. `None`: nothing is asked, or a delivery is
    /// under way, which this one has interrupted.
    pub fn begin(&self) -> Option<u64> {
        for _ in 0..TRIES {
            let now = self.0.load(Ordering::Acquire);
            if now & (ASKED | SERVED) != ASKED {
                return None;
            }
            if self.change(now, now | SERVED) {
                return Some(now / COUNT);
            }
        }
        None
    }

    /// The clients, a bit for each, that wait for the stack of the delivery with this count, without those in `served`.
    /// 0: none does, and the request is over, or was made void: the delivery has ended.
    pub fn next(&self, count: u64, served: u64) -> u64 {
        for _ in 0..TRIES {
            let now = self.0.load(Ordering::Acquire);
            if now / COUNT != count || now & SERVED == 0 {
                return 0;
            }
            let waiting = now & CLIENT_BITS & !served;
            if waiting != 0 {
                return waiting;
            }
            if self.change(now, Deferred::over(now)) {
                return 0;
            }
        }
        0
    }

    /// Makes the request with this count void; the clients that had asked, a bit for each. `None`: it is over.
    pub fn void(&self, count: u64) -> Option<u64> {
        for _ in 0..TRIES {
            let now = self.0.load(Ordering::Acquire);
            if now / COUNT != count || now & ASKED == 0 {
                return None;
            }
            if self.change(now, Deferred::over(now)) {
                return Some(now & CLIENT_BITS);
            }
        }
        None
    }

    /// The count of the request that waits or is being served, if there is one.
    pub fn pending(&self) -> Option<u64> {
        let now = self.0.load(Ordering::Acquire);
        (now & ASKED != 0).then_some(now / COUNT)
    }

    /// The count of the request that is being served, if there is one.
    pub fn in_delivery(&self) -> Option<u64> {
        let now = self.0.load(Ordering::Acquire);
        (now & SERVED != 0).then_some(now / COUNT)
    }

    /// Removes a client that is leaving from the request.
    pub fn remove(&self, client: u32) {
        for _ in 0..TRIES {
            let now = self.0.load(Ordering::Acquire);
            if client >= CLIENTS || now & 1 << client == 0 || self.change(now, now & !(1 << client)) {
                return;
            }
        }
    }

    /// The word after the request that `now` has.
    fn over(now: u64) -> u64 {
        (now | (COUNT - 1)).wrapping_add(1)
    }

    fn change(&self, from: u64, to: u64) -> bool {
        self.0.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}
