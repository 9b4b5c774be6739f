//! Layout of the rules that the recorder makes from machine code that JITs have reported without unwind data. They
//! follow the facts in the same memfd. Words of 64 bits:
//!
//! ```text
//! 0       generation; 0: nothing was published
//! 8       index of even generations: number of entries, then entries by `start`, three words each:
//!         start, end (process addresses of a function), word at which its block begins
//! ODD     index of odd generations, the same
//! DATA    blocks: number of pieces, rows and rules; of each piece its process address and its bytes; copies of the
//!         pieces, each from a word on; the rows (offset from `start`, the rule's number above it: by offset); the
//!         rules, three words each (`uunwind_core::rule::Packed`)
//! ```
//! A rule holds while the pieces of its function are in memory as they were copied: the function's code, and the tables
//! of jumps that it reads. Whoever asks compares them, so an address that other code has taken over gets no rule of the
//! code before. For this reason entries belong to no process.
//!
//! Unlike tables, blocks change: those of code that is gone are used again. The recorder writes the index that is not
//! current, and then the next generation. No block of the index before is overwritten until then, so a reader that
//! finds the same generation before and after has read what belongs together.

use core::sync::atomic::{fence, AtomicU64, Ordering};

/// Size of this part of the memfd in bytes. It is address space, of which only what is used takes memory.
pub const CODE_RULES_BYTES: usize = 16 << 20;
/// The same in words.
pub const WORDS: usize = CODE_RULES_BYTES / 8;
/// Limit of the number of functions with rules at one time.
pub const ENTRIES: usize = 16384;
/// Words of an entry.
pub const ENTRY_WORDS: usize = 3;
/// Words at which the indices begin: those of even and of odd generations.
pub const INDEX: [usize; 2] = [8, 8 + INDEX_WORDS];
const INDEX_WORDS: usize = 8 + ENTRIES * ENTRY_WORDS;
/// Word at which the blocks begin.
pub const DATA: usize = INDEX[1] + INDEX_WORDS;
/// Words of a block before its list of pieces.
pub const BLOCK_HEAD: usize = 3;
/// Limit of the number of pieces of a function.
pub const MOST_PIECES: usize = 5;
/// Largest piece, in bytes.
pub const LARGEST_PIECE: usize = 256 << 10;
/// Number of a row without a rule.
pub const NO_RULE: u32 = u32::MAX;
/// Words of a rule.
pub const RULE_WORDS: usize = 3;
/// Functions of several processes may overlap: at most this number of those that begin before an address is looked at.
const OVERLAPS: usize = 8;
/// At most this number of looks at an index that changes meanwhile.
const ATTEMPTS: usize = 4;

/// A target's read-only view of the rules.
#[derive(Clone, Copy)]
pub struct CodeRulesView {
    base: *const AtomicU64,
}

// SAFETY: the mapping is shared, read-only here, and lives as long as the process.
unsafe impl Send for CodeRulesView {}
// SAFETY: the mapping is shared, read-only here, and lives as long as the process.
unsafe impl Sync for CodeRulesView {}

/// The words of a rule.
pub type RuleWords = [u64; RULE_WORDS];

impl CodeRulesView {
    /// A view of this part of a mapped memfd.
    ///
    /// # Safety
    /// `base` must point to [`CODE_RULES_BYTES`] readable bytes, 16-aligned, that stay mapped for ever.
    pub unsafe fn new(base: *const u8) -> CodeRulesView {
        CodeRulesView { base: base.cast() }
    }

    /// The rule for a process address, if its function's pieces are in memory as they were: `same(address, copy, len)`
    /// says whether `len` bytes at an address are those of the copy, which may change meanwhile. Bounded: four looks,
    /// each at eight functions with five pieces of 256 KiB. Async-signal-safe.
    pub fn find(&self, address: u64, mut same: impl FnMut(u64, *const AtomicU64, usize) -> bool) -> Option<RuleWords> {
        for _ in 0..ATTEMPTS {
            let generation = self.word(0)?.load(Ordering::Acquire);
            if generation == 0 {
                return None;
            }
            let found = self.find_in(*INDEX.get((generation % 2) as usize)?, address, &mut same);
            fence(Ordering::Acquire);
            if self.word(0)?.load(Ordering::Relaxed) == generation {
                return found;
            }
        }
        None
    }

    fn find_in(
        &self,
        index: usize,
        address: u64,
        same: &mut impl FnMut(u64, *const AtomicU64, usize) -> bool,
    ) -> Option<RuleWords> {
        let entry = |at: usize| index + 1 + at * ENTRY_WORDS;
        // The number of entries that begin at or before the address.
        let (mut before, mut after) = (0, (self.number(index)? as usize).min(ENTRIES));
        while before < after {
            let middle = before + (after - before) / 2;
            if self.number(entry(middle))? <= address {
                before = middle + 1;
            } else {
                after = middle;
            }
        }
        for at in (0..before).rev().take(OVERLAPS) {
            let (start, end) = (self.number(entry(at))?, self.number(entry(at) + 1)?);
            if address < end {
                let block = usize::try_from(self.number(entry(at) + 2)?).ok()?;
                if let Some(rule) = self.rule(block, address.wrapping_sub(start), same) {
                    return Some(rule);
                }
            }
        }
        None
    }

    /// The rule of a block for an offset from its function's start.
    fn rule(
        &self,
        block: usize,
        offset: u64,
        same: &mut impl FnMut(u64, *const AtomicU64, usize) -> bool,
    ) -> Option<RuleWords> {
        let head = |at: usize| Some(self.number(block.checked_add(at)?)? as usize);
        let (pieces, rows, rules) = (head(0)?, head(1)?, head(2)?);
        if pieces == 0 || pieces > MOST_PIECES || rows > WORDS || rules > WORDS {
            return None;
        }
        let mut copy = block + BLOCK_HEAD + 2 * pieces;
        for piece in 0..pieces {
            let at = block + BLOCK_HEAD + 2 * piece;
            let (address, len) = (self.number(at)?, self.number(at + 1)? as usize);
            let words = len.div_ceil(8);
            if len > LARGEST_PIECE || copy + words > WORDS || !same(address, self.word(copy)?, len) {
                return None;
            }
            copy += words;
        }
        let (first_row, first_rule) = (copy, copy + rows);
        let (mut before, mut after) = (0, rows);
        while before < after {
            let middle = before + (after - before) / 2;
            if u64::from(self.number(first_row + middle)? as u32) <= offset {
                before = middle + 1;
            } else {
                after = middle;
            }
        }
        let number = (self.number(first_row + before.checked_sub(1)?)? >> 32) as u32;
        if number == NO_RULE || number as usize >= rules {
            return None;
        }
        let at = first_rule + number as usize * RULE_WORDS;
        Some([self.number(at)?, self.number(at + 1)?, self.number(at + 2)?])
    }

    fn number(&self, at: usize) -> Option<u64> {
        Some(self.word(at)?.load(Ordering::Relaxed))
    }

    fn word(&self, at: usize) -> Option<&AtomicU64> {
        // SAFETY: inside the mapping, aligned, and looked at through atomics alone.
        (at < WORDS).then(|| unsafe { &*self.base.add(at) })
    }
}
