//! AArch64: `bl` and `blr`, with and without pointer authentication (Arm ARM, C6.2).

use super::Target;
use crate::memory::Reader;
use crate::regs::Regs;

/// Where a call's target comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Call {
    /// The called process address, from the instruction itself.
    Direct(u64),
    /// The register with this number.
    Register(u8),
}

/// Whether `accept` takes the call before `return_address`, if there is one.
pub(super) fn any_call(
    return_address: u64,
    reader: &mut Reader<'_>,
    mut accept: impl FnMut(Call, &mut Reader<'_>) -> bool,
) -> bool {
    let at = return_address.wrapping_sub(4);
    let Some(instruction) = reader.u32(at).filter(|_| at & 3 == 0) else { return false };
    let call = if instruction & 0xfc00_0000 == 0x9400_0000 {
        let distance = i64::from((instruction << 6) as i32 >> 4);
        Call::Direct(at.wrapping_add_signed(distance))
    } else if instruction & 0xffff_fc1f == 0xd63f_0000 || instruction & 0xfeff_f800 == 0xd63f_0800 {
        // blr; blraa, blrab and their forms without a modifier.
        Call::Register((instruction >> 5) as u8 & 31)
    } else {
        return false;
    };
    accept(call, reader)
}

/// See [`super::begins_stack`].
pub(super) fn begins_stack(return_address: u64, reader: &mut Reader<'_>) -> bool {
    /// `mov x8, #93 (SYS_exit); svc #0`
    /// ([musl, src/thread/aarch64/clone.s](https://git.musl-libc.org/cgit/musl/tree/src/thread/aarch64/clone.s)).
    /// `_start` calls nothing there: it jumps on, without a return address.
    const EXIT: u64 = 0xd400_0001_d280_0ba8;
    reader.word(return_address) == Some(EXIT)
}

/// The call's target, if no register determines it, and no stub of a linkage table stands there: one begins with an
/// `adrp` to x16, after `bti` perhaps.
pub(super) fn fixed_target(call: Call, reader: &mut Reader<'_>) -> Option<u64> {
    const BTI: u32 = 0xd503_241f;
    let Call::Direct(called) = call else { return None };
    let first = match reader.u32(called)? {
        hint if hint & 0xffff_ff3f == BTI => reader.u32(called.wrapping_add(4))?,
        other => other,
    };
    (first & 0x9f00_001f != 0x9000_0010).then_some(called)
}

/// The call's target, given the registers at its first instruction.
pub(super) fn target(call: Call, regs: &Regs, _reader: &mut Reader<'_>) -> Option<u64> {
    match call {
        Call::Direct(target) => Some(target),
        Call::Register(register) => regs.get(register),
    }
}

/// See [`Target`].
pub(super) fn target_of(call: Call, _: u64, _: &Regs, _: &mut Reader<'_>) -> Target {
    match call {
        Call::Direct(target) => Target::At(target),
        Call::Register(register) => Target::In(register),
    }
}

/// The target of a `b`.
pub(super) fn through_jump(target: u64, reader: &mut Reader<'_>) -> Option<u64> {
    let instruction = reader.u32(target).filter(|instruction| instruction & 0xfc00_0000 == 0x1400_0000)?;
    Some(target.wrapping_add_signed(i64::from((instruction << 6) as i32 >> 4)))
}

/// Whether a direct jump to `target` begins these bytes, the first of which is at `at`.
pub(super) fn is_jump(bytes: &[u8], at: u64, target: u64) -> bool {
    let Some(instruction) = first(bytes).filter(|it| at & 3 == 0 && it & 0xfc00_0000 == 0x1400_0000) else {
        return false;
    };
    at.wrapping_add_signed(i64::from((instruction << 6) as i32 >> 4)) == target
}

/// Whether these bytes begin with an instruction that sets sp from another register than itself or x29: `mov`, or `add`
/// of a constant.
pub(super) fn loads_stack_pointer(bytes: &[u8]) -> bool {
    let Some(instruction) = first(bytes) else { return false };
    let from = instruction >> 5 & 31;
    instruction & 0xff80_001f == 0x9100_001f && !matches!(from, 29 | 31)
}

fn first(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}
