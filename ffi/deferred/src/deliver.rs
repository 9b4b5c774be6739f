//! What the handler of the signal does: takes the stack once, and gives it to every client that asked, also to those
//! that ask meanwhile.

use crate::clients::{self, Delivery};
use crate::{send, trigger};
use uunwind_core::slots::{Slot, CLIENTS};
use uunwind_core::syscall;
use uunwind_crashes::threads::{handler, Manner};
use uunwind_live::state::SLOTS;
use uunwind_stacks::request;
use uunwind_stacks::walk::Whole;

/// Delivers what the calling thread was asked for, if anything is due. A signal that was sent for another purpose may
/// have interrupted `uu_trigger` before it sends its own, which will find its caller's stack.
///
/// # Safety
/// `ucontext` must be that of the handler, which is running.
pub unsafe fn on_signal(ucontext: *const u8, purpose: u64) {
    // SAFETY: as the caller says.
    SLOTS.each_current(&|slot| unsafe { deliver(slot, ucontext, purpose) });
}

/// # Safety
/// As [`on_signal`], with a slot of the thread.
unsafe fn deliver(slot: &Slot, ucontext: *const u8, purpose: u64) {
    if purpose != send::PURPOSE && slot.deferred.unsent().is_some() {
        return;
    }
    let Some(count) = slot.deferred.begin() else { return };
    // SAFETY: as the caller says.
    let from = unsafe { send::asked_from(ucontext) };
    let mut then = |whole: Whole<'_>| serve(slot, count, &whole);
    // SAFETY: as the caller says; the frame that asked is active, since its call has not returned.
    if let Err(stop) = unsafe { handler::walk_interrupted(ucontext, from, Manner::default(), &mut then) } {
        serve(slot, count, &Whole { frames: &[], stop, desync: false, result: 0, cfas: None });
    }
}

/// Gives the stack to all that wait for it, until none does.
fn serve(slot: &Slot, count: u64, whole: &Whole<'_>) {
    let Some(cookie) = trigger::cookie(slot, count) else { return };
    let delivery = Delivery {
        size: size_of::<Delivery>() as u32,
        tid: syscall::gettid(),
        cookie,
        frames: whole.frames.as_ptr(),
        words: whole.frames.len(),
        count: request::count(whole.frames),
        stop: whole.stop.number(),
        doubt: request::doubt(whole),
    };
    // Client -> which registration of its number was served. A client's function may remove clients and add others.
    let mut served = [0; CLIENTS as usize];
    // Each round serves one client at least, and the last one ends the request.
    for _ in 0..=2 * CLIENTS {
        let mut had = 0;
        for (client, generation) in (0..).zip(served) {
            had |= u64::from(generation != 0 && generation == clients::generation(client)) << client;
        }
        let waiting = slot.deferred.next(count, had);
        if waiting == 0 {
            return;
        }
        for (client, served) in (0..).zip(&mut served).filter(|(client, _)| waiting & 1 << client != 0) {
            *served = clients::generation(client);
            // SAFETY: the frames are the walk's, which has ended.
            unsafe { clients::give(client, &delivery, || slot.deferred.waits(count, client)) };
        }
    }
    // More clients than that have come and gone.
    slot.void(count);
}
