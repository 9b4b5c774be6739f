//! Rules by functions that are not ours: a plugin's `rule`, asked once for a pc.

use core::ffi::c_void;
use core::mem::size_of;
use uunwind_core::cursor::Cursor;
use uunwind_core::memory::{Reader, ANSWER, KEY};
use uunwind_core::plugin::{CRule, Caller, Description, GiveRule, Host, Owner, View, ABI};
use uunwind_core::recovery::{Call, Protector};
use uunwind_core::reuse::PointState;
use uunwind_core::rule::Rule;
use uunwind_core::stop_reason::StopReason;
use uunwind_core::walk::Claim;

/// The function's rule for the frame in hand; `None`: it has none. `Err`: the call failed, or the answer is nonsense. The view
/// has no registers, and its host functions only read: an answer may depend on the pc, the facts, the user pointer, and
/// memory that does not change while the object is loaded.
#[inline(never)]
pub fn ask(
    give: GiveRule,
    claim: &Claim,
    cursor: &Cursor,
    reader: &mut Reader<'_>,
    protector: Protector,
) -> Result<Option<Rule>, StopReason> {
    let mut view = View::new();
    view.exact = u32::from(cursor.exact);
    view.pc = cursor.regs.pc;
    view.sp = cursor.regs.sp();
    view.plugin = u32::from(claim.index);
    view.facts = claim.facts;
    view.facts_len = claim.facts_len;
    view.bias = claim.bias;
    (view.range_start, view.range_end) = claim.range;
    view.generation = claim.generation;
    view.user = claim.user;
    view.host = &HOST;
    view.walk = core::ptr::from_mut(reader).cast();
    let mut rule = CRule::simple(0, 0);
    let call = Call::new(give as *const () as usize, [(&raw mut view) as u64, (&raw mut rule) as u64]);
    // SAFETY: the function was negotiated; it may be left at any instruction, since it can have changed nothing but the rule.
    match unsafe { protector.call(&call) }? as u32 {
        0 => Ok(None),
        1 => rule.to_rule().map(Some).ok_or(StopReason::PluginNonsense),
        _ => Err(StopReason::PluginNonsense),
    }
}

/// What a rule may call, with the reader as its walk: everything but the reads answers that there is nothing.
static HOST: Host = Host {
    size: size_of::<Host>() as u32,
    abi: ABI,
    read_word,
    read,
    find_name,
    describe,
    emit,
    learned,
    lookup,
    native_step,
    read_words,
    recall,
    remember,
    rest_is_known,
    emit_all,
    lend_reader,
};

unsafe extern "C" fn read_word(reader: *mut c_void, address: u64, out: *mut u64) -> bool {
    // SAFETY: plugins pass back View::walk, which is `ask`'s reader, during the call only.
    let Some(word) = (unsafe { (*reader.cast::<Reader<'_>>()).word(address) }) else { return false };
    // SAFETY: the plugin passes a place for one word.
    unsafe { out.write(word) };
    true
}

unsafe extern "C" fn read(reader: *mut c_void, address: u64, out: *mut u8, len: usize) -> bool {
    // SAFETY: as above; the plugin passes a place for `len` bytes.
    unsafe { (*reader.cast::<Reader<'_>>()).read_raw(address, out, len) }
}

unsafe extern "C" fn read_words(
    reader: *mut c_void,
    address: u64,
    offsets: *const u32,
    count: usize,
    out: *mut u64,
) -> bool {
    // SAFETY: as above; the plugin passes `count` offsets and a place for as many words.
    unsafe { (*reader.cast::<Reader<'_>>()).words_raw(address, offsets, count, out) }
}

unsafe extern "C" fn recall(_: *mut c_void, _: *const [u64; KEY], _: *mut [u64; ANSWER]) -> bool {
    false
}

unsafe extern "C" fn remember(_: *mut c_void, _: *const [u64; KEY], _: *const [u64; ANSWER]) {}

unsafe extern "C" fn rest_is_known(_: *mut c_void, _: u64, _: *const PointState) -> bool {
    false
}

unsafe extern "C" fn find_name(_: *mut c_void, _: u64, _: u64) -> u32 {
    0
}

unsafe extern "C" fn describe(_: *mut c_void, _: *const Description) -> u32 {
    0
}

unsafe extern "C" fn emit(_: *mut c_void, _: u32, _: u64) -> bool {
    false
}

unsafe extern "C" fn emit_all(_: *mut c_void, _: *const [u64; 2], _: usize) -> bool {
    false
}

unsafe extern "C" fn lend_reader(_: *mut c_void, _: u64) -> *mut c_void {
    core::ptr::null_mut()
}

unsafe extern "C" fn learned(_: *mut c_void) {}

unsafe extern "C" fn lookup(_: *mut c_void, _: u64, out: *mut Owner) {
    // SAFETY: the plugin passes a place for an owner.
    unsafe { out.write(Owner::NOBODY) };
}

unsafe extern "C" fn native_step(_: *mut c_void, _: *mut Caller) -> i32 {
    -i32::from(StopReason::NoRule.number())
}
