//! Copies of pages, in blocks of their own. They are made while a process stands still: a block that was used before,
//! or was never touched, costs no system call to get.

use std::collections::HashMap;
use uunwind_core::memory::paged::PAGE;

/// Pages of a block.
const BLOCK: usize = 64;
/// At most this number of blocks is kept for the next look (8 MiB).
const KEPT: usize = 32;
/// Number of pages whose place is found without a search.
const RECENT: usize = 256;

/// A page.
pub type Page = [u8; PAGE];

/// Copies of pages, by their addresses.
pub struct Pages {
    /// The place of each copy; `None`: the page cannot be read.
    places: HashMap<u64, Option<usize>>,
    blocks: Vec<Box<[Page]>>,
    used: usize,
    /// Places that were found last, by the lowest bits of the page's number.
    recent: Box<[Option<(u64, usize)>; RECENT]>,
}

impl Default for Pages {
    fn default() -> Pages {
        Pages { places: HashMap::new(), blocks: Vec::new(), used: 0, recent: Box::new([None; RECENT]) }
    }
}

impl Pages {
    /// Gets the memory of this number of pages, at most as many as are kept, so that it is there when it is needed.
    pub fn make_room(&mut self, pages: usize) {
        for _ in self.blocks.len()..pages.div_ceil(BLOCK).min(KEPT) {
            let mut block = vec![[0; PAGE]; BLOCK].into_boxed_slice();
            block.iter_mut().filter_map(|page| page.first_mut()).for_each(|byte| *byte = 1);
            self.blocks.push(block);
        }
    }

    /// Whether it is known what is in a page, or that it cannot be read.
    pub fn has(&self, address: u64) -> bool {
        self.places.contains_key(&address)
    }

    /// The copy of a page. `None`: there is none, or the page cannot be read.
    pub fn get(&mut self, address: u64) -> Option<&Page> {
        let recent = self.recent.get_mut(address as usize / PAGE % RECENT)?;
        let place = match *recent {
            Some((found, place)) if found == address => place,
            _ => {
                let place = (*self.places.get(&address)?)?;
                *recent = Some((address, place));
                place
            }
        };
        self.blocks.get(place / BLOCK)?.get(place % BLOCK)
    }

    /// Keeps what `fill` writes. `fill` returns false if the page cannot be read, which is kept, too.
    pub fn put(&mut self, address: u64, fill: impl FnOnce(&mut Page) -> bool) {
        let place = self.places.get(&address).copied().flatten().unwrap_or(self.used);
        if place / BLOCK >= self.blocks.len() {
            self.blocks.push(vec![[0; PAGE]; BLOCK].into_boxed_slice());
        }
        let page = self.blocks.get_mut(place / BLOCK).and_then(|block| block.get_mut(place % BLOCK));
        let is_read = page.is_some_and(fill);
        self.used = self.used.max(place + usize::from(is_read));
        self.places.insert(address, is_read.then_some(place));
        if let Some(recent) = self.recent.get_mut(address as usize / PAGE % RECENT) {
            *recent = None;
        }
    }

    /// A page without a copy cannot be read.
    pub fn no_others(&mut self, addresses: impl Iterator<Item = u64>) {
        for address in addresses {
            self.places.entry(address).or_insert(None);
        }
    }

    /// Forgets all pages.
    pub fn clear(&mut self) {
        self.places.clear();
        self.recent.fill(None);
        self.used = 0;
        self.blocks.truncate(KEPT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_page_has_its_last_copy() {
        let mut pages = Pages::default();
        pages.make_room(BLOCK + 1);
        assert_eq!(pages.blocks.len(), 2);
        for round in 0..3u8 {
            for index in 0..(BLOCK * KEPT * 2) as u64 {
                pages.put(index * 4096, |page| {
                    page.fill(index as u8 ^ round);
                    index % 5 != 0
                });
            }
            pages.put(4096, |page| {
                page.fill(99);
                true
            });
            pages.put(8192, |_| false);
            pages.no_others([4096, 1].into_iter());
            for index in (0..(BLOCK * KEPT * 2) as u64).filter(|index| ![1, 2].contains(index)) {
                let first = pages.get(index * 4096).map(|page| (page[0], page[PAGE - 1]));
                let copy = index as u8 ^ round;
                assert_eq!(first, (index % 5 != 0).then_some((copy, copy)), "page {index}");
            }
            assert_eq!((pages.get(4096).map(|page| page[7]), pages.get(8192)), (Some(99), None));
            assert!(pages.has(8192) && pages.has(1) && pages.get(1).is_none() && !pages.has(7));
            pages.clear();
            assert!(!pages.has(4096) && pages.get(4096).is_none() && pages.blocks.len() == KEPT);
        }
    }
}
