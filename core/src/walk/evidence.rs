//! What speaks against a step or an end that looks plausible: other data of the process that contradicts it.

use super::Env;
use crate::call_site;
use crate::cursor::Cursor;
use crate::memory::Reader;
use crate::plugin::OWNER_OBJECT;
use crate::stop_reason::StopReason;

/// Number of words above a return address of null that are looked at. A buffer that was overrun is rarely larger.
const WORDS_ABOVE: u64 = 64;
/// No code lies below this address.
const LOWEST: u64 = 0x10000;

/// Whether the frame to which a frame pointer has led did not call the function at `lookup`, of which nothing is known:
/// the call there names another function. Code without frames leaves the frame pointer of a caller in its register, and
/// the callers between the two would be missing. A function that was called and jumped on instead of calling cannot be
/// distinguished from that.
#[cold]
#[inline(never)]
pub(super) fn called_another<E: Env>(env: &mut E, lookup: u64, caller: &Cursor, reader: &mut Reader<'_>) -> bool {
    let Some(target) = call_site::direct_target(caller.regs.pc, reader) else { return false };
    let was = reader.pause(true);
    let is_another = env.function_at(lookup, reader).is_none()
        && env.function_at(target, reader).is_some_and(|function| !function.contains(lookup));
    reader.pause(was);
    is_another
}

/// Whether return addresses lie above a frame with this CFA whose own return address is null: then that was
/// overwritten, and is not the beginning of a stack that user code made.
#[cold]
#[inline(never)]
pub(super) fn has_callers_above<E: Env>(env: &mut E, cfa: Result<u64, StopReason>, reader: &mut Reader<'_>) -> bool {
    let Ok(cfa) = cfa else { return false };
    let was = reader.pause(true);
    let mut found = false;
    for at in (0..WORDS_ABOVE).map(|n| cfa.wrapping_add(n * 8)) {
        let Some(word) = reader.word(at) else { break };
        // The owner last: a walk that has asked for one of an unowned address is not kept for the next to replay.
        let is_code = word >= LOWEST && word >> 47 == 0 && call_site::precedes(word, reader);
        found = is_code && env.owner(word, reader).kind == OWNER_OBJECT;
        if found {
            break;
        }
    }
    reader.pause(was);
    found
}
