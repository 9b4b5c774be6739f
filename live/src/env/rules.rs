//! The sources of the rule of a frame in an object for which no short rule is cached. `docs/design/rules.md` has their
//! order, with every branch; `Live::any_rule` has the first steps.

use super::{key, key_of, sources, Live};
use crate::not_code;
use crate::plugin_rule;
use crate::state::{MET, PLUGINS, RULES, SHORT_RULES};
use uunwind_core::cache::short::Short;
use uunwind_core::call_site;
use uunwind_core::cursor::Cursor;
use uunwind_core::memory::{guarded, Reader};
use uunwind_core::objects::Object;
use uunwind_core::rule::{Packed, Rule};
use uunwind_core::stop_reason::StopReason;
use uunwind_core::walk::Env;
use uunwind_sources::{Form, LastCie};

/// Compilers align functions to a multiple of this many bytes.
const FUNCTION_ALIGNMENT: u64 = 16;

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
            let cached = self.current.remember(cursor.lookup_pc(), key(cursor), self.salts.salt());
            cached.or_else(|| self.remember_long(key(cursor)));
        }
    }

    /// Caches the short rule for a key whose rule the larger cache still has: from a time when the salt was another
    /// one, or from when it was met for the first time.
    #[cold]
    #[inline(never)]
    pub(super) fn remember_long(&self, key: u64) -> Option<Short> {
        let rule = RULES.get(key, self.current.rules_key).and_then(Packed::from_words).and_then(Short::of)?;
        SHORT_RULES.put(key, self.salts.salt(), rule);
        Some(rule)
    }

    /// The short rule of a return address in an unclaimed object, if its unwind data gives one.
    #[cold]
    #[inline(never)]
    pub(super) fn short_of_unwind_data(&mut self, lookup: u64, reader: &mut Reader<'_>) -> Option<Short> {
        let keeps = self.keeps_rule(lookup, reader);
        let cached = if keeps { RULES.get(lookup, self.current.rules_key) } else { None };
        if let Some(rule) = cached.and_then(Packed::from_words) {
            let rule = Short::of(rule)?;
            if self.keeps_short_rules(reader) {
                SHORT_RULES.put(lookup, self.salts.salt(), rule);
            }
            return Some(rule);
        }
        if self.current.table.is_some() {
            return None;
        }
        let rule = self.interpret((lookup, lookup.wrapping_add(1)), false, keeps, reader);
        // It becomes a cached short rule when it is met again.
        rule.ok()?.short()
    }

    /// Whether the rule for a key is cached when it is found: with probed reads from the second time on. A program that
    /// has prepared nothing needs few rules twice, and each costs it a cache line, and perhaps a page.
    #[inline(always)]
    fn keeps_rule(&self, key: u64, reader: &Reader<'_>) -> bool {
        !reader.is_probed() || MET.again(key, self.current.rules_key)
    }

    /// The rule of a pc that no table covers and that is met for the first time, from the object's unwind data, which
    /// is interpreted in place. `keeps`: it is cached. `lookup`: the address to search with.
    #[inline(never)]
    fn interpret(
        &mut self,
        (lookup, pc): (u64, u64),
        exact: bool,
        keeps: bool,
        reader: &mut Reader<'_>,
    ) -> Result<Form, StopReason> {
        let Some(object) = self.current.object() else { return Err(StopReason::NoOwner) };
        let key = key_of(lookup, exact);
        if !object.code.may_hold(lookup) {
            RULES.put(key, self.current.rules_key, Packed::failed(StopReason::NotCode).words());
            return Err(StopReason::NotCode);
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
        if keeps {
            RULES.put(key, self.current.rules_key, rule.map_or_else(Packed::failed, Form::pack).words());
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
        let cached = RULES.get(key, self.current.rules_key).and_then(Packed::from_words);
        let rule = cached.or_else(|| self.current.rule_at(lookup)).unwrap_or_else(|| {
            let keeps = self.keeps_rule(key, reader);
            self.interpret((lookup, pc), cursor.exact, keeps, reader).map_or_else(Packed::failed, Form::pack)
        });
        if rule.failed_for(StopReason::NotCode) {
            return not_code::in_data(cursor, reader);
        }
        if rule.failed_for(StopReason::NoRule) {
            let recognised = uunwind_sources::by_registers_or_bytes(cursor, reader);
            return recognised.map_or_else(|| not_code::undescribed(cursor, self, reader), Packed::from_result);
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
