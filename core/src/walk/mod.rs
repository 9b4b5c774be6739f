//! The walk: one loop, from the current frame to its caller, until the whole stack is emitted.
//!
//! ```text
//!   find owner and rule of pc --> rule gives the CFA --> overlay, if the object is claimed, with [sp, CFA) known
//!        ^                                                     |  (semantic frames)
//!        |                                                     v
//!        +------- caller's cursor <--- checks <--- the native frame's word
//! ```
//! It ends with a numbered [`StopReason`], always; the frames found so far are always kept. Who owns a pc, where names
//! go and what a process keeps are the [`Env`]'s business, so the same loop serves a handler, a test and a fuzzer. An
//! owner may also step by itself (`foreign.rs` calls what is not ours, which calls the functions of `host.rs`).

mod advance;
mod deep;
mod delivery;
mod env;
mod evidence;
mod foreign;
mod host;
#[cfg(target_arch = "x86_64")]
mod plain;
#[cfg(target_arch = "aarch64")]
#[path = "plain/none.rs"]
mod plain;
mod replay;
#[cfg(target_arch = "x86_64")]
mod saved;
mod switch;

use crate::cache::last_walk::{LastWalk, Scratch, Tail, WalkLog};
use crate::cache::steps::{Part, WalkSteps};
use crate::call_site;
use crate::cursor::Cursor;
use crate::frame::{native_word, window_word, FLAG_BY_CODE, FLAG_BY_FRAME_POINTER, FLAG_EXACT, FLAG_INTERPRETER};
use crate::memory::Reader;
use crate::plugin::{OVERLAY_DESYNC, OVERLAY_INTERPRETER, SCRATCH_BYTES};
use crate::recovery::Protector;
use crate::regs::FP;
use crate::rule::{Packed, RuleKind, BY_FRAME_POINTER, DOUBTFUL};
use crate::stop_reason::StopReason;
use advance::advance;
use deep::Deep;
pub use deep::{DEEPEST, DEEP_WORDS, MAX_WORDS, OUTERMOST};
pub use delivery::Delivery;
pub use env::{Claim, Claimed, DependsOn, Env, Look, Names, Replay};
pub use foreign::Exchange;
use foreign::Next;
use replay::SAME_AS_LAST;
#[cfg(target_arch = "x86_64")]
pub use saved::Saved;
use switch::Switches;

/// The limit of frames that are kept, counted from the leaf. With [`Setting::keep_outermost`], [`OUTERMOST`] more from
/// the root.
pub const MAX_FRAMES: u32 = 4096;
/// The largest index of a plugin. It is [`EMBEDDER`], which stands for marked interpreters; a process's plugins have
/// the indices before it, from 1 on.
pub const LAST_INDEX: usize = 31;
/// Number of indices: those of plugins, and 0, which stands for functions of windows. Each has scratch memory of its
/// own in a walk, and a bit in [`Scratch::called`].
pub const PLUGIN_INDICES: usize = LAST_INDEX + 1;
/// The index of the built-in plugin for frames that an embedder publishes itself (`uu_mark_interpreter`).
pub const EMBEDDER: u8 = LAST_INDEX as u8;
/// Bytes of scratch memory that a walk needs. It touches the parts of the plugins that it calls only.
pub const SCRATCH: usize = PLUGIN_INDICES * SCRATCH_BYTES;

/// What a walk needs of the walked thread and of its caller, besides cursor, environment, reader and buffer.
#[derive(Clone, Copy)]
pub struct Setting {
    /// Thread pointer of the walked thread: the process address of its TCB (`%fs:0` on x86-64).
    pub thread_pointer: u64,
    /// See [`crate::plugin::View::tsd_offset`].
    pub tsd_offset: u64,
    /// The `ucontext_t` that the walk begins with; null: it begins with a frame that calls it, or elsewhere.
    pub ucontext: *const u8,
    /// [`SCRATCH`] bytes, 16-aligned, for the plugins; null: no plugin is called.
    pub scratch: *mut u8,
    /// Room for what plugins and windows' functions are shown; null: it is made on the stack, which is short in a
    /// handler.
    pub exchange: *mut Exchange,
    /// Where the walk reports the number of words that it has written, frame by frame, in case that it is abandoned;
    /// or null.
    pub progress: *mut usize,
    /// The thread's last walk, to be reused and replaced; or null.
    pub last_walk: *mut LastWalk,
    /// A stack of more than [`MAX_FRAMES`] frames is walked to its end, and its outermost frames are kept, too. The
    /// buffer must then have [`DEEP_WORDS`] words; of a smaller one, the innermost part is what fits into it.
    pub keep_outermost: bool,
    /// The first frame was found by a frame pointer: the walk goes on where an earlier one ended.
    pub by_frame_pointer: bool,
}

impl Setting {
    /// No thread, no ucontext; all pointers are null, so that no plugin is called and nothing is reused.
    pub const EMPTY: Setting = Setting {
        thread_pointer: 0,
        tsd_offset: 0,
        ucontext: core::ptr::null(),
        scratch: core::ptr::null_mut(),
        exchange: core::ptr::null_mut(),
        progress: core::ptr::null_mut(),
        last_walk: core::ptr::null_mut(),
        keep_outermost: false,
        by_frame_pointer: false,
    };
}

/// The result of a walk, besides the frame words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// The reason for which it ended.
    pub stop: StopReason,
    /// Words written to the buffer.
    pub words: usize,
    /// Overlay calls that reported missing or doubtful frames.
    pub desync: u32,
    /// Number of frames, those that were taken over included.
    pub frames: u32,
    /// Of these, those that were replayed: from the thread's last walk, or for a capture from its cached steps.
    pub reused: u32,
    /// A frame pointer has led to the frame at which the walk has left its cursor.
    pub by_frame_pointer: bool,
}

struct Walk<'w, 'm, E: Env> {
    env: &'w mut E,
    reader: &'w mut Reader<'m>,
    frames: &'w mut [u64],
    words: usize,
    count: u32,
    /// Index of the plugin that is being called.
    plugin: u8,
    /// [`Scratch::called`] when the walk log last received it.
    scratch_noted: u32,
    desync: u32,
    /// How the plugin is being called.
    protector: Protector,
    /// Frames that it emitted although there was no room.
    refused: u32,
    /// Calls of the host's functions.
    host_calls: u32,
    /// Some frame found no room, or was left out.
    cut: bool,
    /// Frames that may be pushed before `make_room` is asked.
    limit: u32,
    keep_outermost: bool,
    deep: Deep,
    progress: *mut usize,
    /// A capture's log of steps, in its thread's step cache; instead of `log`.
    #[cfg_attr(target_arch = "aarch64", allow(dead_code, reason = "no frames are plain there so far"))]
    steps: Option<&'w mut WalkSteps<'m>>,
    /// Number of steps that were copied from the cached ones of the last capture.
    followed: u32,
    /// The log of a whole walk, which compares it with the thread's last one.
    log: Option<WalkLog<'m>>,
    scratch: Scratch,
    /// The rest of the last walk, when it is this one's too.
    tail: Option<Tail>,
    /// The current frame lies in a window.
    in_window: bool,
    /// A frame pointer led to the current frame.
    by_frame_pointer: bool,
    /// The current frame is the direct caller of an interrupted one, by a step of this loop's own. A capture that
    /// passes the interrupted frame by its step cache does not know.
    called_interrupted: bool,
    /// Some step may have skipped callers.
    doubtful: bool,
    switches: Switches,
}

/// Walks from `cursor`, leaving frame words (leaf first) in `frames`.
///
/// # Safety
/// `setting.scratch` must be null or valid for writes of [`SCRATCH`] bytes, `setting.exchange` and `setting.progress`
/// null or valid for writes, `setting.last_walk` null or a last walk that nothing else uses during this walk.
pub unsafe fn walk<E: Env>(
    cursor: Cursor,
    env: &mut E,
    reader: &mut Reader<'_>,
    frames: &mut [u64],
    setting: &Setting,
) -> Outcome {
    // SAFETY: passed on.
    unsafe { walk_with_steps(None, cursor, env, reader, frames, setting) }
}

/// A walk along a thread's step cache. The caller finishes its log of steps.
///
/// # Safety
/// As [`walk`].
pub unsafe fn walk_with_steps<'m, E: Env>(
    steps: Option<&mut WalkSteps<'m>>,
    mut cursor: Cursor,
    env: &mut E,
    reader: &mut Reader<'m>,
    frames: &mut [u64],
    setting: &Setting,
) -> Outcome {
    // SAFETY: passed on.
    unsafe { walk_from(0, steps, &mut cursor, env, reader, frames, setting) }
}

/// A walk of as many frames as there is room for. If that ends it ([`StopReason::BufferFull`]), the cursor is left at
/// the frame that found none, with all registers that are known there; or at its caller, if the frame's claim has moved
/// it.
///
/// # Safety
/// As [`walk`].
pub unsafe fn walk_part<E: Env>(
    cursor: &mut Cursor,
    env: &mut E,
    reader: &mut Reader<'_>,
    frames: &mut [u64],
    setting: &Setting,
) -> Outcome {
    // SAFETY: passed on.
    unsafe { walk_from(0, None, cursor, env, reader, frames, setting) }
}

/// The walk of the rest of a stack whose inner frames were unwound by short rules. `cursor`: its first frame. The
/// caller finishes the log of steps.
///
/// # Safety
/// As [`walk`].
pub unsafe fn walk_rest<'m, E: Env>(
    part: &mut Part<'m>,
    mut cursor: Cursor,
    env: &mut E,
    reader: &mut Reader<'m>,
    frames: &mut [u64],
    setting: &Setting,
) -> Outcome {
    part.go(&mut cursor, reader);
    let (count, logged) = (part.count, part.is_logged());
    let steps = Some(&mut part.steps).filter(|_| logged);
    // SAFETY: passed on.
    unsafe { walk_from(count, steps, &mut cursor, env, reader, frames, setting) }
}

/// Walks after `count` frames, whose words are written.
///
/// # Safety
/// As [`walk`].
unsafe fn walk_from<'m, E: Env>(
    count: usize,
    steps: Option<&mut WalkSteps<'m>>,
    cursor: &mut Cursor,
    env: &mut E,
    reader: &mut Reader<'m>,
    frames: &mut [u64],
    setting: &Setting,
) -> Outcome {
    let mut walk = Walk {
        env,
        reader,
        frames,
        words: count,
        count: count as u32,
        plugin: 0,
        scratch_noted: 0,
        desync: 0,
        protector: Protector::none(),
        refused: 0,
        host_calls: 0,
        cut: false,
        limit: MAX_FRAMES,
        keep_outermost: setting.keep_outermost,
        deep: Deep::default(),
        progress: setting.progress,
        steps,
        followed: 0,
        log: None,
        scratch: Scratch::new(setting.scratch, SCRATCH_BYTES),
        tail: None,
        in_window: false,
        by_frame_pointer: setting.by_frame_pointer,
        called_interrupted: false,
        doubtful: false,
        switches: Switches::default(),
    };
    // SAFETY: passed on.
    if let Some(last_walk) = unsafe { setting.last_walk.as_mut() } {
        let stamp = walk.env.stamp();
        // SAFETY: the last_walk lives as long as the walk, and `finish` makes the reader forget it.
        walk.log = Some(unsafe { WalkLog::begin(last_walk, walk.reader, stamp) });
    }
    // SAFETY: passed on.
    let stop = unsafe { walk.run(cursor, setting) };
    walk.finish(stop)
}

impl<E: Env> Walk<'_, '_, E> {
    /// # Safety
    /// As [`walk`].
    unsafe fn run(&mut self, cursor: &mut Cursor, setting: &Setting) -> StopReason {
        loop {
            if !cursor.exact && !self.by_frame_pointer {
                if let Err(full) = self.run_plain(cursor) {
                    return full;
                }
            } else if self.is_known(cursor.regs.pc, cursor.regs.sp(), cursor.exact, self.by_frame_pointer) {
                let fp = cursor.regs.get(FP);
                if self.same_from_here(|_| fp) {
                    return SAME_AS_LAST;
                }
            }
            let mut flags = if cursor.exact { FLAG_EXACT } else { 0 };
            if self.by_frame_pointer {
                flags |= FLAG_BY_FRAME_POINTER;
            }
            if let Some(log) = &mut self.log {
                // Before the frame is looked at: what is read for it belongs to this frame and not to its callees.
                log.note_fp(cursor.regs.get(FP), self.reader);
            }
            // Not taken apart: it is large, and a handler's stack is short.
            let mut look = self.env.look(cursor, self.reader);
            let (mut rule, window) = (look.rule, look.window);
            if rule.failed_for(StopReason::StartSymbol) {
                // It is the first byte of a function, and no return address.
                flags |= FLAG_EXACT;
            }
            let mut cfa = if look.unguessed { Err(StopReason::NoOwner) } else { self.cfa(rule, cursor, setting) };
            if !matches!(look.claim, Claimed::No) {
                let pc = cursor.regs.pc;
                self.in_window = window.is_some();
                let cfa = cfa.ok().map(|cfa| (cfa, rule));
                // SAFETY: passed on.
                let (answer, next) = unsafe { self.claimed(&mut look.claim, cursor, cfa, setting) };
                if let (Some(tail), Some(log)) = (&self.tail, &mut self.log) {
                    log.end_in_call(tail, native_word(pc, flags));
                    return SAME_AS_LAST;
                }
                if answer & OVERLAY_INTERPRETER != 0 {
                    flags |= FLAG_INTERPRETER;
                }
                self.desync += u32::from(answer & OVERLAY_DESYNC != 0);
                if !matches!(next, Next::Native) {
                    // An interpreter's own frame is described by the frames that it hosts, not by the window that its
                    // code may lie in.
                    let window = window.filter(|_| flags & FLAG_INTERPRETER == 0);
                    if let Err(full) = self.push_machine(pc, flags, window) {
                        return full;
                    }
                    self.by_frame_pointer = false;
                    match next {
                        Next::Ended(reason) => return reason,
                        _ => continue,
                    }
                }
            }
            if look.unguessed {
                (rule, cfa) = self.guess(cursor, setting);
            }
            if look.by_code {
                flags |= FLAG_BY_CODE;
            }
            if self.by_frame_pointer && rule.failed_for(StopReason::NoOwner) {
                // Neither this address nor the frame pointers that led to it are confirmed by any data.
                return StopReason::NoOwner;
            }
            if !cursor.exact && rule.failed_for(StopReason::NotCode) {
                // A word that is no return address is no frame.
                return StopReason::NotCode;
            }
            let begins = rule.failed_for(StopReason::StartSymbol) || rule.failed_for(StopReason::SwitchedStack);
            if begins && !cursor.exact && evidence::is_overwritten(self.env, cursor, setting, self.reader) {
                return StopReason::NotCode;
            }
            if let Err(full) = self.push_machine(cursor.regs.pc, flags, window) {
                return full;
            }
            let found_by_it = self.by_frame_pointer;
            let by_data = rule.kind() == RuleKind::Offset && rule.flags() & BY_FRAME_POINTER == 0;
            self.called_interrupted = cursor.exact && by_data;
            let (pc, exact) = (cursor.regs.pc, cursor.exact);
            self.by_frame_pointer = rule.flags() & BY_FRAME_POINTER != 0;
            if rule.flags() & DOUBTFUL != 0 {
                self.doubt();
            }
            let mut stepped = cfa.and_then(|cfa| advance(rule, cursor, cfa, self.reader));
            if let (Err(StopReason::BadCfa), Ok(cfa)) = (stepped, cfa) {
                stepped = self.go_to_lower_stack(rule, cursor, cfa, setting);
            }
            let stop = match stepped {
                Ok(())
                    if self.by_frame_pointer
                        && rule.cfa_parts().0 == FP
                        && evidence::called_another(self.env, (pc, exact), cursor, self.reader) =>
                {
                    return StopReason::NoRule;
                }
                Ok(()) => continue,
                Err(StopReason::StackInTransit) if self.go_on_in_delivery(cursor) => continue,
                Err(reason) => reason,
            };
            let by = (found_by_it, self.by_frame_pointer);
            return self.end(stop, (pc, exact), by, cursor, setting);
        }
    }

    /// The current frame's CFA by its rule.
    #[inline(always)]
    fn cfa(&mut self, rule: Packed, cursor: &Cursor, setting: &Setting) -> Result<u64, StopReason> {
        if let Some(log) = &mut self.log {
            let (uses, restores) = rule.uses_and_restores();
            log.note_rule(uses, restores);
        }
        let mut cfa = rule.cfa(cursor, self.reader);
        if core::mem::take(&mut self.called_interrupted) && cfa == Err(StopReason::UnknownRegister) {
            cfa = evidence::cfa_from_callee(self.env, rule, cursor, self.reader);
        }
        if rule.kind() == RuleKind::Signal && self.is_after_signal(rule, cursor, setting) {
            cfa = Err(StopReason::SwitchedStack);
        }
        cfa
    }

    /// The rule of a frame that no function has stepped, and its CFA.
    #[cold]
    #[inline(never)]
    fn guess(&mut self, cursor: &Cursor, setting: &Setting) -> (Packed, Result<u64, StopReason>) {
        let rule = self.env.guess(cursor, self.reader);
        (rule, self.cfa(rule, cursor, setting))
    }

    /// A step may skip callers. Such a walk is not kept, so that no replay takes over its end.
    #[cold]
    fn doubt(&mut self) {
        self.doubtful = true;
        if let Some(log) = &mut self.log {
            log.is_not_kept();
        }
    }

    /// Whether the current frame, a signal's, is that of a handler that has returned.
    #[cold]
    #[inline(never)]
    fn is_after_signal(&mut self, rule: Packed, cursor: &Cursor, setting: &Setting) -> bool {
        let Some(stack) = evidence::alternate_stack_at(rule, cursor, self.reader) else { return false };
        if let Some(log) = &mut self.log {
            // The same memory may lead on at one time, and not at another.
            log.is_not_kept();
        }
        evidence::alternate_stack(self.env, setting, self.reader).is_some_and(|current| current != stack)
    }

    /// Why the walk ends, if the step from the frame at `pc` failed for this reason. `found_by_it`: a frame
    /// pointer led to that frame; `by_frame_pointer`: its rule follows one. Not inlined: a handler's stack is short.
    #[cold]
    #[inline(never)]
    fn end(
        &mut self,
        stop: StopReason,
        (pc, exact): (u64, bool),
        (found_by_it, by_frame_pointer): (bool, bool),
        cursor: &Cursor,
        setting: &Setting,
    ) -> StopReason {
        // A chain of frame pointers ends where it runs out; that is an end of its own kind. The outermost frame's is
        // zero.
        match stop {
            StopReason::NoRule if !exact && evidence::is_base(pc, cursor, self.reader) => {
                if found_by_it {
                    StopReason::FramePointerEnd
                } else {
                    StopReason::Complete
                }
            }
            StopReason::NullReturnAddress if by_frame_pointer => StopReason::FramePointerEnd,
            StopReason::NoRule if found_by_it && cursor.regs.get(FP) == Some(0) => StopReason::FramePointerEnd,
            StopReason::StartSymbol | StopReason::SwitchedStack if found_by_it => StopReason::FramePointerEnd,
            // The outermost frame of a stack that user code made: it was not called, but it has called.
            StopReason::NullReturnAddress
                if !exact
                    && !found_by_it
                    && call_site::precedes(pc, self.reader)
                    && !self.env.is_on_own_stack(cursor.regs.sp(), setting.thread_pointer, self.reader) =>
            {
                StopReason::SwitchedStack
            }
            stop => stop,
        }
    }

    #[inline(always)]
    fn push<const N: usize>(&mut self, words: [u64; N]) -> Result<(), StopReason> {
        if self.count >= self.limit || self.words + N > self.frames.len() {
            self.make_room(N)?;
        }
        let Some(room) = self.frames.get_mut(self.words..).and_then(|rest| rest.first_chunk_mut::<N>()) else {
            return Err(StopReason::BufferFull);
        };
        *room = words;
        self.words += N;
        self.count += 1;
        self.report_progress();
        Ok(())
    }

    /// A machine frame; `window`: its second word, if it lies in a window.
    #[inline(always)]
    fn push_machine(&mut self, pc: u64, flags: u64, window: Option<u64>) -> Result<(), StopReason> {
        match window {
            None => self.push([native_word(pc, flags)]),
            Some(identity) => self.push([window_word(pc, flags), identity]),
        }
    }

    #[inline(always)]
    fn report_progress(&self) {
        if !self.progress.is_null() && !self.deep.is_deep() {
            // SAFETY: valid by `walk`'s contract. Volatile: whoever leaves this walk by a fault reads it.
            unsafe { self.progress.write_volatile(self.words) };
        }
    }
}
