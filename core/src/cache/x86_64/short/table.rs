//! The table of rules in one word, small enough to stay in the processor's caches.
//!
//! An entry is 16 bytes, four share a cache line; a key has one line, and in it one entry that is its own if it is
//! free. That entry is looked at first, by a branch that is nearly always predicted, so that the walk goes on with its
//! rule before the comparison is done. Where a line is full, another one takes the key in. What finds no place here is
//! found in the object's rule table or in the larger table ([`crate::cache::rules`]).

use super::{Short, VALID};
use crate::cache::query::EXACT_KEY;
use crate::memory::{StackWords, USER_END};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Words of a cache line: four entries, each a rule and its seal.
const LINE: usize = 8;

/// The table, of a power of two of words. All-zero is empty.
#[repr(C, align(64))]
pub struct ShortRules<const WORDS: usize> {
    words: [AtomicU64; WORDS],
    /// The parts that have entries, a bit for each sixty-fourth: one that was not written is not read, since that would
    /// cost a fault for each of its pages.
    written: AtomicU64,
}

/// A table with a salt, and the parts of it that are written, taken out of memory once for many lookups.
#[derive(Clone, Copy)]
pub(crate) struct Lookup<'t, const WORDS: usize> {
    table: &'t ShortRules<WORDS>,
    written: u64,
    /// The salt of the key just below an address.
    salt: Salt,
}

/// What an entry's key has besides the pc: a generation or a validity epoch, mixed once for many lookups.
#[derive(Clone, Copy)]
pub struct Salt(u64);

impl Salt {
    /// The salt of a generation (samples), or of a validity epoch (captures): equal numbers find the same entries.
    pub fn new(generation: u64) -> Salt {
        let salt = generation.wrapping_mul(0x94d0_49bb_1331_11eb);
        // Of an empty entry both words are 0, which must be no key's seal. Keys are user-space addresses, with
        // `EXACT_KEY` or without; the address before the first one is not cached, but looked up.
        let lowest = salt.wrapping_add(USER_END) & !EXACT_KEY;
        Salt(if lowest <= USER_END + 1 { salt ^ 1 << 62 } else { salt })
    }
}

#[inline(always)]
fn all_ones_if(condition: bool) -> u64 {
    0u64.wrapping_sub(u64::from(condition))
}

/// What is stored beside a rule. No two rules have the same for one key, nor two keys for one rule.
#[inline(always)]
fn seal(key: u64, salt: Salt, rule: u64) -> u64 {
    rule.wrapping_mul(0xff51_afd7_ed55_8ccd).wrapping_add(key).wrapping_add(salt.0)
}

impl<const WORDS: usize> ShortRules<WORDS> {
    const IS_POWER: () = assert!(WORDS.is_power_of_two() && WORDS >= LINE);

    /// An empty table.
    #[allow(clippy::new_without_default, reason = "made once, as a static")]
    pub const fn new() -> ShortRules<WORDS> {
        const { Self::IS_POWER };
        ShortRules { words: [const { AtomicU64::new(0) }; WORDS], written: AtomicU64::new(0) }
    }

    /// Byte offset of the own entry of the key just below the address `above`. Each 16 bytes of code map to an entry of
    /// 16 bytes, so that one mask gives the offset, which is on the critical path at every frame. Return addresses are
    /// mostly more than 16 bytes apart.
    #[inline(always)]
    fn own_byte(above: u64) -> usize {
        above as usize & Self::OWN_BYTES as usize
    }

    const OWN_BYTES: u32 = ((WORDS - 2) * 8) as u32;

    /// Binary logarithm of the bytes of a part, at least a page.
    const PART_BITS: u32 = if WORDS * 8 <= 64 * 4096 { 12 } else { (WORDS * 8 / 64).trailing_zeros() };

    /// The bit of the part that this byte offset lies in.
    #[inline(always)]
    fn part(byte: usize) -> u64 {
        1u64.wrapping_shl((byte >> Self::PART_BITS) as u32)
    }

    #[inline(always)]
    fn is_written(written: u64, byte: usize) -> bool {
        written & Self::part(byte) != 0
    }

    fn own(key: u64) -> usize {
        Self::own_byte(key.wrapping_add(1)) / 8
    }

    #[inline(always)]
    fn entry(&self, at: usize) -> Option<[&AtomicU64; 2]> {
        Some([self.words.get(at)?, self.words.get(at | 1)?])
    }

    /// Index of the first word of the key's line.
    fn first(key: u64) -> usize {
        Self::own(key) & !(LINE - 1)
    }

    /// Index of the first word of the key's second line, which is used when the first is full. Code at a distance of
    /// the table's size shares its first line; so the second depends on the distance.
    fn second(key: u64) -> usize {
        let far = (key / (WORDS as u64 * 8)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        Self::first(key) ^ ((far as usize | 1) * LINE) & (WORDS - LINE)
    }

    /// The entries of the line that begins there.
    fn line(&self, first: usize) -> impl Iterator<Item = [&AtomicU64; 2]> {
        (first..first + LINE).step_by(2).filter_map(|at| self.entry(at))
    }

    /// The rule stored for `key` under this generation, if it stands in the key's own entry. Async-signal-safe.
    #[inline(always)]
    pub fn get_first(&self, key: u64, salt: Salt) -> Option<Short> {
        // Any number may be asked for here, also one that is no address: an empty entry's rule has no words.
        self.under(salt).get_before(key.wrapping_add(1)).filter(|rule| rule.words() != 0)
    }

    /// For many lookups under one salt.
    #[inline(always)]
    pub(crate) fn under(&self, salt: Salt) -> Lookup<'_, WORDS> {
        Lookup { table: self, written: self.written.load(Relaxed), salt: Salt(salt.0.wrapping_sub(1)) }
    }

    /// Prefetches the own entry of the key just below the address `above`.
    #[inline(always)]
    pub fn prefetch_before(&self, above: u64) {
        // SAFETY: an even number of words, below WORDS; a prefetch reads nothing.
        unsafe {
            let entry = self.words.as_ptr().byte_add(Self::own_byte(above));
            core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(entry.cast());
        }
    }

    /// The rule stored for `key` under this salt, in any entry of the key's two lines. Async-signal-safe.
    #[cold]
    #[inline(never)]
    pub fn get(&self, key: u64, salt: Salt) -> Option<Short> {
        let first = Self::first(key);
        if !Self::is_written(self.written.load(Relaxed), first * 8) {
            return None;
        }
        // Entries are never freed: if one is free now, the line never was full, and its keys are all here.
        let sent_on = || self.line(first).all(|[rule, _]| rule.load(Relaxed) != 0);
        self.get_in_line(first, key, salt).or_else(|| {
            if sent_on() {
                self.get_in_line(Self::second(key), key, salt)
            } else {
                None
            }
        })
    }

    #[inline(always)]
    fn get_in_line(&self, first: usize, key: u64, salt: Salt) -> Option<Short> {
        // All four are looked at: which one it is cannot be predicted, so a branch for each would cost more.
        let found = self.line(first).fold(0, |found, [rule, sealed]| {
            let rule = rule.load(Relaxed);
            found | (rule & all_ones_if(sealed.load(Relaxed) == seal(key, salt, rule)))
        });
        (found & VALID != 0).then_some(Short(found))
    }

    /// Stores a rule. Async-signal-safe; entries are sealed with their contents, so that a torn one is a miss.
    pub fn put(&self, key: u64, salt: Salt, rule: Short) {
        if self.get(key, salt).is_some() {
            // Never twice: `get_in_line` would mix both.
            return;
        }
        let Some(own) = self.entry(Self::own(key)) else { return };
        let free = |entry: &[&AtomicU64; 2]| entry[0].load(Relaxed) == 0;
        let mut to = own;
        if !free(&own) {
            let lines = [Self::first(key), Self::second(key)];
            if Self::holds(&own, lines[0], salt) {
                // The entry holds a valid rule of a neighbour, so this rule takes another place; if there is none, it
                // replaces the neighbour.
                let room = |first: usize| {
                    self.line(first).find(free).or_else(|| self.line(first).find(|e| !Self::holds(e, first, salt)))
                };
                to = lines.into_iter().find_map(room).unwrap_or(own);
            } else if let Some([word, sealed]) = self.line(lines[0]).find(free) {
                // The entry belongs to another generation, perhaps to an outdated one: it moves.
                word.store(own[0].load(Relaxed), Relaxed);
                sealed.store(own[1].load(Relaxed), Relaxed);
            }
        }
        // Both lines of a key: what is found free there is looked at in any case.
        for line in [Self::first(key), Self::second(key)] {
            if !Self::is_written(self.written.load(Relaxed), line * 8) {
                self.written.fetch_or(Self::part(line * 8), Relaxed);
            }
        }
        let [word, sealed] = to;
        word.store(rule.0, Relaxed);
        sealed.store(seal(key, salt, rule.0), Relaxed);
    }

    /// Whether an entry of the line that begins at `first` holds a rule of this generation, for some key of that line.
    fn holds([rule, sealed]: &[&AtomicU64; 2], first: usize, salt: Salt) -> bool {
        let key = sealed.load(Relaxed).wrapping_sub(seal(0, salt, rule.load(Relaxed)));
        key < USER_END && (Self::first(key) == first || Self::second(key) == first)
    }
}

impl<const WORDS: usize> Lookup<'_, WORDS> {
    /// As [`ShortRules::get_first`], for the key just below the address `above`, as a return address is looked up: one
    /// of user space, or such an exact pc.
    #[inline(always)]
    pub(crate) fn get_before(&self, above: u64) -> Option<Short> {
        let byte = ShortRules::<WORDS>::own_byte(above);
        if !ShortRules::<WORDS>::is_written(self.written, byte) {
            return None;
        }
        // SAFETY: an even number of words, below WORDS.
        let [rule, sealed] = unsafe { &*self.table.words.as_ptr().byte_add(byte).cast::<[AtomicU64; 2]>() };
        let rule = Short(rule.load(Relaxed));
        // No key has the seal of an empty entry (`Salt::new`).
        (sealed.load(Relaxed) == seal(above, self.salt, rule.0)).then_some(rule)
    }

    /// As [`ShortRules::get`], for the key just below the address `above`.
    #[cold]
    #[inline(never)]
    pub(crate) fn get_anywhere_before(&self, above: u64) -> Option<Short> {
        self.table.get(above.wrapping_sub(1), Salt(self.salt.0.wrapping_add(1)))
    }

    /// Prefetches the entries of those words of the stack, from `AHEAD` bytes above the return address at `returns` on,
    /// that may be return addresses. They come from memory while the rules of the frames before them are applied; those
    /// of other words do no harm.
    #[inline(always)]
    pub(crate) fn prefetch<const AHEAD: u64>(&self, returns: u64, stack: impl StackWords) {
        stack.prefetch_by_words::<WORDS, AHEAD>(returns, self.table.words.as_ptr().cast());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::regs::RSP;
    use crate::rule::Rule;

    #[test]
    fn an_empty_entry_is_no_key_s() {
        // SAFETY: all-zero is the empty table.
        let table: Box<ShortRules<64>> = unsafe { Box::new_zeroed().assume_init() };
        table.written.store(u64::MAX, Relaxed);
        // The inverse of the odd factor of a salt: each step doubles the number of bits that are right.
        let factor = Salt::new(1).0;
        let inverse = (0..6).fold(1u64, |x, _| x.wrapping_mul(2u64.wrapping_sub(factor.wrapping_mul(x))));
        assert_eq!(factor.wrapping_mul(inverse), 1);
        for above in [1, 2, 0x1234, 0x5555_5555_4321, USER_END - 1, USER_END] {
            for above in [above, above | EXACT_KEY] {
                // The generation whose salt makes the empty entry's seal 0, if nothing is done against it.
                let generation = 1u64.wrapping_sub(above).wrapping_mul(inverse);
                assert_eq!(generation.wrapping_mul(factor).wrapping_add(above - 1), 0);
                assert_eq!(table.under(Salt::new(generation)).get_before(above), None, "{above:#x}");
            }
        }
    }

    #[test]
    fn entries_are_found_in_their_generation_and_never_torn() {
        // SAFETY: all-zero is the empty table.
        let table: Box<ShortRules<64>> = unsafe { Box::new_zeroed().assume_init() };
        let rule = Short::new(&Rule::simple(RSP, 48)).expect("a short rule");
        table.put(0x1234, Salt::new(1), rule);
        assert_eq!(table.get(0x1234, Salt::new(1)), Some(rule));
        assert_eq!(table.get(0x1234, Salt::new(2)), None);
        assert_eq!(table.get(0x1235, Salt::new(1)), None);
        let entry = table.entry(ShortRules::<64>::own(0x1234)).expect("an entry");
        for word in entry {
            let old = word.load(Relaxed);
            for bit in 0..64 {
                word.store(old ^ (1 << bit), Relaxed);
                assert_eq!(table.get(0x1234, Salt::new(1)), None, "bit {bit} damaged");
            }
            word.store(old, Relaxed);
        }
        // Keys with the same first entry take other entries of its line.
        for key in [0x1233, 0x1234 + 512, 0x1234 + 1024] {
            table.put(key, Salt::new(1), rule);
        }
        for key in [0x1234, 0x1233, 0x1234 + 512, 0x1234 + 1024] {
            assert_eq!(table.get(key, Salt::new(1)), Some(rule), "{key:#x}");
        }
        // More of them than a line holds go to another line.
        let more: Vec<u64> = (3..9).map(|far| 0x1234 + far * 512).collect();
        more.iter().for_each(|key| table.put(*key, Salt::new(1), rule));
        more.iter().for_each(|key| assert_eq!(table.get(*key, Salt::new(1)), Some(rule), "{key:#x}"));
        // Entries of another generation never keep a key out.
        for key in (0x1204..0x1244).step_by(16) {
            table.put(key, Salt::new(2), rule);
            assert_eq!(table.get(key, Salt::new(2)), Some(rule), "{key:#x}");
        }
    }
}
