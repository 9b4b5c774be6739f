//! Code that leaves for a frame further towards the root: it loads the frame pointer from a block that describes that
//! frame, and then jumps through the same block. In between, the frame pointer is the other frame's, and the pc is not:
//! whoever follows the frame pointer misses the frame that control goes to. Where frames that clean up lie between, the
//! same code calls them first, in turn, and goes on with the frame pointer of the last one: so all of it is left out.
//!
//! SBCL's `throw`, `return-from` and `unwind-protect` do so (assembly routine `unwind`, in
//! <https://github.com/sbcl/sbcl/blob/sbcl-2.2.9/src/assembly/x86-64/assem-rtns.lisp>), and other runtimes' copies of
//! longjmp(3) in code that nothing describes. Code that uses rbp for data and happens to look like it has no frame
//! pointer to follow either.

use uunwind_core::memory::Reader;

/// Bytes from the load to the jump (SBCL 2.2.9: 12).
const NEAR: u64 = 16;
/// Bytes from the code's first instruction to the jump (SBCL 2.2.9: 162).
const AHEAD: u64 = 168;
/// ModRM: an operand in memory at a register and a displacement of one byte, and the fields of such a byte.
const DISP8: u8 = 0b01_000_000;
const MOD: u8 = 0b11_000_000;
const FIELD: u8 = 0b00_111_000;
const BASE: u8 = 0b00_000_111;
/// `mov disp8(%reg), %rbp`: REX.W, with or without REX.B, opcode, and rbp's number in ModRM.
const REX_W: u8 = 0x48;
const REX_WB: u8 = 0x49;
const LOAD: u8 = 0x8b;
const RBP: u8 = 5 << 3;
/// `call *disp8(%reg)` and `jmp *disp8(%reg)`: opcode, and their numbers in ModRM; REX.B for registers 8 to 15.
const GROUP_5: u8 = 0xff;
const CALL: u8 = 2 << 3;
const JUMP: u8 = 4 << 3;
const REX_B: u8 = 0x41;
/// Base registers that such code does not use: with 4 another byte follows, 5 is rbp itself.
const NO_BASE: [u8; 2] = [4, 5];

/// Whether the frame's instruction belongs to such code: a load of the frame pointer and a jump or call through the
/// same register come, and the latter has not been passed. `exact`: the instruction at `pc` was interrupted; else it is
/// the call before `pc`, which must be that very call. Async-signal-safe; reads at most 24 words.
pub fn is_at(pc: u64, exact: bool, reader: &mut Reader<'_>) -> bool {
    if exact {
        return first_exit(pc, AHEAD, reader).is_some();
    }
    // The call ends at `pc`, with its displacement.
    let is_call = |modrm: u8| modrm & MOD == DISP8 && modrm & FIELD == CALL;
    let through_memory = reader.u8(pc.wrapping_sub(3)) == Some(GROUP_5);
    let call = pc.wrapping_sub(3);
    through_memory
        && reader.u8(pc.wrapping_sub(2)).is_some_and(is_call)
        && first_exit(call, NEAR, reader).is_some_and(|exit| exit == call)
}

/// Address of the opcode of the first such jump or call at `pc` or after it, within this number of bytes, the load of
/// which comes at most [`NEAR`] bytes before it.
fn first_exit(pc: u64, bytes: u64, reader: &mut Reader<'_>) -> Option<u64> {
    // A wild pc: one read that fails is dear enough.
    reader.word(pc & !7)?;
    let start = pc.wrapping_sub(NEAR + 8) & !7;
    let (mut before, mut two_before) = (0, 0);
    // The low bits of the register that the frame pointer was last loaded through, whether it is one of registers 8 to
    // 15, and where.
    let mut loaded: Option<(u8, bool, u64)> = None;
    for n in 0..(NEAR + 8 + 8 + AHEAD) / 8 {
        let at = start.wrapping_add(n * 8);
        let Some(word) = reader.word(at) else {
            // Code may begin after this word.
            (before, two_before, loaded) = (0, 0, None);
            if at > pc {
                return None;
            }
            continue;
        };
        for (byte, at) in word.to_le_bytes().into_iter().zip(at..) {
            let base = byte & BASE;
            if byte & MOD == DISP8 {
                let opcode = at.wrapping_sub(1);
                match (two_before, before, byte & FIELD) {
                    (REX_W | REX_WB, LOAD, RBP) if !NO_BASE.contains(&base) => {
                        loaded = Some((base, two_before == REX_WB, at));
                    }
                    (prefix, GROUP_5, CALL | JUMP) if opcode.wrapping_sub(pc) < bytes => {
                        let through = (base, prefix == REX_B);
                        let is_exit = |(base, is_long, from): (u8, bool, u64)| {
                            (base, is_long) == through && opcode.wrapping_sub(from) < NEAR
                        };
                        if loaded.is_some_and(is_exit) {
                            return Some(opcode);
                        }
                    }
                    _ => {}
                }
            }
            (two_before, before) = (before, byte);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use uunwind_core::memory::Region;

    /// For each instruction (where it begins), whether it is found to leave.
    fn leaving(code: &[u8], instructions: &[u64], exact: bool) -> Vec<bool> {
        let regions = [Region { address: 0x1000, bytes: code }];
        let mut reader = Reader::recorded(&regions);
        instructions.iter().map(|at| is_at(0x1000 + at, exact, &mut reader)).collect()
    }

    /// Code between nops.
    fn code(instructions: &[u8]) -> Vec<u8> {
        [&[0x90; 200], instructions, &[0x90; 200]].concat()
    }

    #[test]
    fn it_is_left_up_to_the_jump() {
        // mov 8(%rax), %rbp; mov 32(%rax), %rsi; mov %rsi, 24(%r13); jmp *16(%rax).
        let jump = code(&[0x48, 0x8b, 0x68, 0x08, 0x48, 0x8b, 0x70, 0x20, 0x49, 0x89, 0x75, 0x18, 0xff, 0x60, 0x10]);
        let expected = [(0, false), (44, false), (45, true), (200, true), (204, true), (212, true), (215, false)];
        for (at, leaves) in expected {
            assert_eq!(leaving(&jump, &[at], true), [leaves], "{at}");
        }
        // mov 8(%r8), %rbp; nop; nop; nop; call *16(%r8): a cleaning frame is called.
        let call = code(&[0x49, 0x8b, 0x68, 0x08, 0x90, 0x90, 0x90, 0x41, 0xff, 0x50, 0x10]);
        assert_eq!(leaving(&call, &[200, 204, 207, 211], true), [true, true, true, false]);
    }

    #[test]
    fn a_call_that_leaves_has_no_frame_of_its_own() {
        // mov 8(%rsi), %rbp; mov 32(%rsi), %rax; call *16(%rsi).
        let low = code(&[0x48, 0x8b, 0x6e, 0x08, 0x48, 0x8b, 0x46, 0x20, 0xff, 0x56, 0x10]);
        assert_eq!(leaving(&low, &[200, 208, 211, 212], false), [false, false, true, false]);
        let high = code(&[0x49, 0x8b, 0x68, 0x08, 0x41, 0xff, 0x50, 0x10]);
        assert_eq!(leaving(&high, &[207, 208], false), [false, true]);
        // mov 8(%rsi), %rbp; call *16(%rdi): through another register.
        let other = code(&[0x48, 0x8b, 0x6e, 0x08, 0xff, 0x57, 0x10]);
        assert_eq!(leaving(&other, &[207], false), [false]);
    }

    #[test]
    fn other_registers_and_other_loads_do_not_leave() {
        let found = |load: [u8; 4], jump: [u8; 3]| leaving(&code(&[&load[..], &jump].concat()), &[204], true);
        assert_eq!(found([0x48, 0x8b, 0x68, 0x08], [0xff, 0x60, 0x10]), [true]);
        // jmp *16(%rbx).
        assert_eq!(found([0x48, 0x8b, 0x68, 0x08], [0xff, 0x63, 0x10]), [false]);
        // mov 8(%rax), %rbx.
        assert_eq!(found([0x48, 0x8b, 0x58, 0x08], [0xff, 0x60, 0x10]), [false]);
        // mov 8(%rbp), %rbp, a walk of frames; jmp *16(%rbp).
        assert_eq!(found([0x48, 0x8b, 0x6d, 0x08], [0xff, 0x65, 0x10]), [false]);
        // push 16(%rax).
        assert_eq!(found([0x48, 0x8b, 0x68, 0x08], [0xff, 0x70, 0x10]), [false]);
    }

    #[test]
    fn code_may_begin_and_end_anywhere() {
        let exit = [0x48, 0x8b, 0x68, 0x08, 0xff, 0x60, 0x10, 0x90];
        assert_eq!(leaving(&exit, &[0, 4, 7], true), [true, true, false]);
        assert_eq!(leaving(&exit, &[7], false), [false]);
        assert_eq!(leaving(&[0x90; 8], &[0, 8, 100], true), [false, false, false]);
    }
}
