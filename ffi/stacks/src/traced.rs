//! A walk that is watched: what each frame is when it is looked at.
//!
//! Such a walk takes nothing over from an earlier one. Unless its watcher is content with less, it uses no short rules,
//! so that it looks at every machine frame by itself.

use uunwind_core::cache::short::Short;
use uunwind_core::cursor::Cursor;
use uunwind_core::memory::{Reader, StackWords};
use uunwind_core::plugin::{Description, Owner};
use uunwind_core::recovery::Protector;
use uunwind_core::rule::Packed;
use uunwind_core::span::Span;
use uunwind_core::stop_reason::StopReason;
use uunwind_core::walk::{Claim, Delivery, DependsOn, Env, Look, Names, Replay};
use uunwind_live::env::Live;

/// Who watches.
pub trait Watcher {
    /// Frames with short rules are not shown.
    const LEAVES_OUT_PLAIN: bool = false;
    /// The walk has reached a machine frame; if it is the last address, it may turn out to be none.
    fn looked(&mut self, cursor: &Cursor, look: &Look, reader: &mut Reader<'_>);
}

/// The process as it is now, seen by a walk that is watched.
pub struct Traced<'e, 'c, W: Watcher> {
    /// The process.
    pub live: &'e mut Live<'c>,
    /// Who watches.
    pub watcher: &'e mut W,
}

impl<W: Watcher> Env for Traced<'_, '_, W> {
    fn rule(&mut self, cursor: &Cursor, reader: &mut Reader<'_>) -> Packed {
        self.live.rule(cursor, reader)
    }
    fn look(&mut self, cursor: &Cursor, reader: &mut Reader<'_>) -> Look {
        let look = self.live.look(cursor, reader);
        self.watcher.looked(cursor, &look, reader);
        look
    }
    #[inline(always)]
    fn short_rule_cached(&self, lookup: u64) -> Option<Short> {
        if W::LEAVES_OUT_PLAIN {
            self.live.short_rule_cached(lookup)
        } else {
            None
        }
    }
    #[inline(always)]
    fn may_have_short_rule(&self, lookup: u64, reader: &Reader<'_>) -> bool {
        W::LEAVES_OUT_PLAIN && self.live.may_have_short_rule(lookup, reader)
    }
    #[inline(always)]
    fn prefetch_short_rules(&self, sp: u64, bare: impl StackWords) {
        if W::LEAVES_OUT_PLAIN {
            self.live.prefetch_short_rules(sp, bare);
        }
    }
    fn short_rule(&mut self, lookup: u64, reader: &mut Reader<'_>) -> Option<Short> {
        if W::LEAVES_OUT_PLAIN {
            self.live.short_rule(lookup, reader)
        } else {
            None
        }
    }
    fn deliver(&mut self, to: Delivery, cursor: &mut Cursor, reader: &mut Reader<'_>) -> bool {
        self.live.deliver(to, cursor, reader)
    }
    fn next_claim(&mut self, left: &mut Claim) -> bool {
        self.live.next_claim(left)
    }
    fn function(&mut self, claim: &Claim, cursor: &Cursor, reader: &mut Reader<'_>) -> Span {
        self.live.function(claim, cursor, reader)
    }
    fn function_at(&mut self, address: u64, reader: &mut Reader<'_>) -> Option<Span> {
        self.live.function_at(address, reader)
    }
    fn is_on_own_stack(&mut self, sp: u64, thread_pointer: u64, reader: &mut Reader<'_>) -> bool {
        self.live.is_on_own_stack(sp, thread_pointer, reader)
    }
    fn alternate_stack(&self) -> Option<(u64, u64)> {
        self.live.alternate_stack()
    }
    fn owner(&mut self, address: u64, reader: &mut Reader<'_>) -> Owner {
        self.live.owner(address, reader)
    }
    fn protector(&self, plugin: u8) -> Protector {
        self.live.protector(plugin)
    }
    fn failed(&mut self, claim: &Claim, reason: StopReason) {
        self.live.failed(claim, reason);
    }
    fn learned(&mut self) {
        self.live.learned();
    }
}

impl<W: Watcher> Names for Traced<'_, '_, W> {
    fn keeps_semantic_frames(&self) -> bool {
        self.live.keeps_semantic_frames()
    }
    fn find_name(&mut self, plugin: u8, code: u64, fingerprint: u64) -> u32 {
        self.live.find_name(plugin, code, fingerprint)
    }
    fn describe(&mut self, plugin: u8, description: &Description, reader: &mut Reader<'_>) -> u32 {
        self.live.describe(plugin, description, reader)
    }
}

/// Nothing is replayed.
impl<W: Watcher> Replay for Traced<'_, '_, W> {
    fn depends_on(&self) -> Option<DependsOn<'_>> {
        None
    }
}
