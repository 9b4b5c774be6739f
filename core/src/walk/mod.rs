//! The walk: one loop, from the frame in hand to its caller, until the whole stack is told.
//!
//! ```text
//!   find owner and rule of pc --> rule gives the CFA --> overlay, if the object is claimed, with [sp, CFA) known
//!        ^                                                     |  (semantic frames)
//!        |                                                     v
//!        +------- caller's cursor <--- checks <--- the native frame's word
//! ```
//! It ends with a numbered [`StopReason`], always; the frames found so far are always kept. Who owns a pc, where names
//! go and what a process keeps are the [`Env`]'s business, so the same loop serves a handler, a test and a fuzzer. An owner
//! may also step by itself (`foreign.rs` calls what is not ours, which calls the functions of `host.rs`).

mod env;
mod foreign;
mod host;
#[cfg(target_arch = "x86_64")]
mod plain;
#[cfg(target_arch = "aarch64")]
#[path = "plain/none.rs"]
mod plain;
#[cfg(target_arch = "x86_64")]
mod saved;

use crate::chain::Steps;
use crate::cursor::Cursor;
use crate::frame::{native_word, window_word, FLAG_BY_FRAME_POINTER, FLAG_EXACT, FLAG_INTERPRETER};
use crate::memory::Reader;
use crate::plugin::{OVERLAY_DESYNC, OVERLAY_INTERPRETER, SCRATCH_BYTES};
use crate::recovery::Protector;
use crate::regs::FP;
use crate::reuse::{At, End, PointState, Recording, Scratch, Stamp, Tail, Trail, Visit as Seen};
use crate::rule::{Packed, RuleKind, BY_FRAME_POINTER, RA_IN_REGISTER};
use crate::stop_reason::StopReason;
pub use env::{Claim, Env};
pub use foreign::Exchange;
use foreign::Next;

/// At most so many frames are kept, counted from the leaf.
pub const MAX_FRAMES: u32 = 4096;
/// Plugins that may keep scratch memory in one walk; their indices are 1..=MAX_PLUGINS.
pub const MAX_PLUGINS: usize = 7;
/// The last index is no plugin's: frames that an embedder publishes itself.
pub const EMBEDDER: u8 = MAX_PLUGINS as u8;
/// Bytes of scratch memory that a walk needs.
pub const SCRATCH: usize = (MAX_PLUGINS + 1) * SCRATCH_BYTES;

/// Constants of a walk.
#[derive(Clone, Copy)]
pub struct Setting {
    /// Thread pointer of the walked thread.
    pub thread_pointer: u64,
    /// See [`crate::plugin::View::tsd_offset`].
    pub tsd_offset: u64,
    /// [`SCRATCH`] bytes, 16-aligned, for the plugins; null: no plugin is called.
    pub scratch: *mut u8,
    /// Room for what plugins and windows' functions are shown; null: it is made on the stack, which is short in a handler.
    pub exchange: *mut Exchange,
    /// Where the walk tells how many words it has written, frame by frame, for the case that it is left in the middle; or
    /// null.
    pub progress: *mut usize,
    /// The thread's last walk, to be reused and replaced; or null.
    pub trail: *mut Trail,
}

/// What a walk leaves behind, besides the frame words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// Why it ended.
    pub stop: StopReason,
    /// Words written to the buffer.
    pub words: usize,
    /// Overlay calls that reported missing or doubtful frames.
    pub desync: u32,
    /// Frames, in all.
    pub frames: u32,
    /// Of these, those that were taken over from the thread's last walk.
    pub reused: u32,
}

struct Walk<'w, 'm, E: Env> {
    env: &'w mut E,
    reader: &'w mut Reader<'m>,
    frames: &'w mut [u64],
    words: usize,
    count: u32,
    /// Index of the plugin that is being called.
    plugin: u8,
    scratch_used: u8,
    /// The same when the recording was last told of it.
    scratch_noted: u8,
    desync: u32,
    /// How the plugin is being called.
    protector: Protector,
    /// Frames that it emitted although there was no room.
    refused: u32,
    /// Some frame found no room.
    cut: bool,
    progress: *mut usize,
    /// The thread's last chain of plain frames, to be gone along and replaced; instead of `recording`.
    #[cfg_attr(target_arch = "aarch64", allow(dead_code, reason = "no frames are plain there so far"))]
    chain: Option<&'w mut Steps<'m>>,
    /// Steps of the last walk that were made again.
    followed: u32,
    /// Writes this walk down and compares it with the last one.
    recording: Option<Recording<'m>>,
    scratch: Scratch,
    /// The rest of the last walk, when it is this one's too.
    tail: Option<Tail>,
    /// The frame in hand lies in a window.
    in_window: bool,
}

/// [`Walk::run_plain`] and [`Walk::run`] end the walk so when the rest is known.
const SAME_AS_LAST: StopReason = StopReason::Complete;

/// Walks from `cursor`, leaving frame words (leaf first) in `frames`.
///
/// # Safety
/// `setting.scratch` must be null or valid for writes of [`SCRATCH`] bytes, `setting.exchange` and `setting.progress` null or valid for writes,
/// `setting.trail` null or a trail that nobody else uses during the walk.
pub unsafe fn walk<E: Env>(
    cursor: Cursor,
    env: &mut E,
    reader: &mut Reader<'_>,
    frames: &mut [u64],
    setting: &Setting,
) -> Outcome {
    // SAFETY: passed on.
    unsafe { walk_along(None, cursor, env, reader, frames, setting) }
}

/// The same, along a chain, whose steps the caller finishes.
///
/// # Safety
/// As [`walk`].
pub unsafe fn walk_along<'m, E: Env>(
    chain: Option<&mut Steps<'m>>,
    mut cursor: Cursor,
    env: &mut E,
    reader: &mut Reader<'m>,
    frames: &mut [u64],
    setting: &Setting,
) -> Outcome {
    let mut walk = Walk {
        env,
        reader,
        frames,
        words: 0,
        count: 0,
        plugin: 0,
        scratch_used: 0,
        scratch_noted: 0,
        desync: 0,
        protector: Protector::none(),
        refused: 0,
        cut: false,
        progress: setting.progress,
        chain,
        followed: 0,
        recording: None,
        scratch: Scratch { memory: setting.scratch, stride: SCRATCH_BYTES, used: [0; MAX_PLUGINS + 1] },
        tail: None,
        in_window: false,
    };
    // SAFETY: passed on.
    if let Some(trail) = unsafe { setting.trail.as_mut() } {
        let stamp = walk.env.stamp();
        // SAFETY: the trail lives as long as the walk, and `finish` makes the reader forget it.
        walk.recording = Some(unsafe { Recording::begin(trail, walk.reader, stamp) });
    }
    // SAFETY: passed on.
    let stop = unsafe { walk.run(&mut cursor, setting) };
    walk.finish(stop)
}

impl<E: Env> Walk<'_, '_, E> {
    /// # Safety
    /// As [`walk`].
    unsafe fn run(&mut self, cursor: &mut Cursor, setting: &Setting) -> StopReason {
        let mut by_frame_pointer = false;
        loop {
            if !cursor.exact && !by_frame_pointer {
                if let Err(full) = self.run_plain(cursor) {
                    return full;
                }
            } else if self.is_known(cursor.regs.pc, cursor.regs.sp(), cursor.exact, by_frame_pointer) {
                let fp = cursor.regs.get(FP);
                if self.same_from_here(|_| fp) {
                    return SAME_AS_LAST;
                }
            }
            let mut flags = if cursor.exact { FLAG_EXACT } else { 0 };
            if by_frame_pointer {
                flags |= FLAG_BY_FRAME_POINTER;
            }
            let rule = self.env.rule(cursor, self.reader);
            if let Some(recording) = &mut self.recording {
                recording.note_fp(cursor.regs.get(FP), self.reader);
                let (uses, restores) = rule.uses_and_restores();
                recording.note_rule(uses, restores);
            }
            let window = self.env.window(cursor, self.reader);
            let cfa = rule.cfa(cursor, self.reader);
            if self.env.is_claimed() {
                let pc = cursor.regs.pc;
                self.in_window = window.is_some();
                // SAFETY: passed on.
                let (answer, next) = unsafe { self.claimed(cursor, cfa.ok().map(|cfa| (cfa, rule)), setting) };
                if let (Some(tail), Some(recording)) = (&self.tail, &mut self.recording) {
                    recording.end_in_call(tail, native_word(pc, flags));
                    return SAME_AS_LAST;
                }
                if answer & OVERLAY_INTERPRETER != 0 {
                    flags |= FLAG_INTERPRETER;
                }
                self.desync += u32::from(answer & OVERLAY_DESYNC != 0);
                if !matches!(next, Next::Native) {
                    // An interpreter's own frame is told by what it hosts, not by the window that its code may lie in.
                    let window = window.filter(|_| flags & FLAG_INTERPRETER == 0);
                    if let Err(full) = self.push_machine(pc, flags, window) {
                        return full;
                    }
                    by_frame_pointer = false;
                    match next {
                        Next::Ended(reason) => return reason,
                        _ => continue,
                    }
                }
            }
            if by_frame_pointer && rule.failed_for(StopReason::NoOwner) {
                // Nothing vouches for this address, nor for the chain that led to it.
                return StopReason::NoOwner;
            }
            if let Err(full) = self.push_machine(cursor.regs.pc, flags, window) {
                return full;
            }
            let found_by_it = by_frame_pointer;
            by_frame_pointer = rule.flags() & BY_FRAME_POINTER != 0;
            let stop = match cfa.and_then(|cfa| advance(rule, cursor, cfa, self.reader)) {
                Ok(()) => continue,
                Err(reason) => reason,
            };
            // A chain of frame pointers ends where it runs out; that is an end of its own kind. The outermost frame's is zero.
            return match stop {
                StopReason::NullReturnAddress if by_frame_pointer => StopReason::FramePointerEnd,
                StopReason::NoRule if found_by_it && cursor.regs.get(FP) == Some(0) => StopReason::FramePointerEnd,
                stop => stop,
            };
        }
    }

    /// Tells the recording of a frame. True: the last walk may have met it.
    #[inline(always)]
    fn is_known(&mut self, pc: u64, sp: u64, exact: bool, by_frame_pointer: bool) -> bool {
        let Some(recording) = &mut self.recording else { return false };
        let (words, count, desync) = (self.words, self.count, self.desync);
        let at = At { pc, sp, exact, by_frame_pointer, words, count, desync };
        recording.visit(at, self.reader) == Seen::Known
    }

    /// Whether the last walk's rest is this one's, from the frame that was just told.
    #[cold]
    #[inline(never)]
    fn same_from_here(&mut self, fp: impl FnOnce(&mut Reader<'_>) -> Option<u64>) -> bool {
        if !self.windows_hold() {
            return false;
        }
        let Some(recording) = &mut self.recording else { return false };
        let tail = recording.tail(self.reader, &self.scratch, fp);
        self.ends_with(tail)
    }

    /// A plugin says what the rest of its call depends on. True: it is known, together with the rest of the walk.
    #[inline(always)]
    fn rest_is_known(&mut self, order: u64, state: &PointState) -> bool {
        let Some(recording) = &mut self.recording else { return false };
        let known = recording.point(order, state);
        if known.is_some_and(|point| self.same_from_point(point)) {
            return true;
        }
        let left = (self.words, self.count, self.desync);
        if let Some(recording) = &mut self.recording {
            recording.note_point(order, state, left, self.reader);
        }
        false
    }

    #[cold]
    #[inline(never)]
    fn same_from_point(&mut self, point: usize) -> bool {
        if !self.windows_hold() {
            return false;
        }
        let Some(recording) = &mut self.recording else { return false };
        let tail = recording.tail_of_point(point, self.reader);
        self.ends_with(tail)
    }

    /// Whether windows that the last walk met are as they were.
    fn windows_hold(&self) -> bool {
        let stamp = self.recording.as_ref().map_or(0, Recording::windows_stamp);
        stamp == 0 || self.env.windows_hold(stamp)
    }

    /// Takes over the rest of the last walk, if there is room, and its objects are there.
    fn ends_with(&mut self, tail: Option<Tail>) -> bool {
        let (Some(tail), Some(recording)) = (tail, &mut self.recording) else { return false };
        let fits = self.count + tail.frames <= MAX_FRAMES && self.words + tail.words <= self.frames.len();
        if !fits {
            return false;
        }
        let was = self.reader.pause(true);
        let there = recording.objects().iter().all(|object| self.env.confirm(*object, self.reader));
        self.reader.pause(was);
        if !there {
            return false;
        }
        self.tail = Some(tail);
        true
    }

    /// What the walk leaves behind; and what it leaves for the next.
    #[inline(never)]
    fn finish(&mut self, stop: StopReason) -> Outcome {
        let (words, frames, reused) = (self.words, self.count, self.followed);
        let mut outcome = Outcome { stop, words, desync: self.desync, frames, reused };
        let Some(recording) = self.recording.take() else { return outcome };
        if let Some(tail) = &self.tail {
            let words = recording.words(tail);
            if let Some(room) = self.frames.get_mut(self.words..).and_then(|rest| rest.get_mut(..words.len())) {
                room.copy_from_slice(words);
            }
            outcome.stop = tail.stop;
            outcome.words += words.len();
            outcome.desync += tail.desync;
            outcome.frames += tail.frames;
            outcome.reused = tail.frames;
        }
        // Each as old as the oldest part of the walk: what has changed since must not be taken for known.
        let windows = self.env.windows_stamp();
        let mut stamp = Stamp { general: recording.stamp(), windows: windows.unwrap_or(0) };
        if self.tail.is_some() && recording.windows_stamp() != 0 {
            stamp.windows = recording.windows_stamp();
        }
        // A walk that was cut would be cut elsewhere if its top were another.
        let objects = self.env.objects().filter(|_| !self.cut && windows.is_some() && self.env.is_repeatable());
        let end = End {
            words: self.frames.get(..self.words).unwrap_or_default(),
            tail: self.tail.as_ref(),
            stop: outcome.stop,
            count: outcome.frames,
            desync: outcome.desync,
            probed: self.reader.is_probed(),
            stamp,
            objects: objects.unwrap_or_default(),
        };
        recording.end(self.reader, end, objects.is_some());
        self.words = outcome.words;
        self.tell_progress();
        outcome
    }

    #[inline(always)]
    fn push<const N: usize>(&mut self, words: [u64; N]) -> Result<(), StopReason> {
        if self.count >= MAX_FRAMES {
            self.cut = true;
            return Err(StopReason::TooManyFrames);
        }
        let Some(room) = self.frames.get_mut(self.words..).and_then(|rest| rest.first_chunk_mut::<N>()) else {
            self.cut = true;
            return Err(StopReason::BufferFull);
        };
        *room = words;
        self.words += N;
        self.count += 1;
        self.tell_progress();
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
    fn tell_progress(&self) {
        if !self.progress.is_null() {
            // SAFETY: valid by `walk`'s contract. Volatile: whoever leaves this walk by a fault reads it.
            unsafe { self.progress.write_volatile(self.words) };
        }
    }
}

/// Moves to the caller, with the checks on every step. A signal frame may lead to another stack; everything else must
/// move outwards, and what counts from the frame pointer needs one that is not stale: at or above the stack pointer.
#[inline(always)]
fn advance(rule: Packed, cursor: &mut Cursor, cfa: u64, reader: &mut Reader<'_>) -> Result<(), StopReason> {
    let sp = cursor.regs.sp();
    if rule.kind() != RuleKind::Signal {
        // A return address that was popped into a register (vfork) leaves a frame of no size.
        let no_size = rule.flags() & RA_IN_REGISTER != 0 && cursor.exact;
        let stale = rule.cfa_parts().0 == FP && cursor.regs.get(FP) < Some(sp);
        if stale || cfa < sp || (cfa == sp && !no_size) || cfa & 7 != 0 {
            return Err(StopReason::BadCfa);
        }
    }
    rule.advance(cursor, cfa, reader)?;
    if cursor.regs.pc == 0 && rule.kind() != RuleKind::Signal {
        return Err(StopReason::NullReturnAddress);
    }
    Ok(())
}
