//! The words of one copy of a thread's stacks.

use uunwind_core::span::Span;
use uunwind_ring::copy::{decode, Head, Sink};

/// A copy, decoded.
#[derive(Default)]
pub struct Copy {
    /// Its registers.
    pub head: Head,
    /// The words that were kept, in order of their addresses within each stack.
    words: Vec<(u64, u64)>,
    stacks: Vec<Stack>,
}

/// One of its stacks.
#[derive(Clone, Copy)]
struct Stack {
    /// What was copied of it.
    span: Span,
    /// More of it was there.
    is_cut: bool,
    /// Its words: from this index on, up to that of the next stack.
    first: usize,
}

/// What a copy has at an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Word {
    /// This word.
    Kept(u64),
    /// A word that was no address of code or of a stack.
    LeftOut,
    /// It lies after what was copied of a stack.
    Cut,
    /// No stack is there.
    Elsewhere,
}

impl Copy {
    /// Decodes a copy. `None`: it is damaged.
    pub fn decode(bytes: &[u8]) -> Option<Copy> {
        let mut copy = Copy::default();
        copy.head = decode(bytes, &mut copy).ok()?;
        Some(copy)
    }

    /// The word at a process address.
    pub fn word(&self, address: u64) -> Word {
        let mut after = false;
        for (index, stack) in self.stacks.iter().enumerate() {
            if stack.span.contains(address) {
                let end = self.stacks.get(index + 1).map_or(self.words.len(), |next| next.first);
                let words = self.words.get(stack.first..end).unwrap_or_default();
                return match words.binary_search_by_key(&address, |(at, _)| *at) {
                    Ok(place) => words.get(place).map_or(Word::LeftOut, |(_, value)| Word::Kept(*value)),
                    Err(_) => Word::LeftOut,
                };
            }
            after |= stack.is_cut && address >= stack.span.end && address - stack.span.end < LARGEST;
        }
        if after {
            Word::Cut
        } else {
            Word::Elsewhere
        }
    }
}

/// What lies at most this many bytes after a stack that was cut is taken for a part of it.
const LARGEST: u64 = 1 << 30;

impl Sink for Copy {
    fn stack(&mut self, start: u64) {
        let first = self.words.len();
        self.stacks.push(Stack { span: Span::new(start, start), is_cut: false, first });
    }

    fn word(&mut self, address: u64, value: u64) {
        self.words.push((address, value));
    }

    fn end(&mut self, end: u64, cut: Option<u64>) {
        if let Some(stack) = self.stacks.last_mut() {
            stack.span.end = end;
            stack.is_cut = cut.is_some();
        }
    }
}
