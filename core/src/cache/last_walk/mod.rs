//! Exact reuse of the last walk.
//!
//! A walk is a function of its inputs: registers, the words that it reads, and little else. A thread keeps a
//! [`LastWalk`]: the frames of its last walk, and every word that it read. When a new walk reaches a frame in the same
//! state as the old one, and every word that the old one read from there on is unchanged, then the rest is the same and
//! is copied. The comparisons are independent of each other, so this is faster than walking.
//!
//! *The same state* means the same pc, sp, way in which the frame was found, plugins' scratch memory, and values of
//! those registers that the rest of the walk reads before it restores them. These are determined from the outermost
//! frame inwards, by what each frame's rule uses and restores. At most frames there are none, or only rbp; where there
//! is another one, no replay begins (it may at an outer frame). Two more inputs are not words: the validity epochs of
//! the [`Stamp`], and removable objects, those that may be unloaded, which are looked up again.
//!
//! ```text
//! frames   [ new frames, leaf first ->      ....      last walk's, leaf at `first`, outermost at the end ]
//! ```
//! All arrays are used in this way: the old walk is at the end, the new one is written at the front, and a replayed
//! part stays in place. When both meet, the old walk is dropped.
//!
//! Plugins' recalled answers ([`crate::cache::read_memo`]) lie in the same memory: each is one entry among the reads
//! and stands for all words that it follows from. `refuted` spares comparisons: once a read of the old walk is found to
//! have changed, no tail can begin at or before it, so the frames up to there are no longer looked for.

mod end;
mod point;
mod record;
mod scratch;

use crate::cache::short::Short;
use crate::memory::{Read, Reader};
use crate::rule::bits;
use crate::stop_reason::StopReason;
use core::sync::atomic::{compiler_fence, Ordering};
pub use end::WalkEnd;
use point::Call;
pub use point::CallInputs;
use record::{
    FrameRecord, Places, BY_FRAME_POINTER, EXACT, FRAMES, HAS_FP, HAS_STATE, LOST_STATE, POINTS, READS, STATES, WORDS,
};
pub use record::{LastWalk, PointState, Stamp, LAST_WALK_BYTES, LAST_WALK_OBJECTS, POINT_WORDS};
pub use scratch::Scratch;

/// Bit of the frame pointer among the callee-saved registers.
pub const FP_BIT: u8 = 1 << 1;
/// Any other register than the callee-saved ones.
pub const OTHER: u8 = 1 << 7;
/// All registers: the callee-saved ones, and any other.
pub const EVERY_REGISTER: u8 = 0xff;

/// The rest of the old walk, which was verified to be the rest of the new one.
pub struct Tail {
    /// Index, in [`LastWalk`]'s frames, of the frame with which, or within which, it begins.
    first: u16,
    /// Index of the point, inside a plugin's call on that frame, at which it begins; `POINTS`: it begins with the
    /// frame.
    point: u16,
    /// Number of frames in it, the one at which it begins included.
    pub frames: u32,
    /// Number of 64-bit frame words to copy.
    pub words: usize,
    /// Number of doubtful overlay calls.
    pub desync: u32,
    /// The reason for which the walk ended.
    pub stop: StopReason,
}

/// Logs a walk, and looks for its continuation in the last one.
pub struct WalkLog<'t> {
    last_walk: &'t mut LastWalk,
    /// Number of frames of the new walk, which lie at the front.
    frames: usize,
    /// Number of words of states of the new walk.
    states: usize,
    /// Index of the old walk's frame that may be reached next; `FRAMES`: none is left.
    candidate: usize,
    /// Index of the state that was logged last; `STATES`: none was.
    last_state: usize,
    /// Index of the old walk's frame whose state was that of the plugins before `candidate`; `FRAMES`: no plugin had
    /// been called.
    state_of: usize,
    /// Number of points of the new walk.
    points: usize,
    /// Index of the read of the old walk that was last found to have changed; `READS`: none so far. Tails begin after
    /// it.
    refuted: usize,
    /// The general validity epoch ([`Stamp::general`]) when the walk began.
    stamp: u64,
    /// There was no room, so this walk is not kept.
    broken: bool,
}

impl<'t> WalkLog<'t> {
    /// Begins a log: reads are logged from now on.
    ///
    /// # Safety
    /// The log must not outlive the reader's next [`Reader::forget_log`], and `reader` must not outlive `last_walk`.
    pub unsafe fn begin(last_walk: &'t mut LastWalk, reader: &mut Reader<'_>, stamp: u64) -> WalkLog<'t> {
        let same = last_walk.valid == 1
            && last_walk.stamp.general == stamp
            && last_walk.probed == u32::from(reader.is_probed());
        if !same {
            last_walk.forget();
        }
        // Invalid until the log has ended: a walk that is abandoned leaves parts of both in the arrays.
        last_walk.valid = 0;
        compiler_fence(Ordering::SeqCst);
        last_walk.recalled.begin(stamp);
        last_walk.call = Call::NONE;
        let candidate = usize::from(last_walk.first.frame);
        // SAFETY: the reads before the last walk's first belong to the new walk.
        unsafe {
            reader.write_down(last_walk.reads.as_mut_ptr(), usize::from(last_walk.first.read).min(READS));
            reader.keep_answers(&raw mut last_walk.recalled);
        }
        WalkLog {
            last_walk,
            frames: 0,
            states: 0,
            last_state: STATES,
            candidate,
            state_of: FRAMES,
            points: 0,
            refuted: READS,
            stamp,
            broken: false,
        }
    }

    /// Logs that the walk has reached a frame, and looks for it in the old walk.
    #[inline(always)]
    pub fn visit(&mut self, at: Visited, reader: &Reader<'_>) -> Found {
        let place = self.frames;
        if place >= usize::from(self.last_walk.first.frame) && !self.give_way() {
            return Found::New;
        }
        let flags = if at.exact { EXACT } else { 0 } | if at.by_frame_pointer { BY_FRAME_POINTER } else { 0 };
        let frame = FrameRecord {
            pc: at.pc,
            sp: at.sp,
            fp: 0,
            read: reader.written() as u16,
            word: at.words as u16,
            state: self.states as u16,
            point: self.points as u16,
            count: at.count as u16,
            desync: at.desync as u16,
            uses: 0,
            restores: 0,
            needs: 0,
            flags,
        };
        self.last_walk.call.touched = false;
        if let Some(room) = self.last_walk.frames.get_mut(place) {
            *room = frame;
            self.frames = place + 1;
        }
        // Skips the old walk's frames that lie nearer the leaf than this one.
        loop {
            let Some(old) = self.last_walk.frames.get(self.candidate) else { return Found::New };
            if old.sp < at.sp {
                if old.flags & (HAS_STATE | LOST_STATE) != 0 {
                    self.state_of = self.candidate;
                }
                self.candidate += 1;
                continue;
            }
            let same = old.sp == at.sp && old.pc == at.pc && old.flags & (EXACT | BY_FRAME_POINTER) == flags;
            return if same && usize::from(old.read) >= self.refuted_before() { Found::Cached } else { Found::New };
        }
    }

    /// Index of the first read of the old walk after the last one that is known to have changed.
    fn refuted_before(&self) -> usize {
        if self.refuted == READS {
            0
        } else {
            self.refuted + 1
        }
    }

    /// The rest of the old walk, if the frame just visited, which has the pc and sp of the old walk's candidate, has
    /// the same state, and all further reads are unchanged. `fp`: computes rbp of this frame.
    #[cold]
    #[inline(never)]
    pub fn tail(
        &mut self,
        reader: &mut Reader<'_>,
        scratch: &Scratch,
        fp: impl FnOnce(&mut Reader<'_>) -> Option<u64>,
    ) -> Option<Tail> {
        let (candidate, first) = (self.candidate, usize::from(self.last_walk.first.frame));
        let old = *self.last_walk.frames.get(candidate)?;
        if candidate < first || old.needs & !FP_BIT != 0 || !self.same_state(scratch) {
            return None;
        }
        if old.needs & FP_BIT != 0 && (old.flags & HAS_FP == 0 || fp(reader) != Some(old.fp)) {
            return None;
        }
        if !self.hold(usize::from(old.read), reader) {
            return None;
        }
        let stop = StopReason::from_number(self.last_walk.stop)?;
        Some(Tail {
            first: candidate as u16,
            point: POINTS as u16,
            frames: u32::from(old.count),
            words: WORDS.checked_sub(usize::from(old.word))?,
            desync: u32::from(old.desync),
            stop,
        })
    }

    /// Whether the old walk's reads from index `first` on are unchanged.
    fn hold(&mut self, first: usize, reader: &mut Reader<'_>) -> bool {
        let reads = self.last_walk.reads.get(first..).unwrap_or_default();
        let refuted = Read::refuted(reads, reader);
        if let Some(at) = refuted {
            self.refuted = first + at;
        }
        refuted.is_none()
    }

    /// Generations of the old walk's removable objects.
    pub fn objects(&self) -> &[u64] {
        self.last_walk.object.get(..usize::from(self.last_walk.objects)).unwrap_or_default()
    }

    /// The general validity epoch ([`Stamp::general`]) when the walk began.
    pub fn stamp(&self) -> u64 {
        self.stamp
    }

    /// The epoch of the windows that the old walk depends on ([`Stamp::windows`]).
    pub fn windows_stamp(&self) -> u64 {
        self.last_walk.stamp.windows
    }

    /// The frame words of a tail.
    pub fn words(&self, tail: &Tail) -> &[u64] {
        self.last_walk.words.get(WORDS - tail.words.min(WORDS)..).unwrap_or_default()
    }

    /// Logs rbp of the frame just visited, from which its CFA counts. The reads made so far, to find rbp, belong to its
    /// callees.
    #[inline(always)]
    pub fn note_fp(&mut self, fp: Option<u64>, reader: &Reader<'_>) {
        if let Some(frame) = self.last() {
            frame.read = reader.written() as u16;
            if let Some(fp) = fp {
                frame.fp = fp;
                frame.flags |= HAS_FP;
            }
        }
    }

    /// Logs which registers the rule of the frame just visited uses and restores, a bit each.
    #[inline(always)]
    pub fn note_rule(&mut self, uses: u8, restores: u8) {
        if let Some(frame) = self.last() {
            frame.uses |= uses;
            frame.restores = restores;
        }
    }

    /// Logs that a plugin was called on the frame just visited. Its scratch memory may have changed, unless it says
    /// that it has not (`untouched`). `used`: the registers that it read, a bit each, by DWARF number.
    #[inline(never)]
    pub fn note_plugin(&mut self, scratch: &Scratch, used: u32, untouched: bool) {
        if let Some(frame) = self.last() {
            frame.uses |= bits(used);
        }
        self.last_walk.call.touched |= !untouched;
        // Most calls concern frames that are not the plugin's, and change nothing.
        if self.last_state != STATES && (untouched || self.is_state(self.last_state, scratch)) {
            return;
        }
        let at = self.states;
        let written = self.write_state(at, scratch);
        if let Some(len) = written {
            (self.last_state, self.states) = (at, at + len);
        } else {
            self.last_state = STATES;
        }
        if let Some(frame) = self.last() {
            // A plugin may be called twice for one frame (to step it, and for frames); the state after both counts.
            frame.state = at as u16;
            frame.flags |= if written.is_some() { HAS_STATE } else { LOST_STATE };
        }
    }

    /// Logs that a plugin has stepped from the frame just visited. `restored`: the caller's registers that depend on no
    /// register of this frame except those that the plugin read.
    pub fn note_step(&mut self, restored: u32) {
        if let Some(frame) = self.last() {
            frame.restores = bits(restored) & !OTHER;
        }
    }

    /// Says that the walk depends on what is not logged: it is never replayed.
    pub fn is_not_kept(&mut self) {
        self.broken = true;
    }

    #[inline(always)]
    fn last(&mut self) -> Option<&mut FrameRecord> {
        self.last_walk.frames.get_mut(self.frames.wrapping_sub(1))
    }

    /// Drops the old walk because the new one needs its space. False: there is no space left at all.
    #[cold]
    fn give_way(&mut self) -> bool {
        if usize::from(self.last_walk.first.frame) < FRAMES {
            // The limit of the new walk's reads stays; the new walk may still become complete.
            self.last_walk.first = Places { read: self.last_walk.first.read, ..Places::ENDS };
            self.last_walk.call.candidates = (0, 0);
            self.candidate = FRAMES;
            return self.frames < FRAMES;
        }
        self.broken = true;
        false
    }
}

/// The frame that a walk has reached.
#[derive(Clone, Copy)]
pub struct Visited {
    /// Its pc (process address).
    pub pc: u64,
    /// Its stack pointer (process address).
    pub sp: u64,
    /// Whether the pc is an interrupted instruction.
    pub exact: bool,
    /// Whether it was found by a frame pointer.
    pub by_frame_pointer: bool,
    /// Number of frame words so far.
    pub words: usize,
    /// Number of frames that the walk had emitted when it came to this one.
    pub count: u32,
    /// Number of overlay calls so far that reported missing or doubtful frames.
    pub desync: u32,
}

/// The result of [`WalkLog::visit`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// The old walk had no such frame, or has changed after it.
    New,
    /// The old walk had this frame: see [`WalkLog::tail`].
    Cached,
}

/// Registers that a short rule uses and restores.
#[inline(always)]
pub fn of_short(rule: Short) -> (u8, u8) {
    (if rule.from_rbp() { FP_BIT } else { 0 }, rule.touched())
}
