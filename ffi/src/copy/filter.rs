//! Which words of a stack are kept.

use uunwind_core::call_site;
use uunwind_core::memory::{Reader, USER_END};
use uunwind_core::span::Span;
use uunwind_live::env::Live;
use uunwind_ring::code_map::CodeMap;
use uunwind_ring::copy::{Encoder, Recent};

/// Bytes of a page. Memory is executable by pages.
const PAGE: u64 = 4096;
/// Ranges of code that are kept during a copy.
const RANGES: usize = 16;
/// Pages without code that are kept during a copy.
const PAGES: usize = 128;
/// Stacks whose addresses are kept.
const STACKS: usize = 3;

/// The memory of a copy; any bytes are a valid value.
#[repr(C, align(16))]
pub struct Memory {
    recent: Recent,
    known: Known,
}

/// What was found out about addresses during this copy.
pub struct Known {
    /// Parts of objects, and windows, whole pages. The first ones were met last.
    code: [Span; RANGES],
    next: usize,
    /// Pages in which no object and no window has code; by their lowest bits.
    elsewhere: [u64; PAGES],
}

impl Memory {
    /// Forgets what was known: objects and windows may have changed since the last copy.
    pub fn begin(&mut self) {
        self.known.code.fill(Span::EMPTY);
        self.known.next = 0;
        self.known.elsewhere.fill(0);
    }

    /// The coder's memory and the filter's.
    pub fn parts(&mut self) -> (&mut Recent, &mut Known) {
        (&mut self.recent, &mut self.known)
    }
}

/// Decides which words of a stack are kept.
pub struct Filter<'f, 'w> {
    env: &'f mut Live<'w>,
    reader: &'f mut Reader<'w>,
    known: &'f mut Known,
    map: CodeMap,
    stacks: [Span; STACKS],
}

impl<'f, 'w> Filter<'f, 'w> {
    /// # Safety
    /// As [`CodeMap::new`].
    pub unsafe fn new(
        env: &'f mut Live<'w>,
        reader: &'f mut Reader<'w>,
        known: &'f mut Known,
        block: *const u8,
    ) -> Filter<'f, 'w> {
        // SAFETY: passed on.
        let map = unsafe { CodeMap::new(block) };
        Filter { env, reader, known, map, stacks: [Span::EMPTY; STACKS] }
    }

    /// From now on, addresses of this stack are kept.
    pub fn add_stack(&mut self, stack: Span) {
        if let Some(place) = self.stacks.iter_mut().find(|place| place.is_empty() || place.start == stack.start) {
            *place = stack;
        }
    }

    /// The word at a process address, if it can be read.
    #[inline(always)]
    pub fn read(&mut self, at: u64) -> Option<u64> {
        self.reader.word(at)
    }

    /// Codes the word that lies at `at`, if it is to be kept. `may_return`: it may be a return address.
    #[inline(always)]
    pub fn put(&mut self, at: u64, word: u64, may_return: bool, encoder: &mut Encoder<'_>) {
        // Nothing is mapped there: the lowest page never is, unless root allows it.
        if !(PAGE..USER_END).contains(&word) {
            return encoder.leave_out();
        }
        let in_stack = |stack: &Span| stack.contains(word) || word == stack.end;
        if self.stacks.iter().any(in_stack) {
            return if word & 7 == 0 { encoder.frame(at, word) } else { encoder.leave_out() };
        }
        if may_return && self.is_code(word) {
            encoder.code(word);
        } else {
            encoder.leave_out();
        }
    }

    #[inline(always)]
    fn is_code(&mut self, word: u64) -> bool {
        let holds = |code: &Span| code.start <= word && word <= code.end;
        self.known.code.iter().any(|code| holds(code) && !code.is_empty()) || self.is_new_code(word)
    }

    #[inline(never)]
    fn is_new_code(&mut self, word: u64) -> bool {
        let page = word / PAGE;
        let index = page as usize % PAGES;
        let at_start = word & (PAGE - 1) == 0;
        let is_elsewhere = self.known.elsewhere.get(index) == Some(&page) && !at_start;
        if !is_elsewhere {
            if let Some(code) = self.env.code_at(word, self.reader) {
                // Code is loaded by pages, and nothing of another object is on them.
                let whole = Span::new(code.start & !(PAGE - 1), code.end.saturating_add(PAGE - 1) & !(PAGE - 1));
                if let Some(place) = self.known.code.get_mut(self.known.next % RANGES) {
                    *place = whole;
                }
                self.known.next = (self.known.next + 1) % RANGES;
                return true;
            }
            if let Some(place) = self.known.elsewhere.get_mut(index) {
                *place = page;
            }
        }
        // Executable memory that nobody has registered. There only a return address can be a frame's.
        self.map.covers(word) && call_site::precedes(word, self.reader)
    }
}
