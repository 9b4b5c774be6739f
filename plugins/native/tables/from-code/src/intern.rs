//! States without repetitions, each with a number.

use super::quick::Quick;
use super::state::State;
use std::hash::{Hash, Hasher};

/// The states, and a table by their hashes that is at most half full.
#[derive(Default)]
pub struct Interned {
    /// By their numbers.
    pub list: Vec<State>,
    /// The hash of each, so that the table grows without a look at the states.
    hashes: Vec<u32>,
    /// Numbers plus one; 0: free.
    table: Vec<u32>,
}

impl Interned {
    /// The number of a state.
    pub fn number(&mut self, state: State) -> u32 {
        if self.table.len() <= self.list.len() * 2 {
            self.grow();
        }
        let mut hasher = Quick::default();
        state.hash(&mut hasher);
        let hash = (hasher.finish() >> 16) as u32;
        let mut at = self.start(hash);
        while let Some(number) = self.table.get(at).and_then(|place| place.checked_sub(1)) {
            let is_same = || self.list.get(number as usize) == Some(&state);
            if self.hashes.get(number as usize) == Some(&hash) && is_same() {
                return number;
            }
            at = self.next(at);
        }
        let number = self.list.len() as u32;
        self.put(at, number);
        self.list.push(state);
        self.hashes.push(hash);
        number
    }

    /// Where the search for a hash begins.
    fn start(&self, hash: u32) -> usize {
        hash as usize & (self.table.len() - 1)
    }

    fn next(&self, at: usize) -> usize {
        (at + 1) & (self.table.len() - 1)
    }

    fn put(&mut self, at: usize, number: u32) {
        if let Some(place) = self.table.get_mut(at) {
            *place = number + 1;
        }
    }

    fn grow(&mut self) {
        self.table = vec![0; (self.table.len() * 4).max(64)];
        for number in 0..self.hashes.len() {
            let mut at = self.start(self.hashes[number]);
            while self.table.get(at).is_some_and(|place| *place != 0) {
                at = self.next(at);
            }
            self.put(at, number as u32);
        }
    }
}
