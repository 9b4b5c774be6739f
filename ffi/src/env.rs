//! The surroundings of a walk in a live process: which source answers for a pc.

use crate::foreign_rule;
use crate::in_window::{self, InWindow};
use crate::met::{changed, Met};
use crate::native::{self, Answer};
use crate::state::{CHANGES, FUNCTIONS, OBJECTS, PLUGINS, RULES, SHORT_RULES};
use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::sync::atomic::Ordering;
use uunwind_core::cursor::Cursor;
use uunwind_core::library::{Client, RESULT_FACTS_PENDING, RESULT_OBJECTS_FULL};
use uunwind_core::memory::Reader;
use uunwind_core::objects::{Lookup, Memo, Object, FACTS_SETTLED};
use uunwind_core::plugin::{Description, Owner, Plugin, OWNER_OBJECT};
use uunwind_core::recovery::{Protector, Recovery};
use uunwind_core::registry::window::Kind;
use uunwind_core::rule::Packed;
use uunwind_core::short_rule::{Salt, Short};
use uunwind_core::stop_reason::StopReason;
use uunwind_core::walk::{Claim, Env};

/// Marks a key of the rule cache as an exact pc's: a rule may depend on the pc itself, not only on where it was looked up.
const EXACT: u64 = 1 << 63;

/// In the place of a plugin's index: the stepper of the window in hand.
const STEPPER: u32 = u32::MAX;

/// A live process, seen through its loader; with the sampler's functions, when there is one.
pub struct Live<'c> {
    /// The object of the frame last asked for: frames of one object tend to stand together.
    current: Current,
    /// The window of that frame, if no object covers it.
    pub(crate) windows: InWindow<'c>,
    memo: Memo<'static>,
    /// Room for an object that the table has no room for; or null.
    spare: *mut MaybeUninit<Object>,
    client: Option<(&'c Client, *mut c_void)>,
    epoch: u32,
    /// Where calls of foreign code come back to, if faults and ticks are led there.
    recovery: Option<&'c Recovery>,
    /// What this walk depends on besides words.
    met: Met,
    /// Whether plugins may be called: their faults come back to `recovery`, and may happen.
    plugins: bool,
    /// `RESULT_*` gathered so far.
    pub result: u32,
}

/// What is needed of an object at each frame.
#[derive(Clone, Copy)]
struct Current {
    start: u64,
    len: u64,
    generation: u64,
    /// As whose rules are remembered: another object's, or with another plugin's rules, are other rules.
    rules: u64,
    salt: Salt,
    plugin: u32,
    /// In the table of objects or at `Live::spare`; null when there is none.
    object: *const Object,
}

fn nowhere() -> Current {
    Current { start: 0, len: 0, generation: 0, rules: 0, salt: Salt::new(0), plugin: 0, object: core::ptr::null() }
}

impl Current {
    fn object(&self) -> Option<&Object> {
        // SAFETY: an object of the table stays for ever; the spare one stays as long as `current` speaks of it (see
        // `Live::switch`), and a walk holds its `Live` in one place.
        unsafe { self.object.as_ref() }
    }
}

impl<'c> Live<'c> {
    /// For one walk. `recovery`: the slot's, if faults and ticks on this thread are led there. `plugins`: whether they may be
    /// called, which needs that.
    ///
    /// # Safety
    /// `spare` must be null or valid for an object, and nobody else's, all through the walk.
    pub unsafe fn new(
        client: Option<(&'c Client, *mut c_void)>,
        epoch: u32,
        recovery: Option<&'c Recovery>,
        plugins: bool,
        spare: *mut MaybeUninit<Object>,
    ) -> Live<'c> {
        Live {
            current: nowhere(),
            windows: InWindow::default(),
            memo: Memo::default(),
            spare,
            client,
            epoch,
            recovery,
            plugins: plugins && recovery.is_some(),
            met: Met::new(),
            result: 0,
        }
    }

    /// Goes to the object under `pc`. False: there is none.
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
        self.windows.leave();
        let object: *const Object = match OBJECTS.find(pc, &mut self.memo, reader) {
            Lookup::Object(object) => object,
            Lookup::Nothing => {
                self.windows.enter(pc);
                match self.windows.here() {
                    Some(_) => self.met.window = true,
                    None => self.met.nobody = true,
                }
                let stepper = self.windows.here().filter(|held| held.window().kind == Kind::Stepper);
                if stepper.is_some_and(|held| self.window_protector(held, reader).is_some()) {
                    self.current.plugin = STEPPER;
                }
                return false;
            }
            Lookup::Full => {
                self.met.unsettled = true;
                self.result |= RESULT_OBJECTS_FULL;
                match OBJECTS.make(pc, reader).filter(|_| !self.spare.is_null()) {
                    // SAFETY: room for an object by `new`'s contract; `current` spoke of nothing before.
                    Some(made) => unsafe { (*self.spare).write(made) },
                    None => core::ptr::null(),
                }
            }
        };
        // SAFETY: see `Current::object`; `current` spoke of nothing when the spare one was replaced.
        let Some(object) = (unsafe { object.as_ref() }) else { return false };
        self.met.object(object);
        self.report(object);
        if object.facts_state.load(Ordering::Acquire) != FACTS_SETTLED {
            self.settle_facts(object);
        }
        let plugin = object.plugin.load(Ordering::Acquire);
        let gives_rules = self.plugins && PLUGINS.get(plugin as u8).is_some_and(|plugin| plugin.rule.is_some());
        self.current = Current {
            start: object.start,
            len: object.end.wrapping_sub(object.start),
            generation: object.generation,
            rules: object.generation | if gives_rules { u64::from(plugin) << 56 } else { 0 },
            salt: Salt::new(object.generation),
            plugin,
            object,
        };
        true
    }

    /// Whether somebody keeps names.
    pub(crate) fn names_are_kept(&self) -> bool {
        self.client.is_some()
    }

    /// The recording epoch.
    pub(crate) fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Whether a sampler leads faults and ticks to this walk.
    pub(crate) fn has_recovery(&self) -> bool {
        self.recovery.is_some()
    }

    fn report(&mut self, object: &Object) {
        let Some((client, context)) = self.client else { return };
        if object.reported.load(Ordering::Relaxed) != self.epoch {
            // SAFETY: the sampler's function and context.
            if unsafe { (client.object_seen)(context, object) } {
                object.reported.store(self.epoch, Ordering::Relaxed);
            } else {
                self.met.unsettled = true;
            }
        }
    }

    /// Looks for the object's facts if they were not found before and some have been published since.
    fn settle_facts(&mut self, object: &Object) {
        let Some((client, context)) = self.client else { return };
        // SAFETY: the sampler's functions and context.
        let count = unsafe { (client.facts_count)(context) };
        if object.facts_asked.load(Ordering::Relaxed) != count {
            let (mut bytes, mut len) = (core::ptr::null(), 0);
            // SAFETY: as above; both places are ours.
            let plugin = unsafe { (client.facts)(context, object.facts_key, &raw mut bytes, &raw mut len) };
            object.facts_asked.store(count, Ordering::Relaxed);
            if let Ok(plugin) = u32::try_from(plugin) {
                object.facts.store(bytes.cast_mut(), Ordering::Relaxed);
                object.facts_len.store(len, Ordering::Relaxed);
                object.plugin.store(plugin, Ordering::Release);
                object.facts_state.store(FACTS_SETTLED, Ordering::Release);
                changed();
                return;
            }
        }
        self.met.unsettled = true;
        self.result |= RESULT_FACTS_PENDING;
    }
}

impl Live<'_> {
    /// The rule that the plugin gives which claims the object of the frame in hand, if it gives rules; remembered.
    fn by_plugin(&mut self, cursor: &Cursor, reader: &mut Reader<'_>) -> Option<Packed> {
        let index = self.current.plugin as u8;
        let give = PLUGINS.get(index)?.rule.filter(|_| self.plugins)?;
        let claim = self.claim()?;
        // What is read for a rule is remembered with it.
        let was = reader.pause(true);
        let asked = foreign_rule::ask(give, &claim, cursor, reader, self.protector(index));
        reader.pause(was);
        match asked {
            Ok(rule) => {
                let packed = rule?.pack();
                RULES.put(key(cursor), self.current.rules, packed.words());
                Some(packed)
            }
            Err(reason) => {
                self.failed(index, reason);
                None
            }
        }
    }
}

impl Env for Live<'_> {
    #[inline(always)]
    fn rule(&mut self, cursor: &Cursor, reader: &mut Reader<'_>) -> Packed {
        let lookup = cursor.lookup_pc();
        if lookup.wrapping_sub(self.current.start) >= self.current.len && !self.switch(lookup, reader) {
            return self.window_rule(cursor, reader);
        }
        match RULES.get(key(cursor), self.current.rules).and_then(Packed::from_words) {
            Some(rule) if !rule.failed_for(StopReason::NoRule) => rule,
            _ => self.by_plugin(cursor, reader).unwrap_or_else(|| slow(&self.current, cursor, reader)),
        }
    }

    #[inline(always)]
    fn peek(&self, lookup: u64) -> Option<Short> {
        if lookup.wrapping_sub(self.current.start) >= self.current.len || self.current.plugin != 0 {
            return None;
        }
        SHORT_RULES.get(lookup, self.current.salt)
    }

    #[inline(always)]
    fn is_claimed(&self) -> bool {
        self.current.plugin != 0
    }

    fn claim(&self) -> Option<Claim> {
        if self.current.plugin == STEPPER {
            return self.windows.here().map(in_window::claim);
        }
        let object = self.current.object()?;
        let index = self.current.plugin as u8;
        let plugin: &Plugin = PLUGINS.get(index)?;
        Some(Claim {
            step: plugin.step,
            overlay: plugin.overlay,
            index,
            facts: object.facts.load(Ordering::Relaxed),
            facts_len: object.facts_len.load(Ordering::Relaxed),
            bias: object.bias,
            flags: plugin.flags,
            scratch_bytes: plugin.scratch_bytes,
            range: (object.start, object.end),
            generation: object.generation,
            user: core::ptr::null_mut(),
        })
    }

    fn function(&mut self, cursor: &Cursor, reader: &mut Reader<'_>) -> (u64, u64) {
        let Some(object) = self.current.object() else { return (0, 0) };
        let lookup = cursor.lookup_pc();
        if let Some([start, end, _]) = FUNCTIONS.get(lookup, object.generation) {
            return (start, end);
        }
        let was = reader.pause(true);
        let answer = native::find(object, lookup, cursor.regs.pc, reader);
        reader.pause(was);
        let (start, end) = answer.map_or((0, 0), |answer| answer.function);
        FUNCTIONS.put(lookup, object.generation, [start, end, 0]);
        (start, end)
    }

    fn find_name(&mut self, _plugin: u8, code: u64, fingerprint: u64) -> u32 {
        let Some((client, context)) = self.client else { return 0 };
        // SAFETY: the sampler's function and context.
        unsafe { (client.find_name)(context, code, fingerprint) }
    }

    fn describe(&mut self, plugin: u8, description: &Description, reader: &mut Reader<'_>) -> u32 {
        let Some((client, context)) = self.client else { return 0 };
        let was = reader.pause(true);
        let at = core::ptr::from_mut(reader).cast::<c_void>();
        // SAFETY: as above; `read_for_client` gets this very reader, during the call only.
        let id = unsafe { (client.describe)(context, u32::from(plugin), description, read_for_client, at) };
        reader.pause(was);
        // There may be room for it next time.
        self.met.unsettled |= id == 0;
        id
    }

    fn learned(&mut self, _plugin: u8) {
        changed();
    }

    fn stamp(&self) -> u64 {
        CHANGES.load(Ordering::Acquire).wrapping_mul(1 << 32) ^ u64::from(self.epoch)
    }

    fn windows_stamp(&self) -> Option<u64> {
        self.met.windows_stamp()
    }

    fn windows_hold(&self, stamp: u64) -> bool {
        self.met.windows_hold(stamp)
    }

    fn objects(&self) -> Option<&[u64]> {
        self.met.objects()
    }

    fn confirm(&mut self, object: u64, reader: &mut Reader<'_>) -> bool {
        // SAFETY: `Met::object` noted it; objects of the table stay for ever.
        unsafe { (object as *const Object).as_ref() }.is_some_and(|object| OBJECTS.confirm(object, reader))
    }

    fn is_repeatable(&self) -> bool {
        !self.met.unsettled
    }

    fn owner(&mut self, address: u64, reader: &mut Reader<'_>) -> Owner {
        if address.wrapping_sub(self.current.start) >= self.current.len && !self.switch(address, reader) {
            return in_window::owner(self.windows.here());
        }
        let bias = self.current.object().map_or(0, |object| object.bias);
        Owner {
            start: self.current.start,
            end: self.current.start.wrapping_add(self.current.len),
            bias,
            generation: self.current.generation,
            kind: OWNER_OBJECT,
            plugin: self.current.plugin,
        }
    }

    fn protector(&self, plugin: u8) -> Protector {
        match self.recovery {
            // SAFETY: whoever made this walk leads faults and ticks to this recovery point.
            Some(recovery) => unsafe { Protector::new(recovery, PLUGINS.text(plugin)) },
            None => Protector::none(),
        }
    }

    #[inline(always)]
    fn window(&mut self, cursor: &Cursor, reader: &mut Reader<'_>) -> Option<u64> {
        let held = self.windows.here()?;
        Some(self.window_identity(held, cursor, reader))
    }

    fn failed(&mut self, plugin: u8, reason: StopReason) {
        self.met.unsettled = true;
        changed();
        let off = match self.windows.here().filter(|_| plugin == 0) {
            Some(held) => held.failed(),
            None => PLUGINS.failed(plugin),
        };
        if let Some((client, context)) = self.client {
            // SAFETY: the sampler's function and context.
            unsafe { (client.plugin_failed)(context, u32::from(plugin), u32::from(reason.number()), off) };
        }
    }
}

/// The key of a frame's rule.
#[inline(always)]
pub(crate) fn key(cursor: &Cursor) -> u64 {
    cursor.lookup_pc() | if cursor.exact { EXACT } else { 0 }
}

/// A pc met for the first time: its object's unwind data is interpreted in place, and the rule remembered. Or one that has
/// no rule.
#[cold]
#[inline(never)]
fn slow(current: &Current, cursor: &Cursor, reader: &mut Reader<'_>) -> Packed {
    let Some(object) = current.object() else { return Packed::failed(StopReason::NoOwner) };
    let (key, lookup) = (key(cursor), cursor.lookup_pc());
    let rule = RULES.get(key, current.rules).and_then(Packed::from_words).unwrap_or_else(|| {
        let pc = cursor.regs.pc;
        let was = reader.pause(true);
        let mut answer = native::find(object, lookup, pc, reader);
        if answer == Err(StopReason::NoRule) && !cursor.exact {
            // A return address that nobody called from: the first byte of a function, behind none. Someone has put it there
            // to begin a stack with, as makecontext(3) does.
            let at_pc = native::find(object, pc, pc, reader);
            if at_pc.is_ok_and(|found| found.function.0 == pc) {
                answer = Err(StopReason::StartSymbol);
            }
        }
        if let (Ok(Answer { rule: Ok(rule), .. }), false) = (&answer, cursor.exact) {
            if let Some(short) = Short::new(rule) {
                SHORT_RULES.put(lookup, current.salt, short);
            }
        }
        let rule = match answer {
            Ok(answer) => Packed::from_result(answer.rule),
            Err(reason) => Packed::failed(reason),
        };
        RULES.put(key, current.rules, rule.words());
        reader.pause(was);
        rule
    });
    if rule.failed_for(StopReason::NoRule) {
        return by_frame_pointer(cursor, StopReason::NoRule);
    }
    rule
}

/// No other source has a rule: the frame pointer, if it can be one.
pub(crate) fn by_frame_pointer(cursor: &Cursor, reason: StopReason) -> Packed {
    Packed::from_result(uunwind_frame_pointer::rule(cursor, reason))
}

unsafe extern "C" fn read_for_client(reader: *mut c_void, address: u64, out: *mut u8, len: usize) -> bool {
    // SAFETY: `describe` passes its reader; the client passes room for `len` bytes.
    unsafe { (*reader.cast::<Reader<'_>>()).read_raw(address, out, len) }
}
