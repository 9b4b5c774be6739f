//! The surroundings of a walk in another process. The order of the sources is that of a walk inside
//! (`docs/design/rules.md`), without functions that a window's registrar has given: nobody can call them from outside.

use crate::memory::Memory;
use crate::names::Names;
use crate::objects::{Mapped, Objects};
use crate::plugins::Plugins;
use crate::registered::{Found, Registered};
use uunwind_core::call_site;
use uunwind_core::cursor::Cursor;
use uunwind_core::frame::window_identity;
use uunwind_core::memory::Reader;
use uunwind_core::plugin::{Description, Owner, Text, LOCK_UNKNOWN, OWNER_OBJECT, STEP_UNOWNED_ONLY, UNOWNED_FACTS};
use uunwind_core::registry::functions;
use uunwind_core::registry::window::{Window, NO_DATA};
use uunwind_core::rule::{Packed, RuleKind, BY_FRAME_POINTER};
use uunwind_core::span::Span;
use uunwind_core::stop_reason::StopReason;
use uunwind_core::walk::{Claim, Claimed, Delivery, Env, Look, Replay};
use uunwind_live::runtime_locks::{self, Sampled};
use uunwind_live::skipped::{Place, Surroundings};
use uunwind_live::{fallback_rule, in_window, plugin_rule};

/// Compilers align functions to a multiple of this many bytes.
const FUNCTION_ALIGNMENT: u64 = 16;

/// The surroundings of the walks of one process.
pub struct Remote<'p> {
    /// What it has mapped.
    pub objects: &'p Objects,
    /// The plugins that may be called.
    pub plugins: &'p Plugins,
    /// The process's memory.
    pub memory: &'p Memory,
    /// Code that it has registered at run time.
    pub registered: Registered,
    /// The names of code objects.
    pub names: Names,
    /// Frames that await those of the stack are wanted.
    pub awaiting: bool,
}

impl Remote<'_> {
    /// The rule of a frame in an object.
    fn in_object(&self, object: &Mapped, index: usize, cursor: &Cursor, reader: &mut Reader<'_>) -> Packed {
        in_object(object, cursor, &mut InObjects(self.objects), reader, |reader| {
            self.by_plugin(object, index, cursor, reader)
        })
    }

    fn by_plugin(&self, object: &Mapped, index: usize, cursor: &Cursor, reader: &mut Reader<'_>) -> Option<Packed> {
        let give = self.plugins.get(object.facts()?.plugin)?.rule?;
        let claim = self.claim(object, index)?;
        match plugin_rule::ask(give, &claim, cursor, reader, self.protector(claim.index)) {
            Ok(rule) => rule.map(|rule| rule.pack()),
            Err(_) => {
                self.plugins.failed(claim.index);
                None
            }
        }
    }

    /// The claim of the plugin whose object this is.
    fn claim(&self, object: &Mapped, index: usize) -> Option<Claim> {
        let facts = object.facts()?;
        let plugin = self.plugins.get(facts.plugin)?;
        Some(Claim {
            step: plugin.step.filter(|_| plugin.flags & STEP_UNOWNED_ONLY == 0),
            overlay: plugin.overlay,
            index: facts.plugin,
            facts: facts.words.as_ptr().cast(),
            facts_len: facts.len,
            bias: object.bias,
            flags: plugin.flags,
            scratch_bytes: plugin.scratch_bytes,
            range: object.image,
            generation: generation(index),
            user: self.plugins.user(facts.plugin),
        })
    }

    /// How a thread stands to the locks that runtimes run code under: one of `LOCK_*`, the largest of the plugins'
    /// answers.
    pub fn lock(&mut self, thread: &Sampled, reader: &mut Reader<'_>) -> u32 {
        let mut lock = LOCK_UNKNOWN;
        for (index, object) in self.objects.objects.iter().enumerate() {
            let plugin = object.facts().and_then(|facts| self.plugins.get(facts.plugin));
            let Some(function) = plugin.and_then(|plugin| plugin.lock) else { continue };
            let Some(claim) = self.claim(object, index) else { continue };
            match runtime_locks::ask(function, &claim, thread, reader, self.protector(claim.index)) {
                Ok(answer) => lock = lock.max(answer),
                Err(reason) => self.failed(&claim, reason),
            }
        }
        lock
    }

    /// The frame, if its code was registered at run time.
    fn in_registered(&mut self, cursor: &Cursor, reader: &mut Reader<'_>) -> Option<Found> {
        let mut found = self.registered.find(cursor, self.memory, reader)?;
        if let Some(window) = &found.window {
            found.rule = self.registered.rule_in(window, cursor, (self.memory, &mut InObjects(self.objects)), reader);
        }
        if found.rule.failed_for(StopReason::NoRule) {
            let by_code = self.registered.rule_by_code(found.window.as_ref(), cursor, self.memory, reader);
            self.registered.is_by_code = by_code.is_some();
            found.rule = by_code.unwrap_or_else(|| {
                in_window::or_frame_pointer(found.rule, cursor, &mut InObjects(self.objects), reader)
            });
        }
        Some(found)
    }

    /// The rule of a frame in code that no unwind data describes.
    fn unowned(&mut self, cursor: &Cursor, reader: &mut Reader<'_>) -> Packed {
        if let Some(rule) = uunwind_sources::outside_of_objects(cursor.regs.pc, reader) {
            return rule.pack();
        }
        let by_code = self.registered.rule_by_code(None, cursor, self.memory, reader);
        self.registered.is_by_code = by_code.is_some();
        by_code.unwrap_or_else(|| fallback_rule::unowned(cursor, &mut InObjects(self.objects), reader))
    }

    /// The name id of the function of a window; 0: it has none that can be read.
    fn window_name(&mut self, window: &Window, lookup: u64, reader: &mut Reader<'_>) -> u32 {
        let function = functions::find(window, lookup, reader).filter(|f| f.name != 0 && f.name_len != 0);
        let Some(function) = function else { return 0 };
        let start = window.start.wrapping_add(u64::from(function.start));
        let name = Text { address: function.name, len: function.name_len, width: 1, utf8: 1 };
        let description = in_window::description(start, window.generation, name);
        match self.names.find(0, start, window.generation) {
            0 => self.names.describe(0, &description, reader),
            id => id,
        }
    }

    /// The plugins' claim on a frame that lies in no object, and whose rule is a guess, or missing.
    fn unowned_claim(&self, rule: Packed, has_no_data: bool) -> Claimed {
        let missing = [StopReason::NoOwner, StopReason::NotCode].into_iter().any(|why| rule.failed_for(why));
        // A signal's frame is recognised by its code, whatever window that lies in.
        let has_no_data = has_no_data && rule.kind() != RuleKind::Signal;
        let guessed = missing || has_no_data || rule.flags() & BY_FRAME_POINTER != 0;
        self.unowned_after(&Claim::NOTHING).filter(|_| guessed).map_or(Claimed::No, Claimed::By)
    }

    /// The next claim of a plugin that steps in unowned code: of the plugin that was asked last, for its next runtime.
    fn unowned_after(&self, left: &Claim) -> Option<Claim> {
        if left.generation != 0 {
            let next = self.runtime_claim(left.index, left.generation);
            if next.is_some() {
                return next;
            }
        }
        let mut after = left.index;
        while let Some((index, plugin)) = self.plugins.unowned_after(after) {
            if plugin.flags & UNOWNED_FACTS == 0 {
                let (flags, scratch_bytes) = (plugin.flags, plugin.scratch_bytes);
                let user = self.plugins.user(index);
                return Some(Claim { step: plugin.step, index, flags, scratch_bytes, user, ..Claim::NOTHING });
            }
            let first = self.runtime_claim(index, 0);
            if first.is_some() {
                return first;
            }
            after = index;
        }
        None
    }

    /// The claim of a plugin's next runtime, as it is shown in unowned code.
    fn runtime_claim(&self, plugin: u8, after: u64) -> Option<Claim> {
        let runtimes = self.objects.objects.iter().enumerate().skip(after as usize);
        let mut claims = runtimes.filter_map(|(index, object)| self.claim(object, index));
        let claim = claims.find(|claim| claim.index == plugin)?;
        let step = self.plugins.get(plugin)?.step;
        Some(Claim { step, overlay: None, range: Span::EMPTY, ..claim })
    }
}

/// The rule of a frame in an object. `by_plugin`: that of the plugin whose object it is, if it gives one.
pub fn in_object(
    object: &Mapped,
    cursor: &Cursor,
    places: &mut dyn Surroundings,
    reader: &mut Reader<'_>,
    by_plugin: impl FnOnce(&mut Reader<'_>) -> Option<Packed>,
) -> Packed {
    let (pc, lookup) = (cursor.regs.pc, cursor.lookup_pc());
    let begins = |reader: &mut Reader<'_>| object.function_at(pc, reader).is_some_and(|f| f.start == pc);
    // A stack that user code made: no call has pushed this return address.
    if !cursor.exact && pc & (FUNCTION_ALIGNMENT - 1) == 0 && !call_site::precedes(pc, reader) && begins(reader) {
        return Packed::failed(StopReason::StartSymbol);
    }
    if let Some(rule) = by_plugin(reader) {
        return rule;
    }
    if let Some(rule) = object.rule_at(lookup) {
        return rule;
    }
    if !object.may_execute(lookup) {
        return fallback_rule::in_data(cursor, reader);
    }
    let (answer, _) = uunwind_sources::find(&object.sources, lookup, pc, reader);
    match answer {
        Ok(answer) => Packed::from_result(answer.rule),
        Err(StopReason::NoRule) if !cursor.exact && !call_site::precedes(pc, reader) => {
            let begins = begins(reader);
            Packed::failed(if begins { StopReason::StartSymbol } else { StopReason::SwitchedStack })
        }
        Err(StopReason::NoRule) => match uunwind_sources::by_registers_or_bytes(cursor, reader) {
            Some(rule) => Packed::from_result(rule),
            None => match object.described_without_rule(lookup) {
                Some(reason) => fallback_rule::described(cursor, reason, places, reader),
                None => fallback_rule::undescribed(cursor, places, reader),
            },
        },
        Err(reason) => Packed::failed(reason),
    }
}

/// What lies where, by the objects that a process has mapped.
struct InObjects<'o>(&'o Objects);

impl Surroundings for InObjects<'_> {
    fn place(&mut self, address: u64, reader: &mut Reader<'_>) -> Place {
        self.0.find(address).map_or(Place::Unowned, |(_, object)| place_in(object, address, reader))
    }

    fn reads_may_fault(&self) -> bool {
        false
    }
}

/// What lies at an address of an object.
pub fn place_in(object: &Mapped, address: u64, reader: &mut Reader<'_>) -> Place {
    if !object.may_execute(address) {
        return Place::Data;
    }
    match object.function_at(address, reader) {
        Some(_) => Place::Described,
        None => Place::Code,
    }
}

/// Objects are mapped once in a walk, so their places distinguish them; no generation is 0.
fn generation(index: usize) -> u64 {
    index as u64 + 1
}

impl Env for Remote<'_> {
    fn rule(&mut self, cursor: &Cursor, reader: &mut Reader<'_>) -> Packed {
        match self.objects.find(cursor.lookup_pc()) {
            Some((index, object)) => self.in_object(object, index, cursor, reader),
            None => match self.in_registered(cursor, reader) {
                Some(found) => found.rule,
                None => self.unowned(cursor, reader),
            },
        }
    }

    fn look(&mut self, cursor: &Cursor, reader: &mut Reader<'_>) -> Look {
        if let Some((index, object)) = self.objects.find(cursor.lookup_pc()) {
            let claim = match (object.facts(), self.claim(object, index)) {
                (_, Some(claim)) => Claimed::By(claim),
                (Some(_), None) => Claimed::Off,
                (None, None) if object.may_be_claimed() => Claimed::Off,
                (None, None) => Claimed::No,
            };
            return Look { claim, ..Look::at(self.in_object(object, index, cursor, reader)) };
        }
        self.registered.is_by_code = false;
        let Some(Found { window, generation, rule }) = self.in_registered(cursor, reader) else {
            let rule = self.unowned(cursor, reader);
            return Look {
                claim: self.unowned_claim(rule, false),
                by_code: self.registered.is_by_code,
                ..Look::at(rule)
            };
        };
        let name = window.map_or(0, |window| self.window_name(&window, cursor.lookup_pc(), reader));
        let has_no_data = window.is_none_or(|window| window.flags & NO_DATA != 0) && rule.is_failed();
        let claim = self.unowned_claim(rule, has_no_data);
        let by_code = self.registered.is_by_code;
        Look { claim, window: Some(window_identity(generation, name)), by_code, ..Look::at(rule) }
    }

    fn next_claim(&mut self, left: &mut Claim) -> bool {
        let next = Some(&*left).filter(|left| left.index != 0 && left.range.is_empty());
        let next = next.and_then(|left| self.unowned_after(left));
        if let Some(next) = next {
            *left = next;
        }
        next.is_some()
    }

    fn function(&mut self, _: &Claim, cursor: &Cursor, reader: &mut Reader<'_>) -> Span {
        let object = self.objects.find(cursor.lookup_pc());
        object.and_then(|(_, object)| object.function_at(cursor.lookup_pc(), reader)).unwrap_or_default()
    }

    fn function_at(&mut self, address: u64, reader: &mut Reader<'_>) -> Option<Span> {
        self.objects.find(address).and_then(|(_, object)| object.function_at(address, reader))
    }

    fn is_on_own_stack(&mut self, sp: u64, _: u64, _: &mut Reader<'_>) -> bool {
        self.objects.is_main_stack(sp)
    }

    fn deliver(&mut self, to: Delivery, cursor: &mut Cursor, reader: &mut Reader<'_>) -> bool {
        uunwind_sources::deliver(to, cursor, reader)
    }

    fn owner(&mut self, address: u64, _: &mut Reader<'_>) -> Owner {
        let Some((index, object)) = self.objects.find(address) else { return Owner::NONE };
        let mut owner = Owner {
            start: object.image.start,
            end: object.image.end,
            bias: object.bias,
            generation: generation(index),
            kind: OWNER_OBJECT,
            ..Owner::NONE
        };
        if let Some(facts) = object.facts() {
            owner.plugin = facts.plugin.into();
            (owner.facts, owner.facts_len) = (facts.words.as_ptr().cast(), facts.len);
        }
        owner
    }

    fn failed(&mut self, claim: &Claim, _: StopReason) {
        self.plugins.failed(claim.index);
    }
}

impl uunwind_core::walk::Names for Remote<'_> {
    fn wants_awaiting(&self) -> bool {
        self.awaiting
    }

    fn find_name(&mut self, plugin: u8, code: u64, fingerprint: u64) -> u32 {
        self.names.find(plugin, code, fingerprint)
    }

    fn describe(&mut self, plugin: u8, description: &Description, reader: &mut Reader<'_>) -> u32 {
        self.names.describe(plugin, description, reader)
    }
}

impl Replay for Remote<'_> {}
