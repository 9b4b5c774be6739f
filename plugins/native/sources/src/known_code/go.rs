//! Where Go's runtime returns from another stack (runtime/asm_amd64.s, of Go 1.17 and later): its unwind information
//! knows only of pushes and pops there.
//!
//! - `asmcgocall` calls C on the thread's system stack. It leaves there the goroutine and how deep its stack was.
//! - `cgocallback` is called by C on the system stack, and calls Go on the goroutine's. What it calls keeps rbp, which
//!   points into `cgocallback`'s own frame on the system stack.
//! - `systemstack` calls on the system stack. Since it keeps a frame pointer (Go 1.21), rbp leads back to the
//!   goroutine's stack; before, where that stack stands is only known to the runtime.
//! - `mcall` and `morestack` never return to those who called them: the system stack begins there.
//!
//! The code after the call is compared, instruction by instruction, in both forms of access to thread-local memory.

use uunwind_core::memory::Reader;
use uunwind_core::regs::{RBP, RSP};
use uunwind_core::rule::{Rule, RuleKind, SAME};
use uunwind_core::stop_reason::StopReason;

/// Bytes of code that are looked at from the return address on.
const AFTER: usize = 64;
/// And before it.
const BEFORE: usize = 16;
/// The longest stretch of code from a return address to an instruction that is recognised.
const WITHIN: usize = 40;
/// Index of rbp among the slots.
const RBP_SLOT: usize = 1;

/// Instructions that are passed, one by one.
struct Code<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Bit n: an instruction begins at offset n.
    starts: u64,
}

impl<'a> Code<'a> {
    fn new(bytes: &'a [u8]) -> Code<'a> {
        Code { bytes, at: 0, starts: 0 }
    }

    /// Passes one instruction that begins with `opcode` and has `operand` more bytes, whatever they are.
    fn with_operand(&mut self, opcode: &[u8], operand: usize) -> bool {
        let is_there = self.bytes.get(self.at..).is_some_and(|rest| rest.starts_with(opcode));
        if is_there {
            self.starts |= 1u64.checked_shl(self.at as u32).unwrap_or(0);
            self.at = self.at.saturating_add(opcode.len()).saturating_add(operand);
        }
        is_there
    }

    fn takes(&mut self, instruction: &[u8]) -> bool {
        self.with_operand(instruction, 0)
    }

    /// `mov x@gottpoff(%rip),%rcx`, or `mov $-8,%rcx`, where the place of thread-local memory is not written into the
    /// instructions.
    fn finds_tls(&mut self) -> bool {
        self.with_operand(&[0x48, 0x8b, 0x0d], 4) || self.takes(&[0x48, 0xc7, 0xc1, 0xf8, 0xff, 0xff, 0xff])
    }

    /// A load or store of the current goroutine, `%fs:(%rcx)` or `%fs:-8`. `opcode`: with its prefixes; `register`: as
    /// encoded.
    fn accesses_g(&mut self, by_rcx: bool, opcode: u8, register: u8) -> bool {
        let modrm = register << 3;
        if by_rcx {
            return self.takes(&[0x64, 0x48, opcode, modrm | 1]);
        }
        self.takes(&[0x64, 0x48, opcode, modrm | 4, 0x25, 0xf8, 0xff, 0xff, 0xff])
    }

    fn begins_at(&self, at: usize) -> bool {
        u32::try_from(at).ok().and_then(|at| self.starts.checked_shr(at)).is_some_and(|starts| starts & 1 != 0)
    }
}

const LOAD: u8 = 0x8b;
const STORE: u8 = 0x89;
/// As instructions encode them.
const RAX: u8 = 0;
const RSI: u8 = 6;
const RDI: u8 = 7;

/// The rule at `pc`, a return address or an interrupted pc, or why the walk ends there.
pub fn rule(pc: u64, exact: bool, reader: &mut Reader<'_>) -> Option<Result<Rule, StopReason>> {
    // A call returns to where the code begins that is compared; only an interrupted pc lies after that place.
    let furthest = if exact { WITHIN } else { 0 };
    let mut bytes = [0; WITHIN + AFTER];
    let bytes = bytes.get_mut(..furthest + AFTER)?;
    if !reader.read(pc.wrapping_sub(furthest as u64), bytes) {
        return None;
    }
    let found = (0..=furthest).find_map(|within| {
        let code = bytes.get(furthest - within..)?;
        let code = code.get(..AFTER)?;
        asmcgocall(code, within)
            .or_else(|| cgocallback(code, within))
            .map(Ok)
            .or_else(|| (within == 0).then(|| systemstack(code)).flatten())
    });
    found.or_else(|| ends_here(pc, bytes, exact, reader).then_some(Err(StopReason::SwitchedStack)))
}

/// The end of `asmcgocall`, from one of its two calls on.
fn asmcgocall(code: &[u8], at: usize) -> Option<Rule> {
    let mut code = Code::new(code);
    // The position of the depth, or of the previous stack pointer if that is on the system stack as well: at the top of
    // that stack since Go 1.26, after space for four registers before.
    let tls = code.finds_tls();
    let (offset, from_g) = if code.takes(&[0x48, 0x8b, 0x7c, 0x24, 0x30]) {
        (0x28, true)
    } else if code.takes(&[0x48, 0x8b, 0x7c, 0x24, 0x08]) {
        (0, true)
    } else if tls {
        return None;
    } else if code.takes(&[0x48, 0x8b, 0x74, 0x24, 0x28]) {
        (0x28, false)
    } else if code.takes(&[0x48, 0x8b, 0x34, 0x24]) {
        (0, false)
    } else {
        return None;
    };
    if from_g {
        let sub: &[u8] = if offset == 0 { &[0x48, 0x2b, 0x34, 0x24] } else { &[0x48, 0x2b, 0x74, 0x24, 0x28] };
        let rest = code.takes(&[0x48, 0x8b, 0x77, 0x08]) && code.takes(sub) && code.accesses_g(tls, STORE, RDI);
        rest.then_some(())?;
    }
    // mov %rsi,%rsp
    code.takes(&[0x48, 0x89, 0xf4]).then_some(())?;
    let switched = code.at;
    // The result, beyond the return address; and beyond rbp, where that was pushed.
    let framed = !code.takes(&[0x89, 0x44, 0x24, 0x18]);
    let popped = !framed || code.takes(&[0x89, 0x44, 0x24, 0x20]) && code.takes(&[0x5d]);
    let ret = code.at;
    (popped && code.takes(&[0xc3]) && code.begins_at(at)).then_some(())?;
    let size = if framed { 16 } else { 8 };
    let mut rule = if at >= switched {
        Rule::simple(RSP, if at == ret { 8 } else { size })
    } else if from_g {
        Rule::on_goroutine(offset, size as i16)
    } else {
        let mut rule = Rule::on_goroutine(offset, size as i16);
        (rule.kind, rule.flags) = (RuleKind::Deref, 0);
        rule
    };
    rule.slots[RBP_SLOT] = if framed && at != ret { -2 } else { SAME };
    Some(rule)
}

/// `cgocallback`, after its call of Go: lea 40(%rsp),%rax; sub %rsp,%rax; load g into rsi; mov %rsp,%rdi; add
/// %rax,%rdi; mov -8(%rdi),%rbx.
fn cgocallback(code: &[u8], at: usize) -> Option<Rule> {
    let mut code = Code::new(code);
    (code.takes(&[0x48, 0x8d, 0x44, 0x24, 0x28]) && code.takes(&[0x48, 0x29, 0xe0])).then_some(())?;
    let tls = code.finds_tls();
    let rest = code.accesses_g(tls, LOAD, RSI)
        && code.takes(&[0x48, 0x89, 0xe7])
        && code.takes(&[0x48, 0x01, 0xc7])
        && code.takes(&[0x48, 0x8b, 0x5f, 0xf8]);
    (rest && code.begins_at(at)).then(|| Rule::on_other_stack(RBP, 16))
}

/// `systemstack`, after its call: load g into rax; mov 48(%rax),%rbx; mov m_curg(%rbx),%rax; store g; mov
/// 56(%rax),%rsp; then perhaps rbp is loaded; both are cleared there; and the return.
fn systemstack(code: &[u8]) -> Option<Result<Rule, StopReason>> {
    let mut code = Code::new(code);
    let tls = code.finds_tls();
    let rest = code.accesses_g(tls, LOAD, RAX)
        && code.takes(&[0x48, 0x8b, 0x58, 0x30])
        && code.with_operand(&[0x48, 0x8b, 0x83], 4)
        && code.accesses_g(tls, STORE, RAX)
        && code.takes(&[0x48, 0x8b, 0x60, 0x38]);
    rest.then_some(())?;
    let _loads_rbp = code.with_operand(&[0x48, 0x8b, 0x68], 1);
    code.takes(&[0x48, 0xc7, 0x40, 0x38, 0, 0, 0, 0]).then_some(())?;
    let _clears_rbp = code.with_operand(&[0x48, 0xc7, 0x40], 5);
    let framed = code.takes(&[0x5d]);
    let rule = if framed { Ok(Rule::on_other_stack(RBP, 16)) } else { Err(StopReason::SwitchedStack) };
    code.takes(&[0xc3]).then_some(rule)
}

/// Whether a return address is in `mcall` (push %rax; mov (%rdx),%r12; call *%r12; then perhaps nop, pop %rax; jmp) or
/// in `morestack` (mov 56(%rbx),%rsp; perhaps mov $0,%ebp; call; then call).
fn ends_here(pc: u64, after: &[u8], exact: bool, reader: &mut Reader<'_>) -> bool {
    let mut before = [0; BEFORE];
    if exact || !reader.read(pc.wrapping_sub(BEFORE as u64), &mut before) {
        return false;
    }
    if before.ends_with(&[0x50, 0x4c, 0x8b, 0x22, 0x41, 0xff, 0xd4]) {
        let mut code = Code::new(after);
        let _nop = code.takes(&[0x90]);
        return code.takes(&[0x58]) && code.takes(&[0xe9]);
    }
    let Some((before, [0xe8, ..])) = before.split_last_chunk::<5>() else { return false };
    let before = before.strip_suffix(&[0xbd, 0, 0, 0, 0]).unwrap_or(before);
    let mut code = Code::new(after);
    before.ends_with(&[0x48, 0x8b, 0x63, 0x38]) && code.with_operand(&[0xe8], 4) && code.takes(&[0xc3])
}

#[cfg(test)]
mod tests {
    use super::*;
    use uunwind_core::cursor::Cursor;
    use uunwind_core::memory::Region;
    use uunwind_core::regs::{Regs, CALLEE_SAVED};

    const G_TO_TLS: [u8; 9] = [0x64, 0x48, 0x89, 0x3c, 0x25, 0xf8, 0xff, 0xff, 0xff];
    /// After the call, of Go 1.19; in a shared object; of Go 1.27.
    fn ends_of_asmcgocall() -> [(Vec<u8>, Vec<usize>, i32, i16); 3] {
        let load = [0x48, 0x8b, 0x7c, 0x24, 0x30, 0x48, 0x8b, 0x77, 0x08, 0x48, 0x2b, 0x74, 0x24, 0x28];
        let tail = [0x48, 0x89, 0xf4, 0x89, 0x44, 0x24, 0x18, 0xc3];
        let place = [0x48, 0x8b, 0x0d, 0x88, 0x72, 0x0b, 0x00];
        let by_place = [0x64, 0x48, 0x89, 0x39];
        let new = [0x48, 0x8b, 0x7c, 0x24, 0x08, 0x48, 0x8b, 0x77, 0x08, 0x48, 0x2b, 0x34, 0x24];
        let new_tail = [0x48, 0x89, 0xf4, 0x89, 0x44, 0x24, 0x20, 0x5d, 0xc3];
        [
            ([&load[..], &G_TO_TLS, &tail].concat(), vec![0, 5, 9, 14, 23], 0x28, 8),
            ([&place[..], &load, &by_place, &tail].concat(), vec![0, 7, 12, 16, 21, 25], 0x28, 8),
            ([&new[..], &G_TO_TLS, &new_tail].concat(), vec![0, 5, 9, 13, 22], 0, 16),
        ]
    }

    /// The rule at `at` bytes within this code.
    fn at(code: &[u8], at: usize, exact: bool) -> Option<Result<Rule, StopReason>> {
        let mut bytes = vec![0xcc; 64];
        bytes.extend_from_slice(code);
        bytes.extend_from_slice(&[0xcc; 128]);
        let regions = [Region { address: 0x1000, bytes: &bytes }];
        rule(0x1040 + at as u64, exact, &mut Reader::recorded(&regions))
    }

    #[test]
    fn each_instruction_of_the_way_back_to_a_goroutine_is_recognised() {
        for (code, starts, offset, size) in ends_of_asmcgocall() {
            let mut wanted = Rule::on_goroutine(offset, size);
            wanted.slots[RBP_SLOT] = if size == 16 { -2 } else { SAME };
            assert_eq!(at(&code, 0, false), Some(Ok(wanted)));
            for pc in 0..code.len() {
                let found = at(&code, pc, true);
                let is_back = found.is_some_and(|rule| rule.is_ok_and(|rule| rule.kind == RuleKind::Offset));
                if starts.contains(&pc) {
                    assert_eq!(found, Some(Ok(wanted)), "+{pc}");
                } else if pc > 22 && found.is_some() {
                    assert!(is_back, "+{pc}: {found:?}");
                } else {
                    assert_eq!(found, None, "+{pc}");
                }
            }
            // The place of thread-local memory may be any.
            let fixed = (0..code.len()).filter(|byte| code[1] != 0x8b || code[2] != 0x0d || !(3..7).contains(byte));
            for byte in fixed {
                let mut other = code.clone();
                other[byte] ^= 1;
                assert_eq!(at(&other, 0, false), None, "byte {byte} is another");
            }
        }
    }

    #[test]
    fn the_caller_is_on_the_goroutines_stack_wherever_that_is() {
        let word = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        let (system, g) = (word(&[0, 0, 0, 0, 0, 0x60, 0xa000]), word(&[0x2000, 0x2100]));
        let goroutine = word(&[0xfeed_0000 | 0x77, 1, 2]);
        let regions = [
            Region { address: 0x2000, bytes: &[0; 0xa0] },
            Region { address: 0x20a0, bytes: &goroutine },
            Region { address: 0x8000, bytes: &system },
            Region { address: 0xa000, bytes: &g },
        ];
        // Of before the stack was moved, of this stack, of the system stack.
        for (fp, kept) in [(0x1fa0, None), (0x20c0, Some(0x20c0)), (0x2100, None), (0x8040, None)] {
            let mut reader = Reader::recorded(&regions);
            let (code, ..) = &ends_of_asmcgocall()[0];
            let packed = at(code, 0, false).expect("a rule").expect("a caller").pack();
            let mut cursor = Cursor { regs: Regs::new(0x1040, 0x8000, fp), exact: false };
            let cfa = packed.cfa(&cursor, &mut reader).expect("a CFA");
            packed.advance(&mut cursor, cfa, &mut reader).expect("a caller");
            assert_eq!((cursor.regs.pc, cursor.regs.sp()), (0xfeed_0077, 0x20a8));
            for register in CALLEE_SAVED {
                assert_eq!(cursor.regs.get(register), kept.filter(|_| register == RBP), "register {register}, {fp:#x}");
            }
        }
        // Deeper than the stack has bytes.
        let deep = word(&[0, 0, 0, 0, 0, 0x108, 0xa000]);
        let regions = [Region { address: 0x8000, bytes: &deep }, Region { address: 0xa000, bytes: &g }];
        let cursor = Cursor { regs: Regs::new(0x1040, 0x8000, 0), exact: false };
        let packed = Rule::on_goroutine(0x28, 8).pack();
        assert_eq!(packed.cfa(&cursor, &mut Reader::recorded(&regions)), Err(StopReason::BadCfa));
    }
}
