//! The rule of an interrupted pc at a call whose frame the caller sets up: SBCL's. There a caller makes room for the
//! frame, stores its own rbp in it, and points rbp to it; the callee's first instruction moves the return address to
//! where a frame pointer's reader looks for it, `pop 8(%rbp)`. In between, the word there is left of an earlier call
//! ([SBCL, `src/compiler/x86-64/call.lisp`](https://github.com/sbcl/sbcl/blob/sbcl-2.2.9/src/compiler/x86-64/call.lisp)).
//!
//! ```text
//! mov %rbp, (%rsp); mov %rsp, %rbp; [mov $FDEFN, %eax]; call *%rax    in the caller, or by way of another register
//! jmp FUNCTION                                                        in the name's definition
//! pop 8(%rbp)                                                         in the callee
//! ```
//! All of it is recognised by its bytes. Below the frame lie what is passed on the stack and, after the call, the
//! return address.

use uunwind_core::cursor::Cursor;
use uunwind_core::memory::Reader;
use uunwind_core::rule::Rule;

/// The rule, if the pc is at one of these instructions after the frame pointer has been changed. Async-signal-safe.
#[cfg(target_arch = "x86_64")]
pub fn rule(cursor: &Cursor, reader: &mut Reader<'_>) -> Option<Rule> {
    use uunwind_core::call_site::through_jump;
    use uunwind_core::regs::FP;
    use uunwind_core::rule::{RuleKind, RA_SLOT};
    const POP_TO_FRAME: [u8; 3] = [0x8f, 0x45, 0x08];
    let (pc, sp) = (cursor.regs.pc, cursor.regs.sp());
    let fp = cursor.regs.get(FP).filter(|_| cursor.exact)?;
    let below = fp.checked_sub(sp).filter(|below| below & 7 == 0 && *below < LARGEST)?;
    let was = reader.pause(true);
    let in_caller = is_at_call(pc, reader);
    let takes_it = |at: u64, reader: &mut Reader<'_>| {
        let mut code = [0; 3];
        reader.read(at, &mut code) && code == POP_TO_FRAME
    };
    // A jump within a function leads elsewhere, and the word may be left of an earlier call.
    let is_first = takes_it(pc, reader) || through_jump(pc, reader).is_some_and(|to| takes_it(to, reader));
    let in_callee = below >= 8 && is_first && reader.word(sp).is_some_and(|caller| is_after_call(caller, reader));
    reader.pause(was);
    if in_caller {
        // The frame is that of the call to come. The caller's own is the one that it has stored there.
        let kind = RuleKind::Deref;
        return Some(Rule { kind, cfa_offset: 0, cfa_addend: 16, ..Rule::frame_pointer() });
    }
    let mut rule = Rule::frame_pointer();
    // In words from the CFA, which is two above the frame pointer.
    *rule.slots.get_mut(RA_SLOT)? = -((below / 8) as i16) - 2;
    in_callee.then_some(rule)
}

/// On AArch64, the return address comes in a register.
#[cfg(target_arch = "aarch64")]
pub fn rule(_cursor: &Cursor, _reader: &mut Reader<'_>) -> Option<Rule> {
    None
}

/// What is passed on the stack is smaller than this, in bytes.
#[cfg(target_arch = "x86_64")]
const LARGEST: u64 = 1 << 15;

/// Lengths of the instructions between the change of the frame pointer and the call: none, or `mov $FDEFN, %eax`.
#[cfg(target_arch = "x86_64")]
const BETWEEN: [u64; 2] = [0, 5];

/// Whether the frame pointer was pointed to a frame for a callee directly before `at`, after the caller's was stored
/// there: by way of rsp, or of another register where something is passed on the stack. What is stored is rbp, or, by a
/// call within a function, a register that it was copied to. Encodings: Intel SDM, volume 2.
#[cfg(target_arch = "x86_64")]
fn is_framed_before(at: u64, reader: &mut Reader<'_>) -> bool {
    let mut code = [0; 7];
    if !reader.read(at.wrapping_sub(7), &mut code) {
        return false;
    }
    // mov REGISTER, (%rsp); mov %rsp, %rbp
    if let [0x48 | 0x4c, 0x89, stored, 0x24, 0x48, rest @ ..] = code {
        return stored & !0x38 == 0x04 && matches!(rest, [0x8b, 0xec] | [0x89, 0xe5]);
    }
    // mov REGISTER, (FRAME); mov FRAME, %rbp
    let [_, store @ (0x48 | 0x49 | 0x4c | 0x4d), 0x89, to, take @ ..] = code else { return false };
    let (is_high, frame) = (store & 1, to & 7);
    // With these two, another byte follows, or the place counts from rip.
    let is_stored = to < 0x40 && !matches!(frame, 4 | 5);
    is_stored
        && (take == [0x48 | is_high, 0x8b, 0xe8 | frame] || take == [0x48 | is_high << 2, 0x89, 0xc5 | frame << 3])
}

/// Whether a call stands at `at`, and how many bytes it has: `call *%rax`, `call *-3(%rax)`, `call FUNCTION`.
#[cfg(target_arch = "x86_64")]
fn call_at(at: u64, reader: &mut Reader<'_>) -> Option<u64> {
    let mut code = [0; 3];
    if !reader.read(at, &mut code) {
        return None;
    }
    match code {
        [0xff, 0xd0, _] => Some(2),
        [0xff, 0x50, 0xfd] => Some(3),
        [0xe8, _, _] => Some(5),
        _ => None,
    }
}

/// Whether the pc is at such a call, or at the instruction before it.
#[cfg(target_arch = "x86_64")]
fn is_at_call(pc: u64, reader: &mut Reader<'_>) -> bool {
    let is_load = reader.u8(pc) == Some(0xb8);
    let call = if is_load { pc.wrapping_add(5) } else { pc };
    call_at(call, reader).is_some()
        && BETWEEN.into_iter().map(|bytes| call.wrapping_sub(bytes)).any(|at| at <= pc && is_framed_before(at, reader))
}

/// Whether a call for which the caller has set up the frame ends at a return address.
#[cfg(target_arch = "x86_64")]
pub fn is_after_call(caller: u64, reader: &mut Reader<'_>) -> bool {
    let was = reader.pause(true);
    let found = [2, 3, 5].into_iter().any(|len: u64| {
        let call = caller.wrapping_sub(len);
        call_at(call, reader) == Some(len)
            && BETWEEN.into_iter().any(|bytes| is_framed_before(call.wrapping_sub(bytes), reader))
    });
    reader.pause(was);
    found
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;
    use uunwind_core::memory::Region;
    use uunwind_core::regs::{Regs, RBP};

    /// sub $16, %rsp; mov %rbp, (%rsp); mov %rsp, %rbp; mov $0x3000, %eax; call *%rax; nop.
    const CALLER: [u8; 19] = [
        0x48, 0x83, 0xec, 0x10, 0x48, 0x89, 0x2c, 0x24, 0x48, 0x8b, 0xec, 0xb8, 0x00, 0x30, 0x00, 0x00, 0xff, 0xd0,
        0x90,
    ];
    const RETURNS: u64 = 0x1000 + 18;
    const OUTER: u64 = 0x5000;
    const STALE: u64 = 0x6000;

    /// The caller of the function interrupted at `pc` with this stack pointer and frame pointer, and its rbp.
    fn caller(pc: u64, sp: u64, fp: u64) -> Option<(u64, u64)> {
        // jmp *(%rip); pop 8(%rbp).
        let (jump, callee) = (
            [0xe9, 0xfb, 0x0f, 0x00, 0x00, 0x90],
            [0x8f, 0x45, 0x08, 0x90, 0xeb, 0x02, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90],
        );
        // From 0x8000 on: the return address of the call, the callee's frame (rbp, a stale word), two words, the
        // caller's frame (rbp, its return address). Further down that of one with arguments on the stack.
        let stack: Vec<u8> = [RETURNS, 0, 0, 0, RETURNS, 0x8028, STALE, 0, 0, 0x9000, OUTER]
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect();
        let regions = [
            Region { address: 0x1000, bytes: &CALLER },
            Region { address: 0x3000, bytes: &jump },
            Region { address: 0x4000, bytes: &callee },
            Region { address: 0x7fe0, bytes: &stack },
        ];
        let mut reader = Reader::recorded(&regions);
        let mut cursor = Cursor { regs: Regs::new(pc, sp, fp), exact: true };
        let rule = rule(&cursor, &mut reader)?.pack();
        let cfa = rule.cfa(&cursor, &mut reader).expect("a CFA");
        rule.advance(&mut cursor, cfa, &mut reader).expect("a caller");
        Some((cursor.regs.pc, cursor.regs.get(RBP)?))
    }

    #[test]
    fn frames_by_way_of_any_register_are_recognised() {
        let is_framed = |code: &[u8]| {
            let regions = [Region { address: 0x1000, bytes: code }];
            is_framed_before(0x1000 + code.len() as u64, &mut Reader::recorded(&regions))
        };
        for code in [
            // mov %rbp,(%rsp); mov %rsp,%rbp
            &[0x48, 0x89, 0x2c, 0x24, 0x48, 0x8b, 0xec][..],
            // mov %rbp,(%r9); mov %r9,%rbp, in both encodings; the same with r8 and rbx.
            &[0x90, 0x49, 0x89, 0x29, 0x49, 0x8b, 0xe9],
            &[0x90, 0x49, 0x89, 0x29, 0x4c, 0x89, 0xcd],
            &[0x90, 0x49, 0x89, 0x28, 0x49, 0x8b, 0xe8],
            &[0x90, 0x48, 0x89, 0x2b, 0x48, 0x8b, 0xeb],
            &[0x90, 0x48, 0x89, 0x2b, 0x48, 0x89, 0xdd],
            // mov %r9,(%r8); mov %r8,%rbp; mov %rbx,(%rcx); mov %rcx,%rbp; mov %rbx,(%rsp); mov %rsp,%rbp.
            &[0x90, 0x4d, 0x89, 0x08, 0x49, 0x8b, 0xe8],
            &[0x90, 0x48, 0x89, 0x19, 0x48, 0x8b, 0xe9],
            &[0x48, 0x89, 0x1c, 0x24, 0x48, 0x8b, 0xec],
        ] {
            assert!(is_framed(code), "{code:x?}");
        }
        for code in [
            // Another register is taken than the one that was stored to; a place that counts from rip, or from r9.
            [0x90, 0x49, 0x89, 0x29, 0x49, 0x8b, 0xe8],
            [0x90, 0x49, 0x89, 0x29, 0x48, 0x8b, 0xe9],
            [0x90, 0x48, 0x89, 0x2d, 0x48, 0x8b, 0xed],
            [0x90, 0x49, 0x89, 0x69, 0x49, 0x8b, 0xe9],
        ] {
            assert!(!is_framed(&code), "{code:x?}");
        }
    }

    /// Words that are passed on the stack lie below the frame.
    #[test]
    fn arguments_on_the_stack_lie_between() {
        assert_eq!(caller(0x1010, 0x7ff0, 0x8008), Some((OUTER, 0x9000)));
        assert_eq!(caller(0x3000, 0x7fe0, 0x8008), Some((RETURNS, 0x8028)));
        assert_eq!(caller(0x4000, 0x7fe0, 0x8008), Some((RETURNS, 0x8028)));
        assert_eq!(caller(0x4000, 0x7fe0, 0x7fe0), None);
    }

    #[test]
    fn the_stale_word_is_no_caller() {
        // In the caller, before it has changed rbp, and after it.
        assert_eq!(caller(0x1008, 0x8008, 0x8028), None);
        assert_eq!(caller(0x100b, 0x8008, 0x8008), Some((OUTER, 0x9000)));
        assert_eq!(caller(0x1010, 0x8008, 0x8008), Some((OUTER, 0x9000)));
        // In the jump, in the callee, and after that one's first instruction.
        assert_eq!(caller(0x3000, 0x8000, 0x8008), Some((RETURNS, 0x8028)));
        assert_eq!(caller(0x4000, 0x8000, 0x8008), Some((RETURNS, 0x8028)));
        assert_eq!(caller(0x4003, 0x8008, 0x8008), None);
        assert_eq!(caller(0x4003, 0x8000, 0x8008), None);
        // At a jump of the callee's own, with the word that an earlier call has left at the stack pointer.
        assert_eq!(caller(0x4004, 0x8000, 0x8008), None);
    }
}
