//! The entries of objects that a running process loads while it is recorded.
//!
//! Before each call of dlopen(3), dlsym(3) and their relatives, by which a program comes to use an object that it has
//! loaded, all objects are looked at, if the loader has loaded another one since. The call itself follows, on a thread
//! that holds nothing which its own call of the loader would not: so dl_iterate_phdr(3) may be called, which keeps all
//! objects where they are meanwhile.
//!
//! An object that the loader has not relocated yet is left for the next time: its read-only part (PT_GNU_RELRO) is not
//! protected before that.

use core::sync::atomic::{AtomicU64, Ordering};
use uunwind_core::loaded::{self, Iterate, PhdrInfo, Slot};
use uunwind_core::syscall::{self, nr};
use uunwind_preload::{events, injected};
use uunwind_ring::gate::{self, Called, CANCEL, FUNCTIONS, ITERATE, STUB, VARIANTS};

/// How many objects the loader had loaded and unloaded when all of them were last looked at.
static ADDS: AtomicU64 = AtomicU64::new(0);
static SUBS: AtomicU64 = AtomicU64::new(0);
/// Dynamic sections of objects that need no other look, as long as none is unloaded; 0: free.
static DONE: [AtomicU64; 1024] = [const { AtomicU64::new(0) }; 1024];
const PAGE: u64 = gate::PAGE as u64;
/// A page may be read (mprotect(2)).
const PROT_READ: i32 = 1;
/// A page may be written.
const PROT_WRITE: i32 = 2;

/// Redirects the entries of objects that were loaded since.
pub fn new_objects() {
    let Some((called, at)) = injected::gate().filter(|_| events::is_on() && events::is_own()) else { return };
    let iterate = called.helpers.get(ITERATE).map_or(0, |place| place.load(Ordering::Relaxed)) as usize;
    if iterate == 0 {
        return;
    }
    let flags = events::flags();
    let (mut counts, mut is_whole) = (None, true);
    let look = |object: &PhdrInfo| {
        if counts.is_none() {
            let (adds, subs) = (ADDS.load(Ordering::Relaxed), SUBS.load(Ordering::Relaxed));
            if (object.adds, object.subs) == (adds, subs) {
                return Some(());
            }
            if object.subs != subs {
                DONE.iter().for_each(|done| done.store(0, Ordering::Relaxed));
            }
            counts = Some((object.adds, object.subs));
        }
        is_whole &= all_of(object, called, (at, flags));
        None
    };
    // SAFETY: `uu` has found the function of this name there; this is no handler.
    unsafe { loaded::find(core::mem::transmute::<usize, Iterate>(iterate), look) };
    if let (Some((adds, subs)), true) = (counts, is_whole) {
        ADDS.store(adds, Ordering::Relaxed);
        SUBS.store(subs, Ordering::Relaxed);
    }
}

/// Redirects the entries of an object. False: it is not relocated yet.
fn all_of(object: &PhdrInfo, called: &Called, (gate, flags): (u64, u32)) -> bool {
    // SAFETY: the loader's structure, during its iteration.
    let (dynamic, relro) = unsafe { (object.dynamic(), object.relro()) };
    let key = dynamic.address();
    if key == 0 || DONE.iter().take_while(|done| done.load(Ordering::Relaxed) != 0).any(|done| is(done, key)) {
        return true;
    }
    if relro.is_some_and(|(start, _)| is_writable(start)) {
        return false;
    }
    let defines = |name| dynamic.symbol(name).is_some();
    let is_wanted =
        gate::wanted(flags, defines(c"malloc"), defines(c"dl_iterate_phdr"), defines(c"pthread_mutex_lock"));
    let mut is_done = true;
    for slot in dynamic.slots() {
        if slot.name == CANCEL {
            called.cancels.store(1, Ordering::Relaxed);
        }
        let Some(function) = gate::index_of(slot.name.to_bytes()).filter(|function| is_wanted(*function)) else {
            continue;
        };
        is_done &= one(object, &slot, relro, (called, gate, function));
    }
    if let (true, Some(free)) = (is_done, DONE.iter().find(|done| is(done, 0))) {
        free.store(key, Ordering::Relaxed);
    }
    is_done
}

fn is(place: &AtomicU64, value: u64) -> bool {
    place.load(Ordering::Relaxed) == value
}

/// Redirects an entry, unless it is. False: it is not relocated yet.
fn one(
    object: &PhdrInfo,
    slot: &Slot,
    relro: Option<(u64, u64)>,
    (called, gate, function): (&Called, u64, usize),
) -> bool {
    if !slot.place.is_multiple_of(8) {
        return true;
    }
    // SAFETY: an aligned word of an object that is loaded.
    let entry = unsafe { &*(slot.place as *const AtomicU64) };
    let value = entry.load(Ordering::Relaxed);
    let is_in_gate = value.wrapping_sub(gate) < (FUNCTIONS.len() * VARIANTS * STUB) as u64;
    let canonical = called.canonical.get(function).map_or(0, |place| place.load(Ordering::Relaxed));
    if is_in_gate || value != 0 && value == canonical {
        return true;
    }
    let Some(values) = called.values.get(function) else { return true };
    let is_inner = gate::is_of_other_allocators(function);
    if is_inner && values.first().is_none_or(|first| is(first, 0)) {
        return true;
    }
    // SAFETY: the loader's structure, during its iteration.
    let is_inside = unsafe { object.covers(value) };
    let is_lazy = is_inside && value != slot.own;
    let old = match values.first() {
        Some(first) if is_lazy => first.load(Ordering::Relaxed),
        Some(first) if is(first, value) => value,
        // Below the object: not relocated, as far as can be seen.
        _ if value < PAGE || !is_inside && value < object.addr => {
            return value != 0 && object.addr == 0;
        }
        _ => value,
    };
    if is_inner && !values.iter().any(|known| is(known, old)) {
        // Whose it is, `uu` knows.
        return true;
    }
    let is_free =
        |place: &AtomicU64| old != 0 && place.compare_exchange(0, old, Ordering::Relaxed, Ordering::Relaxed).is_ok();
    let Some(variant) = values.iter().position(|place| old != 0 && is(place, old) || is_free(place)) else {
        called.left.fetch_add(1, Ordering::Relaxed);
        return true;
    };
    let stub = gate + ((function * VARIANTS + variant) * STUB) as u64;
    let page = slot.place & !(PAGE - 1);
    let is_protected = relro.is_some_and(|(start, end)| (start..end).contains(&slot.place));
    if is_protected && !protect(page, PROT_READ | PROT_WRITE) {
        called.left.fetch_add(1, Ordering::Relaxed);
        return true;
    }
    entry.store(stub, Ordering::Release);
    if is_protected {
        protect(page, PROT_READ);
    }
    true
}

/// Changes the rights of a page of an object.
fn protect(page: u64, rights: i32) -> bool {
    // SAFETY: a page of an object that is loaded, which nobody changes now: the loader has made it read-only for good.
    unsafe { syscall::call(nr::MPROTECT, [page as usize, PAGE as usize, rights as usize, 0, 0, 0]) == 0 }
}

/// Whether a page may be written to, by a call that adds no bit to its first word
/// ([FUTEX_WAKE_OP](https://man7.org/linux/man-pages/man2/futex.2.html)), at once and whoever else writes there.
fn is_writable(page: u64) -> bool {
    const WAKE_OP: usize = 5 | 128;
    const OR: usize = 2 << 28;
    const EFAULT: i64 = -14;
    let own = AtomicU64::new(0);
    let arguments = [core::ptr::from_ref(&own) as usize, WAKE_OP, 0, 0, page as usize, OR];
    // SAFETY: no thread waits at either word, and their values stay as they are.
    unsafe { syscall::call(nr::FUTEX, arguments) as i64 != EFAULT }
}
