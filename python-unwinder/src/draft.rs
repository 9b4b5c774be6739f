//! The first frames of a stretch of the chain, written while the chain is followed.
//!
//! Frames are emitted once the boundary of their activation is found, and reading them once more then costs as much
//! again. So frames of the usual kind, from the first one on, are read once: each is judged as measuring would judge
//! it, logged, and written in the walk's room as a draft. If the stretch turns out to be no activation of this native
//! frame, the draft is left there, and counts for nothing.

use crate::chain::{Live, Way};
use crate::code;
use crate::emission::SHOWING_NOTHING;
use crate::facts::Facts;
use crate::frame::{Marks, Words, OWNER_THREAD};
use core::cell::Cell;
use uunwind_core::memory::draft::Draft;
use uunwind_core::memory::group::MEMBER_WORDS;
use uunwind_core::plugin::guest::Guest;

/// Where a stretch begins: with frames that were drafted, or with none.
pub struct Drafted {
    /// The way after them.
    pub way: Way,
    /// Up to which of them something is shown.
    pub shown: u32,
    draft: Option<Draft>,
}

impl Drafted {
    /// A stretch from `first` on of which nothing was drafted.
    pub fn nothing(first: u64) -> Drafted {
        Drafted { way: Way::from(first), shown: 0, draft: None }
    }

    /// Emits them. False: nothing was emitted.
    pub fn emit(&self, guest: &Guest<'_>) -> bool {
        self.draft.as_ref().is_none_or(|draft| guest.emit_draft(draft))
    }

    /// Drafts frames from `first` on, at most `most`, up to the frame `stop`, to the first frame of the activation, or
    /// to one of which more must be read to know whether it is live, or what to show of it.
    #[inline(never)]
    #[allow(
        unsafe_code,
        reason = "the walk's reader is borrowed: a call of the host for each frame costs more than the frame"
    )]
    pub fn frames(guest: &Guest<'_>, facts: &Facts, first: u64, stop: u64, live: &Live, most: u32) -> Drafted {
        let mut drafted = Drafted::nothing(first);
        let Some(words) = Words::of(facts) else { return drafted };
        // SAFETY: nothing below uses the guest's host until the reader is dropped.
        let Some(mut near) = (unsafe { guest.near() }) else { return drafted };
        let links = code::links(guest.view(), &words);
        let mut draft = near.draft();
        let most = (most as usize).min(draft.room()).min(near.group_room());
        let end = End { stop: Cell::new(stop), entry: Cell::new(None) };
        let mut quiet = Quiet { before: 0, frames: 0 };
        // A frame that was popped, or is about to be, is judged elsewhere.
        let goes_on = |at: u64| at != end.stop.get() && at != 0 && at.is_multiple_of(8) && live.is_on_stack(at, false);
        let take = |frame: [u64; MEMBER_WORDS], found| {
            let [previous, marks, ..] = frame;
            if words.is_special(marks) && !end.is_entry(&words, previous, marks) {
                return false;
            }
            match code::shown(found, frame, facts, &words, || false) {
                // SAFETY: the reader is borrowed, and no more frames are taken than there is room for.
                Some(Some((name, position))) => unsafe { draft.put(name, position) },
                Some(None) => return quiet.has_one_more(draft.len()),
                None => return false,
            }
            true
        };
        let (passed, next) = near.group(links, first, most, goes_on, take);
        drop(near);
        let passed = passed as u32;
        // The last one that was looked at may not have been taken.
        let last = Marks { owner: OWNER_THREAD, is_entry: end.entry.get() == Some(next) };
        drafted.way.pass_some(next, passed, Marks::default(), last);
        drafted.shown = if draft.len() == quiet.before { passed.saturating_sub(quiet.frames) } else { passed };
        drafted.draft = Some(draft);
        drafted
    }
}

/// What a draft ends with.
struct End {
    /// Address of the frame that is no part of it.
    stop: Cell<u64>,
    /// What the first frame of the activation links to, if that frame was met.
    entry: Cell<Option<u64>>,
}

impl End {
    /// Whether a special frame is the first one of its activation: the draft then ends with it. Not inlined: what it
    /// changes would take registers of the loop.
    #[cold]
    #[inline(never)]
    fn is_entry(&self, words: &Words, previous: u64, marks: u64) -> bool {
        let is_entry = words.is_first_of_activation(marks);
        if is_entry {
            self.stop.set(previous);
            self.entry.set(Some(previous));
        }
        is_entry
    }
}

/// Frames in a row that show nothing.
struct Quiet {
    /// How many frames were drafted before them.
    before: usize,
    frames: u32,
}

impl Quiet {
    /// Whether one more may pass, after this number of frames that were drafted. Not inlined, as above.
    #[cold]
    #[inline(never)]
    fn has_one_more(&mut self, drafted: usize) -> bool {
        if drafted != self.before {
            *self = Quiet { before: drafted, frames: 0 };
        }
        let passes = self.frames < SHOWING_NOTHING;
        self.frames += u32::from(passes);
        passes
    }
}
