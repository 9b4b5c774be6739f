//! The code of `take_gil`, the function that waits for the GIL
//! (<https://github.com/python/cpython/blob/v3.13.0/Python/ceval_gil.c>). It has no exported symbol, but no other
//! function refers to the text of one of its errors. What the compiler splits off, such as the code for errors, is
//! a range of its own, which only `take_gil` jumps into.

use memchr::memmem::find_iter;
use memchr::{memchr2_iter, memchr_iter};
use uunwind_elf::{Elf, Function, Loaded, Span};
use uunwind_python::lock::TAKING;

/// The text, with its end.
const TEXT: &[u8] = b"PyCOND_WAIT(gil->cond) failed\0";
/// Limit of bytes that are searched in all segments with code, and again in all with constants.
const LIMIT: u64 = 64 << 20;
/// Copies of the text that are looked for; linkers keep one.
const TEXTS: usize = 4;
/// Longest code of `take_gil` in bytes. What is longer has it inlined, and more besides.
const LONGEST: u64 = 4096;
/// CFA minus stack pointer at the first instruction of a whole function.
const WHOLE: u64 = 8;

/// The ranges of its code, file addresses. `None`: it was not found, or is inlined in larger code.
pub fn find(elf: &dyn Elf) -> Option<[[u64; 2]; TAKING]> {
    let segments = elf.loaded();
    let (executable, rest): (Vec<Loaded>, Vec<Loaded>) = segments.into_iter().partition(|s| s.executable);
    let code = Code::load_all(elf, executable.iter());
    let texts = texts(elf, &rest, &code);
    if texts.is_empty() {
        return None;
    }
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
    for place in texts.iter().flat_map(|text| code.iter().flat_map(|code| code.references(*text))) {
        add(&mut found, place);
    }
    if found.len() > TAKING {
        return None;
    }
    let parts: Vec<Span> = found.iter().filter(|f| f.cfa_offset != WHOLE).map(|f| f.span).collect();
    for place in parts.iter().flat_map(|part| code.iter().flat_map(|code| code.jumps(*part))) {
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
    let constant = Code::load_all(elf, rest.iter().filter(|segment| !segment.writable));
    let segments = constant.iter().chain(code);
    let found = segments.flat_map(|segment| find_iter(&segment.bytes, TEXT).map(|at| segment.start + at as u64));
    found.take(TEXTS).collect()
}

/// The bytes of a segment, and the file address of the first.
struct Code {
    start: u64,
    bytes: Vec<u8>,
}

impl Code {
    /// What can be read of the segments, at most [`LIMIT`] bytes in all.
    fn load_all<'s>(elf: &dyn Elf, segments: impl Iterator<Item = &'s Loaded>) -> Vec<Code> {
        let mut left = LIMIT;
        let mut loaded = Vec::new();
        for segment in segments {
            if let Some(code) = Code::load(elf, segment, left) {
                left = left.saturating_sub(code.bytes.len() as u64);
                loaded.push(code);
            }
        }
        loaded
    }

    /// The first bytes of a segment, at most this many.
    fn load(elf: &dyn Elf, segment: &Loaded, limit: u64) -> Option<Code> {
        let mut bytes = vec![0; segment.span.len().min(limit) as usize];
        elf.read(segment.span.start, &mut bytes).then_some(Code { start: segment.span.start, bytes })
    }

    /// Addresses in instructions that make this address: `lea register, [rip + distance]`, or, in programs that are not
    /// position-independent, `mov register, address`.
    fn references(&self, target: u64) -> Vec<u64> {
        const LEA: u8 = 0x8d;
        let byte = |at: usize| self.bytes.get(at).copied();
        let operand_of_lea = |at: usize| {
            let is_lea = matches!(byte(at.checked_sub(1)?), Some(0x48 | 0x4c)) && byte(at + 1)? & 0xc7 == 5;
            is_lea.then_some(at + 2)
        };
        let leas = memchr_iter(LEA, &self.bytes).filter_map(operand_of_lea);
        let mut found: Vec<usize> = leas.filter(|at| self.target(*at) == Some(target)).collect();
        if let Ok(operand) = u32::try_from(target).map(u32::to_le_bytes) {
            let is_move = |at: &usize| at.checked_sub(1).and_then(byte).is_some_and(|byte| byte & 0xf8 == 0xb8);
            found.extend(find_iter(&self.bytes, &operand).filter(is_move));
        }
        found.into_iter().map(|at| self.address(at)).collect()
    }

    /// Addresses in jumps, conditional ones and others, into this span from outside.
    fn jumps(&self, into: Span) -> Vec<u64> {
        const JUMP: u8 = 0xe9;
        const CONDITIONAL: u8 = 0x0f;
        let operand_of_jump = |at: usize| match (self.bytes.get(at)?, self.bytes.get(at + 1)?) {
            (&JUMP, _) => Some(at + 1),
            (_, 0x80..=0x8f) => Some(at + 2),
            _ => None,
        };
        let operands = memchr2_iter(JUMP, CONDITIONAL, &self.bytes).filter_map(operand_of_jump);
        let into_it = operands.filter(|at| self.target(*at).is_some_and(|target| into.contains(target)));
        into_it.map(|at| self.address(at)).filter(|place| !into.contains(*place)).collect()
    }

    /// Where a 32-bit operand at this offset leads to, which is the distance from its end.
    fn target(&self, at: usize) -> Option<u64> {
        let distance = i32::from_le_bytes(*self.bytes.get(at..)?.first_chunk()?);
        Some(self.address(at).wrapping_add(4).wrapping_add_signed(distance.into()))
    }

    /// The file address of the byte at this offset.
    fn address(&self, at: usize) -> u64 {
        self.start.wrapping_add(at as u64)
    }
}

#[cfg(test)]
mod tests {
    use uunwind_elf::Symbol;

    use super::*;

    /// A file that claims to hold every byte of its segments.
    struct Endless;

    impl Elf for Endless {
        fn symbol(&self, _: &str) -> Option<Symbol> {
            None
        }

        fn read(&self, _: u64, _: &mut [u8]) -> bool {
            true
        }

        fn loaded(&self) -> Vec<Loaded> {
            let segment = |start| Loaded { span: Span::sized(start, LIMIT / 4 * 3), executable: true, writable: false };
            (0..8).map(|n| segment(n * LIMIT)).collect()
        }

        fn functions(&self) -> Vec<Function> {
            Vec::new()
        }
    }

    #[test]
    fn all_segments_share_one_limit() {
        let loaded = Code::load_all(&Endless, Endless.loaded().iter());
        assert_eq!(loaded.iter().map(|code| code.bytes.len() as u64).sum::<u64>(), LIMIT);
        assert_eq!(loaded.first().map(|code| code.bytes.len() as u64), Some(LIMIT / 4 * 3));
    }

    fn code(bytes: &[u8]) -> Code {
        Code { start: 0x1000, bytes: bytes.to_vec() }
    }

    #[test]
    fn references_are_relative_or_absolute() {
        // `lea rsi, [rip + 0x20]`, whose end is 0x1008; `mov esi, 0x1028`; `mov rsi, [rip + 0x20]`, which is none.
        let relative = code(&[0x90, 0x48, 0x8d, 0x35, 0x20, 0, 0, 0, 0x90]);
        assert_eq!(relative.references(0x1028), [0x1004]);
        assert_eq!([relative.references(0x1027), relative.references(0x1029)].concat(), []);
        let absolute = code(&[0x90, 0x90, 0xbe, 0x28, 0x10, 0, 0, 0x90]);
        assert_eq!(absolute.references(0x1028), [0x1003]);
        assert_eq!(code(&[0x90, 0x48, 0x8b, 0x35, 0x20, 0, 0, 0, 0x90]).references(0x1028), []);
    }

    #[test]
    fn jumps_into_a_part_come_from_outside_of_it() {
        // `js 0x1040`, `jmp 0x1040`, `call 0x1040`.
        let bytes = [0x90, 0x0f, 0x88, 0x39, 0, 0, 0, 0xe9, 0x34, 0, 0, 0, 0xe8, 0x2f, 0, 0, 0, 0x90, 0x90];
        assert_eq!(code(&bytes).jumps(Span::new(0x1040, 0x1044)), [0x1003, 0x1008]);
        assert_eq!(code(&bytes).jumps(Span::new(0x1000, 0x1044)), []);
        assert_eq!(code(&bytes).jumps(Span::new(0x1041, 0x1044)), []);
    }
}
