//! The surroundings of a walk in a live process: which source answers for a pc.

mod rules;
mod told;

use crate::current::{nowhere, Current, STEPPER};
use crate::embedder::{self, marks::MARKS};
use crate::in_window::{self, InWindow};
use crate::met::{changed, Met};
use crate::salts::Salts;
use crate::state::{CHANGES, FUNCTIONS, OBJECTS, PLUGINS, RULES, SHORT_RULES};
use crate::strays;
use crate::tables;
use core::cell::Cell;
use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::sync::atomic::Ordering;
use uunwind_core::chain::EXACT_KEY;
use uunwind_core::cursor::Cursor;
use uunwind_core::library::{Client, RESULT_OBJECTS_FULL};
use uunwind_core::memory::Reader;
use uunwind_core::objects::{Lookup, Memo, Object, FACTS_SETTLED};
use uunwind_core::plugin::{Description, Owner, Plugin, OWNER_OBJECT};
use uunwind_core::recovery::{Protector, Recovery};
use uunwind_core::registry::window::Kind;
use uunwind_core::rule::Packed;
use uunwind_core::short_rule::Short;
use uunwind_core::stop_reason::StopReason;
use uunwind_core::walk::{Claim, Env, EMBEDDER};
use uunwind_native::Sources;

/// A live process, seen through its loader; with the sampler's functions, when there is one.
pub struct Live<'c> {
    /// The object of the frame last asked for: frames of one object tend to stand together.
    current: Current,
    /// Under what short rules are remembered: see `salts.rs`.
    salts: Salts,
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
    /// Foreign code was called in this walk.
    foreign: Cell<bool>,
    /// Whether plugins may be called: their faults come back to `recovery`, and may happen.
    plugins: bool,
    /// `RESULT_*` gathered so far.
    pub result: u32,
    /// Frames interpreted in place for want of a table.
    pub interpreted: u32,
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
            salts: Salts::new(client.is_none()),
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
            foreign: Cell::new(false),
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
        self.salts.nowhere();
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
        let plugin = if plugin == 0 && marked { u32::from(EMBEDDER) } else { plugin };
        self.current = Current {
            start: object.start,
            len: object.end.wrapping_sub(object.start),
            generation: object.generation,
            rules: object.generation | if gives_rules { u64::from(plugin) << 56 } else { 0 },
            plugin,
            marked,
            plugin_first: gives_rules,
            table: tables::of(object, self.client),
            object,
        };
        if plugin == 0 {
            self.salts.enter(object.generation);
        }
        true
    }

    /// Whether somebody keeps names.
    pub(crate) fn names_are_kept(&self) -> bool {
        self.client.is_some()
    }

    /// Under what this walk remembers short rules.
    pub(crate) fn salts(&self) -> &Salts {
        &self.salts
    }

    /// The recording epoch.
    pub(crate) fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Whether a sampler leads faults and ticks to this walk.
    pub(crate) fn has_recovery(&self) -> bool {
        self.recovery.is_some()
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
            self.remember_exact(cursor);
            return rule;
        }
        match RULES.get(key(cursor), self.current.rules).and_then(Packed::from_words) {
            Some(rule) if !rule.failed_for(StopReason::NoRule) => {
                self.remember_exact(cursor);
                rule
            }
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
        // The salt tells objects apart, so whether the address lies in this one need not be asked.
        SHORT_RULES.get(lookup, self.salts.salt())
    }

    #[cold]
    #[inline(never)]
    fn peek_further(&mut self, lookup: u64, reader: &mut Reader<'_>) -> Option<Short> {
        let known = SHORT_RULES.search(lookup, self.salts.salt());
        if known.is_some() {
            return known;
        }
        let is_elsewhere = lookup.wrapping_sub(self.current.start) >= self.current.len;
        if is_elsewhere && !self.switch(lookup, reader) || self.current.plugin != 0 {
            return None;
        }
        let known = if is_elsewhere { SHORT_RULES.search(lookup, self.salts.salt()) } else { None };
        let known = known.or_else(|| self.current.remember(lookup, lookup, self.salts.salt()));
        known.or_else(|| self.remember_known(lookup))
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
        self.salts.nowhere();
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
        if let Some((client, context)) = self.client.filter(|_| !self.foreign.replace(true)) {
            // SAFETY: the sampler's function and context.
            unsafe { (client.foreign_code)(context) };
        }
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
pub(crate) fn sources(object: &Object) -> Sources {
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
    cursor.lookup_pc() | if cursor.exact { EXACT_KEY } else { 0 }
}

/// No other source has a rule: the frame pointer, if it can be one.
pub(crate) fn by_frame_pointer(cursor: &Cursor, reason: StopReason) -> Packed {
    Packed::from_result(uunwind_frame_pointer::rule(cursor, reason))
}

unsafe extern "C" fn read_for_client(reader: *mut c_void, address: u64, out: *mut u8, len: usize) -> bool {
    // SAFETY: `describe` passes its reader; the client passes room for `len` bytes.
    unsafe { (*reader.cast::<Reader<'_>>()).read_raw(address, out, len) }
}
