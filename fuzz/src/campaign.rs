//! The order in which inputs are made: each is a damaged seed, or a damaged input that a parser accepted earlier.

use crate::mutate::{mutate, Random};

/// Number of inputs that are kept besides the seeds.
const KEPT: usize = 64;

/// Makes inputs.
pub struct Campaign {
    seeds: Vec<Vec<u8>>,
    kept: Vec<Vec<u8>>,
    random: Random,
}

impl Campaign {
    /// A campaign over these seeds; the same number gives the same inputs.
    pub fn new(seeds: Vec<Vec<u8>>, number: u64) -> Campaign {
        assert!(!seeds.is_empty(), "no seeds");
        Campaign { seeds, kept: Vec::new(), random: Random::new(number) }
    }

    /// The next input.
    pub fn next_input(&mut self) -> Vec<u8> {
        let mut pick = || {
            let from_kept = !self.kept.is_empty() && self.random.below(3) == 0;
            let pool = if from_kept { &self.kept } else { &self.seeds };
            &pool[self.random.below(pool.len())]
        };
        let (one, other) = (pick(), pick());
        mutate(one, other, &mut self.random)
    }

    /// Records the outcome of an input. Some that a parser accepted are kept, so that damage adds up.
    pub fn record(&mut self, input: Vec<u8>, taken: bool) {
        if !taken || self.random.below(16) != 0 {
            return;
        }
        if self.kept.len() < KEPT {
            self.kept.push(input);
        } else {
            let place = self.random.below(KEPT);
            self.kept[place] = input;
        }
    }
}
