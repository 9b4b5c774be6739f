//! The walk: one loop, from the frame in hand to its caller, until the whole stack is told.
//!
//! ```text
//!   find owner and rule of pc --> rule gives the CFA --> overlay, if the object is claimed, with [sp, CFA) known
//!        ^                                                     |  (semantic frames)
//!        |                                                     v
//!        +------- caller's cursor <--- checks <--- the native frame's word
//! ```
//! It ends with a numbered [`StopReason`], always; the frames found so far are always kept. Who owns a pc, where names
//! go and what a process keeps are the [`Env`]'s business, so the same loop serves a handler, a test and a fuzzer.

use crate::cursor::Cursor;
use crate::frame::{native_word, semantic_word, FLAG_BY_FRAME_POINTER, FLAG_EXACT, FLAG_INTERPRETER};
use crate::memory::Reader;
use crate::plugin::{Description, Host, Plugin, View, ABI, OVERLAY_DESYNC, OVERLAY_INTERPRETER, SCRATCH_BYTES};
use crate::regs::RSP;
use crate::rule::{Packed, RuleKind, BY_FRAME_POINTER, RA_IN_REGISTER};
use crate::short_rule::{Saved, Short};
use crate::stop_reason::StopReason;
use core::ffi::c_void;

/// At most so many frames are kept, counted from the leaf.
pub const MAX_FRAMES: u32 = 4096;
/// Plugins that may keep scratch memory in one walk; their indices are 1..=MAX_PLUGINS.
pub const MAX_PLUGINS: usize = 7;
/// Bytes of scratch memory that a walk needs.
pub const SCRATCH: usize = (MAX_PLUGINS + 1) * SCRATCH_BYTES;

/// A plugin's claim on the object under a pc.
#[derive(Clone, Copy)]
pub struct Claim {
    /// The plugin.
    pub plugin: &'static Plugin,
    /// Its index.
    pub index: u8,
    /// What its analyse half found.
    pub facts: *const u8,
    /// Length of the facts.
    pub facts_len: usize,
    /// Load bias of the object.
    pub bias: u64,
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
    plugin: u8,
    scratch_used: u8,
    desync: u32,
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
            let cfa = rule.cfa(&cursor, self.reader);
            if let (Ok(cfa), true) = (cfa, self.env.is_claimed()) {
                // SAFETY: passed on.
                let answer = unsafe { self.overlay(&cursor, cfa, setting) };
                if answer & OVERLAY_INTERPRETER != 0 {
                    flags |= FLAG_INTERPRETER;
                }
                self.desync += u32::from(answer & OVERLAY_DESYNC != 0);
            }
            if by_frame_pointer && rule.failed_for(StopReason::NoOwner) {
                // Nothing vouches for this address, nor for the chain that led to it.
                return StopReason::NoOwner;
            }
            if let Err(full) = self.push([native_word(cursor.regs.pc, flags)]) {
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
        if !self.progress.is_null() {
            // SAFETY: valid by `walk`'s contract. Volatile: whoever leaves this walk by a fault reads it.
            unsafe { self.progress.write_volatile(self.words) };
        }
        Ok(())
    }

    /// # Safety
    /// As [`walk`].
    #[inline(never)]
    unsafe fn overlay(&mut self, cursor: &Cursor, cfa: u64, setting: &Setting) -> u32 {
        let Some(claim) = self.env.claim().filter(|claim| usize::from(claim.index) <= MAX_PLUGINS) else { return 0 };
        let (Some(overlay), false) = (claim.plugin.overlay, setting.scratch.is_null()) else { return 0 };
        let function = self.env.function(cursor, self.reader);
        // SAFETY: index <= MAX_PLUGINS, so the plugin's part lies inside SCRATCH.
        let scratch = unsafe { setting.scratch.add(usize::from(claim.index) * SCRATCH_BYTES) };
        if self.scratch_used & (1 << claim.index) == 0 {
            self.scratch_used |= 1 << claim.index;
            // SAFETY: as above.
            unsafe { core::ptr::write_bytes(scratch, 0, SCRATCH_BYTES) };
        }
        self.plugin = claim.index;
        let mut view = View {
            size: core::mem::size_of::<View>() as u32,
            exact: u32::from(cursor.exact),
            pc: cursor.regs.pc,
            sp: cursor.regs.sp(),
            cfa,
            function_start: function.0,
            function_end: function.1,
            registers: *cursor.regs.values(),
            known: cursor.regs.known(),
            plugin: u32::from(claim.index),
            facts: claim.facts,
            facts_len: claim.facts_len,
            bias: claim.bias,
            scratch,
            thread_pointer: setting.thread_pointer,
            tsd_offset: setting.tsd_offset,
            host: &Self::HOST,
            walk: core::ptr::from_mut(self).cast(),
        };
        // SAFETY: the plugin's table was negotiated; the view is valid for the call, and the plugin reaches this walk only
        // through the host functions, while no other reference to it is used.
        unsafe { overlay(&raw mut view) }
    }

    const HOST: Host = Host {
        size: core::mem::size_of::<Host>() as u32,
        abi: ABI,
        read_word: Self::host_read_word,
        read: Self::host_read,
        find_name: Self::host_find_name,
        describe: Self::host_describe,
        emit: Self::host_emit,
        learned: Self::host_learned,
    };

    unsafe extern "C" fn host_read_word(walk: *mut c_void, address: u64, out: *mut u64) -> bool {
        // SAFETY: plugins pass back View::walk, which is this type, during the overlay call only.
        let walk = unsafe { &mut *walk.cast::<Self>() };
        match walk.reader.word(address) {
            Some(word) => {
                // SAFETY: the plugin passes a place for one word.
                unsafe { out.write(word) };
                true
            }
            None => false,
        }
    }

    unsafe extern "C" fn host_read(walk: *mut c_void, address: u64, out: *mut u8, len: usize) -> bool {
        // SAFETY: as above; the plugin passes a place for `len` bytes.
        unsafe { (*walk.cast::<Self>()).reader.read_raw(address, out, len) }
    }

    unsafe extern "C" fn host_find_name(walk: *mut c_void, code: u64, fingerprint: u64) -> u32 {
        // SAFETY: as above.
        let walk = unsafe { &mut *walk.cast::<Self>() };
        walk.env.find_name(walk.plugin, code, fingerprint)
    }

    unsafe extern "C" fn host_describe(walk: *mut c_void, description: *const Description) -> u32 {
        // SAFETY: as above; the plugin passes a description.
        let (walk, description) = unsafe { (&mut *walk.cast::<Self>(), &*description) };
        walk.env.describe(walk.plugin, description, walk.reader)
    }

    unsafe extern "C" fn host_emit(walk: *mut c_void, name: u32, position: u64) -> bool {
        // SAFETY: as above.
        let walk = unsafe { &mut *walk.cast::<Self>() };
        walk.push([semantic_word(walk.plugin, name), position]).is_ok()
    }

    unsafe extern "C" fn host_learned(walk: *mut c_void) {
        // SAFETY: as above.
        let walk = unsafe { &mut *walk.cast::<Self>() };
        walk.env.learned(walk.plugin);
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
