//! Compressed numbers, in the two forms that HotSpot has had
//! (<https://github.com/openjdk/jdk17u/blob/master/src/hotspot/share/code/compressedStream.hpp>, `UNSIGNED5`;
//! <https://github.com/openjdk/jdk21u/blob/master/src/hotspot/share/utilities/unsigned5.hpp>).

use crate::facts::{NUMBERS_NEW, NUMBERS_OLD};

/// Limit of a number's bytes.
pub const LONGEST: usize = 5;
/// Bits that a byte adds after the first one.
const BITS: u32 = 6;

/// Reads numbers from bytes, which may be cut anywhere.
pub struct Numbers<'b> {
    bytes: &'b [u8],
    at: usize,
    /// What is subtracted from each byte; and what the highest byte of a number is below, after that.
    excluded: u32,
    limit: u32,
}

impl<'b> Numbers<'b> {
    /// Numbers in this form ([`NUMBERS_OLD`] or [`NUMBERS_NEW`]). `None`: there is no such form.
    pub fn new(bytes: &'b [u8], form: u32) -> Option<Numbers<'b>> {
        let excluded = match form {
            NUMBERS_OLD => 0,
            NUMBERS_NEW => 1,
            _ => return None,
        };
        Some(Numbers { bytes, at: 0, excluded, limit: (1 << 8) - (1 << BITS) - excluded })
    }

    /// The next byte.
    pub fn byte(&mut self) -> Option<u8> {
        let byte = self.bytes.get(self.at).copied()?;
        self.at = self.at.wrapping_add(1);
        Some(byte)
    }

    /// The next number.
    pub fn unsigned(&mut self) -> Option<u32> {
        let mut sum = 0u32;
        for index in 0..LONGEST as u32 {
            let byte = u32::from(self.byte()?).checked_sub(self.excluded)?;
            sum = sum.wrapping_add(byte.wrapping_shl(BITS.wrapping_mul(index)));
            if byte < self.limit {
                break;
            }
        }
        Some(sum)
    }

    /// The next number that may be negative.
    pub fn signed(&mut self) -> Option<i32> {
        let number = self.unsigned()?;
        Some((number >> 1) as i32 ^ (number & 1).wrapping_neg() as i32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `UNSIGNED5::write_uint` writes.
    fn written(value: u32, excluded: u32) -> Vec<u8> {
        let limit = 192 - excluded;
        let (mut sum, mut bytes) = (value, Vec::new());
        while bytes.len() < LONGEST - 1 && sum >= limit {
            let low = limit + (sum - limit) % 64;
            bytes.push((excluded + low) as u8);
            sum = (sum - low) >> 6;
        }
        bytes.push((excluded + sum) as u8);
        bytes
    }

    #[test]
    fn numbers_are_read_as_they_were_written() {
        for (form, excluded) in [(NUMBERS_OLD, 0), (NUMBERS_NEW, 1)] {
            for value in (0..70_000).chain([1 << 20, u32::MAX / 2, u32::MAX - 1, u32::MAX]) {
                let bytes = written(value, excluded);
                let mut numbers = Numbers::new(&bytes, form).expect("a form");
                assert_eq!(numbers.unsigned(), Some(value), "{bytes:?}");
                assert_eq!((numbers.unsigned(), numbers.byte()), (None, None), "all bytes were read");
            }
        }
        let signed = |byte| Numbers::new(&[byte], NUMBERS_OLD).and_then(|mut n| n.signed());
        assert_eq!([0, 1, 2, 3].map(signed), [Some(0), Some(-1), Some(1), Some(-2)]);
        assert!(Numbers::new(&[1], 7).is_none());
        assert_eq!(Numbers::new(&[0], NUMBERS_NEW).and_then(|mut n| n.unsigned()), None, "the byte that is excluded");
    }
}
