//! [`Env`] for a live process.

use super::Live;
use crate::fallback_rule;
use crate::in_window;
use crate::own_stack;
use crate::replay_dependencies::changed;
use crate::state::{CHANGES, FUNCTIONS, MET, OBJECTS, PLUGINS, SHORT_RULES};
use crate::unowned;
use core::ffi::c_void;
use core::sync::atomic::Ordering;
use uunwind_core::cache::short::Short;
use uunwind_core::cursor::Cursor;
use uunwind_core::memory::Reader;
#[cfg(target_arch = "x86_64")]
use uunwind_core::memory::StackWords;
use uunwind_core::objects::Answer;
use uunwind_core::plugin::{Description, Owner, OWNER_OBJECT};
use uunwind_core::recovery::Protector;
use uunwind_core::registry::window::Held;
use uunwind_core::rule::Packed;
use uunwind_core::span::Span;
use uunwind_core::stop_reason::StopReason;
use uunwind_core::syscall;
use uunwind_core::walk::{Claim, Delivery, DependsOn, Env, Look, Names, Replay};

impl Env for Live<'_> {
    #[inline(always)]
    fn rule(&mut self, cursor: &Cursor, reader: &mut Reader<'_>) -> Packed {
        let rule = self.rule_unless_guessed(cursor, reader);
        if rule.failed_for(StopReason::NoOwner) && self.current.object().is_none() && self.windows.here().is_none() {
            return self.guess(cursor, reader);
        }
        rule
    }

    #[cold]
    #[inline(never)]
    fn guess(&mut self, cursor: &Cursor, reader: &mut Reader<'_>) -> Packed {
        fallback_rule::unowned(cursor, self, reader)
    }

    #[inline(always)]
    fn may_have_short_rule(&self, lookup: u64, reader: &Reader<'_>) -> bool {
        !self.is_sparing(reader) || MET.has(lookup)
    }

    #[inline(always)]
    fn short_rule_cached(&self, lookup: u64) -> Option<Short> {
        // The salt distinguishes objects, so no check is needed whether the address lies in the current one.
        SHORT_RULES.get_first(lookup, self.salts.salt())
    }

    #[cfg(target_arch = "x86_64")]
    #[cold]
    #[inline(never)]
    fn prefetch_short_rules(&self, sp: u64, bare: impl StackWords) {
        /// Of most frames, the return address is among as many words.
        const WORDS: u64 = 32;
        if self.current.table.is_none() && self.salts.stamp().is_some() {
            // Of addresses that were met before, most rules are cached; the others' are interpreted.
            return;
        }
        let (object, seen) = self.ahead.get();
        let from = if object == self.current.object && seen.wrapping_sub(sp) <= 8 * WORDS { seen } else { sp };
        let until = bare.words_ahead(sp, from, WORDS, |word| {
            if word.wrapping_sub(self.current.start) < self.current.len {
                // Captures do not look there at an address that is new.
                if self.salts.stamp().is_none() || MET.has(word.wrapping_sub(1)) {
                    SHORT_RULES.prefetch_before(word);
                }
                self.current.prefetch(word.wrapping_sub(1));
            }
        });
        self.ahead.set((self.current.object, until));
    }

    #[cold]
    #[inline(never)]
    fn short_rule(&mut self, lookup: u64, reader: &mut Reader<'_>) -> Option<Short> {
        let again = !self.is_sparing(reader) || MET.again(lookup);
        if again {
            let cached = SHORT_RULES.get(lookup, self.salts.salt());
            if cached.is_some() {
                return cached;
            }
        }
        let is_elsewhere = lookup.wrapping_sub(self.current.start) >= self.current.len;
        if is_elsewhere && !self.switch(lookup, reader) || self.current.plugin != 0 {
            return None;
        }
        if self.begins_a_stack(lookup.wrapping_add(1), reader) {
            return None;
        }
        let cached = if is_elsewhere && again { SHORT_RULES.get(lookup, self.salts.salt()) } else { None };
        cached.or_else(|| self.short_rule_of_object(lookup, again, reader))
    }

    #[inline(always)]
    fn look(&mut self, cursor: &Cursor, reader: &mut Reader<'_>) -> Look {
        let rule = self.rule_unless_guessed(cursor, reader);
        if self.current.is_unclaimed_object() {
            return Look::at(rule);
        }
        self.look_further(rule, cursor, reader)
    }

    #[cold]
    #[inline(never)]
    fn next_claim(&mut self, left: &mut Claim) -> bool {
        let next = unowned::of(left).and_then(|_| self.claim_after(left));
        if let Some(next) = next {
            *left = next;
        }
        next.is_some()
    }

    #[inline(never)]
    fn function(&mut self, claim: &Claim, cursor: &Cursor, reader: &mut Reader<'_>) -> Span {
        let (lookup, generation) = (cursor.lookup_pc(), claim.generation);
        if let Some([start, end, _]) = FUNCTIONS.get(lookup, generation) {
            return Span::new(start, end);
        }
        // The claim's stepper may have looked up other addresses.
        if lookup.wrapping_sub(self.current.start) >= self.current.len && !self.switch(lookup, reader) {
            return Span::EMPTY;
        }
        let was = reader.pause(true);
        let function = self.current.function_at(lookup, reader).unwrap_or_default();
        reader.pause(was);
        FUNCTIONS.put(lookup, generation, [function.start, function.end, 0]);
        function
    }

    #[cold]
    #[inline(never)]
    fn function_at(&mut self, address: u64, reader: &mut Reader<'_>) -> Option<Span> {
        if address.wrapping_sub(self.current.start) >= self.current.len && !self.switch(address, reader) {
            return None;
        }
        let object = self.current.object()?;
        reader.begin_image(object.image, self.current.generation, object.last_page);
        let function = self.current.function_at(address, reader);
        reader.end_image();
        function
    }

    fn is_on_own_stack(&mut self, sp: u64, thread_pointer: u64, reader: &mut Reader<'_>) -> bool {
        own_stack::holds(sp, thread_pointer, reader)
    }

    fn alternate_stack(&self) -> Option<(u64, u64)> {
        // Live walks are those of the calling thread.
        syscall::alternate_stack().map(|[start, _, size]| (start, size))
    }

    fn learned(&mut self) {
        changed();
    }

    fn deliver(&mut self, to: Delivery, cursor: &mut Cursor, reader: &mut Reader<'_>) -> bool {
        uunwind_sources::deliver(to, cursor, reader)
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
            ..Owner::NONE
        };
        if let Some(object) = self.current.object() {
            owner.bias = object.bias;
            if self.current.plugin != 0 {
                let claim = object.claim.get().unwrap_or(Answer::NONE);
                (owner.facts, owner.facts_len) = (claim.bytes, claim.len);
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
            // SAFETY: the fault handler and the watchdog of this walk use this recovery point (`Live::new`).
            Some(recovery) => unsafe { Protector::new(recovery, PLUGINS.text(plugin)) },
            None => Protector::none(),
        }
    }

    fn failed(&mut self, claim: &Claim, reason: StopReason) {
        match self.windows.of(claim) {
            Some(held) => self.window_failed(held, reason),
            None => self.call_failed(claim.index, reason, PLUGINS.failed(claim.index)),
        }
    }
}

impl Live<'_> {
    /// As [`Env::failed`], for a window's function.
    pub(crate) fn window_failed(&mut self, held: &Held, reason: StopReason) {
        self.call_failed(0, reason, held.failed());
    }

    /// `off`: after this failure, the functions are called no more.
    fn call_failed(&mut self, plugin: u8, reason: StopReason, off: bool) {
        self.met.unsettled = true;
        changed();
        if let Some((client, context)) = self.client {
            // SAFETY: the sampler's function and context.
            unsafe { (client.plugin_failed)(context, u32::from(plugin), u32::from(reason.number()), off) };
        }
    }
}

impl Names for Live<'_> {
    fn keeps_semantic_frames(&self) -> bool {
        // Captures have native frames only (`uu.h`): they have no client that gives name ids.
        self.client.is_some()
    }

    fn wants_awaiting(&self) -> bool {
        self.awaiting
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
        // SAFETY: as above; `read_for_client` gets this reader, during the call only.
        let id = unsafe { (client.describe)(context, u32::from(plugin), description, read_for_client, at) };
        reader.pause(was);
        // There may be room for it next time.
        self.met.unsettled |= id == 0;
        id
    }
}

impl Replay for Live<'_> {
    fn stamp(&self) -> u64 {
        CHANGES.load(Ordering::Acquire).wrapping_mul(1 << 32) ^ u64::from(self.epoch)
    }

    fn depends_on(&self) -> Option<DependsOn<'_>> {
        let (windows, objects) = (self.met.windows_stamp()?, self.met.objects()?);
        (!self.met.unsettled).then_some(DependsOn { windows, objects })
    }

    fn windows_hold(&self, stamp: u64) -> bool {
        self.met.windows_hold(stamp)
    }

    fn confirm(&mut self, object: u64, reader: &mut Reader<'_>) -> bool {
        // `object` is a generation: see `Met::object`.
        let was = reader.pause(true);
        let loaded = OBJECTS.of_generation(object).filter(|loaded| OBJECTS.confirm(*loaded, reader));
        reader.pause(was);
        let Some(loaded) = loaded else { return false };
        // This object may not have been reported in this recording epoch.
        self.report(loaded.object, object);
        true
    }
}

unsafe extern "C" fn read_for_client(reader: *mut c_void, address: u64, out: *mut u8, len: usize) -> bool {
    // SAFETY: `describe` passes its reader; the client passes room for `len` bytes.
    unsafe { (*reader.cast::<Reader<'_>>()).read_raw(address, out, len) }
}
