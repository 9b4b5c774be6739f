//! What the first instructions of a function have put on the stack: with it, and with the call that leads to the
//! function, the place of its return address is proved, though nothing describes the code.
//!
//! Instructions are recognised one after the other, from the function's first one to the pc, or to the first that does
//! something else: compilers and people write what saves registers and makes room before anything else. Where code
//! after that one seems to lower the stack pointer, nothing is proved; and the place that follows must be that of the
//! return address whose call led here.

use uunwind_core::call_site::through_jump;
use uunwind_core::memory::Reader;
use uunwind_core::regs::{CALLEE_SAVED, SP};
use uunwind_core::rule::{Rule, BY_FRAME_POINTER, SAME, UNKNOWN};

/// Number of instructions that are looked at.
const INSTRUCTIONS: usize = 16;
/// No frame has it.
pub const UNKNOWN_SIZE: u64 = u64::MAX;
/// Index of rbp in a rule's slots.
const RBP_SLOT: usize = 1;
/// Numbers of callee-saved registers in instructions, in the order of [`CALLEE_SAVED`]: rbx, rbp, r12 to r15.
const NUMBERS: [u8; 6] = [3, 5, 12, 13, 14, 15];

/// The frame of a function between its first instructions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entered {
    /// Bytes between the stack pointer and the return address; [`UNKNOWN_SIZE`]: code that was not recognised may have
    /// lowered the stack pointer.
    pub size: u64,
    /// It has set up its own frame pointer.
    pub is_framed: bool,
    /// Where callee-saved registers were saved, in bytes above the stack pointer; in the order of [`CALLEE_SAVED`].
    saved: [Option<u64>; 6],
}

/// One instruction of those that functions begin with, and its length.
enum Step {
    /// `push` of the register with this number.
    Push(u8),
    /// The stack pointer is lowered by this number of bytes.
    Lower(u64),
    /// The register with this number is stored this number of bytes above the stack pointer.
    Store(u8, u64),
    /// The frame pointer is set to this number of bytes above the stack pointer: `mov %rsp, %rbp`; `lea 0x68(%rsp),
    /// %rbp`, as Go's compiler has it up to 1.20.
    Frame(u64),
    /// `pop 8(%rbp)`: the return address goes to the frame that SBCL's callers set up.
    CallersFrame,
    /// It leaves the stack alone: `endbr64`; how Go's functions ask whether the stack has room for them.
    Nothing,
}

impl Entered {
    /// What the function at `start` has done when it is at `pc`. Reads at most [`INSTRUCTIONS`] times two.
    pub fn at(start: u64, pc: u64, reader: &mut Reader<'_>) -> Entered {
        let mut entered = Entered { size: 0, is_framed: false, saved: [None; 6] };
        let mut at = start;
        for _ in 0..INSTRUCTIONS {
            let Some((step, len)) = instruction(at, reader) else { break };
            let next = at.wrapping_add(len);
            if next.wrapping_sub(start) > pc.wrapping_sub(start) || entered.is_framed {
                break;
            }
            at = next;
            entered.take(step);
        }
        if !entered.is_framed && lowers_between(at, pc, reader) {
            // What lies at the place that would follow is left of other calls.
            entered.size = UNKNOWN_SIZE;
        }
        entered
    }

    fn take(&mut self, step: Step) {
        let lower = match step {
            Step::Push(_) => 8,
            Step::Lower(bytes) => bytes,
            Step::CallersFrame => {
                self.is_framed = true;
                return;
            }
            Step::Frame(place) => {
                // Only then it points to the caller's frame pointer.
                self.is_framed = self.saved.get(RBP_SLOT) == Some(&Some(place));
                return;
            }
            Step::Store(..) | Step::Nothing => 0,
        };
        self.size = self.size.saturating_add(lower);
        for place in self.saved.iter_mut().flatten() {
            *place = place.saturating_add(lower);
        }
        let (number, place) = match step {
            Step::Push(number) => (number, 0),
            Step::Store(number, place) if place < self.size => (number, place),
            _ => return,
        };
        let index = NUMBERS.iter().position(|saved| *saved == number);
        if let Some(saved) = index.and_then(|index| self.saved.get_mut(index)) {
            // What is stored later is another value.
            saved.get_or_insert(place);
        }
    }

    /// Where the register with this DWARF number was saved, in bytes above the stack pointer.
    pub fn place_of(&self, register: u8) -> Option<u64> {
        let index = CALLEE_SAVED.iter().position(|saved| *saved == register)?;
        self.saved.get(index).copied().flatten()
    }

    /// The rule that leads to the caller. Registers that were not seen to be saved are unknown, but for rbp, which a
    /// function without a frame pointer of its own leaves alone.
    pub fn rule(&self) -> Option<Rule> {
        let mut rule = Rule::simple(SP, i32::try_from(self.size.checked_add(8)?).ok()?);
        rule.flags = BY_FRAME_POINTER;
        for (slot, (index, place)) in rule.slots.iter_mut().zip(self.saved.into_iter().enumerate()) {
            *slot = match place {
                Some(place) if place & 7 == 0 => i16::try_from((place as i64 - self.size as i64 - 8) / 8).ok()?,
                None if index == RBP_SLOT => SAME,
                _ => UNKNOWN,
            };
        }
        Some(rule)
    }
}

/// The instruction at an address, if it is one of those. Encodings: Intel SDM, volume 2.
fn instruction(at: u64, reader: &mut Reader<'_>) -> Option<(Step, u64)> {
    const PUSH: u8 = 0x50;
    let mut code = [0; 8];
    if !reader.read(at, &mut code) && !reader.read(at, code.get_mut(..4)?) {
        return None;
    }
    let number = |a: u8, b: u8, c: u8, d: u8| u64::try_from(i32::from_le_bytes([a, b, c, d])).ok();
    Some(match code {
        [0xf3, 0x0f, 0x1e, 0xfa, ..] => (Step::Nothing, 4),
        [op, ..] if op & 0xf8 == PUSH && op != PUSH + 4 => (Step::Push(op & 7), 1),
        [0x41, op, ..] if op & 0xf8 == PUSH => (Step::Push(8 | op & 7), 2),
        [0x48, 0x83, 0xec, bytes, ..] if bytes < 0x80 => (Step::Lower(bytes.into()), 4),
        [0x48, 0x81, 0xec, a, b, c, d, _] => (Step::Lower(number(a, b, c, d)?), 7),
        [0x48, 0x8d, 0x64, 0x24, bytes, ..] if bytes >= 0x80 => (Step::Lower((bytes as i8).unsigned_abs().into()), 5),
        [0x48, 0x89, 0xe5, ..] | [0x48, 0x8b, 0xec, ..] => (Step::Frame(0), 3),
        [0x48, 0x8d, 0x6c, 0x24, place, ..] if place < 0x80 => (Step::Frame(place.into()), 5),
        [0x48, 0x8d, 0xac, 0x24, a, b, c, d] => (Step::Frame(number(a, b, c, d)?), 8),
        // cmp 0x10(%r14), %rsp or %r12; lea -N(%rsp), %r12; jbe
        [0x49 | 0x4d, 0x3b, 0x66, 0x10, ..] => (Step::Nothing, 4),
        [0x4c, 0x8d, 0x64, 0x24, ..] => (Step::Nothing, 5),
        [0x4c, 0x8d, 0xa4, 0x24, ..] => (Step::Nothing, 8),
        [0x76, ..] => (Step::Nothing, 2),
        [0x0f, 0x86, ..] => (Step::Nothing, 6),
        [0x8f, 0x45, 0x08, ..] => (Step::CallersFrame, 3),
        // mov %r, displacement(%rsp)
        [rex @ (0x48 | 0x4c), 0x89, modrm, 0x24, a, b, c, d] if modrm & 7 == 4 => {
            let register = modrm >> 3 & 7 | (rex & 4) << 1;
            let (place, len) = match modrm >> 6 {
                0 => (0, 4),
                1 if a < 0x80 => (a.into(), 5),
                2 => (number(a, b, c, d)?, 8),
                _ => return None,
            };
            (Step::Store(register, place), len)
        }
        _ => return None,
    })
}

/// Whether code between two addresses seems to lower or to align the stack pointer, but by pushes. At most
/// [`super::NEAR`] bytes are read, eight at a time.
fn lowers_between(start: u64, end: u64, reader: &mut Reader<'_>) -> bool {
    let mut window = [0; 11];
    (start..end.min(start.wrapping_add(super::NEAR))).step_by(8).any(|at| {
        reader.read(at, &mut window)
            && window.windows(4).zip(at..end).any(|(code, _)| {
                matches!(
                    code,
                    [0x48, 0x81 | 0x83, 0xec, _]
                        | [0x48, 0x83, 0xe4, _]
                        | [0x48, 0x83, 0xc4, 0x80..=0xff]
                        | [0x48, 0x8d, 0x64, 0x24]
                        | [0x48 | 0x4c, 0x29, 0xc4 | 0xcc | 0xd4 | 0xdc | 0xf4 | 0xfc, _]
                )
            })
    })
}

/// Bytes of a function in which jumps are looked for.
const JUMPING: u64 = 256;

/// Whether the function at `start` may end in a jump to the one that `to` lies in: its first [`JUMPING`] bytes have
/// what looks like a `jmp` there, or through a register. At most as many bytes are read, eight at a time, and the code
/// at eight places.
pub fn jumps_near(start: u64, to: u64, reader: &mut Reader<'_>) -> bool {
    let mut window = [0; 8];
    let mut followed = 0;
    let mut at = start;
    while at.wrapping_sub(start) < JUMPING {
        if !reader.read(at, &mut window) {
            return false;
        }
        for offset in 0..4u64 {
            let place = at.wrapping_add(offset);
            let found = match window.get(offset as usize..) {
                Some([0xe9, a, b, c, d, ..]) => {
                    let distance = i64::from(i32::from_le_bytes([*a, *b, *c, *d]));
                    to.wrapping_sub(place.wrapping_add(5).wrapping_add_signed(distance)) < super::NEAR
                }
                // Where the register was loaded just before, with the address of another function: SBCL's.
                // `jmp *(%rdi)` and the like; not the entries of linkage tables, beside each other.
                Some([0xff, 0x20..=0x24 | 0x26 | 0x27 | 0x60..=0x67 | 0xa0..=0xa7, ..]) => true,
                Some([0xff, 0xe0..=0xe7, ..]) => match number_before(place, reader).filter(|_| followed < 8) {
                    Some(loaded) => {
                        followed += 1;
                        let target = through_jump(loaded, reader).unwrap_or(loaded);
                        to.wrapping_sub(target) < super::NEAR
                    }
                    None => true,
                },
                _ => false,
            };
            if found {
                return true;
            }
        }
        at = at.wrapping_add(4);
    }
    false
}

/// The number of a `mov $NUMBER, %r32` before an instruction.
fn number_before(at: u64, reader: &mut Reader<'_>) -> Option<u64> {
    let mut code = [0; 5];
    reader.read(at.wrapping_sub(5), &mut code);
    match code {
        [0xb8..=0xbf, a, b, c, d] => Some(u64::from(u32::from_le_bytes([a, b, c, d]))),
        _ => None,
    }
}

/// Whether a return ends a function between two addresses, as far as bytes show: code that stands after it is perhaps
/// another function's. At most [`super::NEAR`] bytes are read, 16 at a time.
pub fn returns_between(start: u64, end: u64, reader: &mut Reader<'_>) -> bool {
    const RET: u8 = 0xc3;
    // After one of these, it is an operand: `mov %eax, %ebx` and others have the same byte.
    const OPERAND_OF: [u8; 16] =
        [0x01, 0x03, 0x09, 0x21, 0x29, 0x2b, 0x31, 0x33, 0x39, 0x3b, 0x63, 0x81, 0x83, 0x85, 0x89, 0x8b];
    let mut before = 0u32;
    let mut at = start;
    let mut code = [0; 16];
    while at < end && at.wrapping_sub(start) < super::NEAR {
        let len = (end - at).min(code.len() as u64) as usize;
        let Some(chunk) = code.get_mut(..len) else { return true };
        if !reader.read(at, chunk) {
            return true;
        }
        for byte in chunk.iter() {
            let [_, operation, modrm, last] = before.to_be_bytes();
            // The number of an `and`, `add` or shift, of `mov $1, %al` and the like, is no operand's.
            let is_number = matches!(operation, 0x6b | 0x80 | 0x83 | 0xc0 | 0xc1) && modrm >= 0xc0
                || matches!(modrm, 0x0c | 0x24 | 0x34 | 0x3c | 0xa8 | 0xb0..=0xb7);
            // `ret` that drops its arguments.
            let drops = modrm == 0xc2 && last & 7 == 0 && *byte == 0;
            if drops || *byte == RET && (is_number || !OPERAND_OF.contains(&last)) {
                return true;
            }
            before = before << 8 | u32::from(*byte);
        }
        at = at.wrapping_add(len as u64);
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use uunwind_core::memory::Region;
    use uunwind_core::regs::{RBP, RBX};

    const R12: u8 = 12;
    const R15: u8 = 15;

    fn entered(code: &[u8], at: u64) -> Entered {
        let regions = [Region { address: 0x1000, bytes: code }];
        Entered::at(0x1000, 0x1000 + at, &mut Reader::recorded(&regions))
    }

    /// As GNU as 2.40 writes them: endbr64; push %rbp; push %rbx; push %r12; sub $0x28, %rsp; mov %r15, 8(%rsp); nop.
    const CODE: [u8; 24] = [
        0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0x53, 0x41, 0x54, 0x48, 0x83, 0xec, 0x28, 0x4c, 0x89, 0x7c, 0x24, 0x08, 0x90,
        0x90, 0x90, 0x90, 0x90, 0x90, 0x90,
    ];

    #[test]
    fn what_was_done_before_the_pc_counts() {
        for (at, size) in [(0, 0), (4, 0), (5, 8), (6, 16), (8, 24), (12, 64), (17, 64), (20, 64)] {
            assert_eq!(entered(&CODE, at).size, size, "+{at}");
        }
        let whole = entered(&CODE, 17);
        let places = [RBP, RBX, R12, R15].map(|register| whole.place_of(register));
        assert_eq!(places, [Some(56), Some(48), Some(40), Some(8)]);
        let rule = whole.rule().expect("a rule");
        assert_eq!((rule.cfa_register, rule.cfa_offset), (SP, 72));
        assert_eq!(rule.slots, [-3, -2, -4, UNKNOWN, UNKNOWN, -8, -1]);
        assert_eq!(entered(&CODE, 12).place_of(R15), None);
    }

    #[test]
    fn a_frame_pointer_is_set_up_after_its_push_only() {
        let framed = [0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xec, 0x10, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90];
        assert!(!entered(&framed, 1).is_framed);
        assert!(entered(&framed, 4).is_framed);
        let other = [0x53, 0x48, 0x89, 0xe5, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90];
        assert!(!entered(&other, 4).is_framed);
    }

    /// cmp 0x10(%r14), %rsp; jbe; sub $0x70, %rsp; mov %rbp, 0x68(%rsp); lea 0x68(%rsp), %rbp, of Go 1.19.
    #[test]
    fn functions_of_go_have_frame_pointers() {
        let code = [
            0x49, 0x3b, 0x66, 0x10, 0x0f, 0x86, 0xbe, 0x08, 0x00, 0x00, 0x48, 0x83, 0xec, 0x70, 0x48, 0x89, 0x6c, 0x24,
            0x68, 0x48, 0x8d, 0x6c, 0x24, 0x68, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90,
        ];
        assert_eq!((entered(&code, 14).size, entered(&code, 19).is_framed), (0x70, false));
        assert!(entered(&code, 24).is_framed);
    }

    #[test]
    fn other_instructions_end_it() {
        // xor %eax, %eax; push %rbx.
        let code = [0x31, 0xc0, 0x53, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90];
        assert_eq!(entered(&code, 3), Entered { size: 0, is_framed: false, saved: [None; 6] });
    }

    /// A stale return address lies where the function would have its own, if nothing had lowered the stack pointer.
    #[test]
    fn room_that_is_made_later_proves_nothing() {
        // xor %eax, %eax; sub $0x18, %rsp; nop...
        let mut code = [0x90; 32];
        code[..6].copy_from_slice(&[0x31, 0xc0, 0x48, 0x83, 0xec, 0x18]);
        assert_eq!(entered(&code, 2).size, 0);
        assert_eq!(entered(&code, 10).size, UNKNOWN_SIZE);
        // and $-64, %rsp, after what is recognised.
        let mut code = [0x90; 32];
        code[..8].copy_from_slice(&[0x53, 0x31, 0xc0, 0x48, 0x83, 0xe4, 0xc0, 0x90]);
        assert_eq!(entered(&code, 1).size, 8);
        assert_eq!(entered(&code, 8).size, UNKNOWN_SIZE);
        // Numbers in other instructions do no harm: mov $0xec83, %eax.
        let mut code = [0x90; 32];
        code[..5].copy_from_slice(&[0xb8, 0x83, 0xec, 0x00, 0x00]);
        assert_eq!(entered(&code, 12).size, 0);
    }

    #[test]
    fn returns_are_seen() {
        let returns = |code: &[u8]| {
            let regions = [Region { address: 0x1000, bytes: code }];
            returns_between(0x1000, 0x1000 + code.len() as u64, &mut Reader::recorded(&regions))
        };
        assert!(returns(&[0x90, 0xc3, 0x90]));
        assert!(returns(&[&[0x90; 40][..], &[0x5d, 0xc3]].concat()));
        assert!(!returns(&[&[0x90; 40][..], &[0x48, 0x89, 0xc3]].concat()));
        let mut split = [0x90; 20];
        (split[15], split[16]) = (0x89, 0xc3);
        assert!(!returns(&split), "across two reads");
        // As GNU as 2.40 writes them: and $1, %eax; ret. mov $1, %al; ret. ret $16.
        assert!(returns(&[0x90, 0x90, 0x83, 0xe0, 0x01, 0xc3]));
        assert!(returns(&[0x90, 0x90, 0xb0, 0x01, 0xc3, 0x90]));
        assert!(returns(&[0x90, 0x90, 0x90, 0xc2, 0x10, 0x00, 0x90]));
    }
}
