//! The end of a walk: what it wrote down becomes the thread's last walk, in front of what it shares with the one before.

use super::trail::{Stamp, HAS_FP, MARKS, POINTS, READS, STATES, WORDS};
use super::{Recording, Tail, FP_BIT};
use crate::memory::Reader;
use crate::stop_reason::StopReason;

/// How a walk ended.
pub struct End<'e> {
    /// Its frame words; with a tail, those before it.
    pub words: &'e [u64],
    /// The part of the old walk that it ended with.
    pub tail: Option<&'e Tail>,
    /// Why.
    pub stop: StopReason,
    /// Frames, in all.
    pub count: u32,
    /// Doubtful overlay calls, in all.
    pub desync: u32,
    /// Reads were probed.
    pub probed: bool,
    /// The surroundings.
    pub stamp: Stamp,
    /// Objects met that may be unloaded.
    pub objects: &'e [u64],
}

impl Recording<'_> {
    /// The walk has ended. Keeps what was written down, if all of it was, and if the same walk would be told the same again.
    pub fn end(mut self, reader: &mut Reader<'_>, end: End<'_>, repeatable: bool) {
        let (written, overflow) = (reader.written(), reader.overflow());
        reader.forget_log();
        if !repeatable || !self.keep(written, overflow, &end) {
            self.trail.forget();
        }
    }

    fn keep(&mut self, written: usize, overflow: bool, end: &End<'_>) -> bool {
        let (mut marks, mut reads, mut words, mut states) = (self.marks, written, end.words.len(), self.states);
        let mut points = self.points;
        let trail = &mut *self.trail;
        let (to_mark, to_read, to_word, to_state, to_point) = match end.tail {
            // Within the frame just visited, from a point of it on, whose own reads and words were written down by the old walk.
            Some(tail) if usize::from(tail.point) < POINTS => {
                let (first, at) = (usize::from(tail.first), usize::from(tail.point));
                let (Some(point), Some(old)) = (trail.points.get(at), trail.marks.get(first)) else {
                    return false;
                };
                (first + 1, usize::from(point.read), usize::from(point.word), usize::from(old.state), at)
            }
            // The frame just visited is the tail's first: it stands there already.
            Some(tail) => {
                let (Some(new), Some(old)) = (
                    trail.marks.get(marks.wrapping_sub(1)).copied(),
                    trail.marks.get(usize::from(tail.first)).copied(),
                ) else {
                    return false;
                };
                marks -= 1;
                (reads, words, states) = (usize::from(new.read), usize::from(new.word), usize::from(new.state));
                points = usize::from(new.point);
                let (read, word, state) = (usize::from(old.read), usize::from(old.word), usize::from(old.state));
                (usize::from(tail.first), read, word, state, usize::from(old.point))
            }
            None => (MARKS, READS, WORDS, STATES, POINTS),
        };
        let fits = reads <= to_read && words <= to_word && states <= to_state && marks <= to_mark && points <= to_point;
        if self.broken || overflow || !fits || end.count > u32::from(u16::MAX) || end.desync > u32::from(u16::MAX) {
            return false;
        }
        let (mark_at, read_at, word_at, state_at, point_at) =
            (to_mark - marks, to_read - reads, to_word - words, to_state - states, to_point - points);
        let moved = move_front(&mut trail.marks, marks, mark_at)
            && move_front(&mut trail.reads, reads, read_at)
            && move_front(&mut trail.states, states, state_at)
            && move_front(&mut trail.points, points, point_at);
        if !moved {
            return false;
        }
        let (Some(room), Some(fresh)) = (trail.words.get_mut(word_at..to_word), end.words.get(..words)) else {
            return false;
        };
        if room.len() != fresh.len() {
            return false;
        }
        room.copy_from_slice(fresh);
        // From the outermost new frame inwards: which registers the rest looks at.
        let (mut needs, mut fp) = match trail.marks.get(to_mark) {
            Some(old) if end.tail.is_some() => (old.needs, (old.flags & HAS_FP != 0).then_some(old.fp)),
            _ => (0, None),
        };
        for mark in trail.marks.get_mut(mark_at..to_mark).unwrap_or_default().iter_mut().rev() {
            needs = mark.uses | (needs & !mark.restores);
            fp = match (mark.flags & HAS_FP != 0, mark.restores & FP_BIT != 0) {
                (true, _) => Some(mark.fp),
                (false, true) => None,
                (false, false) => fp,
            };
            if let Some(fp) = fp {
                mark.fp = fp;
                mark.flags |= HAS_FP;
            }
            mark.needs = needs;
            mark.count = (end.count as u16).wrapping_sub(mark.count);
            mark.desync = (end.desync as u16).wrapping_sub(mark.desync);
            mark.read = mark.read.wrapping_add(read_at as u16);
            mark.word = mark.word.wrapping_add(word_at as u16);
            mark.state = mark.state.wrapping_add(state_at as u16);
            mark.point = mark.point.wrapping_add(point_at as u16);
        }
        for point in trail.points.get_mut(point_at..to_point).unwrap_or_default() {
            point.count = (end.count as u16).wrapping_sub(point.count);
            point.desync = (end.desync as u16).wrapping_sub(point.desync);
            point.read = point.read.wrapping_add(read_at as u16);
            point.word = point.word.wrapping_add(word_at as u16);
        }
        trail.first = mark_at as u16;
        trail.first_read = read_at as u16;
        trail.first_word = word_at as u16;
        trail.first_state = state_at as u16;
        trail.first_point = point_at as u16;
        trail.stop = end.stop.number();
        trail.probed = u32::from(end.probed);
        trail.stamp = end.stamp;
        let mut objects = if end.tail.is_some() { usize::from(trail.objects) } else { 0 };
        for object in end.objects {
            let known = trail.object.get(..objects).is_some_and(|known| known.contains(object));
            if known {
                continue;
            }
            let Some(room) = trail.object.get_mut(objects) else { return false };
            *room = *object;
            objects += 1;
        }
        trail.objects = objects as u16;
        trail.valid = 1;
        true
    }
}

/// Moves the first `count` items to `to`; both may overlap. False: there is no room.
fn move_front<T: Copy>(items: &mut [T], count: usize, to: usize) -> bool {
    let Some(room) = items.len().checked_sub(count) else { return false };
    if to <= room {
        // SAFETY: `count` items fit in front and at `to`. (`copy_within` would bring a panic path.)
        unsafe { core::ptr::copy(items.as_ptr(), items.as_mut_ptr().add(to), count) };
    }
    to <= room
}
