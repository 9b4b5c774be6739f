//! Functions that deliver an exception: `_Unwind_RaiseException` and related functions in libgcc, under any name.
//!
//! They end in `__builtin_eh_return`, for which they save two registers more than any other function (rax and rdx on
//! x86-64), so their unwind data identifies them. To leave, they first overwrite what their prologue saved, the return
//! address included, with the values of the catching frame (`uw_install_context` in
//! <https://github.com/gcc-mirror/gcc/blob/releases/gcc-12.2.0/libgcc/unwind.inc>), and then load it. In between, their
//! rows describe a caller that is neither the old one nor the new one. So no caller is determined from the call that
//! begins this up to the end of the function. It is the last call but one before the row whose CFA counts from neither
//! the stack pointer nor the frame pointer; the last one is `_Unwind_DebugHook`.

use crate::bytes::Input;
use crate::cpu::X86_64;
use crate::entry::Entry;
use crate::program::first_row;
use crate::row::{Cfa, Kind, Row};
use uunwind_core::regs::{RBP, RSP};

/// Largest distance in bytes from the call to that row: about 120 with shadow stacks (gcc 12 and later), about 50
/// without.
const FARTHEST: u64 = 160;
/// Opcode of `call rel32`, and the instruction's size.
const CALL: u8 = 0xe8;
const CALL_BYTES: u64 = 5;
/// Largest distance of a call within the unwinder, in bytes.
const NEAR: u64 = 1 << 20;

/// Whether the function of this row delivers exceptions.
pub(crate) fn is_by(row: &Row<X86_64>) -> bool {
    let [.., rdx] = *row.locations();
    rdx.kind() == Kind::Offset
}

/// Whether at `lookup`, in a function that delivers exceptions, the saved values may have been overwritten already. At
/// most one run of its program, from its CIE's row on, and 165 bytes of code.
#[cold]
#[inline(never)]
pub(crate) fn has_begun(
    row: &Row<X86_64>,
    initial: &Row<X86_64>,
    entry: &Entry,
    lookup: u64,
    input: &mut Input<'_, '_>,
) -> bool {
    let leaves = |row: &Row<X86_64>| {
        let [.., ra, _, _] = *row.locations();
        ra.kind() == Kind::Register || !matches!(row.cfa, Cfa::Offset(RSP | RBP, _))
    };
    if leaves(row) {
        return true;
    }
    let exit = first_row::<X86_64>(initial, entry, lookup, input, leaves);
    exit.is_some_and(|exit| exit - lookup <= FARTHEST && lookup >= last_but_one_call(entry, exit, input))
}

/// Address of the last direct call but one before `exit`; if code is unreadable or has no such call, the lowest address
/// that it can have.
fn last_but_one_call(entry: &Entry, exit: u64, input: &mut Input<'_, '_>) -> u64 {
    let farthest = exit.saturating_sub(FARTHEST).max(entry.start);
    let mut at = exit.saturating_sub(CALL_BYTES);
    let mut calls = 0;
    while at >= farthest {
        if is_call(entry, at, input) {
            calls += 1;
            if calls == 2 {
                return at;
            }
            at = at.saturating_sub(CALL_BYTES);
        } else {
            at = at.saturating_sub(1);
        }
    }
    farthest
}

/// Whether there is a call of a nearby function at `at`.
fn is_call(entry: &Entry, at: u64, input: &mut Input<'_, '_>) -> bool {
    input.at = at;
    if input.u8() != Ok(CALL) {
        return false;
    }
    let Ok(distance) = input.u32() else { return false };
    let target = at.wrapping_add(CALL_BYTES).wrapping_add_signed(i64::from(distance as i32));
    target.abs_diff(entry.start) <= NEAR
}
