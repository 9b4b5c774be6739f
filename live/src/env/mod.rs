//! The environment of a walk in a live process: which source has the rule of a pc.

mod answers;
mod claims;
mod code;
mod code_rule;
mod place;
mod rules;
mod sampler;

use crate::at_return;
use crate::built_by_caller;
use crate::current_object::{nowhere, Current};
use crate::embedder::marks::MARKS;
use crate::in_window::InWindow;
use crate::prologue;
use crate::replay_dependencies::Met;
use crate::short_rule_keys::Salts;
use crate::skipped::{self, Passed, Surroundings};
use crate::state::{OBJECTS, PLUGINS, RULES, RUNTIMES};
use crate::tables;
use crate::unowned;
use core::cell::Cell;
use core::ffi::c_void;
use core::mem::MaybeUninit;
use uunwind_core::cache::steps::EXACT_KEY;
use uunwind_core::cursor::Cursor;
use uunwind_core::library::{Client, RESULT_DESYNC, RESULT_OBJECTS_FULL};
use uunwind_core::memory::Reader;
use uunwind_core::objects::{Lookup, Memo, Object};
use uunwind_core::plugin::{Plugin, CHECKED_READS};
use uunwind_core::recovery::Recovery;
use uunwind_core::regs::FP;
use uunwind_core::rule::{Packed, Rule, BY_FRAME_POINTER, DOUBTFUL};
use uunwind_core::slots::Slot;
use uunwind_core::stop_reason::StopReason;
use uunwind_core::walk::EMBEDDER;
use uunwind_sources::{LastCie, Sources};

/// A bit of [`Current::rules_key`]: the object has a rule table.
const WITH_TABLE: u64 = 1 << 55;

/// The environment of one walk of the calling thread.
pub struct Live<'c> {
    /// The object of the last frame whose rule was asked for.
    current: Current,
    /// The keys of short rules.
    salts: Salts,
    /// The window of that frame, if no object covers it.
    pub(crate) windows: InWindow<'c>,
    pub(crate) memo: Memo<'static>,
    /// The CIE that was last read in this walk, and the generation of the object that it belongs to.
    cie: (u64, LastCie),
    /// An object for which the table has no room.
    spare: MaybeUninit<Object>,
    /// The functions of whoever keeps names and facts (the sampler, or `uu_walk`), and their context; `None`: the walk
    /// is a capture.
    client: Option<(&'c Client, *mut c_void)>,
    /// The recording epoch.
    epoch: u32,
    /// Where the thread continues after a fault or a watchdog tick in foreign code, if handlers for these are
    /// installed.
    recovery: Option<&'c Recovery>,
    /// What this walk depends on besides words of memory.
    met: Met,
    /// Time of the sample, in ns of CLOCK_MONOTONIC.
    time: u64,
    /// Foreign code was called in this walk.
    foreign: Cell<bool>,
    /// Up to where the words of the stack were looked at, and for return addresses of which object
    /// ([`Env::prefetch_short_rules`](uunwind_core::walk::Env::prefetch_short_rules)).
    #[cfg_attr(target_arch = "aarch64", allow(dead_code, reason = "there are no short rules so far"))]
    ahead: Cell<(*const Object, u64)>,
    /// Whose functions may be called.
    calls: Calls,
    /// Frames that await those of the stack are wanted.
    pub awaiting: bool,
    /// A plugin was not asked about unowned code, since none of its runtimes was known yet.
    pub(crate) looked_for_runtimes: bool,
    /// The sum of `RESULT_*` so far.
    pub result: u32,
    /// Number of frames whose rule was found by interpreting the object's unwind data in place: it has no rule table,
    /// and the rule was not cached.
    pub interpreted: u32,
}

/// Whose functions a walk may call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Calls {
    /// Windows' functions, whose faults are the program's. A capture.
    Windows,
    /// None: the sampler's walk where faults are blocked.
    None,
    /// Windows' functions and those plugins that raise no faults ([`CHECKED_READS`]). A walk of the program's own where
    /// no fault is contained.
    Checked,
    /// All, since their faults are contained, or may be the program's.
    All,
}

impl Calls {
    /// Whether this plugin's functions may be called.
    pub(crate) fn may(self, plugin: &Plugin) -> bool {
        self == Calls::All || self == Calls::Checked && plugin.flags & CHECKED_READS != 0
    }

    /// Whether a walk that wants this plugin's frames goes without them: nothing would contain the faults of a call.
    pub(crate) fn leaves_out(self, plugin: &Plugin) -> bool {
        matches!(self, Calls::None | Calls::Checked) && !self.may(plugin)
    }
}

impl<'c> Live<'c> {
    /// An environment for one walk. `client`: who keeps names and facts; `None` for a capture. `epoch`, `time`: the
    /// recording epoch, and ns of CLOCK_MONOTONIC. `recovery`: the slot's recovery point, if this thread's fault and
    /// tick handlers use it. `calls`: whose functions may be called.
    pub fn new(
        client: Option<(&'c Client, *mut c_void)>,
        (epoch, time): (u32, u64),
        recovery: Option<&'c Recovery>,
        calls: Calls,
    ) -> Live<'c> {
        Live {
            current: nowhere(),
            salts: Salts::new(client.is_none()),
            windows: InWindow::new(),
            memo: Memo::default(),
            cie: (0, LastCie::new()),
            spare: MaybeUninit::uninit(),
            client,
            epoch,
            time,
            recovery,
            calls,
            met: Met::new(),
            foreign: Cell::new(false),
            ahead: Cell::new((core::ptr::null(), 0)),
            awaiting: false,
            looked_for_runtimes: false,
            result: 0,
            interpreted: 0,
        }
    }

    /// An environment for one capture, with the salts that were taken when it began.
    pub fn capture(salts: Salts) -> Live<'c> {
        Live { salts, ..Live::new(None, (1, 0), None, Calls::Windows) }
    }

    /// Says that this walk is a capture of the slot's thread, which has not entered the slot. It enters when it first
    /// looks at windows. So a capture that looks at none never keeps a writer of the registry waiting. `sp`: the
    /// capture's stack pointer.
    pub fn marks_itself(&mut self, slot: &'c Slot, sp: u64) {
        self.windows.marks_itself(slot, sp);
    }

    /// Ends a capture.
    pub fn leave(&mut self) {
        self.windows.end();
    }

    /// Makes the object that covers `pc` the current one. False: no object covers it; the window, if any, is current.
    #[cold]
    #[inline(never)]
    fn switch(&mut self, pc: u64, reader: &mut Reader<'_>) -> bool {
        if self.windows.still_covers(pc) {
            return false;
        }
        let was = reader.pause(true);
        let found = self.go_to(pc, reader);
        reader.pause(was);
        found
    }

    fn go_to(&mut self, pc: u64, reader: &mut Reader<'_>) -> bool {
        self.current = nowhere();
        self.salts.nowhere();
        self.windows.leave();
        let (object, generation): (*const Object, u64) = match OBJECTS.find(pc, &mut self.memo, reader) {
            Lookup::Object(loaded) => (loaded.object, loaded.generation()),
            Lookup::Nothing => {
                self.windows.enter(pc);
                match self.windows.here() {
                    Some(_) => self.met.window = true,
                    None => self.met.unowned = true,
                }
                return false;
            }
            Lookup::Full => {
                self.met.unsettled = true;
                self.result |= RESULT_OBJECTS_FULL;
                match OBJECTS.make(pc, reader) {
                    Some(made) => {
                        let made = self.spare.write(made).made();
                        (made.object, made.generation())
                    }
                    None => (core::ptr::null(), 0),
                }
            }
        };
        // SAFETY: see `Current::object`; `current` spoke of nothing when the spare one was replaced.
        let Some(object) = (unsafe { object.as_ref() }) else { return false };
        self.met.object(object, generation);
        self.report(object, generation);
        if !object.claim.is_settled_for(self.source()) {
            self.settle_facts(object);
        }
        let plugin = object.claim.get().map_or(0, |claim| claim.plugin);
        let marked = MARKS.overlaps(object.start, object.end);
        let gives_rules =
            PLUGINS.get(plugin as u8).is_some_and(|plugin| plugin.rule.is_some() && self.calls.may(plugin));
        let is_runtime = |plugin: &Plugin| plugin.lock.is_some() || unowned::has_runtimes(plugin);
        if PLUGINS.get(plugin as u8).is_some_and(is_runtime) && RUNTIMES.met(generation) && self.looked_for_runtimes {
            // Frames before this one may be in code that it made, and were not shown to its plugin.
            self.result |= RESULT_DESYNC;
            self.met.unsettled = true;
        }
        let plugin = if plugin == 0 && marked { u32::from(EMBEDDER) } else { plugin };
        let table = tables::of(object, self.source(), self.client);
        // Rules that were interpreted before the table came may differ: the table corrects unwind data that is known to
        // be wrong.
        let rules_key = generation | if table.is_some() { WITH_TABLE } else { 0 };
        self.current = Current {
            start: object.start,
            len: object.end.wrapping_sub(object.start),
            generation,
            rules_key: rules_key | if gives_rules { u64::from(plugin) << 56 } else { 0 },
            plugin,
            marked,
            plugin_first: gives_rules,
            table,
            object,
        };
        if plugin == 0 {
            self.salts.enter(rules_key);
        }
        true
    }

    /// Whether name ids exist: this walk is a sample, or `uu_walk`'s.
    pub(crate) fn names_are_kept(&self) -> bool {
        self.client.is_some()
    }

    /// The keys of short rules of this walk.
    pub fn salts(&self) -> &Salts {
        &self.salts
    }

    /// The recording epoch.
    pub(crate) fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Whose functions may be called.
    pub(crate) fn calls(&self) -> Calls {
        self.calls
    }
}

impl Live<'_> {
    /// The frame's rule, which fails with `NoOwner` in unowned code where it is one to be guessed
    /// ([`Env::guess`](uunwind_core::walk::Env::guess)).
    #[inline(always)]
    fn rule_unless_guessed(&mut self, cursor: &Cursor, reader: &mut Reader<'_>) -> Packed {
        let rule = self.any_rule(cursor, reader);
        // AArch64: after a step by the frame pointer, sp is not available. The frame pointer still is.
        if cfg!(target_arch = "aarch64") && rule.is_plain() && cursor.regs.get(rule.cfa_parts().0).is_none() {
            return by_frame_pointer(cursor, StopReason::UnknownRegister, self, reader);
        }
        rule
    }

    #[inline(always)]
    fn any_rule(&mut self, cursor: &Cursor, reader: &mut Reader<'_>) -> Packed {
        let lookup = cursor.lookup_pc();
        if lookup.wrapping_sub(self.current.start) >= self.current.len && !self.switch(lookup, reader) {
            return self.rule_outside_objects(cursor, reader);
        }
        if !cursor.exact && self.begins_a_stack(cursor.regs.pc, reader) {
            return Packed::failed(StopReason::StartSymbol);
        }
        if let Some(rule) = self.by_table(cursor) {
            self.remember_exact(cursor);
            return rule;
        }
        match RULES.get(key(cursor), self.current.rules_key).and_then(Packed::from_words) {
            Some(rule) if !rule.failed_for(StopReason::NoRule) && !rule.failed_for(StopReason::NotCode) => {
                self.remember_exact(cursor);
                rule
            }
            _ => self.by_plugin(cursor, reader).unwrap_or_else(|| self.slow(cursor, reader)),
        }
    }
}

/// The places of an object's unwind data, as process addresses.
pub(crate) fn sources(object: &Object) -> Sources {
    Sources { eh_frame_hdr: object.eh_frame_hdr, image: object.image, sframe: object.sframe, text: object.text() }
}

/// The cache key of a frame's rule: its lookup address, with [`EXACT_KEY`] if the pc is exact.
#[inline(always)]
pub(crate) fn key(cursor: &Cursor) -> u64 {
    key_of(cursor.lookup_pc(), cursor.exact)
}

/// As [`key`], given the address to search with, and whether the pc is exact.
#[inline(always)]
pub(crate) fn key_of(lookup: u64, exact: bool) -> u64 {
    lookup | if exact { EXACT_KEY } else { 0 }
}

/// The rule by the frame pointer, for a frame without any other; where a function is interrupted that has not set it up
/// yet, or has restored its caller's, by the stack pointer; and where words of the stack prove a caller that it would
/// skip, by the place of that one's return address. It fails with `reason` if the value cannot be a frame pointer.
pub(crate) fn rule_by_frame_pointer(
    cursor: &Cursor,
    reason: StopReason,
    places: &mut dyn Surroundings,
    reader: &mut Reader<'_>,
) -> Result<Rule, StopReason> {
    if let Some(rule) = without_frame(cursor, reader) {
        return Ok(Rule { flags: rule.flags | BY_FRAME_POINTER, ..rule });
    }
    if uunwind_sources::is_leaving(cursor, reader) {
        return Err(StopReason::StackInTransit);
    }
    let rule = uunwind_frame_pointer::rule(cursor, reason);
    let fp = cursor.regs.get(FP).filter(|_| rule.is_ok());
    match skipped::look(cursor, fp, places, reader) {
        Passed::Nothing => rule,
        Passed::Doubt => rule.map(|rule| Rule { flags: rule.flags | DOUBTFUL, ..rule }),
        Passed::Caller(rule) => Ok(rule),
    }
}

/// The rule of a frame whose caller is proved, by the code at the pc or by words of the stack.
pub fn by_proof(cursor: &Cursor, places: &mut dyn Surroundings, reader: &mut Reader<'_>) -> Option<Packed> {
    let marked = |rule: Rule| Rule { flags: rule.flags | BY_FRAME_POINTER, ..rule }.pack();
    if let Some(rule) = without_frame(cursor, reader) {
        return Some(marked(rule));
    }
    let fp = cursor.regs.get(FP).filter(|_| uunwind_frame_pointer::rule(cursor, StopReason::NoRule).is_ok());
    match skipped::look(cursor, fp, places, reader) {
        Passed::Caller(rule) => Some(rule.pack()),
        Passed::Nothing | Passed::Doubt => None,
    }
}

/// The rule in code whose registrar guarantees frame pointers. Only the proof of a caller that it would skip counts
/// against it: a leaf's. What earlier calls have left on the stack does not.
pub(crate) fn rule_by_guaranteed_frame_pointer(
    cursor: &Cursor,
    places: &mut dyn Surroundings,
    reader: &mut Reader<'_>,
) -> Result<Rule, StopReason> {
    if let Some(rule) = without_frame(cursor, reader) {
        return Ok(rule);
    }
    let rule = uunwind_frame_pointer::rule(cursor, StopReason::UnknownRegister);
    match if cursor.exact { skipped::look(cursor, None, places, reader) } else { Passed::Nothing } {
        Passed::Caller(rule) => Ok(rule),
        _ => rule,
    }
}

/// The rule of an interrupted function that has no frame at this instruction, as its bytes show.
fn without_frame(cursor: &Cursor, reader: &mut Reader<'_>) -> Option<Rule> {
    let rule = at_return::rule(cursor, reader).or_else(|| prologue::rule(cursor, reader));
    rule.or_else(|| uunwind_sources::at_pops(cursor, reader)).or_else(|| built_by_caller::rule(cursor, reader))
}

/// As `rule_by_frame_pointer`.
pub fn by_frame_pointer(
    cursor: &Cursor,
    reason: StopReason,
    places: &mut dyn Surroundings,
    reader: &mut Reader<'_>,
) -> Packed {
    Packed::from_result(rule_by_frame_pointer(cursor, reason, places, reader))
}
