//! Tails that begin within a plugin's call.
//!
//! One native frame of an interpreter may host hundreds of its language's frames, and from one sample to the next only
//! the innermost of them change. So a plugin reports, between two frames, what the rest of its call depends on: a few
//! words, and what it reads from there on. If the old walk was in a call on the same frame, stepped by the same rule,
//! and received the same report, its rest is the new one's. Only the native frame's own word differs, since it has
//! another pc.

use super::record::{Point, PointState, BY_FRAME_POINTER, CALL, FRAMES, HAS_FP, HAS_STATE, LOST_STATE, POINTS, WORDS};
use super::scratch::Scratch;
use super::{Tail, WalkLog, FP_BIT};
use crate::frame::{native_word, FLAGS, FLAG_INTERPRETER};
use crate::memory::Reader;
use crate::rule::{Packed, RuleKind};
use crate::stop_reason::StopReason;

/// The current call of a plugin, or the last one. It is part of the [`super::LastWalk`], because a handler's stack is
/// short.
pub(super) struct Call {
    /// Points of this call are logged.
    open: bool,
    /// The entry in front of the call's points was added.
    begun: bool,
    /// An earlier call of a plugin on this frame may have changed its scratch memory.
    pub(super) touched: bool,
    /// Indices of the old walk's points in its call on this frame: the next one that may be reached, and the end.
    pub(super) candidates: (usize, usize),
    /// The plugin steps the frame itself.
    steps: bool,
    /// rbp, where it is known.
    fp: Option<u64>,
}

impl Call {
    pub(super) const NONE: Call =
        Call { open: false, begun: false, touched: false, candidates: (0, 0), steps: false, fp: None };
}

/// The inputs of a plugin's call.
pub struct CallInputs<'p> {
    /// Index of the plugin that is called (`crate::walk::LAST_INDEX`).
    pub plugin: u8,
    /// Process address of the facts that it is shown; null for unowned code. Bytes at an address never change.
    pub facts: *const u8,
    /// The frame's rule, and the CFA by it; `None`: the plugin steps the frame itself.
    pub rule: Option<(Packed, u64)>,
    /// The value of rbp in the frame; `None`: it is not available.
    pub fp: Option<u64>,
    /// The plugins' scratch memory before the call.
    pub scratch: &'p Scratch,
}

impl WalkLog<'_> {
    /// Logs that a plugin is about to be called for the frames that the frame just visited hosts.
    pub fn call_begins(&mut self, inputs: &CallInputs<'_>) {
        let touched = self.last_walk.call.touched;
        self.last_walk.call = Call { touched, ..Call::NONE };
        let Some(frame) = self.last().copied() else { return };
        let is_simple = |rule: Packed, cfa| rule.kind() == RuleKind::Offset && rule.flags() == 0 && cfa > frame.sp;
        let simple = inputs.rule.is_none_or(|(rule, cfa)| is_simple(rule, cfa));
        let at = self.points;
        if touched || !simple || frame.flags & BY_FRAME_POINTER != 0 || at >= usize::from(self.last_walk.first.point) {
            return;
        }
        // No rule has such a word.
        let (rule, cfa) = inputs.rule.map_or(([u64::MAX; 3], 0), |(rule, cfa)| (rule.words(), cfa));
        let state = [rule[0], rule[1], rule[2], cfa, inputs.plugin.into(), inputs.facts as u64, 0, 0, 0, 0];
        let Some(room) = self.last_walk.points.get_mut(at) else { return };
        *room = Point { order: CALL, state, read: 0, word: 0, count: 0, desync: 0 };
        self.last_walk.call.open = true;
        self.last_walk.call.steps = inputs.rule.is_none();
        self.last_walk.call.fp = inputs.fp;
        let old = self
            .last_walk
            .frames
            .get(self.candidate)
            .filter(|old| old.sp == frame.sp && old.flags & BY_FRAME_POINTER == 0);
        let Some(first) = old.map(|old| usize::from(old.point)) else { return };
        let end = self.last_walk.frames.get(self.candidate + 1).map_or(POINTS, |next| usize::from(next.point));
        let same = self.last_walk.points.get(first).is_some_and(|old| old.order == CALL && old.state == state);
        if first < end && same && self.same_before(inputs.scratch) {
            self.last_walk.call.candidates = (first + 1, end);
        }
    }

    /// Whether the plugins' scratch memory is as it was before the old walk's candidate. Unused memory is zero.
    fn same_before(&self, scratch: &Scratch) -> bool {
        self.same_state(scratch) || (self.state_of == FRAMES && scratch.is_zero())
    }

    /// Index of the old walk's point with the same order and state as this one, if there is one.
    #[inline]
    pub fn point(&mut self, order: u64, state: &PointState) -> Option<usize> {
        let (mut next, end) = self.last_walk.call.candidates;
        while next < end {
            let old = self.last_walk.points.get(next)?;
            if old.order <= order || old.order == CALL {
                break;
            }
            next += 1;
        }
        self.last_walk.call.candidates.0 = next;
        let old = self.last_walk.points.get(next).filter(|_| next < end)?;
        let same = old.order == order && old.state == *state && usize::from(old.read) >= self.refuted_before();
        same.then_some(next)
    }

    /// Logs a new point, with the numbers of words, frames and doubtful overlay calls so far.
    pub fn note_point(
        &mut self,
        order: u64,
        state: &PointState,
        (words, count, desync): (usize, u32, u32),
        reader: &Reader<'_>,
    ) {
        let first = usize::from(self.last_walk.first.point);
        if !self.last_walk.call.open || order == CALL || self.points + 2 > first {
            return;
        }
        self.begin_points();
        if let Some(room) = self.last_walk.points.get_mut(self.points) {
            let read = reader.written() as u16;
            *room =
                Point { order, state: *state, read, word: words as u16, count: count as u16, desync: desync as u16 };
            self.points += 1;
        }
    }

    /// Adds the entry in front of the call's points.
    fn begin_points(&mut self) {
        if !self.last_walk.call.begun {
            self.last_walk.call.begun = true;
            self.points += 1;
        }
    }

    /// The rest of the old walk from a point on, if all of its inputs are unchanged.
    #[cold]
    #[inline(never)]
    pub fn tail_of_point(&mut self, point: usize, reader: &mut Reader<'_>) -> Option<Tail> {
        let first = self.candidate;
        let old = *self.last_walk.points.get(point)?;
        // The registers that the callers read are restored by this frame's step from the same places, or it is rbp.
        let frame = self.last_walk.frames.get(first)?;
        let next = self.last_walk.frames.get(first + 1);
        let needs = next.map_or(0, |next| next.needs & !frame.restores);
        let fp = next.filter(|next| next.flags & HAS_FP != 0).map(|next| next.fp);
        if needs & !FP_BIT != 0 || (needs & FP_BIT != 0 && (fp.is_none() || fp != self.last_walk.call.fp)) {
            return None;
        }
        // The word must be a native frame's, of one word: it lies in no window.
        let word = self.last_walk.words.get(self.native_word_of(first))?;
        let sure =
            word & !FLAGS == native_word(frame.pc, 0) && (!self.last_walk.call.steps || word & FLAG_INTERPRETER != 0);
        if !sure || !self.hold(usize::from(old.read), reader) {
            return None;
        }
        let stop = StopReason::from_number(self.last_walk.stop)?;
        self.begin_points();
        Some(Tail {
            first: first as u16,
            point: point as u16,
            frames: u32::from(old.count),
            words: WORDS.checked_sub(usize::from(old.word))?,
            desync: u32::from(old.desync),
            stop,
        })
    }

    /// Index of the old walk's word of a native frame: it follows the words of the frames that it hosts.
    fn native_word_of(&self, frame: usize) -> usize {
        let end = self.last_walk.frames.get(frame + 1).map_or(WORDS, |next| usize::from(next.word));
        end.wrapping_sub(1)
    }

    /// Ends the walk inside the call, with a tail. `word`: the native frame's own word. The scratch memory after the
    /// call is that of the old walk.
    pub fn end_in_call(&mut self, tail: &Tail, word: u64) {
        let at = self.native_word_of(tail.first.into());
        if let Some(old) = self.last_walk.words.get_mut(at) {
            *old = word | *old & FLAG_INTERPRETER;
        }
        let Some(old) = self.last_walk.frames.get(usize::from(tail.first)) else { return };
        let (states, flags, restores) = (self.states, old.flags, old.restores);
        if let Some(frame) = self.last() {
            frame.state = states as u16;
            frame.flags = frame.flags & !(HAS_STATE | LOST_STATE) | flags & (HAS_STATE | LOST_STATE);
            frame.restores = restores;
        }
    }

    /// Ends the call. `stands`: it did not fail, and the frame is the plugin's. Otherwise other plugins may be called,
    /// which see the pc, so the points are dropped.
    pub fn call_ends(&mut self, stands: bool) {
        if let Some(frame) = self.last().copied().filter(|_| !stands) {
            self.points = usize::from(frame.point);
        }
        self.last_walk.call.open = false;
        self.last_walk.call.candidates = (0, 0);
    }
}
