//! Pseudo-random numbers, which are the same for the same seed, so that a failure can be repeated.

/// Marsaglia's xorshift generator with 64 bits of state ("Xorshift RNGs", 2003; the shifts 13, 7, 17).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A generator. 0, from which no other number would come, serves as 1.
    pub const fn new(seed: u64) -> Random {
        Random(if seed == 0 { 1 } else { seed })
    }

    /// The next number; never 0.
    pub const fn number(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below `limit`, which is not 0.
    pub const fn below(&mut self, limit: u64) -> u64 {
        self.number() % limit
    }

    /// An index into a slice of this length, which is not 0.
    pub const fn index(&mut self, len: usize) -> usize {
        (self.number() % len as u64) as usize
    }

    /// True with a probability of one in `times`.
    pub const fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers_and_they_spread() {
        let (mut a, mut b) = (Random::new(7), Random::new(7));
        let mut seen = [0u32; 16];
        for _ in 0..16_000 {
            assert_eq!(a.number(), b.clone().number());
            seen[b.index(16)] += 1;
        }
        assert!(seen.iter().all(|count| (800..1200).contains(count)), "{seen:?}");
        assert_ne!(Random::new(0).number(), 0);
    }
}
