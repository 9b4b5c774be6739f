//! What is needed of an object at each frame: frames of one object tend to stand together.

use crate::env::sources;
use crate::state::SHORT_RULES;
use uunwind_core::memory::Reader;
use uunwind_core::objects::Object;
use uunwind_core::rule::{Packed, Rule};
use uunwind_core::short_rule::{Salt, Short};
use uunwind_tables::{Found, Table};

/// In the place of a plugin's index: the stepper of the window in hand.
pub(crate) const STEPPER: u32 = u32::MAX;

/// What is needed of an object at each frame.
#[derive(Clone, Copy)]
pub(crate) struct Current {
    pub(crate) start: u64,
    pub(crate) len: u64,
    pub(crate) generation: u64,
    /// As whose rules are remembered: another object's, or with another plugin's rules, are other rules.
    pub(crate) rules: u64,
    /// Of the plugin that claims it, [`uunwind_core::walk::EMBEDDER`] if only an embedder has marked code in it, or [`STEPPER`];
    /// 0: nobody does.
    pub(crate) plugin: u32,
    /// The plugin gives rules, and is asked before the table.
    pub(crate) plugin_first: bool,
    /// The object's rule table, if it has one.
    pub(crate) table: Option<Table<'static>>,
    /// An embedder has marked code in it.
    pub(crate) marked: bool,
    /// In the table of objects or at `Live::spare`; null when there is none.
    pub(crate) object: *const Object,
}

/// Before the first frame, and where no object is.
pub(crate) fn nowhere() -> Current {
    Current {
        start: 0,
        len: 0,
        generation: 0,
        rules: 0,
        plugin: 0,
        plugin_first: false,
        table: None,
        marked: false,
        object: core::ptr::null(),
    }
}

impl Current {
    pub(crate) fn object(&self) -> Option<&Object> {
        // SAFETY: an object of the table stays for ever; the spare one stays as long as this speaks of it (see `Live::switch`),
        // and a walk holds its `Live` in one place.
        unsafe { self.object.as_ref() }
    }

    /// What is subtracted from an address to look it up in the table.
    #[inline(always)]
    fn bias(&self) -> u64 {
        self.object().map_or(0, |object| object.bias)
    }

    /// The short rule that the table has for an address, remembered under `key`: the next time it is one load away.
    #[cold]
    #[inline(never)]
    pub(crate) fn remember(&self, lookup: u64, key: u64, salt: Salt) -> Option<Short> {
        let rule = match self.table.as_ref()?.find(lookup.wrapping_sub(self.bias())) {
            Found::Short(rule) => rule,
            Found::Long(rule) if rule == Rule::end().pack() => Short::of_end()?,
            _ => return None,
        };
        SHORT_RULES.put(key, salt, rule);
        Some(rule)
    }

    /// The rule that the table has for an address.
    #[inline(always)]
    pub(crate) fn rule_at(&self, lookup: u64) -> Option<Packed> {
        match self.table.as_ref()?.find(lookup.wrapping_sub(self.bias())) {
            Found::Short(rule) => Some(rule.pack()),
            // Where the table knows why there is no rule, another source may have one.
            Found::Long(rule) if !rule.is_failed() => Some(rule),
            _ => None,
        }
    }

    /// The function around an address.
    pub(crate) fn function_at(&self, address: u64, reader: &mut Reader<'_>) -> Option<(u64, u64)> {
        if let Some((start, end)) = self.table.as_ref().and_then(|t| t.function(address.wrapping_sub(self.bias()))) {
            return Some((start.wrapping_add(self.bias()), end.wrapping_add(self.bias())));
        }
        uunwind_native::function(&sources(self.object()?), address, reader)
    }
}
