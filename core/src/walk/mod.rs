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
use crate::plugin::{Description, Owner, Visit, OVERLAY_DESYNC, OVERLAY_INTERPRETER, OWNER_NOBODY, SCRATCH_BYTES};
use crate::recovery::Protector;
use crate::regs::RSP;
use crate::rule::{Packed, RuleKind, BY_FRAME_POINTER, RA_IN_REGISTER};
use crate::short_rule::{Saved, Short};
use crate::stop_reason::StopReason;
use core::ffi::c_void;
use foreign::Next;

/// At most so many frames are kept, counted from the leaf.
pub const MAX_FRAMES: u32 = 4096;
/// Plugins that may keep scratch memory in one walk; their indices are 1..=MAX_PLUGINS.
pub const MAX_PLUGINS: usize = 7;
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
    /// Whether a plugin overlays the object of the frame last asked for.
    fn is_claimed(&self) -> bool;
    /// That plugin, and its claim.
    fn claim(&self) -> Option<Claim>;
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
        Owner { start: 0, end: 0, bias: 0, generation: 0, kind: OWNER_NOBODY, plugin: 0 }
    }
    /// How the functions of the plugin with this index (0: of the window of the frame in hand) are called, so that the walk
    /// survives them.
    fn protector(&self, _plugin: u8) -> Protector {
        Protector::none()
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
    progress: *mut usize,
}

/// Walks from `cursor`, leaving frame words (leaf first) in `frames`.
///
/// # Safety
/// `setting.scratch` must be null or valid for writes of [`SCRATCH`] bytes, `setting.progress` null or valid for writes.
pub unsafe fn walk<E: Env>(
    cursor: Cursor,
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
        progress: setting.progress,
    };
    // SAFETY: passed on.
    let stop = unsafe { walk.run(cursor, setting) };
    Outcome { stop, words: walk.words, desync: walk.desync }
}

impl<E: Env> Walk<'_, '_, E> {
    /// # Safety
    /// As [`walk`].
    unsafe fn run(&mut self, mut cursor: Cursor, setting: &Setting) -> StopReason {
        let mut by_frame_pointer = false;
        loop {
            if !cursor.exact && !by_frame_pointer {
                if let Err(full) = self.run_plain(&mut cursor) {
                    return full;
                }
            }
            let mut flags = if cursor.exact { FLAG_EXACT } else { 0 };
            if by_frame_pointer {
                flags |= FLAG_BY_FRAME_POINTER;
            }
            let rule = self.env.rule(&cursor, self.reader);
            let window = self.env.window(&cursor, self.reader);
            let cfa = rule.cfa(&cursor, self.reader);
            if self.env.is_claimed() {
                let pc = cursor.regs.pc;
                // SAFETY: passed on.
                let (answer, next) = unsafe { self.claimed(&mut cursor, cfa.ok(), setting) };
                if answer & OVERLAY_INTERPRETER != 0 {
                    flags |= FLAG_INTERPRETER;
                }
                self.desync += u32::from(answer & OVERLAY_DESYNC != 0);
                if !matches!(next, Next::Native) {
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
            let stop = match cfa.and_then(|cfa| advance(rule, &mut cursor, cfa, self.reader)) {
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
        let mut result = Ok(());
        while let Some(rule) = self.env.peek(pc.wrapping_sub(1)) {
            let base = if rule.from_rbp() { saved.rbp(&cursor.regs, self.reader) } else { Some(sp) };
            let Some(cfa) = base.map(|base| rule.cfa(base)) else { break };
            if cfa <= sp || cfa & 7 != 0 {
                break;
            }
            let Some(caller) = self.reader.word(cfa.wrapping_sub(8)).filter(|caller| *caller != 0) else { break };
            result = self.push([native_word(pc, 0)]);
            if result.is_err() {
                break;
            }
            saved.pass(rule, cfa);
            (pc, sp) = (caller, cfa);
        }
        saved.load(&mut cursor.regs, self.reader);
        cursor.regs.pc = pc;
        cursor.regs.set(RSP, sp);
        result
    }

    #[inline(always)]
    fn push<const N: usize>(&mut self, words: [u64; N]) -> Result<(), StopReason> {
        if self.count >= MAX_FRAMES {
            return Err(StopReason::TooManyFrames);
        }
        let room = self.frames.get_mut(self.words..).and_then(|rest| rest.first_chunk_mut::<N>());
        *room.ok_or(StopReason::BufferFull)? = words;
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
/// move outwards.
#[inline(always)]
fn advance(rule: Packed, cursor: &mut Cursor, cfa: u64, reader: &mut Reader<'_>) -> Result<(), StopReason> {
    let sp = cursor.regs.sp();
    if rule.kind() != RuleKind::Signal {
        // A return address that was popped into a register (vfork) leaves a frame of no size.
        let no_size = rule.flags() & RA_IN_REGISTER != 0 && cursor.exact;
        if cfa < sp || (cfa == sp && !no_size) || cfa & 7 != 0 {
            return Err(StopReason::BadCfa);
        }
    }
    rule.advance(cursor, cfa, reader)?;
    if cursor.regs.pc == 0 && rule.kind() != RuleKind::Signal {
        return Err(StopReason::NullReturnAddress);
    }
    Ok(())
}
