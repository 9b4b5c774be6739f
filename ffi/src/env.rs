//! The surroundings of a walk in a live process: which source answers for a pc.

use crate::embedder::{self, marks::MARKS};
use crate::foreign_rule;
use crate::in_window::{self, InWindow};
use crate::met::{changed, Met};
use crate::state::{CHANGES, FUNCTIONS, OBJECTS, PLUGINS, RULES, SHORT_RULES};
use crate::strays;
use crate::tables;
use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::sync::atomic::Ordering;
use uunwind_core::cursor::Cursor;
use uunwind_core::library::{Client, RESULT_FACTS_PENDING, RESULT_OBJECTS_FULL, RESULT_UNTOLD};
use uunwind_core::memory::Reader;
use uunwind_core::objects::{Lookup, Memo, Object, FACTS_SETTLED};
use uunwind_core::plugin::{Description, Owner, Plugin, OWNER_OBJECT};
use uunwind_core::recovery::{Protector, Recovery};
use uunwind_core::registry::window::{Kind, UNTOLD};
use uunwind_core::rule::{Packed, BY_FRAME_POINTER};
use uunwind_core::short_rule::{Salt, Short};
use uunwind_core::stop_reason::StopReason;
use uunwind_core::walk::{Claim, Env, EMBEDDER};
use uunwind_native::{Answer, Sources};
use uunwind_tables::{Found, Table};

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
    /// An object that the table has no room for.
    spare: MaybeUninit<Object>,
    client: Option<(&'c Client, *mut c_void)>,
    epoch: u32,
    /// Where calls of foreign code come back to, if faults and ticks are led there.
    recovery: Option<&'c Recovery>,
    /// What this walk depends on besides words.
    met: Met,
    time: u64,
    /// The plugin that is being asked about a frame in code that nobody owns; 0 = none is.
    stray: u8,
    /// Where the rule of the frame last asked for was looked up.
    asked: u64,
    /// Whether plugins may be called: their faults come back to `recovery`, and may happen.
    plugins: bool,
    /// `RESULT_*` gathered so far.
    pub result: u32,
    /// Frames interpreted in place for want of a table.
    pub interpreted: u32,
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
    /// Of the plugin that claims it, [`EMBEDDER`] if only an embedder has marked code in it, or [`STEPPER`]; 0: nobody does.
    plugin: u32,
    /// The plugin gives rules, and is asked before the table.
    plugin_first: bool,
    /// The object's rule table, if it has one.
    table: Option<Table<'static>>,
    /// An embedder has marked code in it.
    marked: bool,
    /// In the table of objects or at `Live::spare`; null when there is none.
    object: *const Object,
}

fn nowhere() -> Current {
    Current {
        start: 0,
        len: 0,
        generation: 0,
        rules: 0,
        salt: Salt::new(0),
        plugin: 0,
        plugin_first: false,
        table: None,
        marked: false,
        object: core::ptr::null(),
    }
}

impl Current {
    fn object(&self) -> Option<&Object> {
        // SAFETY: an object of the table stays for ever; the spare one stays as long as `current` speaks of it (see
        // `Live::switch`), and a walk holds its `Live` in one place.
        unsafe { self.object.as_ref() }
    }

    /// What is subtracted from an address to look it up in the table.
    #[inline(always)]
    fn bias(&self) -> u64 {
        self.object().map_or(0, |object| object.bias)
    }

    /// The short rule that the table has for a return address, remembered: the next time it is one load away.
    #[cold]
    #[inline(never)]
    fn remember(&self, lookup: u64) -> Option<Short> {
        match self.table.as_ref()?.find(lookup.wrapping_sub(self.bias())) {
            Found::Short(rule) => {
                SHORT_RULES.put(lookup, self.salt, rule);
                Some(rule)
            }
            _ => None,
        }
    }

    /// The rule that the table has for an address.
    #[inline(always)]
    fn rule_at(&self, lookup: u64) -> Option<Packed> {
        match self.table.as_ref()?.find(lookup.wrapping_sub(self.bias())) {
            Found::Short(rule) => Some(rule.pack()),
            // Where the table knows why there is no rule, another source may have one.
            Found::Long(rule) if !rule.is_failed() => Some(rule),
            _ => None,
        }
    }

    /// The function around an address.
    fn function_at(&self, address: u64, reader: &mut Reader<'_>) -> Option<(u64, u64)> {
        if let Some((start, end)) = self.table.as_ref().and_then(|t| t.function(address.wrapping_sub(self.bias()))) {
            return Some((start.wrapping_add(self.bias()), end.wrapping_add(self.bias())));
        }
        uunwind_native::function(&sources(self.object()?), address, reader)
    }
}

impl<'c> Live<'c> {
    /// For one walk, in this recording epoch and at this time of the sampler's clock. `recovery`: the slot's, if faults and
    /// ticks on this thread are led there.
    /// `plugins`: whether they may be called, which needs that.
    pub fn new(
        client: Option<(&'c Client, *mut c_void)>,
        (epoch, time): (u32, u64),
        recovery: Option<&'c Recovery>,
        plugins: bool,
    ) -> Live<'c> {
        Live {
            current: nowhere(),
            windows: InWindow::default(),
            memo: Memo::default(),
            spare: MaybeUninit::uninit(),
            client,
            epoch,
            time,
            recovery,
            asked: 0,
            plugins: plugins && recovery.is_some(),
            met: Met::new(),
            stray: 0,
            result: 0,
            interpreted: 0,
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
                match OBJECTS.make(pc, reader) {
                    Some(made) => self.spare.write(made),
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
        let marked = MARKS.overlaps(object.start, object.end);
        let gives_rules = self.plugins && PLUGINS.get(plugin as u8).is_some_and(|plugin| plugin.rule.is_some());
        self.current = Current {
            start: object.start,
            len: object.end.wrapping_sub(object.start),
            generation: object.generation,
            rules: object.generation | if gives_rules { u64::from(plugin) << 56 } else { 0 },
            salt: Salt::new(object.generation),
            plugin: if plugin == 0 && marked { u32::from(EMBEDDER) } else { plugin },
            marked,
            plugin_first: gives_rules,
            table: tables::of(object, self.client),
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

    /// Tells the recorder that the object is here, unless it knows so for the time of this walk.
    fn report(&mut self, object: &Object) {
        let Some((client, context)) = self.client else { return };
        let known = object.reported.load(Ordering::Acquire) == self.epoch
            && object.reported_at.load(Ordering::Relaxed) <= self.time;
        if known {
            return;
        }
        // SAFETY: the sampler's function and context.
        if unsafe { (client.object_seen)(context, object) } {
            OBJECTS.was_reported(object, self.epoch, self.time);
        } else {
            self.met.unsettled = true;
            self.result |= RESULT_UNTOLD;
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
    /// The rule that the object's table has for the frame in hand, unless a plugin is to be asked first.
    #[inline(always)]
    fn by_table(&self, cursor: &Cursor) -> Option<Packed> {
        if self.current.plugin_first {
            return None;
        }
        self.current.rule_at(cursor.lookup_pc())
    }

    /// A pc met for the first time, that no table tells of: its object's unwind data is interpreted in place, and the rule
    /// remembered. Or one that has no rule.
    #[cold]
    #[inline(never)]
    fn slow(&mut self, cursor: &Cursor, reader: &mut Reader<'_>) -> Packed {
        let Some(object) = self.current.object() else { return Packed::failed(StopReason::NoOwner) };
        let (key, lookup, pc) = (key(cursor), cursor.lookup_pc(), cursor.regs.pc);
        let known = RULES.get(key, self.current.rules).and_then(Packed::from_words);
        let rule = known.or_else(|| self.current.rule_at(lookup)).unwrap_or_else(|| {
            let was = reader.pause(true);
            let (mut answer, _) = uunwind_native::find(&sources(object), lookup, pc, reader);
            if answer == Err(StopReason::NoRule) && !cursor.exact {
                // A return address that nobody called from: the first byte of a function, behind none. Someone has put it
                // there to begin a stack with, as makecontext(3) does.
                if self.current.function_at(pc, reader).is_some_and(|(start, _)| start == pc) {
                    answer = Err(StopReason::StartSymbol);
                }
            }
            if let (Ok(Answer { rule: Ok(rule), .. }), false) = (&answer, cursor.exact) {
                if let Some(short) = Short::new(rule) {
                    SHORT_RULES.put(lookup, self.current.salt, short);
                }
            }
            let rule = match answer {
                Ok(answer) => Packed::from_result(answer.rule),
                Err(reason) => Packed::failed(reason),
            };
            RULES.put(key, self.current.rules, rule.words());
            reader.pause(was);
            if self.current.table.is_none() && !rule.is_failed() {
                self.interpreted = self.interpreted.wrapping_add(1);
            }
            rule
        });
        if rule.failed_for(StopReason::NoRule) {
            return by_frame_pointer(cursor, StopReason::NoRule);
        }
        rule
    }

    /// A frame in no object has this rule: if that is as good as none, plugins are asked whether the code is theirs.
    #[cold]
    fn ask_strays(&mut self, rule: Packed) {
        if self.current.plugin != STEPPER {
            let untold = self.windows.here().is_some_and(|held| held.window().flags & UNTOLD != 0);
            let guessed = untold || rule.flags() & BY_FRAME_POINTER != 0 || rule.failed_for(StopReason::NoOwner);
            self.stray = if guessed { strays::after(0) } else { 0 };
            self.current.plugin = u32::from(self.stray);
        }
    }

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

impl Live<'_> {
    #[inline(always)]
    fn any_rule(&mut self, cursor: &Cursor, reader: &mut Reader<'_>) -> Packed {
        self.stray = 0;
        let lookup = cursor.lookup_pc();
        self.asked = lookup;
        if lookup.wrapping_sub(self.current.start) >= self.current.len && !self.switch(lookup, reader) {
            if let Some(rule) = uunwind_native::before_all(cursor.regs.pc, reader) {
                return rule.pack();
            }
            let rule = self.window_rule(cursor, reader);
            self.ask_strays(rule);
            return rule;
        }
        if let Some(rule) = self.by_table(cursor) {
            return rule;
        }
        match RULES.get(key(cursor), self.current.rules).and_then(Packed::from_words) {
            Some(rule) if !rule.failed_for(StopReason::NoRule) => rule,
            _ => self.by_plugin(cursor, reader).unwrap_or_else(|| self.slow(cursor, reader)),
        }
    }
}

impl Env for Live<'_> {
    #[inline(always)]
    fn rule(&mut self, cursor: &Cursor, reader: &mut Reader<'_>) -> Packed {
        let rule = self.any_rule(cursor, reader);
        // On AArch64 sp is not known behind a frame pointer; the frame pointer still is.
        if cfg!(target_arch = "aarch64") && rule.is_plain() && cursor.regs.get(rule.cfa_parts().0).is_none() {
            return by_frame_pointer(cursor, StopReason::UnknownRegister);
        }
        rule
    }
    #[inline(always)]
    fn peek(&self, lookup: u64) -> Option<Short> {
        if lookup.wrapping_sub(self.current.start) >= self.current.len || self.current.plugin != 0 {
            return None;
        }
        SHORT_RULES.get(lookup, self.current.salt).or_else(|| self.current.remember(lookup))
    }

    fn enter(&mut self, lookup: u64, reader: &mut Reader<'_>) -> bool {
        lookup.wrapping_sub(self.current.start) >= self.current.len
            && self.switch(lookup, reader)
            && self.current.plugin == 0
    }

    #[inline(always)]
    fn is_claimed(&self) -> bool {
        self.current.plugin != 0
    }

    fn claim(&self) -> Option<Claim> {
        if self.current.plugin == STEPPER {
            return self.windows.here().map(in_window::claim);
        }
        if self.current.marked && MARKS.covers(self.asked) {
            let object = self.current.object()?;
            return Some(embedder::overlay::claim((object.start, object.end), object.generation));
        }
        let index = self.current.plugin as u8;
        let plugin: &Plugin = PLUGINS.get(index)?;
        let Some(object) = self.current.object() else {
            return Some(Claim {
                step: plugin.step,
                index,
                flags: plugin.flags,
                scratch_bytes: plugin.scratch_bytes,
                ..Claim::NOTHING
            });
        };
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

    fn next_claim(&mut self) -> bool {
        if self.stray == 0 {
            return false;
        }
        // The one that was asked may have looked at objects.
        self.stray = strays::after(self.stray);
        self.current = Current { plugin: u32::from(self.stray), ..nowhere() };
        self.stray != 0
    }

    #[inline(never)]
    fn function(&mut self, cursor: &Cursor, reader: &mut Reader<'_>) -> (u64, u64) {
        let Some(object) = self.current.object() else { return (0, 0) };
        let lookup = cursor.lookup_pc();
        if let Some([start, end, _]) = FUNCTIONS.get(lookup, object.generation) {
            return (start, end);
        }
        let was = reader.pause(true);
        let (start, end) = self.current.function_at(lookup, reader).unwrap_or((0, 0));
        reader.pause(was);
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
        let object = unsafe { (object as *const Object).as_ref() };
        let Some(object) = object.filter(|object| OBJECTS.confirm(object, reader)) else { return false };
        // It may have been away since the walk that is reused.
        self.report(object);
        true
    }

    fn is_repeatable(&self) -> bool {
        !self.met.unsettled
    }

    fn owner(&mut self, address: u64, reader: &mut Reader<'_>) -> Owner {
        if address.wrapping_sub(self.current.start) >= self.current.len && !self.switch(address, reader) {
            return in_window::owner(self.windows.here());
        }
        let mut owner = Owner {
            start: self.current.start,
            end: self.current.start.wrapping_add(self.current.len),
            generation: self.current.generation,
            kind: OWNER_OBJECT,
            plugin: self.current.plugin,
            ..Owner::NOBODY
        };
        if let Some(object) = self.current.object() {
            owner.bias = object.bias;
            if self.current.plugin != 0 {
                owner.facts = object.facts.load(Ordering::Relaxed);
                owner.facts_len = object.facts_len.load(Ordering::Relaxed);
            }
        }
        owner
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

/// Where an object's unwind data lies.
fn sources(object: &Object) -> Sources {
    Sources {
        eh_frame_hdr: object.eh_frame_hdr,
        image: object.image,
        sframe: object.sframe,
        text: (object.start, object.end),
    }
}

/// The key of a frame's rule.
#[inline(always)]
pub(crate) fn key(cursor: &Cursor) -> u64 {
    cursor.lookup_pc() | if cursor.exact { EXACT } else { 0 }
}

/// No other source has a rule: the frame pointer, if it can be one.
pub(crate) fn by_frame_pointer(cursor: &Cursor, reason: StopReason) -> Packed {
    Packed::from_result(uunwind_frame_pointer::rule(cursor, reason))
}

unsafe extern "C" fn read_for_client(reader: *mut c_void, address: u64, out: *mut u8, len: usize) -> bool {
    // SAFETY: `describe` passes its reader; the client passes room for `len` bytes.
    unsafe { (*reader.cast::<Reader<'_>>()).read_raw(address, out, len) }
}
