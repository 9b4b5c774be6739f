//! Functions whose stack GCC aligns to more than the ABI does: the end of their epilogue.
//!
//! They count their CFA from a register that keeps the stack pointer of the call (r10; r13 in functions with a static
//! chain), and save callee-saved registers at distances from rbp, by expressions. The epilogue restores these, rbp last
//! (`leave` or `pop %rbp`), and then the stack pointer, by `lea -n(%r10),%rsp`. When rbp is the caller's already, the
//! rows go on counting from it (seen with GCC 12; `ix86_expand_epilogue` in
//! <https://github.com/gcc-mirror/gcc/blob/releases/gcc-12.2.0/gcc/config/i386/i386.cc>).

use crate::bytes::Input;
use crate::row::Cfa;
use uunwind_core::regs::RSP;

/// DWARF numbers.
const R10: u8 = 10;
const R13: u8 = 13;
/// Opcodes (Intel SDM volume 2).
const LEAVE: u8 = 0xc9;
const POP_RBP: u8 = 0x5d;
/// Bytes from where rbp is restored within which rsp is: few instructions are scheduled between.
const NEAR: usize = 32;

/// Whether the registers that a row says are saved at distances from rbp have been restored at `pc`: no instruction up
/// to that `lea` can be the one that restores rbp. At most `NEAR` reads.
#[cold]
#[inline(never)]
pub(crate) fn has_restored(cfa: Cfa, pc: u64, input: &mut Input<'_, '_>) -> bool {
    // `lea` with a displacement of one byte, without it: REX.WB, the opcode, ModRM.
    let restores_rsp = match cfa {
        Cfa::Offset(RSP, _) => return true,
        Cfa::Offset(R10, _) => [0x49, 0x8d, 0x62],
        Cfa::Offset(R13, _) => [0x49, 0x8d, 0x65],
        _ => return false,
    };
    input.depends_on_pc = true;
    input.at = pc;
    let mut last = [0; 3];
    for _ in 0..NEAR {
        let Ok(byte) = input.u8() else { return false };
        last = [last[1], last[2], byte];
        if last == restores_rsp {
            return true;
        }
        if byte == LEAVE || byte == POP_RBP {
            return false;
        }
    }
    false
}
