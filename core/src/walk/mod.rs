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
//! may also step by itself (`foreign.rs` calls what is not ours).

mod foreign;

use crate::cursor::Cursor;
use crate::frame::{native_word, window_word, FLAG_BY_FRAME_POINTER, FLAG_EXACT, FLAG_INTERPRETER};
use crate::memory::Reader;
use crate::plugin::{Description, Owner, Visit, OVERLAY_DESYNC, OVERLAY_INTERPRETER, SCRATCH_BYTES};
use crate::recovery::Protector;
use crate::regs::{FP, SP};
use crate::reuse::{self, At, End, Recording, Scratch, Stamp, Tail, Trail, Visit as Seen};
use crate::rule::{Packed, RuleKind, BY_FRAME_POINTER, RA_IN_REGISTER};
use crate::short_rule::{Saved, Short};
use crate::stop_reason::StopReason;
use core::ffi::c_void;
use foreign::Next;

/// At most so many frames are kept, counted from the leaf.
pub const MAX_FRAMES: u32 = 4096;
/// Plugins that may keep scratch memory in one walk; their indices are 1..=MAX_PLUGINS.
pub const MAX_PLUGINS: usize = 7;
/// The last index is no plugin's: frames that an embedder publishes itself.
pub const EMBEDDER: u8 = MAX_PLUGINS as u8;
/// Bytes of scratch memory that a walk needs.
pub const SCRATCH: usize = (MAX_PLUGINS + 1) * SCRATCH_BYTES;

/// A claim on the code under a pc: a plugin's on an object, or a window's own functions.
#[derive(Clone, Copy)]
pub struct Claim {
    /// Steps by itself.
    pub step: Option<Visit>,
    /// Adds semantic frames.
    pub overlay: Option<Visit>,
    /// Index of the plugin; 0 for a window's functions.
    pub index: u8,
    /// What its analyse half found.
    pub facts: *const u8,
    /// Length of the facts.
    pub facts_len: usize,
    /// Load bias of the object.
    pub bias: u64,
    /// [`crate::plugin::Plugin::flags`].
    pub flags: u32,
    /// [`crate::plugin::Plugin::scratch_bytes`].
    pub scratch_bytes: u32,
    /// The object's or window's text range.
    pub range: (u64, u64),
    /// Its generation.
    pub generation: u64,
    /// The window's user pointer.
    pub user: *mut c_void,
}

impl Claim {
    /// A claim that asks for nothing.
    pub const NOTHING: Claim = Claim {
        step: None,
        overlay: None,
        index: 0,
        facts: core::ptr::null(),
        facts_len: 0,
        bias: 0,
        flags: 0,
        scratch_bytes: 0,
        range: (0, 0),
        generation: 0,
        user: core::ptr::null_mut(),
    };
}

/// What a walk asks of its surroundings. Everything here is called inside handlers.
pub trait Env {
    /// How to get from the frame in hand to its caller, or why not.
    fn rule(&mut self, cursor: &Cursor, reader: &mut Reader<'_>) -> Packed;
    /// The rule for a return address, looked up at `lookup`, if it is short and remembered, belongs to the object of the frame last
    /// asked for, and no plugin overlays that. `None` is always a right answer: it costs time only.
    #[inline(always)]
    fn peek(&self, _lookup: u64) -> Option<Short> {
        None
    }
    /// Goes to the object under `lookup`, if that is another one than that of the frame last asked for and no plugin claims
    /// it: then `peek` may know its rules. `false` is always a right answer.
    fn enter(&mut self, _lookup: u64, _reader: &mut Reader<'_>) -> bool {
        false
    }
    /// Whether a plugin overlays the object of the frame last asked for.
    fn is_claimed(&self) -> bool;
    /// That plugin, and its claim.
    fn claim(&self) -> Option<Claim>;
    /// Goes on to another plugin that is to be asked about the frame in hand. False: there is none.
    fn next_claim(&mut self) -> bool {
        false
    }
    /// The unwind range of the frame's function; (0, 0) when unknown.
    fn function(&mut self, cursor: &Cursor, reader: &mut Reader<'_>) -> (u64, u64);
    /// Name id of a code object seen before; 0 if it was not.
    fn find_name(&mut self, plugin: u8, code: u64, fingerprint: u64) -> u32;
    /// Stores what names a code object; 0 if there is no room.
    fn describe(&mut self, plugin: u8, description: &Description, reader: &mut Reader<'_>) -> u32;
    /// A plugin learned something.
    fn learned(&mut self, plugin: u8);
    /// What covers an address. May change which object the frame in hand is taken to lie in.
    fn owner(&mut self, _address: u64, _reader: &mut Reader<'_>) -> Owner {
        Owner::NOBODY
    }
    /// How the functions of the plugin with this index (0: of the window of the frame in hand) are called, so that the walk
    /// survives them.
    fn protector(&self, _plugin: u8) -> Protector {
        Protector::none()
    }
    /// Everything that the answers of this environment depend on besides the pc and what is read through the reader, but for
    /// windows and for the objects of [`Env::objects`]: while it stays the same, so do they.
    fn stamp(&self) -> u64 {
        0
    }
    /// The same of the windows as this walk sees them, as far as it depends on them; 0 if it does not. `None`: it met an address
    /// without an owner, and nobody will tell when it gets one.
    fn windows_stamp(&self) -> Option<u64> {
        Some(0)
    }
    /// Whether windows are still as a stamp says.
    fn windows_hold(&self, _stamp: u64) -> bool {
        true
    }
    /// Objects that this walk met and that may go away, by a number that is not 0. `None`: too many.
    fn objects(&self) -> Option<&[u64]> {
        Some(&[])
    }
    /// Whether such an object is still there.
    fn confirm(&mut self, _object: u64, _reader: &mut Reader<'_>) -> bool {
        true
    }
    /// Whether the same walk would be told the same again. False: something is still to come, such as an object's facts.
    fn is_repeatable(&self) -> bool {
        true
    }
    /// The second word of the frame in hand ([`crate::frame::window_identity`]), if it lies in a window. Asked right behind
    /// [`Env::rule`].
    #[inline(always)]
    fn window(&mut self, _cursor: &Cursor, _reader: &mut Reader<'_>) -> Option<u64> {
        None
    }
    /// A call of a plugin (0: of a function of the window of the frame in hand) went wrong and was left behind.
    fn failed(&mut self, _plugin: u8, _reason: StopReason) {}
}

/// Constants of a walk.
#[derive(Clone, Copy)]
pub struct Setting {
    /// Thread pointer of the walked thread.
    pub thread_pointer: u64,
    /// See [`View::tsd_offset`].
    pub tsd_offset: u64,
    /// [`SCRATCH`] bytes, 16-aligned, for the plugins; null: no plugin is called.
    pub scratch: *mut u8,
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
    /// Of these, the outermost ones that were taken over from the thread's last walk.
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
    desync: u32,
    /// How the plugin is being called.
    protector: Protector,
    /// Frames that it emitted although there was no room.
    refused: u32,
    /// Some frame found no room.
    cut: bool,
    progress: *mut usize,
    /// Writes this walk down and compares it with the last one.
    recording: Option<Recording<'m>>,
    scratch: Scratch,
    /// The rest of the last walk, when it is this one's too.
    tail: Option<Tail>,
}

/// [`Walk::run_plain`] and [`Walk::run`] end the walk so when the rest is known.
const SAME_AS_LAST: StopReason = StopReason::Complete;

/// Walks from `cursor`, leaving frame words (leaf first) in `frames`.
///
/// # Safety
/// `setting.scratch` must be null or valid for writes of [`SCRATCH`] bytes, `setting.progress` null or valid for writes,
/// `setting.trail` null or a trail that nobody else uses during the walk.
pub unsafe fn walk<E: Env>(
    mut cursor: Cursor,
    env: &mut E,
    reader: &mut Reader<'_>,
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
        desync: 0,
        protector: Protector::none(),
        refused: 0,
        cut: false,
        progress: setting.progress,
        recording: None,
        scratch: Scratch { memory: setting.scratch, stride: SCRATCH_BYTES, used: [0; MAX_PLUGINS + 1] },
        tail: None,
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
                // SAFETY: passed on.
                let (answer, next) = unsafe { self.claimed(cursor, cfa.ok(), setting) };
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
            by_frame_pointer = rule.flags() & BY_FRAME_POINTER != 0;
            let stop = match cfa.and_then(|cfa| advance(rule, cursor, cfa, self.reader)) {
                Ok(()) => continue,
                Err(reason) => reason,
            };
            // A chain of frame pointers ends where it runs out; that is an end of its own kind.
            return match stop {
                StopReason::NullReturnAddress if by_frame_pointer => StopReason::FramePointerEnd,
                stop => stop,
            };
        }
    }

    /// Walks as long as frames are as most are: ordinary callers within one object, with remembered short rules. The same
    /// steps and checks as those of `run`, with pc and sp kept in registers; any frame that needs more is left to it.
    #[inline(always)]
    fn run_plain(&mut self, cursor: &mut Cursor) -> Result<(), StopReason> {
        cursor.regs.keep_callee_saved();
        let (mut pc, mut sp) = (cursor.regs.pc, cursor.regs.sp());
        let mut saved = Saved::new();
        let begun = sp;
        loop {
            if self.is_known(pc, sp, false, false) && self.same_from_here(|reader| saved.rbp(&cursor.regs, reader)) {
                return Err(SAME_AS_LAST);
            }
            let lookup = pc.wrapping_sub(1);
            let Some(rule) = self.env.peek(lookup).or_else(|| self.peek_elsewhere(lookup)) else { break };
            let base = if rule.from_rbp() { saved.rbp(&cursor.regs, self.reader) } else { Some(sp) };
            if let Some(recording) = &mut self.recording {
                if rule.from_rbp() {
                    recording.note_fp(base, self.reader);
                }
                let (uses, restores) = reuse::of_short(rule);
                recording.note_rule(uses, restores);
            }
            // A frame pointer below the stack pointer is stale, or not one.
            let Some(cfa) = base.filter(|base| *base >= sp).map(|base| rule.cfa(base)) else { break };
            if cfa <= sp || cfa & 7 != 0 {
                break;
            }
            let Some(caller) = self.reader.word(cfa.wrapping_sub(8)).filter(|caller| *caller != 0) else { break };
            self.push([native_word(pc, 0)])?;
            saved.pass(rule, cfa);
            (pc, sp) = (caller, cfa);
        }
        if sp != begun {
            saved.load(&mut cursor.regs, self.reader);
            cursor.regs.pc = pc;
            cursor.regs.set(SP, sp);
        }
        Ok(())
    }

    /// The chain leads into another object, or there is no short rule.
    #[cold]
    #[inline(never)]
    fn peek_elsewhere(&mut self, lookup: u64) -> Option<Short> {
        if self.env.enter(lookup, self.reader) {
            self.env.peek(lookup)
        } else {
            None
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
        let Some(recording) = &mut self.recording else { return false };
        let stamp = recording.windows_stamp();
        if stamp != 0 && !self.env.windows_hold(stamp) {
            return false;
        }
        let Some(tail) = recording.tail(self.reader, &self.scratch, fp) else { return false };
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
        let mut outcome = Outcome { stop, words: self.words, desync: self.desync, frames: self.count, reused: 0 };
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
