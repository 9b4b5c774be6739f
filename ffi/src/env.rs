//! The surroundings of a walk in a live process: which source answers for a pc.

use crate::state::{OBJECTS, PLUGINS, REGISTRY, RULES};
use core::ffi::c_void;
use core::sync::atomic::Ordering;
use uunwind_core::cursor::Cursor;
use uunwind_core::library::{Client, RESULT_FACTS_PENDING};
use uunwind_core::memory::Reader;
use uunwind_core::objects::{Memo, Object, FACTS_SETTLED};
use uunwind_core::plugin::Description;
use uunwind_core::registry::snapshot::Kind;
use uunwind_core::rule::{Packed, Rule};
use uunwind_core::rule_cache::{Cached, Extent};
use uunwind_core::stop_reason::StopReason;
use uunwind_core::walk::{Claim, Env, Found};

/// Marks a key of the rule cache as an exact pc's: a rule may depend on the pc itself, not only on where it was looked up.
const EXACT: u64 = 1 << 63;

/// A live process, seen through its loader; with the sampler's functions, when there is one.
pub struct Live<'c> {
    memo: Memo<'static>,
    client: Option<(&'c Client, *mut c_void)>,
    epoch: u32,
    /// `RESULT_*` gathered so far.
    pub result: u32,
}

impl<'c> Live<'c> {
    /// For one walk.
    pub fn new(client: Option<(&'c Client, *mut c_void)>, epoch: u32) -> Live<'c> {
        Live { memo: Memo::default(), client, epoch, result: 0 }
    }

    #[inline(always)]
    fn report(&self, object: &Object) {
        let Some((client, context)) = self.client else { return };
        if object.reported.load(Ordering::Relaxed) != self.epoch {
            // SAFETY: the sampler's function and context.
            if unsafe { (client.object_seen)(context, object) } {
                object.reported.store(self.epoch, Ordering::Relaxed);
            }
        }
    }

    /// Looks for the object's facts if they were not found before and some have been published since.
    #[cold]
    #[inline(never)]
    fn settle_facts(&mut self, object: &Object) {
        let Some((client, context)) = self.client else { return };
        // SAFETY: the sampler's functions and context.
        let count = unsafe { (client.facts_count)(context) };
        if object.facts_asked.load(Ordering::Relaxed) != count {
            let (mut bytes, mut len) = (core::ptr::null(), 0);
            // SAFETY: as above; both places are ours.
            let plugin = unsafe { (client.facts)(context, object.facts_key, &raw mut bytes, &raw mut len) };
            object.facts_asked.store(count, Ordering::Relaxed);
            if let Ok(plugin) = u32::try_from(plugin) {
                object.facts.store(bytes.cast_mut(), Ordering::Relaxed);
                object.facts_len.store(len, Ordering::Relaxed);
                object.plugin.store(plugin, Ordering::Release);
                object.facts_state.store(FACTS_SETTLED, Ordering::Release);
                return;
            }
        }
        self.result |= RESULT_FACTS_PENDING;
    }

    fn claim(&self, object: &Object) -> Option<Claim> {
        let index = object.plugin.load(Ordering::Acquire);
        if index == 0 {
            return None;
        }
        // SAFETY: a plugin's table lives as long as the process.
        let plugin = unsafe { PLUGINS.get(index as usize)?.load(Ordering::Acquire).as_ref() }?;
        Some(Claim {
            plugin,
            index: index as u8,
            facts: object.facts.load(Ordering::Relaxed),
            facts_len: object.facts_len.load(Ordering::Relaxed),
            bias: object.bias,
        })
    }
}

impl Env for Live<'_> {
    #[inline(always)]
    fn find(&mut self, cursor: &Cursor, reader: &mut Reader<'_>) -> Found {
        let lookup = cursor.lookup_pc();
        let Some(object) = OBJECTS.find(lookup, &mut self.memo, reader) else {
            return window(cursor, lookup);
        };
        self.report(object);
        if object.facts_state.load(Ordering::Acquire) != FACTS_SETTLED && self.client.is_some() {
            self.settle_facts(object);
        }
        let key = if cursor.exact { lookup | EXACT } else { lookup };
        let cached = match RULES.get(key, object.generation) {
            Some(cached) => cached,
            None => interpret(object, key, lookup, cursor.regs.pc, reader),
        };
        let rule = if cached.rule.failed_for(StopReason::NoRule) {
            by_frame_pointer(cursor, StopReason::NoRule)
        } else {
            cached.rule
        };
        Found { rule, function: cached.function, claim: self.claim(object) }
    }

    fn find_name(&mut self, _plugin: u8, code: u64, fingerprint: u64) -> u32 {
        let Some((client, context)) = self.client else { return 0 };
        // SAFETY: the sampler's function and context.
        unsafe { (client.find_name)(context, code, fingerprint) }
    }

    fn describe(&mut self, plugin: u8, description: &Description, reader: &mut Reader<'_>) -> u32 {
        let Some((client, context)) = self.client else { return 0 };
        let reader = core::ptr::from_mut(reader).cast::<c_void>();
        // SAFETY: as above; `read_for_client` gets this very reader, during the call only.
        unsafe { (client.describe)(context, u32::from(plugin), description, read_for_client, reader) }
    }

    fn learned(&mut self, _plugin: u8) {}
}

/// A pc met for the first time: its object's unwind data is interpreted in place, and the rule remembered.
#[cold]
#[inline(never)]
fn interpret(object: &Object, key: u64, lookup: u64, pc: u64, reader: &mut Reader<'_>) -> Cached {
    let extent = |(start, end)| Extent::around(lookup, start, end);
    let cached = match uunwind_eh_frame::find(object.eh_frame_hdr, object.image, lookup, pc, reader) {
        Ok(answer) => Cached { rule: Packed::from_result(answer.rule), function: extent(answer.function) },
        Err(reason) => Cached { rule: Packed::failed(reason), function: Extent::UNKNOWN },
    };
    RULES.put(key, object.generation, &cached);
    cached
}

/// No other source has a rule: the frame pointer, if it can be one.
#[cold]
#[inline(never)]
fn by_frame_pointer(cursor: &Cursor, reason: StopReason) -> Packed {
    Packed::from_result(uunwind_frame_pointer::rule(cursor, reason))
}

/// A pc that no loaded object covers: a window's, or nobody's.
#[cold]
#[inline(never)]
fn window(cursor: &Cursor, lookup: u64) -> Found {
    // SAFETY: every caller of `Live` walks inside a slot entered with the registry's epoch, and the window is copied.
    let window = unsafe { REGISTRY.windows() }.and_then(|windows| windows.find(lookup)).copied();
    let rule = match window.map(|window| window.kind) {
        None => by_frame_pointer(cursor, StopReason::NoOwner),
        Some(Kind::Opaque) => Packed::failed(StopReason::OpaqueWindow),
        // The registrar vouches for its frame pointers, so what is found so is not marked.
        Some(Kind::FramePointer) => {
            let rule = uunwind_frame_pointer::rule(cursor, StopReason::UnknownRegister);
            Packed::from_result(rule.map(|rule| Rule { flags: 0, ..rule }))
        }
    };
    Found { rule, function: Extent::UNKNOWN, claim: None }
}

unsafe extern "C" fn read_for_client(reader: *mut c_void, address: u64, out: *mut u8, len: usize) -> bool {
    // SAFETY: `describe` passes its reader; the client passes room for `len` bytes.
    unsafe { (*reader.cast::<Reader<'_>>()).read_raw(address, out, len) }
}
