//! A synthetic process: memory, a host for the plugin, and builders for the structures that CPython keeps in memory.
//!
//! The offsets are those that `offsetof` prints for each version's own headers, written down here once more so that the
//! plugin is checked against them and not against its own tables.
#![allow(dead_code, reason = "each test binary uses a part")]

pub mod host;
pub mod python;
pub mod two;

use std::collections::{BTreeMap, BTreeSet};
use uunwind_core::memory::Region;

/// Memory in pages that exist or don't.
#[derive(Clone, Default)]
pub struct Memory {
    pages: BTreeMap<u64, Vec<u8>>,
}

const PAGE: u64 = 4096;

impl Memory {
    /// Makes `[address, address + len)` exist, zeroed where it did not.
    pub fn map(&mut self, address: u64, len: u64) {
        for page in address / PAGE..=(address + len - 1) / PAGE {
            self.pages.entry(page).or_insert_with(|| vec![0; PAGE as usize]);
        }
    }

    /// Writes bytes; the memory must exist.
    pub fn put(&mut self, address: u64, bytes: &[u8]) {
        for (at, byte) in (address..).zip(bytes) {
            self.pages.get_mut(&(at / PAGE)).expect("mapped")[(at % PAGE) as usize] = *byte;
        }
    }

    pub fn put64(&mut self, address: u64, word: u64) {
        self.put(address, &word.to_le_bytes());
    }

    pub fn put32(&mut self, address: u64, word: u32) {
        self.put(address, &word.to_le_bytes());
    }

    /// Reads bytes; false if any does not exist.
    pub fn get(&self, mut address: u64, mut out: &mut [u8]) -> bool {
        while !out.is_empty() {
            let Some(page) = self.pages.get(&(address / PAGE)) else {
                return false;
            };
            let rest = &page[(address % PAGE) as usize..];
            let (now, later) = out.split_at_mut(rest.len().min(out.len()));
            now.copy_from_slice(&rest[..now.len()]);
            address = address.wrapping_add(now.len() as u64);
            out = later;
        }
        true
    }

    /// The word at an address, which must exist.
    pub fn word(&self, address: u64) -> u64 {
        let mut word = [0; 8];
        assert!(self.get(address, &mut word), "{address:#x}");
        u64::from_le_bytes(word)
    }

    /// The addresses of all words that are not 0.
    pub fn used_words(&self) -> Vec<u64> {
        let words = |page: &u64| (page * PAGE..(page + 1) * PAGE).step_by(8);
        self.pages.keys().flat_map(words).filter(|at| self.word(*at) != 0).collect()
    }

    /// The pages with these addresses, for a reader.
    pub fn regions(&self, pages: &BTreeSet<u64>) -> Vec<Region<'_>> {
        let page = |at: &u64| self.pages.get(&(at / PAGE)).map(|bytes| Region { address: at & !(PAGE - 1), bytes });
        pages.iter().filter_map(page).collect()
    }

    /// All pages, for a reader.
    pub fn all_regions(&self) -> Vec<Region<'_>> {
        self.pages.iter().map(|(page, bytes)| Region { address: page * PAGE, bytes }).collect()
    }

    /// The bytes of all pages, for damaging them.
    pub fn pages(&mut self) -> impl Iterator<Item = (u64, &mut Vec<u8>)> {
        self.pages.iter_mut().map(|(page, bytes)| (page * PAGE, bytes))
    }
}
