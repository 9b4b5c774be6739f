//! Codes a copy, inside the handler: no allocation, a bounded number of bytes.

use super::{Form, Recent, ABOVE_SP, CODE, END, FAR, LONG_GAP, MET, MORE, NEXT, REGISTERS, SP};
use crate::numbers::{self, zigzag};

/// Bytes that a token takes at most, with the end of its stack after it.
const TOKEN: usize = 1 + 2 * 10;
const TAIL: usize = 1 + 2 * 10;

/// Codes one copy into a buffer. In what order: [`Encoder::begin`]; for each stack [`Encoder::stack`], its words from
/// the lowest address on, [`Encoder::end`]; [`Encoder::finish`].
pub struct Encoder<'a> {
    out: &'a mut [u8],
    len: usize,
    /// The stack pointer, rounded down to a word.
    sp: u64,
    recent: &'a mut Recent,
    stacks: u8,
    gap: u64,
}

impl<'a> Encoder<'a> {
    /// Writes the registers, in DWARF order. `out` must have 256 bytes at least.
    pub fn begin(out: &'a mut [u8], recent: &'a mut Recent, flags: u8, pc: u64, registers: &[u64; 16]) -> Encoder<'a> {
        recent.begin(pc);
        let sp = registers[SP];
        let mut encoder = Encoder { out, len: 0, sp: sp & !7, recent, stacks: 0, gap: 0 };
        encoder.bytes(&[flags, 0]);
        encoder.bytes(&pc.to_le_bytes());
        encoder.bytes(&sp.to_le_bytes());
        let tags = encoder.len;
        encoder.bytes(&[0; REGISTERS.div_ceil(2)]);
        let others = registers.iter().enumerate().filter(|(number, _)| *number != SP);
        for (index, (_, value)) in others.enumerate() {
            let tag = encoder.register(*value);
            if let Some(byte) = encoder.out.get_mut(tags + index / 2) {
                *byte |= tag << (index % 2 * 4);
            }
        }
        encoder
    }

    fn register(&mut self, value: u64) -> u8 {
        let above = value.wrapping_sub(self.sp);
        if above & 7 == 0 && above / 8 < FAR {
            self.number(above / 8);
            return ABOVE_SP;
        }
        let len = 8 - value.leading_zeros() as usize / 8;
        self.bytes(value.to_le_bytes().get(..len).unwrap_or_default());
        len as u8
    }

    /// Begins a stack at this address, a multiple of 8.
    pub fn stack(&mut self, start: u64) {
        self.stacks += 1;
        self.gap = 0;
        self.number(zigzag((start.wrapping_sub(self.sp) as i64) / 8));
    }

    /// Whether there is room for another word.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.len + TOKEN + TAIL <= self.out.len()
    }

    /// The next word is data: it is left out.
    #[inline]
    pub fn leave_out(&mut self) {
        self.gap += 1;
    }

    /// The next word, which lies at `at`, points into a copied stack.
    pub fn frame(&mut self, at: u64, value: u64) {
        let distance = zigzag((value.wrapping_sub(at) as i64) / 8);
        let more = distance >> 3 != 0;
        self.token(distance as u8 & 7 | if more { MORE } else { 0 });
        if more {
            self.number(distance >> 3);
        }
    }

    /// The next word points to code.
    pub fn code(&mut self, value: u64) {
        match self.recent.form(value) {
            Form::Next => self.token(CODE | NEXT),
            Form::Met(place) => {
                self.token(CODE | (MET + (place >> 8) as u8));
                self.bytes(&[place as u8]);
            }
            Form::Near(index, distance) => {
                self.token(CODE | index as u8);
                self.number(zigzag(distance));
            }
        }
    }

    /// Ends a stack. `cut`: `None` if nothing of it follows, else the number of words that follow and were not copied;
    /// 0: it is not known how many.
    pub fn end(&mut self, cut: Option<u64>) {
        self.token(CODE | END);
        self.number(cut.map_or(0, |words| words.saturating_add(1)));
    }

    /// The number of bytes that the copy takes.
    pub fn finish(self) -> usize {
        if let Some(stacks) = self.out.get_mut(1) {
            *stacks = self.stacks;
        }
        self.len
    }

    /// The first byte of a token, with the words left out before it.
    fn token(&mut self, low: u8) {
        let gap = core::mem::replace(&mut self.gap, 0);
        self.bytes(&[low | (gap.min(LONG_GAP) as u8) << 4]);
        if gap >= LONG_GAP {
            self.number(gap - LONG_GAP);
        }
    }

    fn number(&mut self, number: u64) {
        numbers::write(number, |byte| self.bytes(&[byte]));
    }

    #[inline]
    fn bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if let Some(place) = self.out.get_mut(self.len) {
                *place = *byte;
                self.len += 1;
            }
        }
    }
}
