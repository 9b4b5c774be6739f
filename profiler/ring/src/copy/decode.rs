//! Reads a copy, whose bytes may be any: every number is checked, and no word takes less than a byte.

use super::{Form, Recent, ABOVE_SP, CODE, END, LONG_GAP, MET, MORE, NEAR, NEXT, REGISTERS, SP};
use crate::numbers::{self, unzigzag};

/// At most this number of stacks is in a copy.
const STACKS: u8 = 4;

/// What a copy begins with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Head {
    /// [`super::CALLED`].
    pub flags: u8,
    /// The interrupted instruction (process address).
    pub pc: u64,
    /// The registers, in DWARF order.
    pub registers: [u64; 16],
}

/// What takes a copy's words.
pub trait Sink {
    /// A stack begins at this process address.
    fn stack(&mut self, start: u64);
    /// A word that was kept.
    fn word(&mut self, address: u64, value: u64);
    /// The stack ends: it was copied up to `end`. `cut`: `None` if nothing follows, else the number of words that do;
    /// 0: it is not known how many.
    fn end(&mut self, end: u64, cut: Option<u64>);
}

/// A copy's bytes are not what they must be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Damaged {
    /// Offset of the byte from which on they make no sense.
    pub at: usize,
}

/// Reads a copy.
pub fn decode(bytes: &[u8], sink: &mut impl Sink) -> Result<Head, Damaged> {
    let mut input = Input { bytes, at: 0 };
    read(&mut input, sink).filter(|_| input.at == bytes.len()).ok_or(Damaged { at: input.at })
}

fn read(input: &mut Input<'_>, sink: &mut impl Sink) -> Option<Head> {
    let (flags, stacks) = (input.byte()?, input.byte()?);
    let (pc, sp) = (input.fixed(8)?, input.fixed(8)?);
    let mut head = Head { flags, pc, registers: [0; 16] };
    let mut tags = [0; REGISTERS.div_ceil(2)];
    for tag in &mut tags {
        *tag = input.byte()?;
    }
    let others = head.registers.iter_mut().enumerate().filter(|(number, _)| *number != SP);
    for (index, (_, register)) in others.enumerate() {
        *register = match tags.get(index / 2)? >> (index % 2 * 4) & 15 {
            len @ 0..=8 => input.fixed(len.into())?,
            ABOVE_SP => (sp & !7).checked_add(input.number()?.checked_mul(8)?)?,
            _ => return None,
        };
    }
    head.registers[SP] = sp;
    if stacks > STACKS {
        return None;
    }
    let mut recent = Recent::new(pc);
    for _ in 0..stacks {
        let distance = unzigzag(input.number()?).checked_mul(8)?;
        let start = (sp & !7).checked_add_signed(distance)?;
        sink.stack(start);
        words(input, &mut recent, start, sink)?;
    }
    Some(head)
}

/// The words of one stack.
fn words(input: &mut Input<'_>, recent: &mut Recent, start: u64, sink: &mut impl Sink) -> Option<()> {
    let mut at = start;
    loop {
        let token = input.byte()?;
        let gap = match u64::from(token >> 4 & 7) {
            LONG_GAP => input.number()?.checked_add(LONG_GAP)?,
            gap => gap,
        };
        at = at.checked_add(gap.checked_mul(8)?)?;
        let low = token & 15;
        let value = match (token & CODE != 0, low) {
            (false, _) => {
                let more = if low & MORE != 0 { input.number()? } else { 0 };
                let distance = unzigzag(more.checked_mul(8)? | u64::from(low & 7));
                at.checked_add_signed(distance.checked_mul(8)?)?
            }
            (true, END) => {
                sink.end(at, input.number()?.checked_sub(1));
                return Some(());
            }
            (true, NEXT) => recent.follow(Form::Next),
            (true, page @ MET..) => recent.follow(Form::Met(usize::from(page - MET) << 8 | usize::from(input.byte()?))),
            (true, index) => {
                const { assert!(NEAR == NEXT as usize) };
                recent.follow(Form::Near(index.into(), unzigzag(input.number()?)))
            }
        };
        sink.word(at, value);
        at = at.checked_add(8)?;
    }
}

struct Input<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Input<'_> {
    fn byte(&mut self) -> Option<u8> {
        let byte = self.bytes.get(self.at).copied()?;
        self.at += 1;
        Some(byte)
    }

    /// A number of this many bytes, little-endian.
    fn fixed(&mut self, len: u32) -> Option<u64> {
        let mut value = 0;
        for index in 0..len {
            value |= u64::from(self.byte()?) << (8 * index);
        }
        Some(value)
    }

    fn number(&mut self) -> Option<u64> {
        numbers::read(|| self.byte())
    }
}
