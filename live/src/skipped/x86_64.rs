//! x86-64: a call leaves its return address on the stack.

use super::entry_code::{jumps_near, returns_between, Entered};
use super::{Passed, Place, Surroundings, CALLS, NEAR, WORDS};
use crate::built_by_caller;
use uunwind_core::call_site::{self, any_target, through_jump, Target};
use uunwind_core::cursor::Cursor;
use uunwind_core::memory::Reader;
use uunwind_core::regs::{CALLEE_SAVED_MASK, FP, SP};
use uunwind_core::rule::Rule;

/// Addresses below this are no code, and words of this kind are frequent.
const LOWEST: u64 = 1 << 16;
/// Addresses from here on are the kernel's.
const END: u64 = 1 << 47;
/// Words that point into the stack so near the words that are looked at are no return addresses.
const STACK: u64 = 1 << 14;
/// Words that are looked at where the frame pointer's value is none.
const FEW: u64 = 64;
/// Unregistered code farther than this from the current code is not looked at, in bytes.
const FAR: u64 = 1 << 29;
/// Words at the stack pointer of an interrupted function that are looked at wherever they point, but for small numbers.
const NEXT: u64 = 8;
/// Jumps that are followed from where a call leads to.
const JUMPS: usize = 2;

/// The current frame, and its function as far as it is known.
struct Frame<'c> {
    cursor: &'c Cursor,
    /// Where the address is looked up.
    lookup: u64,
    /// The return address that the frame pointer leads to; 0: none.
    caller: u64,
    /// The function that the frame which the frame pointer leads to is known to belong to.
    own: Option<u64>,
}

pub(super) fn look(cursor: &Cursor, fp: Option<u64>, places: &mut dyn Surroundings, reader: &mut Reader<'_>) -> Passed {
    let sp = cursor.regs.sp();
    if sp & 7 != 0 {
        return Passed::Nothing;
    }
    let caller = fp.and_then(|fp| reader.word(fp.wrapping_add(8))).unwrap_or(0);
    if !cursor.exact && fp.is_some() && built_by_caller::is_after_call(caller, reader) {
        return Passed::Nothing;
    }
    let mut frame = Frame { cursor, lookup: cursor.lookup_pc(), caller, own: None };
    frame.own = frame.owner(places, reader);
    let words = fp.map_or(FEW, |fp| fp.wrapping_sub(sp) / 8);
    let (mut doubt, mut calls) = (words > WORDS, 0);
    for index in 0..words.min(WORDS) {
        let Some(word) = reader.word(sp.wrapping_add(8 * index)) else {
            if places.is_copy() {
                continue;
            }
            break;
        };
        let from_stack = word.wrapping_sub(sp.wrapping_sub(STACK));
        // Small numbers of JavaScript have a lower half of zeros.
        if !(LOWEST..END).contains(&word) || word as u32 == 0 || from_stack < 2 * STACK + 8 * words {
            continue;
        }
        if calls == CALLS {
            doubt = true;
            break;
        }
        calls += 1;
        match frame.weigh((index, word), places, reader) {
            Passed::Nothing => {}
            Passed::Doubt => doubt = true,
            proved => return proved,
        }
    }
    if doubt && fp.is_some() {
        Passed::Doubt
    } else {
        Passed::Nothing
    }
}

impl Frame<'_> {
    /// The function that the frame at the frame pointer belongs to, if it is the current one: the call there leads to
    /// it, and it has set up its frame pointer.
    fn owner(&self, places: &mut dyn Surroundings, reader: &mut Reader<'_>) -> Option<u64> {
        let mut own = None;
        let (mut regs, fp) = (self.cursor.regs, self.cursor.regs.get(FP).filter(|_| self.caller != 0)?);
        regs.set(SP, fp.wrapping_add(8));
        // A call may count from the caller's frame pointer, which this frame has saved.
        match reader.word(fp) {
            Some(saved) => regs.set(FP, saved),
            None => regs.forget(FP),
        }
        any_target(self.caller, &regs, reader, |target, reader| {
            let (Target::At(start) | Target::Perhaps(Some(start))) = target else { return false };
            own = self.function(start, places, reader).filter(|(_, entered)| entered.is_framed).map(|(start, _)| start);
            own.is_some()
        });
        own
    }

    /// The function at `start`, or where that jumps to, if the current frame is its.
    fn function(&self, start: u64, places: &mut dyn Surroundings, reader: &mut Reader<'_>) -> Option<(u64, Entered)> {
        let mut start = start;
        for _ in 0..=JUMPS {
            if self.lookup.wrapping_sub(start) < NEAR {
                let was = reader.pause(true);
                let is_other =
                    places.place(start, reader) == Place::Described || returns_between(start, self.lookup, reader);
                let entered = Entered::at(start, self.cursor.regs.pc, reader);
                reader.pause(was);
                return (!is_other).then_some((start, entered));
            }
            start = through_jump(start, reader)?;
        }
        None
    }

    /// Where the word lies, if it follows a call there. A read of what is no memory costs a fault, so that words far
    /// from the code on both sides are looked at only if something is loaded or registered there, or next to where a
    /// function was interrupted.
    fn is_called(
        &self,
        (index, word): (u64, u64),
        places: &mut dyn Surroundings,
        reader: &mut Reader<'_>,
    ) -> Option<Place> {
        let before = word.wrapping_sub(1);
        let mut place = None;
        // No caller is known to be near to nothing.
        let is_far = |code: u64| code == 0 || code.wrapping_add(FAR).wrapping_sub(word) >= 2 * FAR;
        let is_next = self.cursor.exact && index < NEXT && word > u64::from(u32::MAX);
        if places.is_copy() || places.reads_may_fault() && is_far(self.lookup) && is_far(self.caller) && !is_next {
            place = Some(places.place(before, reader)).filter(|place| !matches!(place, Place::Unowned | Place::Data));
            place?;
        }
        if place != Some(Place::Called) && !call_site::precedes(word, reader) {
            return None;
        }
        place.or_else(|| Some(places.place(before, reader))).filter(|place| *place != Place::Data)
    }

    /// What the word at this index from the stack pointer on says.
    fn weigh(&self, (index, word): (u64, u64), places: &mut dyn Surroundings, reader: &mut Reader<'_>) -> Passed {
        let (mut rule, mut doubt) = (None, false);
        let size = 8 * index;
        match self.is_called((index, word), places, reader) {
            None => return Passed::Nothing,
            Some(Place::Called) => doubt = true,
            Some(_) => {}
        }
        let mut regs = self.cursor.regs;
        regs.set(SP, regs.sp().wrapping_add(size));
        any_target(word, &regs, reader, |target, reader| {
            rule = match target {
                Target::At(start) => self.proved(start, size, places, reader),
                Target::In(register) => self.called_in(register, size, places, reader),
                Target::Perhaps(start) => start.and_then(|start| self.proved(start, size, places, reader)),
            };
            doubt |= match target {
                Target::At(start) => self.may_lead_here(start, self.cursor.exact && index < NEXT, places, reader),
                Target::In(_) | Target::Perhaps(_) => true,
            };
            rule.is_some()
        });
        // Of the current function's own frame, only its own calls are of interest.
        let is_own = self.own.is_some_and(|start| word.wrapping_sub(start) >= NEAR);
        match rule {
            Some(rule) => Passed::Caller(rule),
            None if doubt && !is_own => Passed::Doubt,
            None => Passed::Nothing,
        }
    }

    /// The rule, if the current function begins at `start`, and has its return address `size` bytes above the stack
    /// pointer.
    fn proved(&self, start: u64, size: u64, places: &mut dyn Surroundings, reader: &mut Reader<'_>) -> Option<Rule> {
        let (begins, entered) = self.function(start, places, reader)?;
        if entered.is_framed || entered.size != size || self.own.is_some_and(|own| own != begins) {
            return None;
        }
        entered.rule()
    }

    /// As [`Frame::proved`], for a call through a register: its value is the current one, or what the function has
    /// saved of it.
    fn called_in(
        &self,
        register: u8,
        size: u64,
        places: &mut dyn Surroundings,
        reader: &mut Reader<'_>,
    ) -> Option<Rule> {
        let current = self.cursor.regs.get(register);
        let rule = current.and_then(|start| self.proved(start, size, places, reader));
        if rule.is_some() || CALLEE_SAVED_MASK >> register & 1 == 0 {
            return rule;
        }
        (0..(size / 8).min(FEW)).find_map(|index| {
            let start = reader.word(self.cursor.regs.sp().wrapping_add(8 * index))?;
            let (_, entered) = self.function(start, places, reader)?;
            (entered.place_of(register) == Some(8 * index)).then_some(())?;
            self.proved(start, size, places, reader)
        })
    }

    /// Whether a call to `start` may have led to the current frame: to its function, or to another one, which jumps
    /// there. Entries of linkage tables are described. `is_next`: the word lies next to an interrupted stack pointer,
    /// where jumps of other described functions count, too.
    fn may_lead_here(&self, start: u64, is_next: bool, places: &mut dyn Surroundings, reader: &mut Reader<'_>) -> bool {
        let place = places.place(start, reader);
        if place == Place::Data {
            return false;
        }
        let was = reader.pause(true);
        let mut last = Some(start);
        let leads_here = (0..=JUMPS).any(|_| {
            let at = last;
            last = at.and_then(|at| through_jump(at, reader));
            at.is_some_and(|at| self.lookup.wrapping_sub(at) < NEAR && places.place(at, reader) != Place::Described)
        });
        // A copy has not what the words of a linkage table said.
        let leads_here = leads_here
            || places.is_copy() && through_jump(start, reader).is_some()
            || (place != Place::Described || is_next) && jumps_near(start, self.lookup, reader);
        reader.pause(was);
        leads_here
    }
}
