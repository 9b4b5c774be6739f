//! x86-64: `call rel32` (E8) and `call r/m64` (FF /2), Intel SDM volume 2, "CALL".

use super::Target;
use crate::memory::Reader;
use crate::regs::{Regs, RSP};

/// The longest form: a REX prefix, the opcode, ModRM, SIB, and a displacement of four bytes.
const LONGEST: usize = 8;
/// The shortest: opcode and ModRM.
const SHORTEST: usize = 2;
/// Bytes of a linkage table's stub.
const LONGEST_STUB: u64 = 16;
/// DWARF numbers by the numbers that instructions have for registers.
const DWARF: [u8; 16] = [0, 2, 1, 3, 7, 6, 4, 5, 8, 9, 10, 11, 12, 13, 14, 15];
/// The REX prefix's bits that extend the base and the index.
const REX_B: u8 = 1;
const REX_X: u8 = 2;

/// Where a call's target comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Call {
    /// The called process address, from the instruction itself.
    Direct(u64),
    /// The register with this DWARF number.
    Register(u8),
    /// The word at base + index * scale + displacement; registers by DWARF number.
    Memory { base: Option<u8>, index: Option<(u8, u8)>, displacement: u64 },
}

/// Whether `accept` takes one of the calls that the bytes before `return_address` can be.
pub(super) fn any_call(
    return_address: u64,
    reader: &mut Reader<'_>,
    mut accept: impl FnMut(Call, &mut Reader<'_>) -> bool,
) -> bool {
    let (bytes, readable) = code_before(return_address, reader);
    // Longest first: without its prefix, a call has another register for its operand.
    (SHORTEST..=readable).rev().any(|len| {
        let call = bytes.get(LONGEST - len..).and_then(|bytes| decode(bytes, return_address));
        call.is_some_and(|call| accept(call, reader))
    })
}

/// The bytes before an address, and how many of them, from the last one on, can be read.
fn code_before(address: u64, reader: &mut Reader<'_>) -> ([u8; LONGEST], usize) {
    let mut bytes = [0; LONGEST];
    if reader.read(address.wrapping_sub(LONGEST as u64), &mut bytes) {
        return (bytes, LONGEST);
    }
    // Fewer where the code begins there.
    let mut readable = 0;
    for len in SHORTEST..LONGEST {
        let room = bytes.get_mut(LONGEST - len..);
        if !room.is_some_and(|room| reader.read(address.wrapping_sub(len as u64), room)) {
            break;
        }
        readable = len;
    }
    (bytes, readable)
}

/// The call that fills these bytes, followed by `next`.
fn decode(bytes: &[u8], next: u64) -> Option<Call> {
    if let [0xe8, distance @ ..] = bytes {
        let distance = i32::from_le_bytes(*distance.first_chunk()?);
        return (bytes.len() == 5).then(|| Call::Direct(next.wrapping_add_signed(i64::from(distance))));
    }
    let (rex, bytes) = match bytes {
        [rex @ 0x40..=0x4f, rest @ ..] => (*rex, rest),
        _ => (0, bytes),
    };
    let [0xff, modrm, rest @ ..] = bytes else { return None };
    let (mode, operation, rm) = (modrm >> 6, modrm >> 3 & 7, modrm & 7);
    if operation != 2 {
        return None;
    }
    let register = |number: u8, extended: bool| DWARF.get(usize::from(number | u8::from(extended) << 3)).copied();
    if mode == 3 {
        return rest.is_empty().then(|| register(rm, rex & REX_B != 0).map(Call::Register)).flatten();
    }
    let (sib, rest) = match (rm, rest) {
        (4, [sib, rest @ ..]) => (Some(*sib), rest),
        (4, []) => return None,
        _ => (None, rest),
    };
    // A base of 5 without a displacement stands for a displacement alone; in ModRM, one from the next instruction on.
    let number = sib.map_or(rm, |sib| sib & 7);
    let alone = mode == 0 && number == 5;
    let displacement = match (mode, alone, rest) {
        (0, false, []) => 0,
        (1, _, [byte]) => i64::from(*byte as i8),
        (0, true, [a, b, c, d]) | (2, _, [a, b, c, d]) => i64::from(i32::from_le_bytes([*a, *b, *c, *d])),
        _ => return None,
    };
    let index = sib.filter(|sib| sib >> 3 & 7 != 4 || rex & REX_X != 0);
    let index = match index {
        Some(sib) => Some((register(sib >> 3 & 7, rex & REX_X != 0)?, sib >> 6)),
        None => None,
    };
    let from_next = alone && sib.is_none();
    Some(Call::Memory {
        base: if alone { None } else { Some(register(number, rex & REX_B != 0)?) },
        index,
        displacement: if from_next { next.wrapping_add_signed(displacement) } else { displacement as u64 },
    })
}

/// See [`super::begins_stack`].
pub(super) fn begins_stack(return_address: u64, reader: &mut Reader<'_>) -> bool {
    /// `mov edi, eax; xor eax, eax; mov al, 60 (SYS_exit); syscall; hlt`
    /// ([musl, src/thread/x86_64/clone.s](https://git.musl-libc.org/cgit/musl/tree/src/thread/x86_64/clone.s)).
    const EXIT: [u8; 9] = [0x89, 0xc7, 0x31, 0xc0, 0xb0, 60, 0x0f, 0x05, 0xf4];
    /// `xor rbp, rbp; mov rdi, rsp; lea rsi, [rip + _DYNAMIC]; and rsp, -16; call _start_c`
    /// ([musl, arch/x86_64/crt_arch.h](https://git.musl-libc.org/cgit/musl/tree/arch/x86_64/crt_arch.h)): what the two
    /// instructions with an address have of it is left open.
    const ENTRY: [u8; 22] =
        [0x48, 0x31, 0xed, 0x48, 0x89, 0xe7, 0x48, 0x8d, 0x35, 0, 0, 0, 0, 0x48, 0x83, 0xe4, 0xf0, 0xe8, 0, 0, 0, 0];
    let mut after = [0; EXIT.len()];
    if reader.read(return_address, &mut after) && after == EXIT {
        return true;
    }
    let mut before = [0; ENTRY.len()];
    let is_open = |at: usize| (9..13).contains(&at) || at >= 18;
    reader.read(return_address.wrapping_sub(before.len() as u64), &mut before)
        && before.iter().zip(ENTRY).enumerate().all(|(at, (is, byte))| *is == byte || is_open(at))
}

/// The call's target, if no register determines it. A stub of a linkage table, `jmp *offset(%rip)` after `endbr64` and
/// a `bnd` prefix perhaps, leads on to the word that it reads; until that is resolved, it leads back to the stub.
pub(super) fn fixed_target(call: Call, reader: &mut Reader<'_>) -> Option<u64> {
    const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
    let called = match call {
        Call::Direct(called) => called,
        Call::Memory { base: None, index: None, displacement } => return reader.word(displacement),
        Call::Register(_) | Call::Memory { .. } => return None,
    };
    let (mut start, mut bytes) = (called, [0; 7]);
    if !reader.read(start, &mut bytes) {
        return None;
    }
    if bytes.starts_with(&ENDBR64) {
        start = called.wrapping_add(ENDBR64.len() as u64);
        if !reader.read(start, &mut bytes) {
            return None;
        }
    }
    let (distance, len) = match bytes {
        [0xff, 0x25, a, b, c, d, _] => ([a, b, c, d], 6),
        [0xf2, 0xff, 0x25, a, b, c, d] => ([a, b, c, d], 7),
        _ => return Some(called),
    };
    let next = start.wrapping_add(len);
    let resolved = reader.word(next.wrapping_add_signed(i64::from(i32::from_le_bytes(distance))))?;
    (resolved.wrapping_sub(called) > LONGEST_STUB).then_some(resolved)
}

/// See [`Target`].
pub(super) fn target_of(call: Call, return_address: u64, regs: &Regs, reader: &mut Reader<'_>) -> Target {
    match call {
        Call::Direct(target) => Target::At(target),
        Call::Register(register) => loaded(register, return_address, reader).map_or(Target::In(register), Target::At),
        Call::Memory { base: None, index: None, displacement } => {
            reader.word(displacement).map_or(Target::Perhaps(None), Target::At)
        }
        // The caller's own stack is as it was.
        Call::Memory { base: Some(RSP), index: None, .. } => {
            target(call, regs, reader).map_or(Target::Perhaps(None), Target::At)
        }
        Call::Memory { .. } => Target::Perhaps(target(call, regs, reader)),
    }
}

/// The number that the instruction before a call through a register has loaded into that register: `movabs imm64` or
/// `mov imm32`.
fn loaded(register: u8, return_address: u64, reader: &mut Reader<'_>) -> Option<u64> {
    let number = DWARF.iter().position(|dwarf| *dwarf == register)? as u8;
    let (is_extended, opcode) = (number >> 3 == 1, 0xb8 | number & 7);
    let call = return_address.wrapping_sub(if is_extended { 3 } else { 2 });
    let mut code = [0; 10];
    if !reader.read(call.wrapping_sub(10), &mut code) {
        return None;
    }
    match code {
        [rex, op, number @ ..] if rex == 0x48 | u8::from(is_extended) && op == opcode => {
            Some(u64::from_le_bytes(number))
        }
        [.., rex, op, a, b, c, d] if op == opcode && (rex == 0x41 || !is_extended) => {
            Some(u64::from(u32::from_le_bytes([a, b, c, d])))
        }
        _ => None,
    }
}

/// Where a `jmp` to a fixed address, a `jmp *offset(%rip)` or a `jmp` through the scratch register that is loaded
/// before it (r10, r11) leads, after `endbr64` perhaps.
pub(super) fn through_jump(target: u64, reader: &mut Reader<'_>) -> Option<u64> {
    const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
    let mut code = [0; 13];
    let mut first = [0; 5];
    if !reader.read(target, &mut first) {
        return None;
    }
    let start = if first.starts_with(&ENDBR64) { target.wrapping_add(4) } else { target };
    if start != target && !reader.read(start, &mut first) {
        return None;
    }
    // `bnd jmp`.
    let is_bounded = first.starts_with(&[0xf2]);
    let start = if is_bounded { start.wrapping_add(1) } else { start };
    if is_bounded && !reader.read(start, &mut first) {
        return None;
    }
    let relative = |bytes: [u8; 4]| i64::from(i32::from_le_bytes(bytes));
    match first {
        [0xe9, a, b, c, d] => return Some(start.wrapping_add(5).wrapping_add_signed(relative([a, b, c, d]))),
        [0xeb, distance, ..] => return Some(start.wrapping_add(2).wrapping_add_signed(i64::from(distance as i8))),
        _ => {}
    }
    if !reader.read(start, code.get_mut(..6)?) {
        return None;
    }
    if let [0xff, 0x25, a, b, c, d, ..] = code {
        return reader.word(start.wrapping_add(6).wrapping_add_signed(relative([a, b, c, d])));
    }
    if !matches!(code, [0x49, 0xba | 0xbb, ..]) || !reader.read(start, &mut code) {
        return None;
    }
    match code {
        [0x49, load, a, b, c, d, e, f, g, h, 0x41, 0xff, jump] if jump == load ^ 0xba ^ 0xe2 => {
            Some(u64::from_le_bytes([a, b, c, d, e, f, g, h]))
        }
        _ => None,
    }
}

/// The call's target, given the registers at its first instruction; `None` if they do not determine it.
pub(super) fn target(call: Call, regs: &Regs, reader: &mut Reader<'_>) -> Option<u64> {
    // The call has pushed a word since.
    let before = |register: u8| regs.get(register).map(|value| value.wrapping_add(if register == RSP { 8 } else { 0 }));
    match call {
        Call::Direct(target) => Some(target),
        Call::Register(register) => before(register),
        Call::Memory { base, index, displacement } => {
            let base = base.map_or(Some(0), before)?;
            let index = index.map_or(Some(0), |(register, shift)| before(register).map(|value| value << shift))?;
            reader.word(base.wrapping_add(index).wrapping_add(displacement))
        }
    }
}

/// Whether a direct jump to `target` begins these bytes, the first of which is at `at`.
pub(super) fn is_jump(bytes: &[u8], at: u64, target: u64) -> bool {
    let [0xe9, distance @ ..] = bytes else { return false };
    let Some(distance) = distance.first_chunk() else { return false };
    let next = at.wrapping_add(5);
    next.wrapping_add_signed(i64::from(i32::from_le_bytes(*distance))) == target
}

/// Whether these bytes begin with an instruction that loads rsp from something else than itself or rbp, and does not
/// only add to it: `mov`, `xchg` or `lea` (Intel SDM volume 2).
pub(super) fn loads_stack_pointer(bytes: &[u8]) -> bool {
    const RSP: u8 = 4;
    const RBP: u8 = 5;
    let [rex @ 0x48..=0x4f, operation, modrm, rest @ ..] = bytes else { return false };
    let (mode, extends, base) = (modrm >> 6, rex << 1 & 8, rex << 3 & 8);
    let (register, operand) = (modrm >> 3 & 7 | extends, modrm & 7 | base);
    let is_own = |register: u8| matches!(register, RSP | RBP);
    match operation {
        0x89 => mode == 3 && operand == RSP && !is_own(register),
        0x8b => register == RSP && !(mode == 3 && is_own(operand)),
        0x87 => mode == 3 && (operand == RSP) != (register == RSP),
        0x94 => base == 0,
        // An immediate operand.
        0xc7 => *modrm == 0xc4 && base == 0,
        // With an index register, it is no constant that is added.
        0x8d if modrm & 7 == RSP => {
            let of_sib = rest.first().map_or(RSP, |sib| sib & 7 | base);
            register == RSP && mode != 3 && !is_own(of_sib)
        }
        0x8d => register == RSP && mode != 3 && (operand != RBP || mode == 0),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::{fixed_target, leads_to, precedes};
    use super::*;
    use crate::memory::Region;

    const NEXT: u64 = 0x2000;
    const TARGET: u64 = 0x9000;

    /// Registers that differ from each other; each leads to a word that only it leads to.
    fn regs() -> Regs {
        Regs::full(TARGET, core::array::from_fn(|register| 0x5000 + 0x100 * register as u64))
    }

    /// As an assembler writes them (GNU as 2.40), and where their operand lies with the registers above.
    const FORMS: [(&[u8], u64); 12] = [
        (&[0xff, 0x13], 0x5300),                                                          // call *(%rbx)
        (&[0xff, 0x55, 0x08], 0x5608),                                                    // call *8(%rbp)
        (&[0x41, 0xff, 0x14, 0x24], 0x5c00),                                              // call *(%r12)
        (&[0x41, 0xff, 0x55, 0xf8], 0x5cf8),                                              // call *-8(%r13)
        (&[0xff, 0x14, 0xd8], 0x5000 + 8 * 0x5300),                                       // call *(%rax,%rbx,8)
        (&[0x42, 0xff, 0x54, 0xe3, 0x10], 0x5310 + 8 * 0x5c00),                           // call *16(%rbx,%r12,8)
        (&[0xff, 0x15, 0x00, 0x01, 0x00, 0x00], NEXT + 0x100),                            // call *256(%rip)
        (&[0xff, 0x14, 0x25, 0x00, 0x70, 0x00, 0x00], 0x7000),                            // call *0x7000
        (&[0xff, 0x14, 0xdd, 0x00, 0x10, 0x00, 0x00], 0x1000 + 8 * 0x5300),               // call *4096(,%rbx,8)
        (&[0xff, 0x54, 0x24, 0x08], 0x5708 + 8),                                          // call *8(%rsp)
        (&[0x41, 0xff, 0x97, 0x00, 0x02, 0x00, 0x00], 0x6100),                            // call *512(%r15)
        (&[0x43, 0xff, 0x94, 0xf7, 0x00, 0x01, 0x00, 0x00], 0x5f00 + 8 * 0x5e00 + 0x100), // call *256(%r15,%r14,8)
    ];

    /// What is found with `code` before NEXT and the target in the word at `slot`.
    fn found(code: &[u8], slot: u64, regs: &Regs) -> (bool, bool) {
        let target = TARGET.to_le_bytes();
        let code = Region { address: NEXT - code.len() as u64, bytes: code };
        let regions = [code, Region { address: slot, bytes: &target }];
        let mut reader = Reader::recorded(&regions);
        (precedes(NEXT, &mut reader), leads_to(NEXT, regs, &mut reader))
    }

    #[test]
    fn calls_lead_where_their_operands_say() {
        for (code, slot) in FORMS {
            assert_eq!(found(code, slot, &regs()), (true, true), "{code:x?}");
            assert_eq!(found(code, slot + 0x10_0000, &regs()), (true, false), "{code:x?}, another word");
        }
        for (code, register) in [(&[0xff, 0xd3][..], 3), (&[0x41, 0xff, 0xd4], 12), (&[0xff, 0xd1], 2)] {
            let mut regs = regs();
            assert_eq!(found(code, 0, &regs), (true, false), "{code:x?}");
            regs.set(register, TARGET);
            assert_eq!(found(code, 0, &regs), (true, true), "{code:x?}");
        }
        let [a, b, c, d] = ((TARGET - NEXT) as u32).to_le_bytes();
        assert_eq!(found(&[0xe8, a, b, c, d], 0, &regs()), (true, true));
        assert_eq!(found(&[0xe8, a, b, c, d ^ 1], 0, &regs()), (true, false));
    }

    /// Calls of `TARGET`'s stub, and through a word: their target, whatever the registers are.
    #[test]
    fn fixed_targets_are_found_through_linkage_tables() {
        const STUB: u64 = NEXT + 0x100;
        const SLOT: u64 = NEXT + 0x200;
        let stubs: [&[u8]; 4] = [
            &[0xff, 0x25, 0xfa, 0x00, 0x00, 0x00, 0x66, 0x90],
            &[0xf2, 0xff, 0x25, 0xf9, 0x00, 0x00, 0x00, 0x90],
            &[0xf3, 0x0f, 0x1e, 0xfa, 0xff, 0x25, 0xf6, 0x00, 0x00, 0x00, 0x66, 0x90],
            &[0xf3, 0x0f, 0x1e, 0xfa, 0xf2, 0xff, 0x25, 0xf5, 0x00, 0x00, 0x00],
        ];
        let found = |code: &[u8], stub: &[u8], word: u64| {
            let word = word.to_le_bytes();
            let regions = [
                Region { address: NEXT - code.len() as u64, bytes: code },
                Region { address: STUB, bytes: stub },
                Region { address: SLOT, bytes: &word },
            ];
            fixed_target(NEXT, &mut Reader::recorded(&regions))
        };
        let direct = [0xe8, 0x00, 0x01, 0x00, 0x00];
        for stub in stubs {
            assert_eq!(found(&direct, stub, TARGET), Some(TARGET), "{stub:x?}");
            assert_eq!(found(&direct, stub, STUB + 6), None, "{stub:x?}, not resolved");
        }
        assert_eq!(found(&direct, &[0x55; 8], TARGET), Some(STUB));
        assert_eq!(found(&direct, &[], TARGET), None);
        assert_eq!(found(&[0xff, 0x15, 0x00, 0x02, 0x00, 0x00], &[], TARGET), Some(TARGET));
        assert_eq!(found(&[0xff, 0x13], &[], TARGET), None);
    }

    #[test]
    fn nothing_is_read_where_no_code_can_be() {
        let precedes = |return_address: u64| {
            let region = Region { address: return_address - 2, bytes: &[0xff, 0xd3] };
            super::super::precedes(return_address, &mut Reader::recorded(&[region]))
        };
        assert_eq!([8, 0x100, 0xfff, 0x1000].map(precedes), [false, false, false, true]);
    }

    #[test]
    fn what_is_no_call_precedes_nothing() {
        // ret; jmp *%rax; push (%rax); nop; a call cut short; nothing readable.
        let others: [&[u8]; 6] =
            [&[0xc3; 8], &[0x90, 0x90, 0xff, 0xe0], &[0x90, 0xff, 0x30], &[0x90; 8], &[0xe8, 0, 0, 0], &[]];
        for code in others {
            assert_eq!(found(code, 0x6000, &regs()), (false, false), "{code:x?}");
        }
    }
}
