//! Damage to inputs, the same for the same seed number.

/// Limit of an input's length, in bytes.
pub const LONGEST: usize = 1 << 17;

/// The random numbers that determine the damage.
pub struct Random(uunwind_random::Random);

impl Random {
    /// A generator; any seed is valid.
    pub fn new(seed: u64) -> Random {
        // A multiplication spreads small numbers.
        Random(uunwind_random::Random::new(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0.number()
    }

    /// A number below `limit`; 0 if that is 0.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.number() >> 8) as usize % limit.max(1)
    }

    /// A random range of at most `longest` bytes within `len`.
    fn range(&mut self, len: usize, longest: usize) -> std::ops::Range<usize> {
        let start = self.below(len);
        let bytes = 1 + self.below((len - start).min(longest).max(1));
        start..(start + bytes).min(len)
    }
}

/// Changes `seed` in one to eight ways; parts of `other` may be inserted.
pub fn mutate(seed: &[u8], other: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    let changes = 1 << random.below(4);
    for _ in 0..changes {
        change(&mut bytes, other, random);
    }
    bytes.truncate(LONGEST);
    bytes
}

fn change(bytes: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    if bytes.is_empty() {
        bytes.extend_from_slice(&other[..random.below(other.len() + 1)]);
        bytes.push(random.number() as u8);
    }
    let len = bytes.len();
    // Half of the changes hit the first part, where headers are.
    let within = if random.below(2) == 0 { len.min(64) } else { len };
    let at = random.below(within);
    match random.below(16) {
        0..=3 => bytes[at] ^= 1 << random.below(8),
        4..=5 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff, random.number() as u8][random.below(6)],
        6..=9 => overwrite(bytes, at, random),
        10 => {
            bytes.drain(random.range(len, 64));
        }
        11 => bytes.truncate(at),
        12 => {
            let part = bytes[random.range(len, 256)].to_vec();
            bytes.splice(at..at, part);
        }
        13 => {
            let part = bytes[random.range(len, 64)].to_vec();
            let end = (at + part.len()).min(len);
            bytes[at..end].copy_from_slice(&part[..end - at]);
        }
        14 if !other.is_empty() => {
            let part = &other[random.range(other.len(), 256)];
            let end = (at + part.len()).min(len);
            bytes[at..end].copy_from_slice(&part[..end - at]);
        }
        // The front of this input, the back of the other.
        15 if !other.is_empty() => {
            bytes.splice(at.., other[random.below(other.len())..].iter().copied()).for_each(drop)
        }
        _ => bytes[at] = bytes[at].wrapping_add(1),
    }
}

/// Overwrites a number of 1, 2, 4 or 8 bytes, mostly at a multiple of its size, by an edge case or a neighbouring
/// value.
fn overwrite(bytes: &mut [u8], at: usize, random: &mut Random) {
    let width = 1usize << random.below(4);
    let at = if random.below(4) == 0 { at } else { at / width * width };
    let len = bytes.len() as u64;
    let Some(place) = bytes.get_mut(at..at + width) else { return };
    let mut old = [0; 8];
    old[..width].copy_from_slice(place);
    let old = u64::from_le_bytes(old);
    let sign = 1u64 << (8 * width - 1);
    let near = random.number() % 17;
    let new = match random.below(10) {
        0 => 0,
        1 => u64::MAX,
        2 => sign,
        3 => sign - 1,
        4 => len.wrapping_add(near).wrapping_sub(8),
        5 => 1 << random.below(64),
        6 => (1 << random.below(64)) - 1,
        7 => random.number() >> random.below(64),
        _ => old.wrapping_add(near).wrapping_sub(8),
    };
    place.copy_from_slice(&new.to_le_bytes()[..width]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_number_gives_the_same_damage_and_lengths_are_bounded() {
        let seed: Vec<u8> = (0..=255).collect();
        let run = |number| {
            let mut random = Random::new(number);
            let mut last = seed.clone();
            (0..2000).for_each(|_| last = mutate(&last, &seed, &mut random));
            last
        };
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
        let mut random = Random::new(3);
        let changed = (0..100).filter(|_| mutate(&seed, &seed, &mut random) != seed).count();
        assert!(changed > 80, "only {changed} of 100 mutants differ from their seed");
        for empty in [&[][..], &seed] {
            assert!(mutate(empty, &[], &mut random).len() <= LONGEST);
        }
    }
}
