//! A piece of machine code, searched for instructions by their bytes.

use memchr::memmem;
use uunwind_elf::{Elf, Span};

/// Machine code of a range of a file.
pub struct Code {
    /// File address of the first byte.
    start: u64,
    bytes: Vec<u8>,
    /// The executable segment that holds it, and the targets of its calls.
    text: Span,
}

impl Code {
    /// Reads a range. `None`: the file does not hold all of it, or it is not executable.
    pub fn read(elf: &dyn Elf, range: Span) -> Option<Code> {
        let executable = |s: &&uunwind_elf::Loaded| s.executable && s.span.contains(range.start);
        let text = elf.loaded().iter().find(executable)?.span;
        let mut bytes = vec![0; usize::try_from(range.end.checked_sub(range.start)?).ok()?];
        elf.read(range.start, &mut bytes).then_some(Code { start: range.start, bytes, text })
    }

    /// Its size in bytes.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The file address of an offset.
    pub fn address(&self, offset: usize) -> u64 {
        self.start + offset as u64
    }

    /// `len` bytes at an offset.
    pub fn bytes(&self, offset: usize, len: usize) -> Option<&[u8]> {
        self.bytes.get(offset..offset.checked_add(len)?)
    }

    /// The 32-bit operand at an offset.
    pub fn operand(&self, offset: usize) -> Option<u32> {
        Some(u32::from_le_bytes(self.bytes(offset, 4)?.try_into().ok()?))
    }

    /// The first offset of these bytes, at `from` or after it.
    pub fn find(&self, bytes: &[u8], from: usize) -> Option<usize> {
        memmem::find(self.bytes.get(from..)?, bytes).map(|at| from + at)
    }

    /// All offsets of these bytes.
    pub fn find_all(&self, bytes: &[u8]) -> Vec<usize> {
        memmem::find_iter(&self.bytes, bytes).collect()
    }

    /// The operand after these bytes, if they occur more than once, always with the same operand.
    pub fn same_operand(&self, bytes: &[u8]) -> Option<u32> {
        let mut operands = self.find_all(bytes).into_iter().filter_map(|at| self.operand(at + bytes.len()));
        let first = operands.next()?;
        let mut count = 1;
        operands.all(|operand| {
            count += 1;
            operand == first
        });
        (count > 1).then_some(first)
    }

    /// The offset from r14 at which a number is stored most often: `mov dword [r14+offset], number`.
    pub fn store_of(&self, number: u32) -> Option<u32> {
        let mut places = std::collections::BTreeMap::<u32, u32>::new();
        for at in self.find_all(&[0x41, 0xc7, 0x86]) {
            if self.operand(at + 7) == Some(number) {
                *places.entry(self.operand(at + 3)?).or_default() += 1;
            }
        }
        places.into_iter().max_by_key(|(_, count)| *count).map(|(place, _)| place)
    }

    /// The offset of the first call of a function outside this code, at `from` or after it.
    pub fn find_call_out(&self, from: usize) -> Option<usize> {
        self.find_call_out_in(from, self.len())
    }

    /// As [`Code::find_call_out`], before the offset `end`.
    pub fn find_call_out_in(&self, from: usize, end: usize) -> Option<usize> {
        (from..end).find(|at| {
            let relative = self.operand(at + 1).map(|operand| i64::from(operand as i32));
            let target = relative.and_then(|r| self.address(at + 5).checked_add_signed(r));
            let own = Span { start: self.start, end: self.start + self.bytes.len() as u64 };
            self.bytes.get(*at) == Some(&0xe8) && target.is_some_and(|t| self.text.contains(t) && !own.contains(t))
        })
    }
}
