//! Plain frames: ordinary callers with remembered short rules, which most frames of most stacks are.
//!
//! The same steps and checks as those of the general loop, with pc and sp kept in registers; any frame that needs more
//! is left to it. The loop's latency is one dependence chain from frame to frame, which must stay free of anything
//! else: return address, place in the table of short rules, rule, place of the next return address. What else there is
//! to do is done for many frames at once. A capture uses its thread's step cache ([`crate::cache::steps`]) where it
//! can.
//!
//! `docs/design/caches.md` says why captures have another stepper (`Frame::stretch` in `cache/x86_64/steps/frames.rs`).

use super::saved::{Notes, Saved};
use super::{Env, Walk, SAME_AS_LAST};
use crate::cache::last_walk;
use crate::cache::short::Short;
use crate::cache::steps::{At, Step};
use crate::cursor::Cursor;
use crate::frame::native_word;
use crate::memory::{Reader, StackWords, USER_END};
use crate::regs::{RBP, RSP};
use crate::stop_reason::StopReason;

/// Number of frames from the first consultation of the step cache, before the first frame, to the second.
const FIRST_BATCH: usize = 4;
/// Number of frames between two later consultations.
const LATER_BATCH: usize = 32;

/// Number of frames whose steps are kept at a time where reads are not bare.
const FEW: usize = 4;

/// How return addresses are loaded.
trait Load: Copy {
    /// Nothing is logged, words are loaded without the reader, and the first stack pointer is aligned and in user
    /// space.
    const BARE: bool;
    /// As [`Env::prefetch_short_rules`] with [`Load::BARE`].
    #[inline(always)]
    fn prefetch<E: Env>(self, _env: &E, _sp: u64) {}
    /// The word below `base` + 8 * `words`; 0 if it cannot be read.
    fn below(self, base: u64, words: u64, reader: &mut Reader<'_>) -> u64;
    /// As [`Notes::follow`] with [`Load::BARE`]; `None` otherwise.
    fn follow<const BATCH: usize>(
        self,
        _: &mut Notes<'_, '_, BATCH>,
        _: At,
        _: Option<u64>,
        _: &mut [u64],
    ) -> Option<(usize, At)> {
        None
    }
}

impl<W: StackWords> Load for W {
    const BARE: bool = true;
    #[inline(always)]
    fn prefetch<E: Env>(self, env: &E, sp: u64) {
        env.prefetch_short_rules(sp, self);
    }
    #[inline(always)]
    fn below(self, base: u64, words: u64, _: &mut Reader<'_>) -> u64 {
        self.word_below(base, words)
    }
    fn follow<const BATCH: usize>(
        self,
        notes: &mut Notes<'_, '_, BATCH>,
        at: At,
        fp: Option<u64>,
        words: &mut [u64],
    ) -> Option<(usize, At)> {
        notes.follow(at, fp, self, words)
    }
}

/// By the walk's reader.
#[derive(Clone, Copy)]
struct WrittenDown;

impl Load for WrittenDown {
    const BARE: bool = false;
    #[inline(always)]
    fn below(self, base: u64, words: u64, reader: &mut Reader<'_>) -> u64 {
        reader.word(base.wrapping_add(words.wrapping_mul(8)).wrapping_sub(8)).unwrap_or(0)
    }
}

impl<E: Env> Walk<'_, '_, E> {
    /// Walks as long as frames are plain. An error: the walk is over.
    #[inline(always)]
    pub(super) fn run_plain(&mut self, cursor: &mut Cursor) -> Result<(), StopReason> {
        cursor.regs.keep_callee_saved();
        let sp = cursor.regs.sp();
        let may_be_bare = self.log.is_none() && sp & 7 == 0 && sp < USER_END;
        match (self.reader.bare(), self.reader.own_stack()) {
            (Some(bare), _) if may_be_bare => self.pass::<_, LATER_BATCH>(cursor, bare),
            (_, Some(stack)) if may_be_bare && stack.holds(sp) => self.pass::<_, LATER_BATCH>(cursor, stack),
            // Few at a time, for little stack.
            _ => self.pass::<_, FEW>(cursor, WrittenDown),
        }
    }

    // Not inlined: each of the two then has the registers to itself.
    #[inline(never)]
    fn pass<L: Load, const BATCH: usize>(&mut self, cursor: &mut Cursor, load: L) -> Result<(), StopReason> {
        let (mut pc, mut sp) = (cursor.regs.pc, cursor.regs.sp());
        let begun = sp;
        let mut saved = Saved::new();
        let mut notes = Notes::<'_, '_, BATCH>::new(self.steps.take().filter(|_| L::BARE), At { pc, sp });
        let mut batch = if notes.may_follow() { FIRST_BATCH } else { LATER_BATCH };
        let end = loop {
            if !L::BARE
                && self.is_known(pc, sp, false, false)
                && self.same_from_here(|reader| saved.rbp(notes.steps(), &[], &cursor.regs, reader))
            {
                break Some(SAME_AS_LAST);
            }
            let room = self.frames.get_mut(self.words..).unwrap_or_default();
            let left = room.len().min(self.limit.saturating_sub(self.count) as usize);
            let room = room.get_mut(..left).unwrap_or_default();
            if let (true, Some((word, further))) = (notes.may_follow(), room.split_first_mut()) {
                let held = load.follow(&mut notes, At { pc, sp }, cursor.regs.get(RBP), further);
                if let Some((held, next)) = held {
                    *word = native_word(pc, 0);
                    (pc, sp) = (next.pc, next.sp);
                    self.went(held);
                    self.followed += held as u32;
                    continue;
                }
            }
            if left == 0 {
                if self.make_room(1).is_ok() {
                    continue;
                }
                // The general loop would find the same, for more.
                let lookup = pc.wrapping_sub(1);
                let is_plain = self.env.short_rule(lookup, self.reader).is_some();
                break if is_plain { self.push([native_word(pc, 0)]).err() } else { None };
            }
            let (steps, most) = notes.room(&mut saved);
            // At each frame, the thread's last walk may be met.
            let most = if self.log.is_some() { 1 } else { most };
            let limit = left.min(most).min(batch);
            batch = LATER_BATCH;
            let words = room.as_mut_ptr();
            let (mut passed, mut any, mut ends) = (0, 0, false);
            while passed < limit {
                let lookup = pc.wrapping_sub(1);
                let asks = self.env.may_have_short_rule(lookup, self.reader);
                let mut rule = match if asks { self.env.short_rule_cached(lookup) } else { None } {
                    Some(rule) => rule,
                    None => {
                        // Where one address is new, its callers' may be: their entries are loaded during its lookup.
                        load.prefetch(self.env, sp);
                        match self.env.short_rule(lookup, self.reader) {
                            Some(rule) => rule,
                            None => break,
                        }
                    }
                };
                let mut base = sp;
                if rule.from_rbp() {
                    if rule == Short::END {
                        ends = L::BARE;
                        break;
                    }
                    if rule.is_signal() {
                        break;
                    }
                    // SAFETY: `passed` steps were written there.
                    let pending = unsafe { core::slice::from_raw_parts(steps, passed) };
                    let fp = saved.rbp(notes.steps(), pending, &cursor.regs, self.reader);
                    if let Some(log) = self.log.as_mut().filter(|_| !L::BARE) {
                        log.note_fp(fp, self.reader);
                    }
                    // Below the stack pointer it is stale, or none.
                    let Some(fp) = fp.filter(|fp| *fp >= sp) else { break };
                    if rule.is_realigned() {
                        let Some(here) = rule.in_frame(fp, load.below(fp, 0, self.reader)) else { break };
                        rule = here;
                    }
                    base = fp;
                }
                if let Some(log) = self.log.as_mut().filter(|_| !L::BARE) {
                    let (uses, restores) = last_walk::of_short(rule);
                    log.note_rule(uses, restores);
                }
                let cfa = rule.cfa(base);
                // An offset from a valid stack pointer leads towards the root.
                let is_sure = L::BARE && !rule.from_rbp();
                if !is_sure && (cfa <= sp || cfa & 7 != 0) {
                    break;
                }
                let caller = load.below(base, rule.words(), self.reader);
                if caller.wrapping_sub(1) >= USER_END - 1 {
                    break;
                }
                // SAFETY: `limit` is no more than there is room for either.
                unsafe {
                    words.add(passed).write(native_word(pc, 0));
                    steps.add(passed).write(Step { rule, cfa, caller });
                }
                any |= rule.word();
                passed += 1;
                (pc, sp) = (caller, cfa);
            }
            notes.add(passed, any);
            self.went(passed);
            if ends {
                notes.end(sp);
                break Some(self.push([native_word(pc, 0)]).err().unwrap_or(StopReason::Complete));
            }
            if passed < limit {
                break None;
            }
        };
        // A walk that found no room may go on from here.
        if matches!(end, None | Some(StopReason::BufferFull)) && sp != begun {
            saved.pass(notes.steps(), u64::MAX);
            saved.load(&mut cursor.regs, self.reader);
            cursor.regs.pc = pc;
            cursor.regs.set(RSP, sp);
            self.called_interrupted = false;
        }
        self.steps = notes.into_steps();
        end.map_or(Ok(()), Err)
    }

    /// Counts frames whose words were written.
    #[inline(always)]
    fn went(&mut self, passed: usize) {
        self.words += passed;
        self.count += passed as u32;
        self.report_progress();
    }
}
