//! What speaks against a step or an end that looks plausible: other data of the process that contradicts it.

use super::{Env, Setting};
use crate::call_site;
use crate::cursor::Cursor;
use crate::memory::Reader;

/// Whether the frame to which a frame pointer has led did not call the function at `pc` (`exact`: as of the cursor), of
/// which nothing is known: the call there names another function. Code without frames leaves the frame pointer of a
/// caller in its register, and the callers between the two would be missing. A function that was called and jumped on
/// instead of calling cannot be distinguished from that.
#[cold]
#[inline(never)]
pub(super) fn called_another<E: Env>(
    env: &mut E,
    (pc, exact): (u64, bool),
    caller: &Cursor,
    reader: &mut Reader<'_>,
) -> bool {
    let lookup = if exact { pc } else { pc.wrapping_sub(1) };
    let Some(target) = call_site::fixed_target(caller.regs.pc, reader) else { return false };
    let was = reader.pause(true);
    let is_another = env.function_at(lookup, reader).is_none()
        && env.function_at(target, reader).is_some_and(|function| !function.contains(lookup));
    reader.pause(was);
    is_another
}

/// Whether the return address that a frame stands for begins no stack, although no call precedes it: it lies on the
/// stack that the thread was started on, where none begins. Something has overwritten it, or pushed it to jump there.
#[cold]
#[inline(never)]
pub(super) fn is_overwritten<E: Env>(env: &mut E, cursor: &Cursor, setting: &Setting, reader: &mut Reader<'_>) -> bool {
    !call_site::precedes(cursor.regs.pc, reader)
        && env.is_on_own_stack(cursor.regs.sp(), setting.thread_pointer, reader)
}
