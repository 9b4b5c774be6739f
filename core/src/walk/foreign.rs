//! Calls of foreign code in the middle of a walk: plugins' overlays and steppers, and windows' steppers.
//!
//! Each call has a recovery point of its own. A call that faults, that the watchdog ends, or whose result is invalid is
//! abandoned: the frames that it emitted are removed, the failure is counted, and the frame is stepped natively.

use super::host::{from_caller, to_caller};
use super::{Claim, Claimed, Env, Setting, Walk, LAST_INDEX};
use crate::cache::last_walk::CallInputs;
use crate::cursor::Cursor;
use crate::plugin::{
    is_overlay_answer, is_step_answer, Caller, View, Visit, NO_FUNCTION, NO_REGISTERS, OVERLAY_DESYNC, SCRATCH_BYTES,
    STEP_DONE, STEP_END, STEP_LOST, STEP_MASK, STEP_OTHER_STACK, UNTOUCHED, WANT_AWAITING,
};
use crate::recovery::Call;
use crate::regs::{COUNT, FP, SP};
use crate::rule::Packed;
use crate::span::Span;
use crate::stop_reason::StopReason;
use core::mem::MaybeUninit;

/// The view of the current frame that foreign code receives, and the caller's frame that it may fill in. A walk makes
/// one call at a time.
pub struct Exchange {
    view: View,
    caller: Caller,
}

/// How the walk goes on.
pub(super) enum Next {
    /// By the frame's rule.
    Native,
    /// A stepper has moved the cursor to the caller.
    Caller,
    /// A stepper returned that the walk ends, for this reason.
    Ended(StopReason),
}

impl<E: Env> Walk<'_, '_, E> {
    /// Calls the functions that claim the current frame: the stepper, then the overlay. Returns the result's
    /// `OVERLAY_*` flags, and how the walk goes on. `cfa`: the frame's CFA, and the rule that it follows from;
    /// `None` if there is none.
    ///
    /// # Safety
    /// As [`super::walk`].
    #[inline(never)]
    pub(super) unsafe fn claimed(
        &mut self,
        claimed: &mut Claimed,
        cursor: &mut Cursor,
        cfa: Option<(u64, Packed)>,
        setting: &Setting,
    ) -> (u32, Next) {
        // By reference: it is large, and a handler's stack is short.
        let claim = match claimed {
            Claimed::No => return (0, Next::Native),
            Claimed::Off => return (OVERLAY_DESYNC, Next::Native),
            Claimed::By(claim) => claim,
        };
        if setting.exchange.is_null() {
            // SAFETY: passed on.
            return unsafe { self.claimed_on_stack(claimed, cursor, cfa, setting) };
        }
        let mut answer = (0, Next::Native);
        for _ in 0..=LAST_INDEX {
            // SAFETY: passed on.
            answer = unsafe { self.ask(claim, cursor, cfa, setting) };
            if !matches!(answer, (0, Next::Native)) || self.tail.is_some() {
                break;
            }
            if !self.env.next_claim(claim) {
                break;
            }
        }
        answer
    }

    /// As `claimed`, with the exchange on the stack, because the setting has no place for it.
    ///
    /// # Safety
    /// As [`super::walk`].
    #[cold]
    #[inline(never)]
    unsafe fn claimed_on_stack(
        &mut self,
        claimed: &mut Claimed,
        cursor: &mut Cursor,
        cfa: Option<(u64, Packed)>,
        setting: &Setting,
    ) -> (u32, Next) {
        let mut exchange = MaybeUninit::uninit();
        let setting = Setting { exchange: exchange.as_mut_ptr(), ..*setting };
        // SAFETY: passed on.
        unsafe { self.claimed(claimed, cursor, cfa, &setting) }
    }

    /// As `claimed`, for one claim.
    ///
    /// # Safety
    /// As [`super::walk`].
    unsafe fn ask(
        &mut self,
        claim: &Claim,
        cursor: &mut Cursor,
        cfa: Option<(u64, Packed)>,
        setting: &Setting,
    ) -> (u32, Next) {
        // Windows' functions need no scratch memory; plugins are promised some.
        if usize::from(claim.index) > LAST_INDEX || (setting.scratch.is_null() && claim.index != 0) {
            return (0, Next::Native);
        }
        if let Some(step) = claim.step {
            // SAFETY: passed on.
            match unsafe { self.step(step, claim, cursor, setting) } {
                Some((_, Next::Native)) if self.tail.is_none() => {}
                Some(stepped) => return stepped,
                // The call failed, so its frames are missing; the same plugin's overlay is not tried.
                None => return (OVERLAY_DESYNC, Next::Native),
            }
        }
        let (Some(overlay), Some(cfa)) = (claim.overlay, cfa) else { return (0, Next::Native) };
        // Here, and not inside `overlay`: the lookup may need much stack, and `overlay` has a large frame.
        let function =
            if claim.flags & NO_FUNCTION != 0 { Span::EMPTY } else { self.env.function(claim, cursor, self.reader) };
        // SAFETY: passed on.
        (unsafe { self.overlay(overlay, claim, cursor, (cfa, function), setting) }, Next::Native)
    }

    /// Calls an overlay. `frame`: the CFA and the rule that it follows from, and the function's range.
    ///
    /// # Safety
    /// As [`super::walk`].
    #[inline(never)]
    unsafe fn overlay(
        &mut self,
        overlay: Visit,
        claim: &Claim,
        cursor: &Cursor,
        frame: ((u64, Packed), Span),
        setting: &Setting,
    ) -> u32 {
        // SAFETY: passed on; `claimed` checked that the exchange is not null.
        let Exchange { view, .. } = unsafe { self.exchange(claim, cursor, setting) };
        let (cfa, rule) = frame.0;
        (view.cfa, view.function_start, view.function_end) = (cfa, frame.1.start, frame.1.end);
        if !self.in_window {
            self.call_begins(claim, cursor, Some((rule, cfa)));
        }
        // SAFETY: passed on; the view is filled. If the call failed, its frames are missing.
        unsafe { self.visit(overlay, claim, view, is_overlay_answer) }.unwrap_or(OVERLAY_DESYNC)
    }

    /// # Safety
    /// As [`super::walk`].
    #[inline(never)]
    unsafe fn step(
        &mut self,
        step: Visit,
        claim: &Claim,
        cursor: &mut Cursor,
        setting: &Setting,
    ) -> Option<(u32, Next)> {
        let written = self.written();
        // SAFETY: passed on; `claimed` checked that the exchange is not null.
        let Exchange { view, caller } = unsafe { self.exchange(claim, cursor, setting) };
        *caller = to_caller(cursor);
        caller.exact = 0;
        view.caller = caller;
        self.call_begins(claim, cursor, None);
        // SAFETY: passed on; the view is filled.
        let answer = unsafe { self.visit(step, claim, view, is_step_answer) }?;
        if self.tail.is_some() {
            return Some((answer, Next::Native));
        }
        let next = match answer & STEP_MASK {
            STEP_DONE => {
                let sp = caller.registers[usize::from(SP)];
                let leads_to_root = sp > cursor.regs.sp() || answer & STEP_OTHER_STACK != 0;
                if !leads_to_root || sp & 7 != 0 || caller.pc == 0 || caller.known & (1 << SP) == 0 {
                    self.take_back(written);
                    if let Some(log) = &mut self.log {
                        log.call_ends(false);
                    }
                    self.env.failed(claim, StopReason::PluginNonsense);
                    return None;
                }
                if let Some(log) = &mut self.log {
                    log.note_step(view.restored);
                }
                *cursor = from_caller(caller);
                Next::Caller
            }
            STEP_END => Next::Ended(StopReason::Complete),
            STEP_LOST => Next::Ended(StopReason::PluginLost),
            _ => Next::Native,
        };
        Some((answer, next))
    }

    /// Logs the beginning of a call that may emit frames. `rule`: the frame's rule and CFA; `None`: the call is a step.
    #[inline(never)]
    fn call_begins(&mut self, claim: &Claim, cursor: &Cursor, rule: Option<(Packed, u64)>) {
        let Some(log) = &mut self.log else { return };
        let (plugin, facts, fp) = (claim.index, claim.facts, cursor.regs.get(FP));
        log.call_begins(&CallInputs { plugin, facts, rule, fp, scratch: &self.scratch });
    }

    /// Calls a plugin's or a window's function on a filled view. `None`: it failed, which is counted, and all that it
    /// emitted was taken back.
    ///
    /// # Safety
    /// As [`super::walk`]; the view must be valid for this walk.
    unsafe fn visit(
        &mut self,
        function: Visit,
        claim: &Claim,
        view: &mut View,
        has_meaning: fn(u32) -> bool,
    ) -> Option<u32> {
        let written = self.written();
        self.plugin = claim.index;
        self.refused = 0;
        self.protector = self.env.protector(claim.index);
        let protector = self.protector;
        let call = Call::new(function as *const () as usize, [core::ptr::from_mut(view) as u64]);
        // SAFETY: the function was negotiated or registered; the view is valid for the call, and it reaches this walk
        // only through the host functions, while no other reference to the walk is used. It may be left at any
        // instruction: whatever it may have changed is restored below.
        let done = unsafe { protector.call(&call) };
        let failure = match done {
            Err(reason) => Some(reason),
            Ok(answer) => (!has_meaning(answer as u32)).then_some(StopReason::PluginNonsense),
        };
        if let Some(log) = &mut self.log {
            let used = match failure {
                None if claim.flags & NO_REGISTERS != 0 => 0,
                None => view.used,
                Some(_) => u32::MAX,
            };
            let untouched = failure.is_none() && done.is_ok_and(|answer| answer as u32 & UNTOUCHED != 0);
            log.note_plugin(&self.scratch, used, untouched && self.scratch_noted == self.scratch.called());
            self.scratch_noted = self.scratch.called();
            log.call_ends(failure.is_none() && done.is_ok_and(|answer| answer as u32 & !UNTOUCHED != 0));
        }
        let failure = match (failure, done) {
            (None, Ok(answer)) => return Some(answer as u32 & !UNTOUCHED),
            (Some(failure), _) | (None, Err(failure)) => failure,
        };
        self.take_back(written);
        self.tail = None;
        self.env.failed(claim, failure);
        None
    }

    /// Fills in the parts of a view of the current frame that do not depend on the kind of call.
    ///
    /// # Safety
    /// As [`super::walk`]; `setting.exchange` must not be null, and no earlier result may be in use.
    unsafe fn exchange<'x>(&mut self, claim: &Claim, cursor: &Cursor, setting: &Setting) -> &'x mut Exchange {
        // Written in place: a value that is made first and moved afterwards would lie on the stack.
        let scratch = self.scratch(claim, setting);
        let none = Caller { pc: 0, registers: [0; COUNT], known: 0, exact: 0 };
        // SAFETY: not null, and nothing else uses it, by this function's contract.
        let exchange = unsafe {
            setting.exchange.write(Exchange { view: View::new(), caller: none });
            &mut *setting.exchange
        };
        let view = &mut exchange.view;
        view.exact = u32::from(cursor.exact);
        view.pc = cursor.regs.pc;
        view.sp = cursor.regs.sp();
        view.registers = *cursor.regs.values();
        view.known = cursor.regs.known();
        view.plugin = u32::from(claim.index);
        view.facts = claim.facts;
        view.facts_len = claim.facts_len;
        view.bias = claim.bias;
        view.scratch = scratch;
        view.thread_pointer = setting.thread_pointer;
        view.tsd_offset = setting.tsd_offset;
        view.range_start = claim.range.start;
        view.range_end = claim.range.end;
        view.generation = claim.generation;
        view.user = claim.user;
        view.flags = if self.env.wants_awaiting() { WANT_AWAITING } else { 0 };
        view.host = &Self::HOST;
        view.walk = core::ptr::from_mut(self).cast();
        exchange
    }

    /// The plugin's part of the scratch memory, zeroed if this is its first call in the walk.
    fn scratch(&mut self, claim: &Claim, setting: &Setting) -> *mut u8 {
        if setting.scratch.is_null() {
            return setting.scratch;
        }
        // SAFETY: `claimed` checked index <= LAST_INDEX, so the plugin's part lies inside SCRATCH.
        let scratch = unsafe { setting.scratch.add(usize::from(claim.index) * SCRATCH_BYTES) };
        if !self.scratch.is_called(claim.index) {
            // SAFETY: as above.
            unsafe { core::ptr::write_bytes(scratch, 0, SCRATCH_BYTES) };
            self.scratch.begin(claim.index, claim.scratch_bytes as usize);
        }
        scratch
    }
}
