//! Tails that begin within a plugin's call.
//!
//! One native frame of an interpreter may host hundreds of its language's frames, and from one sample to the next only the innermost
//! of them change. So a plugin says, between two frames, what the rest of its call depends on: a few words, and what it reads from there on. Where the
//! old walk was in a call on the same frame, stepped by the same rule, and was told the same, its rest is the new one's; but for the native frame's own
//! word, in which the pc is another one.

use super::scratch::Scratch;
use super::trail::{Point, PointState, BY_FRAME_POINTER, CALL, HAS_FP, HAS_STATE, LOST_STATE, MARKS, POINTS, WORDS};
use super::{Recording, Tail, FP_BIT};
use crate::frame::{native_word, FLAGS, FLAG_INTERPRETER};
use crate::memory::Reader;
use crate::rule::{Packed, RuleKind};
use crate::stop_reason::StopReason;

/// The call of a plugin that is under way, or the last one. It lies in the trail, since a handler's stack is short.
pub(super) struct Call {
    /// Points may be told.
    open: bool,
    /// What stands in front of a call's points was taken.
    begun: bool,
    /// A plugin that was called on this frame before may have changed its scratch memory.
    pub(super) touched: bool,
    /// Points of the old walk's call on this frame that may come next, and their end.
    pub(super) candidates: (usize, usize),
    /// The plugin steps itself.
    steps: bool,
    /// rbp, where it is known.
    fp: Option<u64>,
}

impl Call {
    pub(super) const NONE: Call =
        Call { open: false, begun: false, touched: false, candidates: (0, 0), steps: false, fp: None };
}

/// Where a plugin's call is made.
pub struct Place<'p> {
    /// Index of the plugin.
    pub plugin: u8,
    /// Its facts.
    pub facts: *const u8,
    /// The frame's rule, and the CFA that it gives; `None`: the plugin steps itself.
    pub rule: Option<(Packed, u64)>,
    /// rbp, where it is known.
    pub fp: Option<u64>,
    /// The plugins' scratch memory before the call.
    pub scratch: &'p Scratch,
}

impl Recording<'_> {
    /// A plugin is about to be called on the frame just visited, for frames.
    pub fn call_begins(&mut self, place: &Place<'_>) {
        let touched = self.trail.call.touched;
        self.trail.call = Call { touched, ..Call::NONE };
        let Some(mark) = self.last().copied() else { return };
        let is_simple = |rule: Packed, cfa| rule.kind() == RuleKind::Offset && rule.flags() == 0 && cfa > mark.sp;
        let simple = place.rule.is_none_or(|(rule, cfa)| is_simple(rule, cfa));
        let at = self.points;
        if touched || !simple || mark.flags & BY_FRAME_POINTER != 0 || at >= usize::from(self.trail.first_point) {
            return;
        }
        // No rule has such a word.
        let (rule, cfa) = place.rule.map_or(([u64::MAX; 3], 0), |(rule, cfa)| (rule.words(), cfa));
        let state = [rule[0], rule[1], rule[2], cfa, place.plugin.into(), place.facts as u64, 0, 0, 0, 0];
        let Some(room) = self.trail.points.get_mut(at) else { return };
        *room = Point { order: CALL, state, read: 0, word: 0, count: 0, desync: 0 };
        self.trail.call.open = true;
        self.trail.call.steps = place.rule.is_none();
        self.trail.call.fp = place.fp;
        let old =
            self.trail.marks.get(self.candidate).filter(|old| old.sp == mark.sp && old.flags & BY_FRAME_POINTER == 0);
        let Some(first) = old.map(|old| usize::from(old.point)) else { return };
        let end = self.trail.marks.get(self.candidate + 1).map_or(POINTS, |next| usize::from(next.point));
        let same = self.trail.points.get(first).is_some_and(|old| old.order == CALL && old.state == state);
        if first < end && same && self.same_before(place.scratch) {
            self.trail.call.candidates = (first + 1, end);
        }
    }

    /// Whether the plugins' scratch memory is as it was before the old walk's candidate. What was not used yet is zero.
    fn same_before(&self, scratch: &Scratch) -> bool {
        self.same_state(scratch) || (self.state_of == MARKS && scratch.is_zero())
    }

    /// The plugin says what the rest of its call depends on. The old walk's point at which it said the same.
    #[inline]
    pub fn point(&mut self, order: u64, state: &PointState) -> Option<usize> {
        let (mut next, end) = self.trail.call.candidates;
        while next < end {
            let old = self.trail.points.get(next)?;
            if old.order <= order || old.order == CALL {
                break;
            }
            next += 1;
        }
        self.trail.call.candidates.0 = next;
        let old = self.trail.points.get(next).filter(|_| next < end)?;
        let same = old.order == order && old.state == *state && usize::from(old.read) >= self.refuted_before();
        same.then_some(next)
    }

    /// The point is new. What the walk has left behind so far.
    pub fn note_point(
        &mut self,
        order: u64,
        state: &PointState,
        (words, count, desync): (usize, u32, u32),
        reader: &Reader<'_>,
    ) {
        let first = usize::from(self.trail.first_point);
        if !self.trail.call.open || order == CALL || self.points + 2 > first {
            return;
        }
        self.begin_points();
        if let Some(room) = self.trail.points.get_mut(self.points) {
            let read = reader.written() as u16;
            *room =
                Point { order, state: *state, read, word: words as u16, count: count as u16, desync: desync as u16 };
            self.points += 1;
        }
    }

    /// Takes what stands in front of the call's points.
    fn begin_points(&mut self) {
        if !self.trail.call.begun {
            self.trail.call.begun = true;
            self.points += 1;
        }
    }

    /// The rest of the walk from an old point on, if it is this one's.
    #[cold]
    #[inline(never)]
    pub fn tail_of_point(&mut self, point: usize, reader: &mut Reader<'_>) -> Option<Tail> {
        let first = self.candidate;
        let old = *self.trail.points.get(point)?;
        // What the callers look at comes from where the step restores it from, which is the same, or is rbp.
        let frame = self.trail.marks.get(first)?;
        let next = self.trail.marks.get(first + 1);
        let needs = next.map_or(0, |next| next.needs & !frame.restores);
        let fp = next.filter(|next| next.flags & HAS_FP != 0).map(|next| next.fp);
        if needs & !FP_BIT != 0 || (needs & FP_BIT != 0 && (fp.is_none() || fp != self.trail.call.fp)) {
            return None;
        }
        // One native frame, in no window; an interpreter's own frame never lies in one.
        let word = self.trail.words.get(self.native_word_of(first))?;
        let sure =
            word & !FLAGS == native_word(frame.pc, 0) && (!self.trail.call.steps || word & FLAG_INTERPRETER != 0);
        if !sure || !self.hold(usize::from(old.read), reader) {
            return None;
        }
        let stop = StopReason::from_number(self.trail.stop)?;
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

    /// Where the old walk's word of a native frame stands: behind those of the frames that it hosts.
    fn native_word_of(&self, mark: usize) -> usize {
        let behind = self.trail.marks.get(mark + 1).map_or(WORDS, |next| usize::from(next.word));
        behind.wrapping_sub(1)
    }

    /// The walk ends within the call, with a tail: the frame's own word is this. What the call leaves in the scratch memory, if
    /// anything, is what the old one left.
    pub fn end_in_call(&mut self, tail: &Tail, word: u64) {
        let at = self.native_word_of(tail.first.into());
        if let Some(old) = self.trail.words.get_mut(at) {
            *old = word | *old & FLAG_INTERPRETER;
        }
        let Some(old) = self.trail.marks.get(usize::from(tail.first)) else { return };
        let (states, flags, restores) = (self.states, old.flags, old.restores);
        if let Some(mark) = self.last() {
            mark.state = states as u16;
            mark.flags = mark.flags & !(HAS_STATE | LOST_STATE) | flags & (HAS_STATE | LOST_STATE);
            mark.restores = restores;
        }
    }

    /// The call has ended. `stands`: it did not fail, and the frame is the plugin's. Else others may be asked, who see the pc.
    pub fn call_ends(&mut self, stands: bool) {
        if let Some(mark) = self.last().copied().filter(|_| !stands) {
            self.points = usize::from(mark.point);
        }
        self.trail.call.open = false;
        self.trail.call.candidates = (0, 0);
    }
}
