//! Emits the frames of a stretch of the chain that was measured.

use crate::chain::{Debt, Stretch, Way};
use crate::code::{self, Emitted};
use crate::draft::Drafted;
use crate::facts::Facts;
use crate::frame::{PyFrame, Words};
use uunwind_core::memory::group::MEMBER_WORDS;
use uunwind_core::plugin::guest::Guest;
use uunwind_core::plugin::OVERLAY_DESYNC;

/// What came of emitting a stretch.
#[derive(PartialEq, Eq)]
pub enum Emission {
    /// All its frames were emitted.
    Whole,
    /// Some frames could not be emitted.
    Doubtful,
    /// The walk's buffer is full.
    Full,
}

impl Emission {
    /// The `OVERLAY_*` flag for the answer.
    pub fn doubt(self) -> u32 {
        if self == Emission::Doubtful {
            OVERLAY_DESYNC
        } else {
            0
        }
    }
}

/// Number of frames after which the host is asked again whether to leave some out.
const ASK: u32 = 256;

/// Number of frames in a row that show nothing, after which the rest of the stretch is given up. Such frames have not
/// begun, are hidden by CPython, or are damaged; the first two come singly or in twos. They take no room of the walk's
/// buffer, so without this limit a chain in a circle of them would be followed as far as it was measured, and each time
/// all that names a code object would be read.
pub const SHOWING_NOTHING: u32 = 16;

/// Number of frames that are emitted at once.
const RUN: usize = 16;

/// Emits the frames of a stretch, and settles what it owes if they are as they were measured. Not inlined: its
/// stack is free for what follows it.
#[inline(never)]
pub fn emit(guest: &Guest<'_>, facts: &Facts, stretch: &Stretch) -> Emission {
    let Drafted { mut way, shown, .. } = stretch.begin;
    let emission = match stretch.begin.emit(guest) {
        true => frames(guest, facts, &mut way, shown, stretch.frames),
        // There was room for them, so this is no full buffer.
        false => Emission::Doubtful,
    };
    if !stretch.owes {
        return emission;
    }
    if way.is(stretch) && way.is_one_stretch() {
        Debt::settle(guest);
        return emission;
    }
    Debt::miss(guest);
    if way.is(stretch) {
        return emission;
    }
    if emission == Emission::Full {
        Emission::Full
    } else {
        Emission::Doubtful
    }
}

/// Emits the frames along the way up to number `count`. `shown`: up to which frame something was shown.
#[inline(always)]
fn frames(guest: &Guest<'_>, facts: &Facts, way: &mut Way, mut shown: u32, count: u32) -> Emission {
    let (mut emission, mut omitted) = (Emission::Whole, 0);
    while way.frames < count {
        if way.frames - shown > SHOWING_NOTHING {
            return Emission::Doubtful;
        }
        if omitted == 0 {
            let (before, before_asking) = (way.frames, ASK - 1 - way.frames % ASK);
            match run(guest, facts, way, before_asking.min(count - before)) {
                Ok(0) => {}
                Ok(_) => shown = way.frames,
                Err(Full) => return Emission::Full,
            }
            let passed = way.frames - before;
            if passed > 0 && (way.frames == count || passed == RUN as u32) {
                continue;
            }
        }
        let Some(frame) = PyFrame::read(guest, facts, way.at) else {
            return Emission::Doubtful;
        };
        if omitted == 0 && way.frames % ASK == ASK - 1 {
            omitted = guest.omit(count - way.frames);
        }
        way.pass(frame.previous, frame.marks());
        if omitted > 0 {
            (omitted, shown) = (omitted - 1, way.frames);
            continue;
        }
        match code::emit(guest, facts, &frame, 0) {
            Emitted::Done => shown = way.frames,
            Emitted::Hidden => {}
            Emitted::Invalid => emission = Emission::Doubtful,
            Emitted::Full => return Emission::Full,
        }
    }
    emission
}

/// The walk's buffer is full.
struct Full;

/// Passes frames of the usual kind along the way, at most `most` and at most [`RUN`], and emits those that are not
/// hidden. Returns how many it has emitted; how many it has passed, `way` says.
#[inline(never)]
#[allow(
    unsafe_code,
    reason = "the walk's reader is borrowed: a call of the host for each frame costs more than the frame"
)]
fn run(guest: &Guest<'_>, facts: &Facts, way: &mut Way, most: u32) -> Result<usize, Full> {
    let mut emitted = [[0; 2]; RUN];
    let mut count = 0;
    let Some(words) = Words::of(facts) else { return Ok(0) };
    let (mut next, mut passed, mut seen, mut last) = (way.at, 0, 0, 0);
    // SAFETY: nothing below uses the guest's host until the reader is dropped.
    if let Some(mut near) = unsafe { guest.near() } {
        let links = code::links(guest.view(), &words);
        let take = |frame: [u64; MEMBER_WORDS], found| {
            let Some(known) = code::usual(found, frame, facts, &words) else { return false };
            if let Some((name, position)) = known {
                emitted[count % RUN] = [u64::from(name), position];
                count += 1;
            }
            (seen, last) = (seen | last, frame[1]);
            true
        };
        // Measuring would have ended at an address that is not aligned.
        let goes_on = |address: u64| address.is_multiple_of(8);
        (passed, next) = near.group(links, way.at, RUN.min(most as usize), goes_on, take);
    }
    way.pass_some(next, passed as u32, words.marks(seen), words.marks(last));
    if count == 0 || guest.emit_all(emitted.get(..count).unwrap_or_default()) {
        Ok(count)
    } else {
        Err(Full)
    }
}
