//! The functions that plugins and windows' functions may call in the middle of a walk ([`Host`]): each finds the walk
//! that called by its first argument.

use super::{Env, Walk};
use crate::cache::last_walk::PointState;
use crate::cursor::Cursor;
use crate::frame::{semantic_word, FLAG_AWAITING};
use crate::memory::draft::Room;
use crate::memory::{near, ANSWER, KEY};
use crate::plugin::{Caller, Description, Host, Owner, ABI, AWAITING};
use crate::regs::Regs;
use crate::rule::{BY_FRAME_POINTER, DOUBTFUL};
use crate::stop_reason::StopReason;
use core::ffi::c_void;
use core::mem::size_of;

/// Limit of a plugin's attempts to emit frames after a call that returned that there is no room. One that goes on
/// beyond it would not end by itself.
const REFUSED_LIMIT: u32 = 64;
/// Limit of the host's functions that the calls of one walk make; of those that emit several frames, each counts, and
/// so does each structure that a plugin has read by a reader that it was lent, when it asks for the next one. Beyond it
/// a plugin counts as endless, also where no timer runs. A stack of 4,096 interpreted frames takes about a tenth of it,
/// and the deepest one half of it.
const CALLS_LIMIT: u32 = 4 << 20;

/// Number of calls that one counts for which looks at this number of bytes.
fn calls_for(bytes: usize) -> u32 {
    u32::try_from(bytes / 1024).map_or(u32::MAX, |more| more.saturating_add(1))
}

impl<E: Env> Walk<'_, '_, E> {
    /// Emits a frame of the plugin that is being called, with flags of its word. False: there is no room.
    #[inline]
    fn emit(&mut self, name: u32, position: u64, flags: u64) -> bool {
        self.count_call();
        if self.tail.is_some() {
            return false;
        }
        if !self.env.keeps_semantic_frames() {
            return true;
        }
        let room = self.push([semantic_word(self.plugin, name) | flags, position]).is_ok();
        if !room {
            self.refused += 1;
            if self.refused > REFUSED_LIMIT {
                // SAFETY: called by the plugin, inside its protected call; no state is left inconsistent here.
                unsafe { self.protector.abandon(StopReason::PluginNonsense) };
            }
        }
        room
    }

    /// Emits frames where all of them have room and are kept. False: nothing is emitted, each is to be tried alone.
    #[inline]
    fn emit_together(&mut self, frames: &[[u64; 2]]) -> bool {
        let count = frames.len() as u32;
        let fits = self.count.saturating_add(count) <= self.limit && self.tail.is_none();
        if !fits || !self.env.keeps_semantic_frames() {
            return false;
        }
        let room = self.frames.get_mut(self.words..).and_then(|rest| rest.get_mut(..2 * frames.len()));
        let Some(room) = room else { return false };
        for (place, [name, position]) in room.chunks_exact_mut(2).zip(frames) {
            let word = semantic_word(self.plugin, *name as u32) | flags_of(*name);
            place.copy_from_slice(&[word, *position]);
        }
        self.words += 2 * frames.len();
        self.count += count;
        self.report_progress();
        self.count(count);
        true
    }

    /// Where a plugin may write frames before it emits them. There is no room where frames must be left out.
    #[inline(always)]
    fn room_of_draft(&mut self) -> Room {
        if self.tail.is_some() || self.deep.is_deep() || !self.env.keeps_semantic_frames() {
            return Room::NONE;
        }
        let left = self.limit.saturating_sub(self.count) as usize;
        let Some(rest) = self.frames.get_mut(self.words..) else { return Room::NONE };
        Room::new(rest.as_mut_ptr(), left.min(rest.len() / 2))
    }

    /// Emits frames that stand in the room that was lent last, if it is still the one after the last frame.
    #[inline(always)]
    fn emit_draft(&mut self, frames: *const [u64; 2], count: usize) -> bool {
        let room = self.room_of_draft();
        // SAFETY: no reader is borrowed now.
        unsafe { self.reader.lend_room(Room::NONE) };
        if !room.has(frames) || count > room.frames() {
            return false;
        }
        self.words += 2 * count;
        self.count += count as u32;
        self.report_progress();
        self.count(count as u32);
        true
    }

    /// Counts a call of one of the host's functions.
    #[inline(always)]
    fn count_call(&mut self) {
        self.count(1);
    }

    /// Counts what takes as long as this number of calls.
    #[inline(always)]
    fn count(&mut self, calls: u32) {
        self.host_calls = self.host_calls.saturating_add(calls);
        if self.host_calls > CALLS_LIMIT {
            // SAFETY: called by the plugin, inside its protected call; nothing here is half done.
            unsafe { self.protector.abandon(StopReason::Watchdog) };
        }
    }

    pub(super) const HOST: Host = Host {
        size: size_of::<Host>() as u32,
        abi: ABI,
        read_word: Self::host_read_word,
        read: Self::host_read,
        find_name: Self::host_find_name,
        describe: Self::host_describe,
        emit: Self::host_emit,
        learned: Self::host_learned,
        lookup: Self::host_lookup,
        native_step: Self::host_native_step,
        read_words: Self::host_read_words,
        recall: Self::host_recall,
        remember: Self::host_remember,
        rest_is_known: Self::host_rest_is_known,
        emit_all: Self::host_emit_all,
        lend_reader: Self::host_lend_reader,
        omit: Self::host_omit,
        hash: Self::host_hash,
    };

    unsafe extern "C" fn host_read_word(walk: *mut c_void, address: u64, out: *mut u64) -> bool {
        // SAFETY: plugins pass back View::walk, which is this type, during the call only.
        let walk = unsafe { &mut *walk.cast::<Self>() };
        walk.count_call();
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
        // SAFETY: as above.
        let walk = unsafe { &mut *walk.cast::<Self>() };
        walk.count(calls_for(len));
        // SAFETY: the plugin passes a place for `len` bytes.
        unsafe { walk.reader.read_raw(address, out, len) }
    }

    unsafe extern "C" fn host_read_words(
        walk: *mut c_void,
        address: u64,
        offsets: *const u32,
        count: usize,
        out: *mut u64,
    ) -> bool {
        // SAFETY: as above.
        let walk = unsafe { &mut *walk.cast::<Self>() };
        walk.count_call();
        // SAFETY: the plugin passes `count` offsets and a place for as many words.
        unsafe { walk.reader.words_raw(address, offsets, count, out) }
    }

    unsafe extern "C" fn host_recall(walk: *mut c_void, key: *const [u64; KEY], answer: *mut [u64; ANSWER]) -> bool {
        // SAFETY: as above; the plugin passes a key and a place for an answer.
        let (walk, key) = unsafe { (&mut *walk.cast::<Self>(), &*key) };
        walk.count_call();
        let Some(found) = walk.reader.recall(walk.plugin, key) else { return false };
        // SAFETY: as above.
        unsafe { answer.write(found) };
        true
    }

    unsafe extern "C" fn host_remember(walk: *mut c_void, key: *const [u64; KEY], answer: *const [u64; ANSWER]) {
        // SAFETY: as above.
        let (walk, key, answer) = unsafe { (&mut *walk.cast::<Self>(), &*key, *answer) };
        walk.count_call();
        walk.reader.remember(walk.plugin, key, answer);
    }

    unsafe extern "C" fn host_rest_is_known(walk: *mut c_void, order: u64, state: *const PointState) -> bool {
        // SAFETY: as above; the plugin passes that number of words.
        let (walk, state) = unsafe { (&mut *walk.cast::<Self>(), &*state) };
        walk.count_call();
        walk.rest_is_known(order, state)
    }

    unsafe extern "C" fn host_find_name(walk: *mut c_void, code: u64, fingerprint: u64) -> u32 {
        // SAFETY: as above.
        let walk = unsafe { &mut *walk.cast::<Self>() };
        walk.count_call();
        walk.env.find_name(walk.plugin, code, fingerprint)
    }

    unsafe extern "C" fn host_describe(walk: *mut c_void, description: *const Description) -> u32 {
        // SAFETY: as above; the plugin passes a description.
        let (walk, description) = unsafe { (&mut *walk.cast::<Self>(), &*description) };
        walk.count_call();
        walk.env.describe(walk.plugin, description, walk.reader)
    }

    unsafe extern "C" fn host_emit(walk: *mut c_void, name: u32, position: u64) -> bool {
        // SAFETY: as above.
        let walk = unsafe { &mut *walk.cast::<Self>() };
        walk.emit(name, position, 0)
    }

    unsafe extern "C" fn host_emit_all(walk: *mut c_void, frames: *const [u64; 2], count: usize) -> bool {
        // SAFETY: as above.
        let walk = unsafe { &mut *walk.cast::<Self>() };
        if walk.reader.lent_room().has(frames) {
            return walk.emit_draft(frames, count);
        }
        // SAFETY: the plugin passes `count` frames.
        let frames = unsafe { core::slice::from_raw_parts(frames, count) };
        if walk.emit_together(frames) {
            return true;
        }
        frames.iter().all(|[name, position]| walk.emit(*name as u32, *position, flags_of(*name)))
    }

    unsafe extern "C" fn host_lend_reader(walk: *mut c_void, layout: u64) -> *mut c_void {
        if layout != near::LAYOUT {
            return core::ptr::null_mut();
        }
        // SAFETY: as above.
        let walk = unsafe { &mut *walk.cast::<Self>() };
        // What was read by it when it was lent last.
        let read = walk.reader.take_lent();
        walk.count(read.saturating_add(1));
        let room = walk.room_of_draft();
        // SAFETY: the walk's own buffer, which it leaves alone while its reader is borrowed.
        unsafe { walk.reader.lend_room(room) };
        core::ptr::from_mut(walk.reader).cast()
    }

    unsafe extern "C" fn host_omit(walk: *mut c_void, left: u32) -> u32 {
        // SAFETY: as above.
        let walk = unsafe { &mut *walk.cast::<Self>() };
        walk.count_call();
        walk.omit(left)
    }

    unsafe extern "C" fn host_hash(walk: *mut c_void, address: u64, len: usize, out: *mut u64) -> bool {
        // SAFETY: as above.
        let walk = unsafe { &mut *walk.cast::<Self>() };
        walk.count(calls_for(len));
        let hash = walk.reader.hash(address, len);
        // SAFETY: the plugin passes a place for one word.
        hash.map(|hash| unsafe { out.write(hash) }).is_some()
    }

    unsafe extern "C" fn host_learned(walk: *mut c_void) {
        // SAFETY: as above.
        let walk = unsafe { &mut *walk.cast::<Self>() };
        walk.count_call();
        walk.env.learned();
    }

    unsafe extern "C" fn host_lookup(walk: *mut c_void, address: u64, out: *mut Owner) {
        // SAFETY: as above.
        let walk = unsafe { &mut *walk.cast::<Self>() };
        walk.count_call();
        let owner = walk.env.owner(address, walk.reader);
        // SAFETY: the plugin passes a place for an owner.
        unsafe { out.write(owner) };
    }

    unsafe extern "C" fn host_native_step(walk: *mut c_void, frame: *mut Caller) -> i32 {
        // SAFETY: as above; the plugin passes a frame.
        let (walk, frame) = unsafe { (&mut *walk.cast::<Self>(), &mut *frame) };
        walk.count_call();
        let mut cursor = from_caller(frame);
        let rule = walk.env.rule(&cursor, walk.reader);
        let stepped =
            rule.cfa(&cursor, walk.reader).and_then(|cfa| super::advance(rule, &mut cursor, cfa, walk.reader));
        match stepped {
            Ok(()) => {
                if rule.flags() & DOUBTFUL != 0 {
                    walk.doubt();
                }
                *frame = to_caller(&cursor);
                i32::from(rule.flags() & BY_FRAME_POINTER != 0)
            }
            Err(reason) => -i32::from(reason.number()),
        }
    }
}

/// The flags of a frame's word, by the name with which a plugin emits it.
#[inline(always)]
fn flags_of(name: u64) -> u64 {
    if name & AWAITING == 0 {
        0
    } else {
        FLAG_AWAITING
    }
}

pub(super) fn to_caller(cursor: &Cursor) -> Caller {
    Caller {
        pc: cursor.regs.pc,
        registers: *cursor.regs.values(),
        known: cursor.regs.known(),
        exact: u32::from(cursor.exact),
    }
}

pub(super) fn from_caller(caller: &Caller) -> Cursor {
    Cursor { regs: Regs::some(caller.pc, caller.registers, caller.known), exact: caller.exact != 0 }
}
