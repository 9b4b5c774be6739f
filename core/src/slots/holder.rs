//! A capture's exclusive use of its thread's step cache, or a `uu_walk`'s of its walk memory. Either may be left by
//! siglongjmp or suspended by a handler while it has it, so a lock would not do: the capture is known by a word on its
//! own stack, its *stake*.

use crate::memory::Reader;
use core::sync::atomic::{compiler_fence, fence, AtomicU64, Ordering};

/// Set in a holder while a capture that takes it over verifies that the earlier one was left. Stakes are words, so the
/// bit is free in their addresses.
pub(super) const CLAIMED: u64 = 1;

/// A word on a capture's own stack that exists as long as the capture may continue: also while its thread does
/// something else, since a handler has swapped contexts, or another task runs next to it with the same thread pointer
/// ([clone(2)](https://man7.org/linux/man-pages/man2/clone.2.html) with CLONE_VM). A capture that was left by
/// siglongjmp leaves it set, until its place on the stack is overwritten.
#[derive(Debug)]
pub struct Stake(AtomicU64);

impl Stake {
    /// The stake of a capture that holds nothing.
    #[allow(clippy::new_without_default, reason = "its address is what counts")]
    #[inline(always)]
    pub const fn new() -> Stake {
        Stake(AtomicU64::new(0))
    }

    /// Sets the stake and returns its address.
    #[inline(always)]
    pub(super) fn stand(&self) -> u64 {
        let at = core::ptr::from_ref(self) as u64;
        self.0.store(Stake::sign(at), Ordering::Relaxed);
        at
    }

    /// Withdraws the stake: the capture will not continue.
    #[inline(always)]
    pub fn withdraw(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// The value of the stake at this address while it exists.
    #[inline(always)]
    pub(super) fn sign(address: u64) -> u64 {
        address ^ 0x6b61_7473_7575_9a3d
    }

    /// Whether no capture with its stake at this address can continue.
    #[cold]
    #[inline(never)]
    pub(super) fn is_over(address: u64) -> bool {
        // The stack that it was on may have been unmapped.
        let mut reader = Reader::probed();
        reader.word(address) != Some(Stake::sign(address))
    }

    /// Whether the capture with its stake at `before` cannot continue, as seen by the one with its stake at `at`: two
    /// stakes cannot stand in one place.
    fn has_left(before: u64, at: u64) -> bool {
        before == at || Stake::is_over(before)
    }
}

/// Who uses something.
#[derive(Debug)]
pub struct Holder {
    /// Address of the [`Stake`] of the capture that holds it, perhaps with `CLAIMED`; 0: none does.
    pub(super) by: AtomicU64,
    /// How often it was held.
    times: AtomicU64,
}

/// A look at something that is not held ([`Holder::look`]).
#[derive(Clone, Copy, Debug)]
pub struct Look<'a> {
    holder: &'a Holder,
    times: u64,
}

impl Look<'_> {
    /// Whether no capture has held it since the look began, so that what was read is consistent.
    #[inline(always)]
    pub fn was_clear(self) -> bool {
        fence(Ordering::Acquire);
        self.holder.times.load(Ordering::Relaxed) == self.times
    }
}

/// Something that is held by one capture ([`Holder::hold`]); [`Held::leave`] gives it back.
#[derive(Debug)]
pub struct Held<'a> {
    holder: &'a Holder,
    _stake: &'a Stake,
}

impl Held<'_> {
    /// Gives back what the holder guards.
    #[inline(always)]
    pub fn leave(self) {
        self.holder.by.store(0, Ordering::Release);
    }
}

impl Holder {
    /// Held by none.
    #[allow(clippy::new_without_default, reason = "made once, in a static")]
    pub const fn new() -> Holder {
        Holder { by: AtomicU64::new(0), times: AtomicU64::new(0) }
    }

    /// Begins a look at what this guards, by a capture that changes nothing there and so need not hold it: a handler
    /// that interrupts it may hold it meanwhile, and so may another task. What is read is to be used only if
    /// [`Look::was_clear`] says so afterwards. `None`: a capture holds it, which this one interrupted or which is
    /// suspended or was left. Async-signal-safe.
    #[inline(always)]
    pub fn look(&self) -> Option<Look<'_>> {
        let times = self.times.load(Ordering::Acquire);
        (self.by.load(Ordering::Acquire) == 0).then_some(Look { holder: self, times })
    }

    /// Takes it for the calling capture, whose stake this is; no other capture uses it until it is given back, or until
    /// this capture cannot continue. For writers of the registry this is no walk. `None`: another capture holds it,
    /// which this one interrupted or which is suspended. Async-signal-safe.
    #[inline(always)]
    pub fn hold<'a>(&'a self, stake: &'a Stake) -> Option<Held<'a>> {
        let at = stake.stand();
        compiler_fence(Ordering::SeqCst);
        let taken = self.by.compare_exchange(0, at, Ordering::Acquire, Ordering::Relaxed);
        if taken.is_err_and(|other| !self.take_over(other, at)) {
            return None;
        }
        // Before any change, for who only looks.
        self.times.store(self.times.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        Some(Held { holder: self, _stake: stake })
    }

    /// Takes it over from a capture that was left.
    #[cold]
    #[inline(never)]
    fn take_over(&self, other: u64, at: u64) -> bool {
        let before = other & !CLAIMED;
        Stake::has_left(before, at) && self.claim(other, at) && self.settle(before, at)
    }

    /// Claims what the capture `other` holds. That may not be the one that was looked at: another task may have given
    /// it back and taken it again, in the same place on its stack. So the claim is settled afterwards.
    pub(super) fn claim(&self, other: u64, at: u64) -> bool {
        self.by.compare_exchange(other, at | CLAIMED, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Settles a claim on what the capture whose stake is at `before` held. While that capture uses it its stake
    /// exists, and when it gives it back it removes the claim. So where neither is seen, it was left.
    pub(super) fn settle(&self, before: u64, at: u64) -> bool {
        let is_over = Stake::has_left(before, at);
        let holder = if is_over { at } else { before };
        let settled = self.by.compare_exchange(at | CLAIMED, holder, Ordering::Acquire, Ordering::Relaxed);
        is_over && settled.is_ok()
    }

    /// Whether a capture holds it that may go on.
    pub fn is_held(&self) -> bool {
        let holder = self.by.load(Ordering::Relaxed) & !CLAIMED;
        holder != 0 && !Stake::is_over(holder)
    }

    /// Forgets whoever holds it.
    pub(super) fn reset(&self) {
        self.by.store(0, Ordering::Release);
    }
}
