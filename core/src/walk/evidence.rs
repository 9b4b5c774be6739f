//! What speaks for or against a step or an end: other data of the process that confirms or contradicts it.

use super::{Env, Setting};
use crate::call_site;
use crate::cursor::Cursor;
use crate::memory::Reader;
use crate::regs::{CALLEE_SAVED_MASK, UCONTEXT_STACK};
use crate::rule::Packed;
use crate::stop_reason::StopReason;

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

/// The CFA of the direct caller of an interrupted function, if it counts from a register that functions may change
/// without saving it, by the value at the interruption. A compiler makes no such rows for return addresses; assembly
/// has them where it knows that its own inner function leaves the register alone (OpenSSL's `aesni_gcm_encrypt`). Since
/// the callee does not say so, the return address must stand after a call of this very caller.
#[cold]
#[inline(never)]
pub(super) fn cfa_from_callee<E: Env>(
    env: &mut E,
    rule: Packed,
    cursor: &Cursor,
    reader: &mut Reader<'_>,
) -> Result<u64, StopReason> {
    const UNKNOWN: Result<u64, StopReason> = Err(StopReason::UnknownRegister);
    let (register, offset) = rule.cfa_parts();
    let Some(value) = cursor.regs.values().get(usize::from(register)) else { return UNKNOWN };
    let cfa = value.wrapping_add_signed(i64::from(offset));
    if CALLEE_SAVED_MASK >> register & 1 != 0 || cfa <= cursor.regs.sp() || cfa & 7 != 0 {
        return UNKNOWN;
    }
    let Some(at) = rule.return_address_at(cfa) else { return UNKNOWN };
    let was = reader.pause(true);
    let target = reader.word(at).and_then(|caller| call_site::fixed_target(caller, reader));
    let function = target.and_then(|target| env.function_at(target, reader));
    let is_called = function.is_some_and(|function| function.contains(cursor.regs.pc.wrapping_sub(1)));
    reader.pause(was);
    if is_called {
        Ok(cfa)
    } else {
        UNKNOWN
    }
}

/// Whether the frame at `pc`, a return address, is the first of its stack although no rule says so, or is called by
/// that one: the first word of the next few above the stack pointer that can be a return address at all is then one
/// where a thread or a program begins ([`call_site::begins_stack`]). musl's `start`, which runs a thread's function and
/// never returns, is such a frame.
#[cold]
#[inline(never)]
pub(super) fn is_base(pc: u64, cursor: &Cursor, reader: &mut Reader<'_>) -> bool {
    const WORDS: u64 = 8;
    if call_site::begins_stack(pc, reader) {
        return true;
    }
    let was = reader.pause(true);
    let mut is_base = false;
    for at in 0..WORDS {
        let Some(word) = reader.word(cursor.regs.sp().wrapping_add(at * 8)) else { break };
        if call_site::precedes(word, reader) {
            is_base = call_site::begins_stack(word, reader);
            break;
        }
    }
    reader.pause(was);
    is_base
}

/// The alternate signal stack that a signal's frame lies on: its start and size. It is the thread's as long as the
/// handler runs on it: the kernel refuses to replace it meanwhile
/// ([sigaltstack(2)](https://man7.org/linux/man-pages/man2/sigaltstack.2.html)). But a handler that saves its state
/// (sigsetjmp), returns, and is jumped back into, leaves a frame that leads nowhere, on a stack that the thread has
/// replaced by then: so GNU Pth and QEMU make coroutines. `None`: the frame lies on no such stack, or on one with
/// SS_AUTODISARM, which may be replaced.
pub(super) fn alternate_stack_at(rule: Packed, cursor: &Cursor, reader: &mut Reader<'_>) -> Option<(u64, u64)> {
    const SS_AUTODISARM: u64 = 1 << 31;
    let (register, offset) = rule.cfa_parts();
    let ucontext = cursor.regs.get(register)?.wrapping_add_signed(i64::from(offset));
    let (stack, flags) = stack_of(ucontext, reader)?;
    let (start, size) = stack;
    (ucontext.wrapping_sub(start) < size && flags & SS_AUTODISARM == 0).then_some(stack)
}

/// The walked thread's alternate signal stack where the walk begins: its start and size, both 0 if there is none. A
/// handler may have switched to a stack of its own since then, and have replaced it. `None`: it is not known.
pub(super) fn alternate_stack<E: Env>(env: &E, setting: &Setting, reader: &mut Reader<'_>) -> Option<(u64, u64)> {
    if setting.ucontext.is_null() {
        return env.alternate_stack();
    }
    stack_of(setting.ucontext as u64, reader).map(|(stack, _)| stack)
}

/// Start, size and flags of `uc_stack`.
fn stack_of(ucontext: u64, reader: &mut Reader<'_>) -> Option<((u64, u64), u64)> {
    let was = reader.pause(true);
    let [start, flags, size] = [0, 8, 16].map(|at| reader.word(ucontext.wrapping_add(UCONTEXT_STACK + at)));
    reader.pause(was);
    Some(((start?, size?), flags?))
}
