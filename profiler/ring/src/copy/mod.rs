//! Copies of stacks: what a walk elsewhere needs of a thread at one moment, coded in few bytes.
//!
//! A copy has all registers, and of each stack those words that may be return addresses (they point into executable
//! memory) or addresses of frames (multiples of 8 that point into a copied stack). All other words, which are data, are
//! left out: a walk must take them as unknown. docs/recording-format.md has the bytes.
//!
//! Both ends keep the same memory of earlier code addresses ([`Recent`]), so that an address is a short distance from
//! one of them, or, met before, a place in a table.

mod decode;
mod encode;

pub use decode::{decode, Damaged, Head, Sink};
pub use encode::Encoder;

/// [`Head::flags`]: the pc lies in code that no object covers, and the word at the stack pointer is the return address
/// of the call that led there.
pub const CALLED: u8 = 1;

/// Number of registers besides pc and sp.
const REGISTERS: usize = 15;
/// The DWARF number of the stack pointer, which has a field of its own.
const SP: usize = 7;

/// A register is coded by this tag: the number of words from the stack pointer up to its value follows.
const ABOVE_SP: u8 = 9;
/// At most this number of words above the stack pointer.
const FAR: u64 = 1 << 24;

/// Bit of a token's first byte: it stands for a code address.
const CODE: u8 = 0x80;
/// The gap that a token's first byte can hold is smaller than this.
const LONG_GAP: u64 = 7;
/// In the low bits of a stack token: more bits of its value follow.
const MORE: u8 = 8;
/// Low bits of a code token: the address was met before, at the place that follows.
const MET: u8 = 8;
/// Low bits of a code token that ends a stack.
const END: u8 = 15;

/// Number of code addresses that distances count from.
const NEAR: usize = 8;
/// An address that is less than this number of bytes from another one takes its place there.
const SAME_OBJECT: u64 = 1 << 20;
/// Places of the table of addresses that were met.
const PLACES: usize = 256;

/// Code addresses of a copy that were met before the current one.
pub struct Recent {
    near: [u64; NEAR],
    next: usize,
    met: [u64; PLACES],
}

/// How a code address is coded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    /// It stands at this place of the table.
    Met(u8),
    /// This far from the address with this index.
    Near(usize, i64),
}

impl Recent {
    /// The memory at the beginning of a copy with this pc.
    pub const fn new(pc: u64) -> Recent {
        Recent { near: [pc; NEAR], next: 0, met: [0; PLACES] }
    }

    /// Forgets everything but the pc, in place.
    pub fn begin(&mut self, pc: u64) {
        self.near.fill(pc);
        self.next = 0;
        self.met.fill(0);
    }

    fn place(value: u64) -> u8 {
        (value.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
    }

    /// The form of an address, which is met by that.
    fn form(&mut self, value: u64) -> Form {
        let place = Recent::place(value);
        let form = if self.met.get(usize::from(place)) == Some(&value) {
            Form::Met(place)
        } else {
            let (mut index, mut least) = (0, value.wrapping_sub(self.near[0]) as i64);
            for (at, near) in self.near.iter().enumerate() {
                let distance = value.wrapping_sub(*near) as i64;
                if distance.unsigned_abs() < least.unsigned_abs() {
                    (index, least) = (at, distance);
                }
            }
            Form::Near(index, least)
        };
        self.follow(form);
        form
    }

    /// The address that has this form, which is met by that.
    fn follow(&mut self, form: Form) -> u64 {
        match form {
            Form::Met(place) => self.met.get(usize::from(place)).copied().unwrap_or(0),
            Form::Near(index, distance) => {
                let value = self.near.get(index).copied().unwrap_or(0).wrapping_add_signed(distance);
                let at = if distance.unsigned_abs() < SAME_OBJECT {
                    index
                } else {
                    let at = self.next;
                    self.next = (at + 1) % NEAR;
                    at
                };
                if let Some(near) = self.near.get_mut(at) {
                    *near = value;
                }
                if let Some(met) = self.met.get_mut(usize::from(Recent::place(value))) {
                    *met = value;
                }
                value
            }
        }
    }
}

#[cfg(test)]
mod tests;
