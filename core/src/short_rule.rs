//! Rules in one word, and the table that holds them: what most frames of most programs need, small enough to stay in the
//! processor's caches.
//!
//! A rule is *short* if the CFA is rsp or rbp plus a multiple of 8, the return address lies just below it, and every saved
//! register within 30 words of it. An entry of the table is 16 bytes, a bucket one cache line of four; a key has one
//! bucket, and in it one entry that is its own if it is free. That entry is looked at first, by a branch that is nearly always
//! predicted, so that the walk goes on with its rule before the comparison is done. What finds no place here is found in
//! the object's rule table or in the larger table ([`crate::pc_cache`]).

use crate::memory::Reader;
use crate::regs::{Regs, CALLEE_SAVED, RBP, RSP};
use crate::rule::{Packed, Rule, RuleKind, RA_SLOT, SAME, UNKNOWN};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A rule in one word.
///
/// ```text
/// bits 0..24   CFA offset in words        bit 24   the CFA counts from rbp (else rsp)
/// bits 25..55  rbx, rbp, r12-r15, 5 bits each: 0 unchanged, n saved at CFA - 8 (n + 1), 31 lost
/// bit 63       set
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Short(u64);

const OFFSET_BITS: u32 = 24;
const FROM_RBP: u64 = 1 << OFFSET_BITS;
const SLOTS: u32 = OFFSET_BITS + 1;
const SLOT_BITS: u32 = 5;
const LOST: u64 = 31;
const VALID: u64 = 1 << 63;

impl Short {
    /// The rule in one word, if it fits.
    pub fn new(rule: &Rule) -> Option<Short> {
        let words = u64::try_from(rule.cfa_offset / 8).ok().filter(|words| *words > 0 && *words < FROM_RBP)?;
        let plain = rule.kind == RuleKind::Offset
            && matches!(rule.cfa_register, RSP | RBP)
            && rule.cfa_offset % 8 == 0
            && rule.flags == 0
            && rule.from_fp == 0
            && rule.slots[RA_SLOT] == -1;
        let mut word = VALID | words | if rule.cfa_register == RBP { FROM_RBP } else { 0 };
        for (index, slot) in (0..).zip(rule.slots.iter().take(RA_SLOT)) {
            let field = match *slot {
                SAME => 0,
                UNKNOWN => LOST,
                slot @ -31..=-2 => (-1 - i64::from(slot)) as u64,
                _ => return None,
            };
            word |= field << (SLOTS + SLOT_BITS * index);
        }
        plain.then_some(Short(word))
    }

    /// The word, as tables keep it.
    pub const fn word(self) -> u64 {
        self.0
    }

    /// The rule that [`Short::word`] gave; `None` for a word that is none.
    #[inline(always)]
    pub const fn from_word(word: u64) -> Option<Short> {
        if word >> 55 == VALID >> 55 {
            Some(Short(word))
        } else {
            None
        }
    }

    /// Whether the CFA counts from rbp.
    #[inline(always)]
    pub fn from_rbp(self) -> bool {
        self.0 & FROM_RBP != 0
    }

    /// The frame's CFA, given the register that it counts from.
    #[inline(always)]
    pub fn cfa(self, base: u64) -> u64 {
        base.wrapping_add((self.0 & (FROM_RBP - 1)) * 8)
    }

    /// Which callee-saved registers it does not simply leave alone.
    #[inline(always)]
    pub fn touched(self) -> u8 {
        // The fields' lowest set bits would do, were it not for fields like 2: every bit is folded into the lowest.
        let mut fields = self.0 >> SLOTS;
        let mut touched = 0;
        for index in 0..6 {
            touched |= u8::from(fields & LOST != 0) << index;
            fields >>= SLOT_BITS;
        }
        touched
    }

    /// The rule that this one stands for.
    pub fn pack(self) -> Packed {
        let mut rule = Rule::simple(if self.0 & FROM_RBP == 0 { RSP } else { RBP }, 0);
        rule.cfa_offset = ((self.0 & (FROM_RBP - 1)) * 8) as i32;
        for (index, slot) in (0..).zip(rule.slots.iter_mut().take(RA_SLOT)) {
            *slot = match (self.0 >> (SLOTS + SLOT_BITS * index)) & LOST {
                0 => SAME,
                LOST => UNKNOWN,
                n => -1 - n as i16,
            };
        }
        rule.pack()
    }
}

/// Where the callee-saved registers of the frame in hand are to be found, while a walk passes frames with short rules.
///
/// Most are never looked at, so places are noted (without branches, which would be mispredicted) and loads put off until
/// [`Saved::load`], or, for rbp, until a CFA counts from it.
#[derive(Clone, Copy)]
pub struct Saved {
    /// 0: as in the registers that the walk began with; else the CFA, and below it the rule's field.
    places: [u64; 6],
}

const AS_BEFORE: u64 = 0;

/// What a place says.
enum Slot {
    AsBefore,
    Lost,
    At(u64),
}

#[inline(always)]
fn slot(place: u64) -> Slot {
    match (place, place & LOST) {
        (AS_BEFORE, _) => Slot::AsBefore,
        (_, LOST) => Slot::Lost,
        (_, field) => Slot::At((place >> SLOT_BITS).wrapping_sub(8 * (field + 1))),
    }
}

/// Index of rbp among the callee-saved registers.
const RBP_INDEX: usize = 1;

impl Saved {
    /// Nothing was saved so far.
    pub const fn new() -> Saved {
        Saved { places: [AS_BEFORE; 6] }
    }

    /// Passes a frame.
    #[inline(always)]
    pub fn pass(&mut self, rule: Short, cfa: u64) {
        let mut fields = rule.0 >> SLOTS;
        for place in &mut self.places {
            let field = fields & LOST;
            fields >>= SLOT_BITS;
            // An address has 47 bits. No branch: a conditional move.
            let here = (cfa << SLOT_BITS) | field;
            *place = core::hint::select_unpredictable(field == 0, *place, here);
        }
    }

    /// rbp of the frame in hand.
    #[inline(always)]
    pub fn rbp(&self, regs: &Regs, reader: &mut Reader<'_>) -> Option<u64> {
        match slot(self.places[RBP_INDEX]) {
            Slot::AsBefore => regs.get(RBP),
            Slot::Lost => None,
            Slot::At(address) => reader.word(address),
        }
    }

    /// Loads what was put off. A register whose slot cannot be read is unknown.
    pub fn load(&self, regs: &mut Regs, reader: &mut Reader<'_>) {
        for (register, place) in CALLEE_SAVED.into_iter().zip(self.places) {
            let value = match slot(place) {
                Slot::AsBefore => continue,
                Slot::Lost => None,
                Slot::At(address) => reader.word(address),
            };
            match value {
                Some(value) => regs.set(register, value),
                None => regs.forget(register),
            }
        }
    }
}

impl Default for Saved {
    fn default() -> Self {
        Saved::new()
    }
}

#[repr(C, align(64))]
struct Bucket([[AtomicU64; 2]; 4]);

/// The table. All-zero is empty.
pub struct ShortRules<const BUCKETS: usize> {
    buckets: [Bucket; BUCKETS],
}

/// A generation, mixed once for many lookups.
#[derive(Clone, Copy)]
pub struct Salt(u64);

impl Salt {
    /// Of this generation.
    pub fn new(generation: u64) -> Salt {
        Salt(generation.wrapping_mul(0x94d0_49bb_1331_11eb))
    }
}

#[inline(always)]
fn all_ones_if(condition: bool) -> u64 {
    0u64.wrapping_sub(u64::from(condition))
}

#[inline(always)]
fn mix(rule: u64, salt: Salt) -> u64 {
    let sum = rule.wrapping_mul(0xff51_afd7_ed55_8ccd).wrapping_add(salt.0);
    sum ^ (sum >> 32)
}

impl<const BUCKETS: usize> ShortRules<BUCKETS> {
    /// An empty table.
    #[allow(clippy::new_without_default, reason = "made once, as a static")]
    pub const fn new() -> ShortRules<BUCKETS> {
        ShortRules { buckets: [const { Bucket([const { [const { AtomicU64::new(0) }; 2] }; 4]) }; BUCKETS] }
    }

    /// The key's bucket, and the number of its own entry.
    #[inline(always)]
    fn bucket(&self, key: u64) -> Option<(&Bucket, usize)> {
        let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        Some((self.buckets.get((hash >> 2) as usize % BUCKETS)?, hash as usize & 3))
    }

    /// The rule stored for `key` under this generation. Async-signal-safe.
    #[inline(always)]
    pub fn get(&self, key: u64, salt: Salt) -> Option<Short> {
        let (Bucket(entries), own) = self.bucket(key)?;
        let [first, rule] = entries.get(own)?;
        let rule = rule.load(Relaxed);
        if first.load(Relaxed) ^ mix(rule, salt) == key && rule & VALID != 0 {
            return Some(Short(rule));
        }
        Self::guest(entries, key, salt)
    }

    /// The same, in another key's entry.
    #[inline(never)]
    fn guest(entries: &[[AtomicU64; 2]; 4], key: u64, salt: Salt) -> Option<Short> {
        // All four are looked at: which one it is cannot be predicted, so a branch for each would cost more.
        let found = entries.iter().fold(0, |found, [first, rule]| {
            let rule = rule.load(Relaxed);
            found | (rule & all_ones_if(first.load(Relaxed) ^ mix(rule, salt) == key))
        });
        (found & VALID != 0).then_some(Short(found))
    }

    /// Stores a rule. Async-signal-safe; entries are mixed with their contents, so that a torn one is a miss.
    pub fn put(&self, key: u64, salt: Salt, rule: Short) {
        let Some((Bucket(entries), own)) = self.bucket(key) else { return };
        if self.get(key, salt).is_some() {
            // Never twice: `get` would mix the two.
            return;
        }
        // Its own entry, if that is free; another that is free; else its own after all.
        let is_free = |entry: &&[AtomicU64; 2]| entry[0].load(Relaxed) == 0;
        let own = entries.get(own);
        let free = own.filter(is_free).or_else(|| entries.iter().find(is_free));
        let Some([first, word]) = free.or(own) else { return };
        word.store(rule.0, Relaxed);
        first.store(key ^ mix(rule.0, salt), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_comes_back_as_it_was() {
        let mut seed = 0x5eed_0009u64;
        let mut next = move || {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed
        };
        let (mut short, mut long) = (0, 0);
        for _ in 0..100_000 {
            let mut rule = Rule::simple(if next() % 2 == 0 { RSP } else { RBP }, (next() % 4096) as i32 * 4 - 64);
            for slot in rule.slots.iter_mut().take(RA_SLOT) {
                *slot = match next() % 4 {
                    0 => SAME,
                    1 => UNKNOWN,
                    _ => -1 - (next() % 34) as i16,
                };
            }
            if next() % 16 == 0 {
                rule.flags = (next() % 4) as u8;
                rule.from_fp = (next() % 2) as u8;
                rule.slots[RA_SLOT] = -1 - (next() % 2) as i16;
            }
            match Short::new(&rule) {
                Some(packed) => {
                    assert_eq!(packed.pack(), rule.pack(), "{rule:?}");
                    short += 1;
                }
                None => long += 1,
            }
        }
        assert!(short > 1000 && long > 1000, "{short} short, {long} long");
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
        let (Bucket(entries), own) = table.bucket(0x1234).expect("a bucket");
        let entry = &entries[own];
        for word in entry {
            let old = word.load(Relaxed);
            for bit in 0..64 {
                word.store(old ^ (1 << bit), Relaxed);
                assert_eq!(table.get(0x1234, Salt::new(1)), None, "bit {bit} damaged");
            }
            word.store(old, Relaxed);
        }
    }
}
