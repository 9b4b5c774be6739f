//! What a walk needs of an object at each frame. Adjacent frames often lie in the same object, so it is looked up only
//! where the object changes.

use crate::env::sources;
use uunwind_core::cache::short::Short;
use uunwind_core::memory::Reader;
use uunwind_core::objects::Object;
use uunwind_core::rule::{is_final, Packed};
use uunwind_core::span::Span;
use uunwind_tables::{Table, TableAnswer};

/// The object that the current frame lies in.
#[derive(Clone, Copy)]
pub(crate) struct Current {
    /// Its first address (process address).
    pub(crate) start: u64,
    /// Its length in bytes; 0: no object, so that every address lies outside.
    pub(crate) len: u64,
    /// The generation of its load.
    pub(crate) generation: u64,
    /// The key that its rules are cached under, in place of a generation: the generation, a bit once there is a rule
    /// table, and the index of the plugin that gives rules for it.
    pub(crate) rules_key: u64,
    /// Index of the plugin that claims it, or [`uunwind_core::walk::EMBEDDER`] if only an embedder has marked code in
    /// it; 0: there is no claim.
    pub(crate) plugin: u32,
    /// The plugin gives rules, which take precedence over the table.
    pub(crate) plugin_first: bool,
    /// The object's rule table, if it has one.
    pub(crate) table: Option<Table<'static>>,
    /// An embedder has marked code in it.
    pub(crate) marked: bool,
    /// An entry of the table of objects, or `Live::spare`; null: no object.
    pub(crate) object: *const Object,
}

/// The state before the first frame, and where no object covers the frame.
pub(crate) fn nowhere() -> Current {
    Current {
        start: 0,
        len: 0,
        generation: 0,
        rules_key: 0,
        plugin: 0,
        plugin_first: false,
        table: None,
        marked: false,
        object: core::ptr::null(),
    }
}

impl Current {
    /// The object, if there is one.
    pub(crate) fn object(&self) -> Option<&Object> {
        // SAFETY: entries of the table are never freed. `Live::spare` is overwritten only after `Live::go_to` has
        // replaced the `Current` that points to it, and a `Live` does not move during its walk.
        unsafe { self.object.as_ref() }
    }

    /// Whether the frame lies in an object that has no claim, as most do.
    #[inline(always)]
    pub(crate) fn is_unclaimed_object(&self) -> bool {
        self.len != 0 && self.plugin == 0
    }

    /// The load bias: process address minus file address.
    #[inline(always)]
    fn bias(&self) -> u64 {
        self.object().map_or(0, |object| object.bias)
    }

    /// The short rule that the object's table has for the process address `lookup`.
    #[cold]
    #[inline(never)]
    pub(crate) fn short_rule_at(&self, lookup: u64) -> Option<Short> {
        match self.table.as_ref()?.find(lookup.wrapping_sub(self.bias())) {
            TableAnswer::Short(rule) => Some(rule),
            TableAnswer::Long(rule) => Short::of(rule),
            _ => None,
        }
    }

    /// Has what [`Current::short_rule_at`] will read of the table loaded.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub(crate) fn prefetch(&self, lookup: u64) {
        if let Some(table) = &self.table {
            table.prefetch(lookup.wrapping_sub(self.bias()));
        }
    }

    /// The rule that the object's table has for a process address.
    #[inline(always)]
    pub(crate) fn rule_at(&self, lookup: u64) -> Option<Packed> {
        match self.table.as_ref()?.find(lookup.wrapping_sub(self.bias())) {
            TableAnswer::Short(rule) => Some(rule.pack()),
            // The table may say why there is no rule; another source may still have one.
            TableAnswer::Long(rule) if !rule.is_failed() || is_final(rule) => Some(rule),
            _ => None,
        }
    }

    /// Why the process address has no rule in the object's table although unwind information describes it.
    pub(crate) fn described_without_rule(&self, lookup: u64) -> Option<Packed> {
        self.table.as_ref()?.described_without_rule(lookup.wrapping_sub(self.bias()))
    }

    /// The range of the function that covers a process address, as process addresses: by the table, else by the
    /// object's unwind data.
    pub(crate) fn function_at(&self, address: u64, reader: &mut Reader<'_>) -> Option<Span> {
        if let Some(Span { start, end }) =
            self.table.as_ref().and_then(|t| t.function(address.wrapping_sub(self.bias())))
        {
            return Some(Span::new(start.wrapping_add(self.bias()), end.wrapping_add(self.bias())));
        }
        uunwind_sources::function(&sources(self.object()?), address, reader)
    }
}
