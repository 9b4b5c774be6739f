//! Numbers that take as many bytes as they need.

/// Writes a number as unsigned LEB128 (DWARF 5, 7.6): seven bits a byte, the lowest first; the upper bit says that
/// another byte follows.
#[inline]
pub fn write(mut number: u64, mut byte: impl FnMut(u8)) {
    while number >= 0x80 {
        byte(number as u8 | 0x80);
        number >>= 7;
    }
    byte(number as u8);
}

/// Reads a number that [`write()`] has written. `None`: the bytes end, or it has more than 64 bits.
#[inline]
pub fn read(mut byte: impl FnMut() -> Option<u8>) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let next = byte()?;
        let bits = u64::from(next & 0x7f);
        if shift == 63 && bits > 1 {
            return None;
        }
        number |= bits << shift;
        if next < 0x80 {
            return Some(number);
        }
    }
    None
}

/// A signed number as an unsigned one, small where it is near 0 on either side.
pub const fn zigzag(signed: i64) -> u64 {
    (signed << 1 ^ signed >> 63) as u64
}

/// The inverse of [`zigzag`].
pub const fn unzigzag(coded: u64) -> i64 {
    (coded >> 1) as i64 ^ -((coded & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_all(bytes: &[u8]) -> Option<(u64, usize)> {
        let mut rest = bytes.iter();
        let number = read(|| rest.next().copied())?;
        Some((number, bytes.len() - rest.len()))
    }

    #[test]
    fn numbers_are_read_as_they_were_written() {
        for bits in 0..64 {
            for number in [(1u64 << bits) - 1, 1 << bits, !(1 << bits), u64::MAX >> bits] {
                let mut bytes = Vec::new();
                write(number, |byte| bytes.push(byte));
                assert_eq!(bytes.len(), (64 - number.leading_zeros() as usize).div_ceil(7).max(1));
                assert_eq!(read_all(&bytes), Some((number, bytes.len())));
                assert_eq!(read_all(&bytes[..bytes.len() - 1]), None, "its end is missing");
                assert_eq!(unzigzag(zigzag(number as i64)), number as i64);
            }
        }
    }

    #[test]
    fn a_number_of_more_than_64_bits_is_none() {
        assert_eq!(read_all(&[0xff; 10]), None);
        assert_eq!(read_all(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]), None);
        assert_eq!(read_all(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]), Some((u64::MAX, 10)));
    }
}
