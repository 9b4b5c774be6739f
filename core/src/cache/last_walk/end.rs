//! The end of a walk: its log becomes the thread's last walk, in front of the part that it shares with the walk before.

use super::record::{Places, Stamp, HAS_FP, POINTS};
use super::{Tail, WalkLog, FP_BIT};
use crate::memory::{block, Reader};
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
    /// Generations of the removable objects that it met.
    pub objects: &'e [u64],
}

impl WalkLog<'_> {
    /// Ends the log. It becomes the last walk if it is complete and `repeatable`: a repetition would have the same
    /// result.
    pub fn end(mut self, reader: &mut Reader<'_>, end: WalkEnd<'_>, repeatable: bool) {
        let written = reader.written();
        // What the end of the old walk had read again, it has for this one, too.
        let overflow = reader.overflow() || (reader.owes() && end.tail.is_none());
        reader.forget_log();
        if !repeatable || self.keep(written, overflow, &end).is_none() {
            self.last_walk.forget();
        }
    }

    /// Number of entries of the new walk itself in each array, and where in the arrays the part of the old walk begins
    /// that follows them.
    fn seam(&self, written: usize, end: &WalkEnd<'_>) -> Option<(Places, Places)> {
        let fresh = Places {
            frame: u16::try_from(self.frames).ok()?,
            read: u16::try_from(written).ok()?,
            word: u16::try_from(end.words.len()).ok()?,
            state: u16::try_from(self.states).ok()?,
            point: u16::try_from(self.points).ok()?,
        };
        let Some(tail) = end.tail else { return Some((fresh, Places::ENDS)) };
        let old = self.last_walk.frames.get(usize::from(tail.first))?.places(tail.first);
        if usize::from(tail.point) < POINTS {
            // The tail begins inside the frame just visited, at a point whose reads and words are in the old walk.
            let point = self.last_walk.points.get(usize::from(tail.point))?;
            let (frame, read, word) = (tail.first + 1, point.read, point.word);
            return Some((fresh, Places { frame, read, word, state: old.state, point: tail.point }));
        }
        // The frame just visited is the tail's first, which the old walk has already.
        let last = fresh.frame.checked_sub(1)?;
        Some((self.last_walk.frames.get(usize::from(last))?.places(last), old))
    }

    /// Moves the new entries in front of the old ones. `None`: the walk cannot be kept.
    fn keep(&mut self, written: usize, overflow: bool, end: &WalkEnd<'_>) -> Option<()> {
        let (fresh, rest) = self.seam(written, end)?;
        let first = rest.before(fresh)?;
        if self.broken || overflow || end.count > u32::from(u16::MAX) || end.desync > u32::from(u16::MAX) {
            return None;
        }
        let last_walk = &mut *self.last_walk;
        let moved = move_front(&mut last_walk.frames, fresh.frame, first.frame)
            && move_front(&mut last_walk.reads, fresh.read, first.read)
            && move_front(&mut last_walk.states, fresh.state, first.state)
            && move_front(&mut last_walk.points, fresh.point, first.point);
        if !moved {
            return None;
        }
        let room = last_walk.words.get_mut(first.word.into()..rest.word.into())?;
        if !block::copy(end.words.get(..fresh.word.into())?, room) {
            return None;
        }
        // From the outermost new frame towards the leaf: the registers that the rest of the walk reads.
        let (mut needs, mut fp) = match last_walk.frames.get(usize::from(rest.frame)) {
            Some(old) if end.tail.is_some() => (old.needs, (old.flags & HAS_FP != 0).then_some(old.fp)),
            _ => (0, None),
        };
        for frame in
            last_walk.frames.get_mut(first.frame.into()..rest.frame.into()).unwrap_or_default().iter_mut().rev()
        {
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
            frame.read = frame.read.wrapping_add(first.read);
            frame.word = frame.word.wrapping_add(first.word);
            frame.state = frame.state.wrapping_add(first.state);
            frame.point = frame.point.wrapping_add(first.point);
        }
        for point in last_walk.points.get_mut(first.point.into()..rest.point.into()).unwrap_or_default() {
            point.count = (end.count as u16).wrapping_sub(point.count);
            point.desync = (end.desync as u16).wrapping_sub(point.desync);
            point.read = point.read.wrapping_add(first.read);
            point.word = point.word.wrapping_add(first.word);
        }
        last_walk.first = first;
        last_walk.stop = end.stop.number();
        last_walk.probed = u32::from(end.probed);
        last_walk.stamp = end.stamp;
        let mut objects = if end.tail.is_some() { usize::from(last_walk.objects) } else { 0 };
        for object in end.objects {
            let is_listed = last_walk.object.get(..objects).is_some_and(|listed| listed.contains(object));
            if is_listed {
                continue;
            }
            *last_walk.object.get_mut(objects)? = *object;
            objects += 1;
        }
        last_walk.objects = objects as u16;
        compiler_fence(Ordering::SeqCst);
        last_walk.valid = 1;
        Some(())
    }
}

/// Moves the first `count` items to index `to`; both ranges may overlap. False: there is no room.
fn move_front<T: Copy>(items: &mut [T], count: u16, to: u16) -> bool {
    let (count, to) = (usize::from(count), usize::from(to));
    let Some(room) = items.len().checked_sub(count) else { return false };
    if to <= room {
        const { assert!(size_of::<T>().is_multiple_of(8) && align_of::<T>() == 8) };
        let first = items.as_mut_ptr();
        // SAFETY: `count` items fit in front and at `to`, and are whole words without padding.
        unsafe { block::copy_up(first.cast(), first.add(to).cast(), count * size_of::<T>() / 8) };
    }
    to <= room
}
