//! The end of a walk: its log becomes the thread's last walk, in front of the part that it shares with the walk before.

use super::record::{Stamp, FRAMES, HAS_FP, POINTS, READS, STATES, WORDS};
use super::{Tail, WalkLog, FP_BIT};
use crate::memory::Reader;
use crate::stop_reason::StopReason;
use core::sync::atomic::{compiler_fence, Ordering};

/// How a walk ended: what its log lacks to become the last walk.
pub struct WalkEnd<'e> {
    /// Its frame words; with a tail, those that precede it.
    pub words: &'e [u64],
    /// The replayed part of the old walk with which it ended.
    pub tail: Option<&'e Tail>,
    /// The reason for which it ended.
    pub stop: StopReason,
    /// Number of its frames, those of the replayed part among them.
    pub count: u32,
    /// Total number of doubtful overlay calls.
    pub desync: u32,
    /// Whether reads were probed.
    pub probed: bool,
    /// The validity epochs under which the walk may be replayed: the oldest of all its parts.
    pub stamp: Stamp,
    /// Generations of the unloadable objects that it met.
    pub objects: &'e [u64],
}

impl WalkLog<'_> {
    /// Ends the log. It becomes the last walk if it is complete and `repeatable`: a repetition would have the same
    /// result.
    pub fn end(mut self, reader: &mut Reader<'_>, end: WalkEnd<'_>, repeatable: bool) {
        let (written, overflow) = (reader.written(), reader.overflow());
        reader.forget_log();
        if !repeatable || !self.keep(written, overflow, &end) {
            self.last_walk.forget();
        }
    }

    fn keep(&mut self, written: usize, overflow: bool, end: &WalkEnd<'_>) -> bool {
        let (mut frames, mut reads, mut words, mut states) = (self.frames, written, end.words.len(), self.states);
        let mut points = self.points;
        let last_walk = &mut *self.last_walk;
        let (to_frame, to_read, to_word, to_state, to_point) = match end.tail {
            // The tail begins inside the frame just visited, at a point whose reads and words are in the old walk.
            Some(tail) if usize::from(tail.point) < POINTS => {
                let (first, at) = (usize::from(tail.first), usize::from(tail.point));
                let (Some(point), Some(old)) = (last_walk.points.get(at), last_walk.frames.get(first)) else {
                    return false;
                };
                (first + 1, usize::from(point.read), usize::from(point.word), usize::from(old.state), at)
            }
            // The frame just visited is the tail's first, which the old walk has already.
            Some(tail) => {
                let (Some(new), Some(old)) = (
                    last_walk.frames.get(frames.wrapping_sub(1)).copied(),
                    last_walk.frames.get(usize::from(tail.first)).copied(),
                ) else {
                    return false;
                };
                frames -= 1;
                (reads, words, states) = (usize::from(new.read), usize::from(new.word), usize::from(new.state));
                points = usize::from(new.point);
                let (read, word, state) = (usize::from(old.read), usize::from(old.word), usize::from(old.state));
                (usize::from(tail.first), read, word, state, usize::from(old.point))
            }
            None => (FRAMES, READS, WORDS, STATES, POINTS),
        };
        let fits =
            reads <= to_read && words <= to_word && states <= to_state && frames <= to_frame && points <= to_point;
        if self.broken || overflow || !fits || end.count > u32::from(u16::MAX) || end.desync > u32::from(u16::MAX) {
            return false;
        }
        let (frame_at, read_at, word_at, state_at, point_at) =
            (to_frame - frames, to_read - reads, to_word - words, to_state - states, to_point - points);
        let moved = move_front(&mut last_walk.frames, frames, frame_at)
            && move_front(&mut last_walk.reads, reads, read_at)
            && move_front(&mut last_walk.states, states, state_at)
            && move_front(&mut last_walk.points, points, point_at);
        if !moved {
            return false;
        }
        let (Some(room), Some(fresh)) = (last_walk.words.get_mut(word_at..to_word), end.words.get(..words)) else {
            return false;
        };
        if room.len() != fresh.len() {
            return false;
        }
        room.copy_from_slice(fresh);
        // From the outermost new frame towards the leaf: the registers that the rest of the walk reads.
        let (mut needs, mut fp) = match last_walk.frames.get(to_frame) {
            Some(old) if end.tail.is_some() => (old.needs, (old.flags & HAS_FP != 0).then_some(old.fp)),
            _ => (0, None),
        };
        for frame in last_walk.frames.get_mut(frame_at..to_frame).unwrap_or_default().iter_mut().rev() {
            needs = frame.uses | (needs & !frame.restores);
            fp = match (frame.flags & HAS_FP != 0, frame.restores & FP_BIT != 0) {
                (true, _) => Some(frame.fp),
                (false, true) => None,
                (false, false) => fp,
            };
            if let Some(fp) = fp {
                frame.fp = fp;
                frame.flags |= HAS_FP;
            }
            frame.needs = needs;
            frame.count = (end.count as u16).wrapping_sub(frame.count);
            frame.desync = (end.desync as u16).wrapping_sub(frame.desync);
            frame.read = frame.read.wrapping_add(read_at as u16);
            frame.word = frame.word.wrapping_add(word_at as u16);
            frame.state = frame.state.wrapping_add(state_at as u16);
            frame.point = frame.point.wrapping_add(point_at as u16);
        }
        for point in last_walk.points.get_mut(point_at..to_point).unwrap_or_default() {
            point.count = (end.count as u16).wrapping_sub(point.count);
            point.desync = (end.desync as u16).wrapping_sub(point.desync);
            point.read = point.read.wrapping_add(read_at as u16);
            point.word = point.word.wrapping_add(word_at as u16);
        }
        last_walk.first = frame_at as u16;
        last_walk.first_read = read_at as u16;
        last_walk.first_word = word_at as u16;
        last_walk.first_state = state_at as u16;
        last_walk.first_point = point_at as u16;
        last_walk.stop = end.stop.number();
        last_walk.probed = u32::from(end.probed);
        last_walk.stamp = end.stamp;
        let mut objects = if end.tail.is_some() { usize::from(last_walk.objects) } else { 0 };
        for object in end.objects {
            let is_listed = last_walk.object.get(..objects).is_some_and(|listed| listed.contains(object));
            if is_listed {
                continue;
            }
            let Some(room) = last_walk.object.get_mut(objects) else { return false };
            *room = *object;
            objects += 1;
        }
        last_walk.objects = objects as u16;
        compiler_fence(Ordering::SeqCst);
        last_walk.valid = 1;
        true
    }
}

/// Moves the first `count` items to index `to`; both ranges may overlap. False: there is no room.
fn move_front<T: Copy>(items: &mut [T], count: usize, to: usize) -> bool {
    let Some(room) = items.len().checked_sub(count) else { return false };
    if to <= room {
        // SAFETY: `count` items fit in front and at `to`. (`copy_within` would bring a panic path.)
        unsafe { core::ptr::copy(items.as_ptr(), items.as_mut_ptr().add(to), count) };
    }
    to <= room
}
