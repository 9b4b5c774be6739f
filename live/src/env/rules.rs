//! The sources of the rule of a frame in an object for which no short rule is cached. `docs/design/rules.md` has their
//! order, with every branch; `Live::any_rule` has the first steps.

use super::{key, key_of, sources, Live};
use crate::fallback_rule;
use crate::plugin_rule;
use crate::state::{FIRST, FOUND_AGAIN, MET, PLUGINS, RULES, SHORT_RULES};
use core::sync::atomic::Ordering;
use uunwind_core::cache::short::Short;
use uunwind_core::call_site;
use uunwind_core::cursor::Cursor;
use uunwind_core::memory::{guarded, Reader};
use uunwind_core::objects::{Bases, Object};
use uunwind_core::rule::{Packed, Rule};
use uunwind_core::stop_reason::StopReason;
use uunwind_core::walk::Env;
use uunwind_sources::{Form, LastCie};

/// See [`Live::short_rules_pay`].
const SELDOM: u32 = 4096;

/// Compilers align functions to a multiple of this many bytes.
const FUNCTION_ALIGNMENT: u64 = 16;

/// Why there is no caller, in an object that runs something on a part of another's stack: there its stack ends, or it
/// is being switched. Its unwind data does not say so.
#[cold]
#[inline(never)]
fn at_switches(object: &Object, lookup: u64, reader: &mut Reader<'_>) -> Option<StopReason> {
    let by_base = object.bases.reason(lookup);
    if by_base.is_some() {
        return by_base;
    }
    let was = reader.pause(true);
    let is_in_transit = uunwind_sources::is_in_transit(lookup, reader);
    reader.pause(was);
    is_in_transit.then_some(StopReason::StackInTransit)
}

impl Live<'_> {
    /// Whether the return address `pc` is the first byte of a function and does not follow a call (a function may end
    /// with one). Then no call has pushed it: it is the entry of a new stack, as makecontext(3) writes it. Only
    /// functions that are aligned as compilers do it are recognised.
    #[inline(always)]
    pub(super) fn begins_a_stack(&self, pc: u64, reader: &mut Reader<'_>) -> bool {
        pc & (FUNCTION_ALIGNMENT - 1) == 0 && self.is_first_byte(pc, reader)
    }

    #[cold]
    #[inline(never)]
    fn is_first_byte(&self, pc: u64, reader: &mut Reader<'_>) -> bool {
        let Some(object) = self.current.object() else { return false };
        let lookup = pc.wrapping_sub(1);
        if self.long_rule(lookup).is_some() || FIRST.get(lookup, self.current.rules_key).is_some() {
            // It was judged when its rule was found.
            return false;
        }
        let was = reader.pause(true);
        reader.begin_image(object.image, self.current.generation, object.last_page);
        let is_called = call_site::precedes(pc, reader);
        let function = if is_called { None } else { self.current.function_at(pc, reader) };
        reader.end_image();
        reader.pause(was);
        function.is_some_and(|function| function.start == pc)
    }

    /// The rule that the object's table has for the current frame, unless a plugin's rules take precedence.
    #[inline(always)]
    pub(super) fn by_table(&self, cursor: &Cursor) -> Option<Packed> {
        if self.current.plugin_first {
            return None;
        }
        self.current.rule_at(cursor.lookup_pc())
    }

    /// Caches the rule of a capture's interrupted pc as a short rule, for the next capture there
    /// ([`uunwind_core::cache::steps::StepCache::unwind`]). Nothing else looks up short rules of exact pcs.
    #[inline(always)]
    pub(super) fn remember_exact(&self, cursor: &Cursor) {
        if cursor.exact && self.current.plugin == 0 && self.salts.stamp().is_some() {
            self.remember_long(cursor.lookup_pc(), key(cursor));
        }
    }

    /// Caches the short rule for a key that is met for the second time: that of the table, or else the one that the
    /// larger cache has.
    #[cold]
    #[inline(never)]
    fn remember_long(&self, lookup: u64, key: u64) {
        if !MET.again(key) {
            return;
        }
        let rule = self.current.short_rule_at(lookup).or_else(|| self.long_rule(key).and_then(Short::of));
        if let Some(rule) = rule {
            SHORT_RULES.put(key, self.salts.salt(), rule);
        }
    }

    /// The short rule of a return address in an unclaimed object, if its table or its unwind data gives one. `again`:
    /// it may have been met before, and becomes a cached short rule.
    #[cold]
    #[inline(never)]
    pub(super) fn short_rule_of_object(&mut self, lookup: u64, again: bool, reader: &mut Reader<'_>) -> Option<Short> {
        let by_table = self.current.short_rule_at(lookup);
        let cached = if again && by_table.is_none() { self.long_rule(lookup) } else { None };
        if let Some(rule) = by_table.or_else(|| cached.and_then(Short::of)) {
            if again && (by_table.is_some() || self.short_rules_pay(reader)) {
                SHORT_RULES.put(lookup, self.salts.salt(), rule);
            }
            return Some(rule);
        }
        if cached.is_some() || self.current.table.is_some() {
            return None;
        }
        // It becomes a cached short rule when it is met again.
        let first = if again { self.first_rule(lookup) } else { None };
        first.and_then(Short::of).or_else(|| {
            let lookup = (lookup, lookup.wrapping_add(1));
            self.interpret(lookup, false, again, reader).ok()?.short()
        })
    }

    /// The rule that the larger cache has for a key.
    #[inline(always)]
    fn long_rule(&self, key: u64) -> Option<Packed> {
        RULES.get(key, self.current.rules_key).and_then(Packed::from_words)
    }

    /// The rule for a key from when it was met for the first time; the larger cache has it from now on.
    fn first_rule(&self, key: u64) -> Option<Packed> {
        let rule = Short::from_word(FIRST.get(key, self.current.rules_key)?)?.pack();
        RULES.put(key, self.current.rules_key, rule.words());
        Some(rule)
    }

    /// Whether a rule that the larger cache has becomes a short one now: in a program that captures, once that has
    /// happened [`SELDOM`] times. By then it has cost as much as the pages of the table of short rules will.
    #[inline(always)]
    fn short_rules_pay(&self, reader: &Reader<'_>) -> bool {
        if !self.is_sparing(reader) {
            return true;
        }
        let found = FOUND_AGAIN.load(Ordering::Relaxed);
        if found < SELDOM {
            FOUND_AGAIN.store(found + 1, Ordering::Relaxed);
        }
        found >= SELDOM
    }

    /// Whether an address becomes a cached short rule when it is met for the second time, and not for the first: in a
    /// capture, and with probed reads. The table of short rules has an entry on another cache line for each line of
    /// code, and pages as the code has. A program that captures needs few rules twice, if it captures seldom; and one
    /// that captures often meets an address many times.
    #[inline(always)]
    pub(super) fn is_sparing(&self, reader: &Reader<'_>) -> bool {
        self.salts.stamp().is_some() || reader.is_probed()
    }

    /// The rule of a pc that no table covers and that is met for the first time, from the object's unwind data, which
    /// is interpreted in place. It is cached, among few others unless `again`. `lookup`: the address to search with.
    #[inline(never)]
    fn interpret(
        &mut self,
        (lookup, pc): (u64, u64),
        exact: bool,
        again: bool,
        reader: &mut Reader<'_>,
    ) -> Result<Form, StopReason> {
        let Some(object) = self.current.object() else { return Err(StopReason::NoOwner) };
        let key = key_of(lookup, exact);
        if !object.code.may_hold(lookup) {
            RULES.put(key, self.current.rules_key, Packed::failed(StopReason::NotCode).words());
            return Err(StopReason::NotCode);
        }
        if object.bases != Bases::NONE {
            if let Some(reason) = at_switches(object, lookup, reader) {
                RULES.put(key, self.current.rules_key, Packed::failed(reason).words());
                return Err(reason);
            }
        }
        if self.cie.0 != self.current.generation || self.cie.0 == 0 {
            self.cie = (self.current.generation, LastCie::new());
        }
        let was = reader.pause(true);
        reader.begin_image(object.image, self.current.generation, object.last_page);
        let found = uunwind_sources::find_form_with(&mut self.cie.1, &sources(object), lookup, pc, reader);
        let rule = match found {
            Err(StopReason::NoRule) => self.not_covered(object, pc, exact, reader).map(Form::Long),
            _ => found.and_then(|answer| answer.rule),
        };
        let short = rule.ok().filter(|_| !again).and_then(|rule| rule.short());
        match short.filter(|short| Short::from_word(short.word()).is_some()) {
            Some(short) => FIRST.put(key, self.current.rules_key, short.word()),
            None => RULES.put(key, self.current.rules_key, rule.map_or_else(Packed::failed, Form::pack).words()),
        }
        reader.end_image();
        reader.pause(was);
        if self.current.table.is_none() && rule.is_ok() {
            self.interpreted = self.interpreted.wrapping_add(1);
        }
        rule
    }

    /// The rule for a pc that no unwind data covers.
    #[cold]
    #[inline(never)]
    fn not_covered(&self, object: &Object, pc: u64, exact: bool, reader: &mut Reader<'_>) -> Result<Rule, StopReason> {
        if exact {
            let load = guarded::load_of(pc).ok_or(StopReason::NoRule)?;
            return uunwind_sources::find(&sources(object), load, load, reader).0?.rule;
        }
        if call_site::precedes(pc, reader) {
            return Err(StopReason::NoRule);
        }
        // No call has pushed this return address. The first byte of a function begins a stack, as makecontext(3) does;
        // an address in code without unwind information does, too, as coroutine libraries write it.
        let function = self.current.function_at(pc, reader);
        let begins = function.is_some_and(|function| function.start == pc);
        Err(if begins { StopReason::StartSymbol } else { StopReason::SwitchedStack })
    }

    /// The rule of a pc for which no short rule is cached. Also handles a pc without a rule.
    #[cold]
    #[inline(never)]
    pub(super) fn slow(&mut self, cursor: &Cursor, reader: &mut Reader<'_>) -> Packed {
        let (key, lookup, pc) = (key(cursor), cursor.lookup_pc(), cursor.regs.pc);
        let again = !self.is_sparing(reader) || MET.again(key);
        let cached = if again { self.long_rule(key).or_else(|| self.first_rule(key)) } else { None };
        let rule = cached.or_else(|| self.current.rule_at(lookup)).unwrap_or_else(|| {
            self.interpret((lookup, pc), cursor.exact, again, reader).map_or_else(Packed::failed, Form::pack)
        });
        if cursor.exact && again && self.current.plugin == 0 && self.salts.stamp().is_some() {
            if let Some(short) = Short::of(rule) {
                SHORT_RULES.put(key, self.salts.salt(), short);
            }
        }
        if rule.failed_for(StopReason::NotCode) {
            return fallback_rule::in_data(cursor, reader);
        }
        if rule.failed_for(StopReason::NoRule) {
            let recognised = uunwind_sources::by_registers_or_bytes(cursor, reader).map(Packed::from_result);
            return recognised.unwrap_or_else(|| match self.current.described_without_rule(lookup) {
                Some(reason) => fallback_rule::described(cursor, reason, self, reader),
                None => fallback_rule::undescribed(cursor, self, reader),
            });
        }
        rule
    }

    /// The rule by the plugin that claims the current object, if it gives rules. It is cached.
    pub(super) fn by_plugin(&mut self, cursor: &Cursor, reader: &mut Reader<'_>) -> Option<Packed> {
        let index = self.current.plugin as u8;
        let plugin = PLUGINS.get(index)?;
        let give = plugin.rule.filter(|_| self.calls.may(plugin))?;
        let claim = self.plugin_claim(plugin, index, self.current.object()?);
        // The rule is cached by pc and not by the words that the plugin reads, so they stay out of the walk's log.
        let was = reader.pause(true);
        let asked = plugin_rule::ask(give, &claim, cursor, reader, self.protector(index));
        reader.pause(was);
        match asked {
            Ok(rule) => {
                let packed = rule?.pack();
                RULES.put(key(cursor), self.current.rules_key, packed.words());
                Some(packed)
            }
            Err(reason) => {
                self.failed(&claim, reason);
                None
            }
        }
    }
}
