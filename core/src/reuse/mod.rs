//! Exact reuse of the last walk.
//!
//! A walk is a function of its inputs: registers, the words that it reads, and little else. A thread keeps a [`Trail`] of its
//! last walk: what it met frame by frame, and every word that it read. When a new walk reaches a frame at which it is in
//! the very state that the old one was in, and every word that the old one read from there on still reads the same, then
//! the rest is the same, and is copied. The reads are independent of each other, so this is quicker than to walk.
//!
//! *The very state* is pc, sp, how the frame was found, the plugins' scratch memory, and those registers that the rest of the
//! walk looks at before it restores them: found by going backwards over what each frame's rule uses and restores. At most
//! frames that is none or rbp; where it is another one, reuse does not begin (it may further out). Besides words, these are
//! inputs: the [`Stamp`] of the surroundings, and objects that may have been unloaded, which are confirmed again.
//!
//! ```text
//! marks   [ new frames, leaf first ->      ....      last walk's, leaf at `first`, outermost at the end ]
//! ```
//! All arrays are filled so: the old walk stands at the end, the new one is written at the front, and what was found to be the
//! same stays where it is. Where both meet there is no room, and the old walk is given up.

mod end;
mod point;
mod scratch;
mod trail;

use crate::memory::{Read, Reader};
use crate::rule::bits;
use crate::short_rule::Short;
use crate::stop_reason::StopReason;
pub use end::End;
use point::Call;
pub use point::Place;
pub use scratch::Scratch;
use trail::{Mark, BY_FRAME_POINTER, EXACT, HAS_FP, HAS_STATE, LOST_STATE, MARKS, POINTS, READS, STATES, WORDS};
pub use trail::{PointState, Stamp, Trail, OBJECTS, POINT_WORDS, TRAIL_BYTES};

/// Bit of the frame pointer among the callee-saved registers.
pub const FP_BIT: u8 = 1 << 1;
/// Any other register than the callee-saved ones.
pub const OTHER: u8 = 1 << 7;
/// All registers.
pub const EVERY_REGISTER: u8 = 0xff;

/// The rest of a walk, found to be the same.
pub struct Tail {
    first: u16,
    /// It begins within the call of a plugin on that frame, at this point; `POINTS`: with the frame.
    point: u16,
    /// Frames in it.
    pub frames: u32,
    /// Frame words in it.
    pub words: usize,
    /// Doubtful overlay calls in it.
    pub desync: u32,
    /// How it ended.
    pub stop: StopReason,
}

/// Writes a walk down, and looks for its continuation in the last one.
pub struct Recording<'t> {
    trail: &'t mut Trail,
    marks: usize,
    states: usize,
    /// The frame of the old walk that may come next; `MARKS` when there is none any more.
    candidate: usize,
    /// Where the state that was last written down stands; `STATES`: none was.
    last_state: usize,
    /// Mark of the old walk behind which the state of the plugins before `candidate` stands; `MARKS`: no plugin was called so far.
    state_of: usize,
    points: usize,
    /// Reads of the old walk from here on have been looked at and hold, up to one that does not.
    refuted: usize,
    /// Of the surroundings, when the walk began.
    stamp: u64,
    /// No room, or something that cannot be repeated: this walk is not kept.
    broken: bool,
}

impl<'t> Recording<'t> {
    /// Begins. Reads are written down from now on.
    ///
    /// # Safety
    /// The recording must not outlive the reader's next [`Reader::forget_log`], and `reader` not the trail.
    pub unsafe fn begin(trail: &'t mut Trail, reader: &mut Reader<'_>, stamp: u64) -> Recording<'t> {
        let same = trail.valid == 1 && trail.stamp.general == stamp && trail.probed == u32::from(reader.is_probed());
        if !same {
            trail.forget();
        }
        trail.recalled.begin(stamp);
        trail.call = Call::NONE;
        let candidate = usize::from(trail.first);
        // SAFETY: the reads before `first_read` belong to the new walk.
        unsafe {
            reader.write_down(trail.reads.as_mut_ptr(), usize::from(trail.first_read).min(READS));
            reader.keep_answers(&raw mut trail.recalled);
        }
        Recording {
            trail,
            marks: 0,
            states: 0,
            last_state: STATES,
            candidate,
            state_of: MARKS,
            points: 0,
            refuted: READS,
            stamp,
            broken: false,
        }
    }

    /// The walk is at a frame. `words`, `count`, `desync`: what it has left behind so far.
    #[inline(always)]
    pub fn visit(&mut self, at: At, reader: &Reader<'_>) -> Visit {
        let place = self.marks;
        if place >= self.trail.first as usize && !self.give_way() {
            return Visit::New;
        }
        let flags = if at.exact { EXACT } else { 0 } | if at.by_frame_pointer { BY_FRAME_POINTER } else { 0 };
        let mark = Mark {
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
        self.trail.call.touched = false;
        if let Some(room) = self.trail.marks.get_mut(place) {
            *room = mark;
            self.marks = place + 1;
        }
        // The old walk's frames that are further in than this one are past.
        loop {
            let Some(old) = self.trail.marks.get(self.candidate) else { return Visit::New };
            if old.sp < at.sp {
                if old.flags & (HAS_STATE | LOST_STATE) != 0 {
                    self.state_of = self.candidate;
                }
                self.candidate += 1;
                continue;
            }
            let same = old.sp == at.sp && old.pc == at.pc && old.flags & (EXACT | BY_FRAME_POINTER) == flags;
            return if same && usize::from(old.read) >= self.refuted_before() { Visit::Known } else { Visit::New };
        }
    }

    /// Reads before this one are known not to hold.
    fn refuted_before(&self) -> usize {
        if self.refuted == READS {
            0
        } else {
            self.refuted + 1
        }
    }

    /// The frame just visited has the pc and sp of the old walk's candidate: is the rest the same? `fp`: gives rbp here.
    #[cold]
    #[inline(never)]
    pub fn tail(
        &mut self,
        reader: &mut Reader<'_>,
        scratch: &Scratch,
        fp: impl FnOnce(&mut Reader<'_>) -> Option<u64>,
    ) -> Option<Tail> {
        let (candidate, first) = (self.candidate, usize::from(self.trail.first));
        let old = *self.trail.marks.get(candidate)?;
        if candidate < first || old.needs & !FP_BIT != 0 || !self.same_state(scratch) {
            return None;
        }
        if old.needs & FP_BIT != 0 && (old.flags & HAS_FP == 0 || fp(reader) != Some(old.fp)) {
            return None;
        }
        if !self.hold(usize::from(old.read), reader) {
            return None;
        }
        let stop = StopReason::from_number(self.trail.stop)?;
        Some(Tail {
            first: candidate as u16,
            point: POINTS as u16,
            frames: u32::from(old.count),
            words: WORDS.checked_sub(usize::from(old.word))?,
            desync: u32::from(old.desync),
            stop,
        })
    }

    /// Whether the old walk's reads from this one on hold.
    fn hold(&mut self, first: usize, reader: &mut Reader<'_>) -> bool {
        let reads = self.trail.reads.get(first..).unwrap_or_default();
        let refuted = Read::refuted(reads, reader);
        if let Some(at) = refuted {
            self.refuted = first + at;
        }
        refuted.is_none()
    }

    /// Objects of the old walk that may have been unloaded.
    pub fn objects(&self) -> &[u64] {
        self.trail.object.get(..usize::from(self.trail.objects)).unwrap_or_default()
    }

    /// Of the surroundings, when the walk began.
    pub fn stamp(&self) -> u64 {
        self.stamp
    }

    /// Of the registry, when the old walk met a window.
    pub fn windows_stamp(&self) -> u64 {
        self.trail.stamp.windows
    }

    /// The frame words of a tail.
    pub fn words(&self, tail: &Tail) -> &[u64] {
        self.trail.words.get(WORDS - tail.words.min(WORDS)..).unwrap_or_default()
    }

    /// The frame just visited counts from rbp, which is this. What was read to learn it belongs to its callees.
    #[inline(always)]
    pub fn note_fp(&mut self, fp: Option<u64>, reader: &Reader<'_>) {
        if let Some(mark) = self.last() {
            mark.read = reader.written() as u16;
            if let Some(fp) = fp {
                mark.fp = fp;
                mark.flags |= HAS_FP;
            }
        }
    }

    /// The frame just visited is stepped by this rule.
    #[inline(always)]
    pub fn note_rule(&mut self, uses: u8, restores: u8) {
        if let Some(mark) = self.last() {
            mark.uses |= uses;
            mark.restores = restores;
        }
    }

    /// A plugin was called on the frame just visited: its scratch memory may have changed, unless it says not (`untouched`). `used`: the
    /// registers that it looked at, a bit each, by DWARF number.
    #[inline(never)]
    pub fn note_plugin(&mut self, scratch: &Scratch, used: u32, untouched: bool) {
        if let Some(mark) = self.last() {
            mark.uses |= bits(used);
        }
        self.trail.call.touched |= !untouched;
        // A plugin is shown many frames that are not its own, and remembers nothing of them.
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
        if let Some(mark) = self.last() {
            // Asked twice at one frame (to step it, and for frames): what it left behind in the end counts.
            mark.state = at as u16;
            mark.flags |= if written.is_some() { HAS_STATE } else { LOST_STATE };
        }
    }

    /// A plugin has stepped from the frame just visited, instead of its rule. `restored`: the caller's registers that depend on none of
    /// this frame's, but for those that it looked at.
    pub fn note_step(&mut self, restored: u32) {
        if let Some(mark) = self.last() {
            mark.restores = bits(restored) & !OTHER;
        }
    }

    #[inline(always)]
    fn last(&mut self) -> Option<&mut Mark> {
        self.trail.marks.get_mut(self.marks.wrapping_sub(1))
    }

    /// No room in front of the old walk: it is given up. False: there is no room at all.
    #[cold]
    fn give_way(&mut self) -> bool {
        if self.trail.valid == 1 && usize::from(self.trail.first) < MARKS {
            // Reads of the new walk have their own bound, which stays; this one may still become whole.
            self.trail.valid = 0;
            self.trail.first = MARKS as u16;
            self.trail.first_word = WORDS as u16;
            self.trail.first_state = STATES as u16;
            self.trail.first_point = POINTS as u16;
            self.trail.call.candidates = (0, 0);
            self.candidate = MARKS;
            return self.marks < MARKS;
        }
        self.broken = true;
        false
    }
}

/// The frame that a walk is at.
#[derive(Clone, Copy)]
pub struct At {
    /// Its pc.
    pub pc: u64,
    /// Its stack pointer.
    pub sp: u64,
    /// The pc is an interrupted instruction.
    pub exact: bool,
    /// Found by a frame pointer.
    pub by_frame_pointer: bool,
    /// Words, frames and doubtful overlay calls so far.
    pub words: usize,
    /// See `words`.
    pub count: u32,
    /// See `words`.
    pub desync: u32,
}

/// What [`Recording::visit`] says of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Visit {
    /// The old walk was not here, or it went on in another way.
    New,
    /// The old walk was here: ask for the [`Recording::tail`].
    Known,
}

/// Registers that a short rule uses and restores.
#[inline(always)]
pub fn of_short(rule: Short) -> (u8, u8) {
    (if rule.from_rbp() { FP_BIT } else { 0 }, rule.touched())
}
