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

/// Delivers what the calling thread was asked for, if anything is due.
///
/// # Safety
/// `ucontext` must be that of the handler, which is running.
pub unsafe fn on_signal(ucontext: *const u8) {
    let Some(slot) = SLOTS.current() else { return };
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
    let mut served = 0;
    // Each round serves one client at least, and the last one ends the request.
    for _ in 0..=CLIENTS {
        let waiting = slot.deferred.next(count, served);
        if waiting == 0 {
            return;
        }
        for client in 0..CLIENTS {
            if waiting & 1 << client != 0 {
                served |= 1 << client;
                // SAFETY: the frames are the walk's, which has ended.
                unsafe { clients::give(client, &delivery) };
            }
        }
    }
}
