//! Where the rule of a frame in an object comes from, if no short one is remembered: the plugin that claims the object, its table, what is
//! remembered, its unwind data, the frame pointer.

use super::{by_frame_pointer, key, sources, Live};
use crate::current::STEPPER;
use crate::foreign_rule;
use crate::state::{PLUGINS, RULES, SHORT_RULES};
use crate::strays;
use uunwind_core::cursor::Cursor;
use uunwind_core::memory::Reader;
use uunwind_core::registry::window::UNTOLD;
use uunwind_core::rule::{Packed, Rule, BY_FRAME_POINTER};
use uunwind_core::short_rule::Short;
use uunwind_core::stop_reason::StopReason;
use uunwind_core::walk::Env;
use uunwind_native::Answer;

impl Live<'_> {
    /// The rule that the object's table has for the frame in hand, unless a plugin is to be asked first.
    #[inline(always)]
    pub(super) fn by_table(&self, cursor: &Cursor) -> Option<Packed> {
        if self.current.plugin_first {
            return None;
        }
        self.current.rule_at(cursor.lookup_pc())
    }

    /// An interrupted pc of a caller's walk, for whose next capture its rule is remembered among the short ones
    /// ([`uunwind_core::chain::Chain::whole`]), where nobody else asks for exact ones.
    #[inline(always)]
    pub(super) fn remember_exact(&self, cursor: &Cursor) {
        if cursor.exact && self.current.plugin == 0 && self.salts.stamp().is_some() {
            let known = self.current.remember(cursor.lookup_pc(), key(cursor), self.salts.salt());
            known.or_else(|| self.remember_known(key(cursor)));
        }
    }

    /// The short rule for a key, if its rule is known in the larger form from when the salt was another one; remembered.
    #[cold]
    #[inline(never)]
    pub(super) fn remember_known(&self, key: u64) -> Option<Short> {
        let rule = RULES.get(key, self.current.rules).and_then(Packed::from_words).and_then(Short::of)?;
        SHORT_RULES.put(key, self.salts.salt(), rule);
        Some(rule)
    }

    /// A pc met for the first time, that no table tells of: its object's unwind data is interpreted in place, and the rule
    /// remembered. Or one that has no rule.
    #[cold]
    #[inline(never)]
    pub(super) fn slow(&mut self, cursor: &Cursor, reader: &mut Reader<'_>) -> Packed {
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
            if let (Ok(Answer { rule: Ok(rule), .. }), 0) = (&answer, self.current.plugin) {
                let end = Short::of_end().filter(|_| *rule == Rule::end());
                let asked = !cursor.exact || self.salts.stamp().is_some();
                if let Some(short) = end.or_else(|| Short::new(rule)).filter(|_| asked) {
                    SHORT_RULES.put(key, self.salts.salt(), short);
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
    pub(super) fn ask_strays(&mut self, rule: Packed) {
        if self.current.plugin != STEPPER {
            let untold = self.windows.here().is_some_and(|held| held.window().flags & UNTOLD != 0);
            let guessed = untold || rule.flags() & BY_FRAME_POINTER != 0 || rule.failed_for(StopReason::NoOwner);
            self.stray = if guessed { strays::after(0) } else { 0 };
            self.current.plugin = u32::from(self.stray);
        }
    }

    /// The rule that the plugin gives which claims the object of the frame in hand, if it gives rules; remembered.
    pub(super) fn by_plugin(&mut self, cursor: &Cursor, reader: &mut Reader<'_>) -> Option<Packed> {
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
