//! Copies of stacks: what a walk elsewhere needs of a thread at one moment, coded in few bytes.
//!
//! A copy has all registers, and of each stack those words that may be return addresses (they point into executable
//! memory) or addresses of frames (multiples of 8 that point into a copied stack). All other words, which are data, are
//! left out: a walk must take them as unknown. docs/recording-format.md has the bytes.
//!
//! Both ends keep the same memory of earlier code addresses ([`Recent`]), so that an address is the one that came after
//! the same address before, or, met before, a place in a table, or a short distance from one of the last ones.

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
/// Low bits of a code token: the address is the one that came after the same address before.
const NEXT: u8 = 8;
/// The first of the low bits of a code token that say that the address was met before: the difference is the higher
/// byte of its place in the table of these, whose lower byte follows.
const MET: u8 = 9;
/// Low bits of a code token that ends a stack.
const END: u8 = 15;

/// Number of code addresses that distances count from.
const NEAR: usize = 8;
/// An address that is less than this number of bytes from another one takes its place there.
const SAME_OBJECT: u64 = 1 << 20;
/// Places of the table of addresses that were met, and of that of addresses that came after others.
const PLACES: usize = (END - MET) as usize * 256;
const FOLLOWERS: usize = 4096;

/// A table of addresses, all 0 at the beginning of each copy. It takes no time to make it so: a part of it is cleared
/// when it is first used. Any bytes are a valid value.
struct Table<const PARTS: usize> {
    /// A bit for each part that is in use.
    used: u64,
    parts: [[u64; 64]; PARTS],
}

impl<const PARTS: usize> Table<PARTS> {
    const EMPTY: Table<PARTS> = {
        assert!(PARTS <= 64);
        Table { used: 0, parts: [[0; 64]; PARTS] }
    };

    fn place(&mut self, index: usize) -> Option<&mut u64> {
        let part = self.parts.get_mut(index / 64)?;
        if self.used >> (index / 64) & 1 == 0 {
            self.used |= 1 << (index / 64);
            part.fill(0);
        }
        part.get_mut(index % 64)
    }

    fn get(&mut self, index: usize) -> u64 {
        self.place(index).map_or(0, |place| *place)
    }

    fn put(&mut self, index: usize, value: u64) {
        if let Some(place) = self.place(index) {
            *place = value;
        }
    }
}

/// Code addresses of a copy that were met before the current one.
pub struct Recent {
    near: [u64; NEAR],
    next: usize,
    last: u64,
    met: Table<{ PLACES / 64 }>,
    followers: Table<{ FOLLOWERS / 64 }>,
}

/// How a code address is coded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    /// As when the address before it came last.
    Next,
    /// It stands at this place of the table.
    Met(usize),
    /// This far from the address with this index.
    Near(usize, i64),
}

/// The place of an address in a table of this size.
fn place(value: u64, places: usize) -> usize {
    let hash = value.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    ((hash * places as u64) >> 32) as usize
}

impl Recent {
    /// The memory at the beginning of a copy with this pc.
    pub const fn new(pc: u64) -> Recent {
        Recent { near: [pc; NEAR], next: 0, last: pc, met: Table::EMPTY, followers: Table::EMPTY }
    }

    /// Forgets everything but the pc, in place.
    pub fn begin(&mut self, pc: u64) {
        self.near.fill(pc);
        (self.next, self.last, self.met.used, self.followers.used) = (0, pc, 0, 0);
    }

    /// The form of an address, which is met by that.
    fn form(&mut self, value: u64) -> Form {
        let at = place(value, PLACES);
        let form = if self.followers.get(place(self.last, FOLLOWERS)) == value {
            Form::Next
        } else if self.met.get(at) == value {
            Form::Met(at)
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
        let follower = place(self.last, FOLLOWERS);
        let value = match form {
            Form::Next => self.followers.get(follower),
            Form::Met(at) => self.met.get(at),
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
                self.met.put(place(value, PLACES), value);
                value
            }
        };
        self.followers.put(follower, value);
        self.last = value;
        value
    }
}

#[cfg(test)]
mod tests;
