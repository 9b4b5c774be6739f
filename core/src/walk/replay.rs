//! How a walk is logged, and goes over to the thread's last walk where the rest of both is the same
//! ([`crate::cache::last_walk`]).

use super::{DependsOn, Env, Outcome, Walk, MAX_FRAMES};
use crate::cache::last_walk::{Found, PointState, Stamp, Tail, Visited, WalkEnd, WalkLog};
use crate::memory::{block, Reader};
use crate::stop_reason::StopReason;

/// [`Walk::run_plain`] and [`Walk::run`] end the walk with this when the rest was replayed.
pub(super) const SAME_AS_LAST: StopReason = StopReason::Complete;

impl<E: Env> Walk<'_, '_, E> {
    /// Logs a frame. True: the last walk may have the same frame.
    #[inline(always)]
    pub(super) fn is_known(&mut self, pc: u64, sp: u64, exact: bool, by_frame_pointer: bool) -> bool {
        let Some(log) = &mut self.log else { return false };
        let (words, count, desync) = (self.words, self.count, self.desync);
        let at = Visited { pc, sp, exact, by_frame_pointer, words, count, desync };
        log.visit(at, self.reader) == Found::Cached
    }

    /// Whether the last walk's rest is this one's, from the frame that was just logged.
    #[cold]
    #[inline(never)]
    pub(super) fn same_from_here(&mut self, fp: impl FnOnce(&mut Reader<'_>) -> Option<u64>) -> bool {
        if !self.windows_hold() {
            return false;
        }
        let Some(log) = &mut self.log else { return false };
        let tail = log.tail(self.reader, &self.scratch, fp);
        self.ends_with(tail)
    }

    /// A plugin reports what the rest of its call depends on. True: the rest of the call is cached, together with the
    /// rest of the walk.
    #[inline(always)]
    pub(super) fn rest_is_known(&mut self, order: u64, state: &PointState) -> bool {
        let Some(log) = &mut self.log else { return false };
        let cached = log.point(order, state);
        if cached.is_some_and(|point| self.same_from_point(point)) {
            return true;
        }
        let left = (self.words, self.count, self.desync);
        if let Some(log) = &mut self.log {
            log.note_point(order, state, left, self.reader);
        }
        false
    }

    #[cold]
    #[inline(never)]
    fn same_from_point(&mut self, point: usize) -> bool {
        if !self.windows_hold() {
            return false;
        }
        let Some(log) = &mut self.log else { return false };
        let tail = log.tail_of_point(point, self.reader);
        self.ends_with(tail)
    }

    /// Whether the windows that the last walk met are unchanged.
    fn windows_hold(&self) -> bool {
        let stamp = self.log.as_ref().map_or(0, WalkLog::windows_stamp);
        stamp == 0 || self.env.windows_hold(stamp)
    }

    /// Takes over the rest of the last walk, if there is room, and its objects are there.
    fn ends_with(&mut self, tail: Option<Tail>) -> bool {
        let (Some(tail), Some(log)) = (tail, &mut self.log) else { return false };
        let fits = self.count + tail.frames <= MAX_FRAMES && self.words + tail.words <= self.frames.len();
        if !fits {
            return false;
        }
        let was = self.reader.pause(true);
        let there = log.objects().iter().all(|object| self.env.confirm(*object, self.reader));
        self.reader.pause(was);
        if !there {
            return false;
        }
        self.tail = Some(tail);
        true
    }

    /// The result of the walk; also ends the log, for the next walk.
    #[inline(never)]
    pub(super) fn finish(&mut self, stop: StopReason) -> Outcome {
        let (words, frames, reused) = (self.words, self.count, self.followed);
        let mut outcome =
            Outcome { stop, words, desync: self.desync, frames, reused, by_frame_pointer: self.by_frame_pointer };
        if self.deep.is_deep() {
            self.finish_deep();
            outcome.words = self.words;
            self.deep = super::Deep::default();
            self.report_progress();
        }
        if self.doubtful {
            outcome.stop = outcome.stop.doubted();
        }
        let Some(log) = self.log.take() else { return outcome };
        if let Some(tail) = &self.tail {
            let words = log.words(tail);
            if let Some(room) = self.frames.get_mut(self.words..).and_then(|rest| rest.get_mut(..words.len())) {
                block::copy(words, room);
            }
            outcome.stop = if self.doubtful { tail.stop.doubted() } else { tail.stop };
            outcome.words += words.len();
            outcome.desync += tail.desync;
            outcome.frames += tail.frames;
            outcome.reused = tail.frames;
        }
        // Each stamp is as old as the oldest part of the walk: later changes must invalidate it.
        // A walk that was cut would be cut elsewhere if its top were another.
        let on = self.env.depends_on().filter(|_| !self.cut);
        let kept = on.is_some();
        let DependsOn { windows, objects } = on.unwrap_or(DependsOn { windows: 0, objects: &[] });
        let mut stamp = Stamp { general: log.stamp(), windows };
        if self.tail.is_some() && log.windows_stamp() != 0 {
            stamp.windows = log.windows_stamp();
        }
        let end = WalkEnd {
            words: self.frames.get(..self.words).unwrap_or_default(),
            tail: self.tail.as_ref(),
            stop: outcome.stop,
            count: outcome.frames,
            desync: outcome.desync,
            probed: self.reader.is_probed(),
            stamp,
            objects,
        };
        log.end(self.reader, end, kept);
        self.words = outcome.words;
        self.report_progress();
        outcome
    }
}
