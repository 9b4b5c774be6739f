//! The code of `take_gil`, the function that waits for the GIL
//! (<https://github.com/python/cpython/blob/v3.13.0/Python/ceval_gil.c>). It has no exported symbol, but no other
//! function refers to the text of one of its errors. What the compiler splits off, such as the code for errors, is
//! a range of its own, which only `take_gil` jumps into.

use memchr::memmem::find_iter;
use uunwind_elf::{Elf, Function, Loaded, Span};
use uunwind_python::lock::TAKING;

/// The text, with its end.
const TEXT: &[u8] = b"PyCOND_WAIT(gil->cond) failed\0";
/// Limit of bytes of a segment that are searched.
const LIMIT: u64 = 1 << 30;
/// Longest code of `take_gil` in bytes. What is longer has it inlined, and more besides.
const LONGEST: u64 = 4096;
/// CFA minus stack pointer at the first instruction of a whole function.
const WHOLE: u64 = 8;

/// The ranges of its code, file addresses. `None`: it was not found, or is inlined in larger code.
pub fn find(elf: &dyn Elf) -> Option<[[u64; 2]; TAKING]> {
    let segments = elf.loaded();
    let (executable, rest): (Vec<Loaded>, Vec<Loaded>) = segments.into_iter().partition(|s| s.executable);
    let code: Vec<Code> = executable.iter().filter_map(|segment| Code::load(elf, segment)).collect();
    let texts = texts(elf, &rest, &code);
    let functions = elf.functions();
    let holder = |place: u64| {
        let before = functions.partition_point(|f| f.span.start <= place);
        before.checked_sub(1).and_then(|at| functions.get(at)).filter(|f| f.span.contains(place))
    };
    let mut found: Vec<Function> = Vec::new();
    let add = |found: &mut Vec<Function>, place| {
        let holder = holder(place).filter(|holder| !found.contains(holder));
        found.extend(holder);
    };
    for place in code.iter().flat_map(|code| code.references(&texts)) {
        add(&mut found, place);
    }
    let parts: Vec<Span> = found.iter().filter(|f| f.cfa_offset != WHOLE).map(|f| f.span).collect();
    for place in code.iter().flat_map(|code| code.jumps(&parts)) {
        add(&mut found, place);
    }
    let is_whole = found.iter().any(|f| f.cfa_offset == WHOLE);
    let length = found.iter().fold(0u64, |sum, f| sum.saturating_add(f.span.len()));
    if !is_whole || length > LONGEST || found.len() > TAKING {
        return None;
    }
    let mut ranges = [[0; 2]; TAKING];
    for (range, function) in ranges.iter_mut().zip(&found) {
        *range = [function.span.start, function.span.end];
    }
    Some(ranges)
}

/// File addresses of the text. It may lie in a segment with code, too.
fn texts(elf: &dyn Elf, rest: &[Loaded], code: &[Code]) -> Vec<u64> {
    let constant: Vec<Code> = rest.iter().filter(|s| !s.writable).filter_map(|s| Code::load(elf, s)).collect();
    let segments = constant.iter().chain(code);
    let found = segments.flat_map(|segment| find_iter(&segment.bytes, TEXT).map(|at| segment.start + at as u64));
    found.collect()
}

/// The bytes of a segment, and the file address of the first.
struct Code {
    start: u64,
    bytes: Vec<u8>,
}

impl Code {
    fn load(elf: &dyn Elf, segment: &Loaded) -> Option<Code> {
        let mut bytes = vec![0; segment.span.len().min(LIMIT) as usize];
        elf.read(segment.span.start, &mut bytes).then_some(Code { start: segment.span.start, bytes })
    }

    /// Addresses in instructions that make one of these addresses: `lea register, [rip + distance]`, or, in programs
    /// that are not position-independent, `mov register, address`.
    fn references(&self, targets: &[u64]) -> Vec<u64> {
        self.operands(|end, [first, second, third], operand| {
            let target = match [first, second, third] {
                [0x48 | 0x4c, 0x8d, form] if form & 0xc7 == 5 => end.wrapping_add_signed(i64::from(operand)),
                [_, _, 0xb8..=0xbf] => u64::from(operand as u32),
                _ => return false,
            };
            targets.contains(&target)
        })
    }

    /// Addresses in jumps, conditional ones and others, into one of these spans from outside.
    fn jumps(&self, into: &[Span]) -> Vec<u64> {
        self.operands(|end, [_, second, third], operand| {
            let jumps = matches!([second, third], [_, 0xe9] | [0x0f, 0x80..=0x8f]);
            let leads = |address: u64| into.iter().any(|span| span.contains(address));
            jumps && leads(end.wrapping_add_signed(i64::from(operand))) && !leads(end.wrapping_sub(1))
        })
    }

    /// Addresses of the 32-bit operands that are wanted. What is asked about each: the address after it, the three
    /// bytes before it, and its value.
    fn operands(&self, mut is_wanted: impl FnMut(u64, [u8; 3], i32) -> bool) -> Vec<u64> {
        let mut found = Vec::new();
        for (at, bytes) in self.bytes.windows(7).enumerate() {
            let &[first, second, third, a, b, c, d] = bytes else { continue };
            let operand = self.start.wrapping_add(at as u64).wrapping_add(3);
            if is_wanted(operand.wrapping_add(4), [first, second, third], i32::from_le_bytes([a, b, c, d])) {
                found.push(operand);
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(bytes: &[u8]) -> Code {
        Code { start: 0x1000, bytes: bytes.to_vec() }
    }

    #[test]
    fn references_are_relative_or_absolute() {
        // `lea rsi, [rip + 0x20]`, whose end is 0x1008; `mov esi, 0x1028`; `mov rsi, [rip + 0x20]`, which is none.
        let relative = code(&[0x90, 0x48, 0x8d, 0x35, 0x20, 0, 0, 0, 0x90]);
        assert_eq!(relative.references(&[0x1028]), [0x1004]);
        assert_eq!(relative.references(&[0x1027, 0x1029]), []);
        let absolute = code(&[0x90, 0x90, 0xbe, 0x28, 0x10, 0, 0, 0x90]);
        assert_eq!(absolute.references(&[0x1028]), [0x1003]);
        assert_eq!(code(&[0x90, 0x48, 0x8b, 0x35, 0x20, 0, 0, 0, 0x90]).references(&[0x1028]), []);
    }

    #[test]
    fn jumps_into_a_part_come_from_outside_of_it() {
        // `js 0x1040`, `jmp 0x1040`, `call 0x1040`.
        let bytes = [0x90, 0x0f, 0x88, 0x39, 0, 0, 0, 0xe9, 0x34, 0, 0, 0, 0xe8, 0x2f, 0, 0, 0, 0x90, 0x90];
        assert_eq!(code(&bytes).jumps(&[Span::new(0x1040, 0x1044)]), [0x1003, 0x1008]);
        assert_eq!(code(&bytes).jumps(&[Span::new(0x1000, 0x1044)]), []);
        assert_eq!(code(&bytes).jumps(&[Span::new(0x1041, 0x1044)]), []);
    }
}
