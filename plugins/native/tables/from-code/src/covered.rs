//! A bit for each byte of the text.

use super::code::Part;
use uunwind_core::span::Span;

/// Bits of a word.
const WORD: u64 = 64;

/// Which bytes of the text something holds for.
#[derive(Clone)]
pub struct Covered {
    /// Addresses and bits of each part.
    parts: Vec<(Span, Vec<u64>)>,
}

impl Covered {
    /// None of these parts.
    pub fn of(text: &[Part<'_>]) -> Covered {
        let bits = |span: Span| vec![0; (span.len() / WORD + 1) as usize];
        Covered { parts: text.iter().map(|part| (part.span(), bits(part.span()))).collect() }
    }

    /// The part that an address lies in, and the distance from its start.
    fn place(&self, address: u64) -> Option<(usize, u64)> {
        let index = self.parts.partition_point(|(span, _)| span.start <= address).checked_sub(1)?;
        let (span, _) = self.parts.get(index).filter(|(span, _)| span.contains(address))?;
        Some((index, address - span.start))
    }

    /// Whether it holds for the byte at an address.
    pub fn has(&self, address: u64) -> bool {
        let Some((part, at)) = self.place(address) else { return false };
        let word = self.parts.get(part).and_then(|(_, bits)| bits.get((at / WORD) as usize));
        word.is_some_and(|word| word >> (at % WORD) & 1 != 0)
    }

    /// The first address from one on that it does not hold for.
    pub fn end(&self, address: u64) -> u64 {
        let Some((part, at)) = self.place(address) else { return address };
        let Some((span, bits)) = self.parts.get(part) else { return address };
        let first = (at / WORD) as usize;
        // What lies before the address in its word does not count.
        let mut before = (1u64 << (at % WORD)) - 1;
        for (index, word) in bits.iter().enumerate().skip(first) {
            let free = !(word | before);
            before = 0;
            if free != 0 {
                return span.end.min(span.start + index as u64 * WORD + u64::from(free.trailing_zeros()));
            }
        }
        span.end
    }

    /// Makes it hold for these bytes, as far as they lie in one part.
    pub fn put(&mut self, address: u64, len: u64) {
        let Some((part, mut at)) = self.place(address) else { return };
        let Some((span, bits)) = self.parts.get_mut(part) else { return };
        let end = at.saturating_add(len).min(span.len());
        while at < end {
            let (shift, count) = (at % WORD, (end - at).min(WORD - at % WORD));
            let mask = (u64::MAX >> (WORD - count)) << shift;
            bits.get_mut((at / WORD) as usize).into_iter().for_each(|word| *word |= mask);
            at += count;
        }
    }
}
