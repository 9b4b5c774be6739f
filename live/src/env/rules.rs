//! The sources of the rule of a frame in an object for which no short rule is cached. `docs/design/rules.md` has their
//! order, with every branch; `Live::any_rule` has the first steps.

use super::{by_frame_pointer, key, sources, Live};
use crate::not_code;
use crate::plugin_rule;
use crate::state::{PLUGINS, RULES, SHORT_RULES};
use uunwind_core::cache::short::Short;
use uunwind_core::call_site;
use uunwind_core::cursor::Cursor;
use uunwind_core::memory::{guarded, Reader};
use uunwind_core::rule::Packed;
use uunwind_core::stop_reason::StopReason;
use uunwind_core::walk::Env;
use uunwind_sources::Answer;

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
        if call_site::precedes(pc, reader) {
            return false;
        }
        let was = reader.pause(true);
        let function = self.current.function_at(pc, reader);
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

    /// Caches the short rule for a key whose rule the larger cache still has, from a time when the salt was another
    /// one.
    #[cold]
    #[inline(never)]
    pub(super) fn remember_long(&self, key: u64) -> Option<Short> {
        let rule = RULES.get(key, self.current.rules_key).and_then(Packed::from_words).and_then(Short::of)?;
        SHORT_RULES.put(key, self.salts.salt(), rule);
        Some(rule)
    }

    /// The rule of a pc that no table covers and that is met for the first time: the object's unwind data is
    /// interpreted in place, and the rule cached. Also handles a pc without a rule.
    #[cold]
    #[inline(never)]
    pub(super) fn slow(&mut self, cursor: &Cursor, reader: &mut Reader<'_>) -> Packed {
        let Some(object) = self.current.object() else { return Packed::failed(StopReason::NoOwner) };
        let (key, lookup, pc) = (key(cursor), cursor.lookup_pc(), cursor.regs.pc);
        let cached = RULES.get(key, self.current.rules_key).and_then(Packed::from_words);
        let rule = cached.or_else(|| self.current.rule_at(lookup)).unwrap_or_else(|| {
            if !object.code.may_hold(lookup) {
                let rule = Packed::failed(StopReason::NotCode);
                RULES.put(key, self.current.rules_key, rule.words());
                return rule;
            }
            let was = reader.pause(true);
            reader.begin_image(object.image, self.current.generation, object.last_page);
            let (mut answer, _) = uunwind_sources::find(&sources(object), lookup, pc, reader);
            if answer == Err(StopReason::NoRule) && cursor.exact {
                if let Some(load) = guarded::load_of(pc) {
                    (answer, _) = uunwind_sources::find(&sources(object), load, load, reader);
                }
            }
            if answer == Err(StopReason::NoRule) && !cursor.exact {
                // No call has pushed this return address: it is the first byte of a function. It begins a stack, as
                // makecontext(3) does.
                if self.current.function_at(pc, reader).is_some_and(|function| function.start == pc) {
                    answer = Err(StopReason::StartSymbol);
                } else if !call_site::precedes(pc, reader) {
                    // An address in code without unwind information, as coroutine libraries write it.
                    answer = Err(StopReason::SwitchedStack);
                }
            }
            if let (Ok(Answer { rule: Ok(rule), .. }), 0) = (&answer, self.current.plugin) {
                let asked = !cursor.exact || self.salts.stamp().is_some();
                if let Some(short) = Short::of_any(rule).filter(|_| asked) {
                    SHORT_RULES.put(key, self.salts.salt(), short);
                }
            }
            let rule = match answer {
                Ok(answer) => Packed::from_result(answer.rule),
                Err(reason) => Packed::failed(reason),
            };
            RULES.put(key, self.current.rules_key, rule.words());
            reader.end_image();
            reader.pause(was);
            if self.current.table.is_none() && !rule.is_failed() {
                self.interpreted = self.interpreted.wrapping_add(1);
            }
            rule
        });
        if rule.failed_for(StopReason::NotCode) {
            return not_code::in_data(cursor, reader);
        }
        if rule.failed_for(StopReason::NoRule) {
            let recognised = uunwind_sources::by_registers_or_bytes(cursor, reader);
            return recognised.map_or_else(|| by_frame_pointer(cursor, StopReason::NoRule), Packed::from_result);
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
