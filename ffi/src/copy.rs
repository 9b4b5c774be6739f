//! Copies of the calling thread's stack, for walks elsewhere (`uunwind_ring::copy`), as the sampler asks for them.

mod filter;

use core::ffi::c_void;
use core::mem::MaybeUninit;
use filter::{Filter, Memory};
use uunwind_core::cursor::Cursor;
use uunwind_core::library::{
    CopyRequest, COPY_MEMORY, NESTED, NO_SLOT, PROBED, RESULT_FACTS_PENDING, SAMPLED, WALK_ROOM, WANT_CODE,
};
use uunwind_core::memory::{Mode, Reader};
use uunwind_core::recovery::{self, Call};
use uunwind_core::regs::{Regs, SP, UCONTEXT_SP, UCONTEXT_STACK};
use uunwind_core::slots::{Refused, Slot};
use uunwind_core::span::Span;
use uunwind_live::env::{Calls, Live};
use uunwind_live::fallback_rule;
use uunwind_live::state::{REGISTRY, SLOTS};
use uunwind_ring::copy::{Encoder, CALLED};

/// At most this number of words is read of a stack (1 MiB), and of one whose end is not known (64 KiB).
const LONGEST: u64 = 1 << 17;
const LONGEST_UNBOUNDED: u64 = 1 << 13;
/// A stack ends at most this far after its stack pointer, in bytes.
const LARGEST: u64 = 1 << 30;
/// Bytes below a stack pointer that are the function's own (System V ABI for AMD64, section 3.2.2, the red zone). A
/// walk may need the caller's frame pointer from there: compilers describe a popped register by its old place up to
/// the function's end.
const RED_ZONE: u64 = 128;
/// Bytes below a stack pointer that may hold a return address: one that was just popped, as in OCaml's `caml_c_call`.
const POPPED: u64 = 8;

/// See [`uunwind_core::library::Library::copy`].
///
/// # Safety
/// As there.
pub unsafe extern "C" fn copy(request: *mut CopyRequest) -> u32 {
    let walking = match SLOTS.enter(request as u64, REGISTRY.epoch()) {
        Ok(walking) => walking,
        Err(Refused::Nested) => return NESTED,
        Err(Refused::Full) => return NO_SLOT,
    };
    let mut work = Work { request, slot: walking.slot };
    let call = Call::new(copy_request as *const () as usize, [(&raw mut work) as u64]);
    // SAFETY: `copy_request` allocates nothing and locks nothing, so it may be left at any instruction; the slot is
    // this thread's, and `enter` made sure that it is not armed.
    let called = unsafe { recovery::call(&walking.slot.recovery, &call) };
    if let Err(reason) = called {
        // SAFETY: the sampler passed a valid request.
        let request = unsafe { &mut (*request).request };
        (request.words, request.stop) = (0, reason as u32);
    }
    walking.leave();
    SAMPLED
}

/// What a protected copy gets.
struct Work<'s> {
    request: *mut CopyRequest,
    slot: &'s Slot,
}

/// What lies in the sampler's room for a walk, so that it does not lie on its stack.
struct Room<'w> {
    env: MaybeUninit<Live<'w>>,
    reader: MaybeUninit<Reader<'w>>,
}

unsafe extern "C" fn copy_request(work: *mut c_void) {
    // SAFETY: `copy` passes its work, with its request.
    let (request, slot) = unsafe {
        let work = work.cast::<Work<'_>>();
        (&mut *(*work).request, (*work).slot)
    };
    const { assert!(size_of::<Room<'_>>() <= WALK_ROOM && align_of::<Room<'_>>() <= 64) };
    const { assert!(size_of::<Memory>() <= COPY_MEMORY && align_of::<Memory>() <= 16) };
    // SAFETY: the sampler passes WALK_ROOM bytes, 64-aligned, and COPY_MEMORY bytes, 16-aligned, used by nothing else
    // during the copy. Any bytes are a valid `Memory`.
    let (room, memory) =
        unsafe { (&mut *request.request.room.cast::<Room<'_>>(), &mut *request.memory.cast::<Memory>()) };
    let probed = request.request.flags & PROBED != 0;
    // SAFETY: the sampler passes its table, or null.
    let client = unsafe { request.request.client.as_ref() }.map(|client| (client, request.request.context));
    let (epoch, time) = (request.request.epoch, request.request.time);
    let env = room.env.write(Live::new(client, (epoch, time), Some(&slot.recovery), Calls::None));
    // SAFETY: the sampler says PROBED unless faults reach `on_fault`.
    let reader = room.reader.write(unsafe { Reader::new(if probed { Mode::Probed } else { Mode::Guarded }) });
    // SAFETY: the sampler passes the kernel's ucontext.
    let cursor = Cursor { regs: unsafe { Regs::from_ucontext(request.request.ucontext) }, exact: true };
    if request.request.flags & WANT_CODE != 0 {
        request.request.code = reader.word(cursor.regs.pc.wrapping_sub(8)).unwrap_or(0);
    }
    memory.begin();
    let called = env.code_at(cursor.regs.pc, reader).is_none() && is_called(&cursor, env, reader);
    let flags = if called { CALLED } else { 0 };
    // SAFETY: the sampler passes a buffer of that many bytes that nothing else uses now.
    let out = unsafe { core::slice::from_raw_parts_mut(request.request.frames.cast::<u8>(), request.request.capacity) };
    let (recent, known) = memory.parts();
    let mut encoder = Encoder::begin(out, recent, flags, cursor.regs.pc, cursor.regs.values());
    // SAFETY: the sampler passes its process's block, or null.
    let mut filter = unsafe { Filter::new(env, reader, known, request.block) };
    let mut stacks = Stacks { ends: request.ends, alternate: request.alternate, read: 0, interrupted: None };
    stacks.copy(cursor.regs.sp(), &mut encoder, &mut filter);
    if let Some(sp) = stacks.interrupted {
        stacks.copy(sp, &mut encoder, &mut filter);
    }
    request.read = stacks.read;
    request.request.words = encoder.finish();
    // Facts are for frames of languages, which a copy has none of.
    request.request.result = env.result & !RESULT_FACTS_PENDING;
}

/// Whether the word at the stack pointer is the return address of the call that led to this pc, which no object and no
/// window covers. Elsewhere nobody can say: the code is not in the copy.
#[inline(never)]
fn is_called(cursor: &Cursor, env: &mut Live<'_>, reader: &mut Reader<'_>) -> bool {
    let rule = fallback_rule::unowned(cursor, env, reader);
    !rule.is_failed() && rule.cfa_parts() == (SP, 8)
}

/// The stacks of a thread: the one that it runs on, and the one that a handler on its alternate stack has interrupted.
struct Stacks {
    ends: [u64; 2],
    alternate: [u64; 2],
    /// Words read so far.
    read: u64,
    /// Stack pointer of the interrupted context whose signal frame lies on the alternate stack.
    interrupted: Option<u64>,
}

impl Stacks {
    fn alternate(&self) -> Span {
        let [low, size] = self.alternate;
        Span::new(low, low.saturating_add(size))
    }

    /// Copies the stack with this stack pointer.
    #[inline(never)]
    fn copy(&mut self, sp: u64, encoder: &mut Encoder<'_>, filter: &mut Filter<'_, '_>) {
        let top = sp & !7;
        let start = top.saturating_sub(RED_ZONE);
        let on_alternate = self.alternate().contains(sp);
        let end = if on_alternate { self.alternate().end & !7 } else { self.end_of(sp) };
        let (extent, limit) = match end.checked_sub(start).map(|bytes| bytes / 8) {
            Some(extent) if end != 0 => (extent, extent.min(LONGEST)),
            _ => (0, LONGEST_UNBOUNDED),
        };
        filter.add_stack(Span::new(top, start.saturating_add(limit.max(extent).saturating_mul(8))));
        encoder.stack(start);
        let mut at = start;
        let last = start.saturating_add(limit.saturating_mul(8));
        let mut readable = true;
        while at < last && encoder.has_room() {
            let word = match filter.read(at) {
                Some(word) => word,
                // A guard page may lie there.
                None if at < top => 0,
                None => {
                    readable = false;
                    break;
                }
            };
            if on_alternate && self.interrupted.is_none() && word == self.alternate[0] {
                self.find_interrupted(at, filter);
            }
            filter.put(at, word, at.saturating_add(POPPED) >= top, encoder);
            at = at.wrapping_add(8);
        }
        let read = at.wrapping_sub(start) / 8;
        self.read = self.read.saturating_add(read);
        // What cannot be read is no stack any more.
        let cut = match (readable, extent) {
            (false, _) => None,
            (true, 0) => Some(0),
            (true, extent) => extent.checked_sub(read).filter(|left| *left > 0),
        };
        encoder.end(cut);
    }

    /// Where the stack with this stack pointer ends; 0: not known.
    fn end_of(&self, sp: u64) -> u64 {
        let after = |end: &u64| end.checked_sub(sp).is_some_and(|left| left > 0 && left <= LARGEST);
        self.ends.into_iter().filter(after).min().unwrap_or(0) & !7
    }

    /// `at` holds the lowest address of the alternate stack: of a signal frame, the kernel writes it and the stack's
    /// size into `uc_stack`. The frame's saved stack pointer is that of the code that the signal interrupted.
    #[cold]
    #[inline(never)]
    fn find_interrupted(&mut self, at: u64, filter: &mut Filter<'_, '_>) {
        if filter.read(at.wrapping_add(16)) != Some(self.alternate[1]) {
            return;
        }
        let ucontext = at.wrapping_sub(UCONTEXT_STACK);
        if let Some(sp) = filter.read(ucontext.wrapping_add(UCONTEXT_SP)) {
            if !self.alternate().contains(sp) {
                self.interrupted = Some(sp);
                // Its own saved registers point there.
                let end = self.end_of(sp);
                filter.add_stack(Span::new(
                    sp & !7,
                    if end == 0 { sp.saturating_add(LONGEST_UNBOUNDED * 8) } else { end },
                ));
            }
        }
    }
}
