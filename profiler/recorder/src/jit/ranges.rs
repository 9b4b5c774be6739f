//! Maps addresses to functions at one time: the function that was reported last covers an address. A function that
//! overlaps an older one replaces only that part of it, since some JITs first report a large region, and later the
//! functions in it.

use std::collections::BTreeMap;

/// Disjoint address ranges, each with its function.
#[derive(Default)]
pub struct Ranges {
    /// Start -> (end, function).
    map: BTreeMap<u64, (u64, u32)>,
}

impl Ranges {
    /// Makes `code` cover `[start, end)`.
    pub fn insert(&mut self, start: u64, end: u64, code: u32) {
        if start < end {
            self.cut(start, end, |_| true);
            self.map.insert(start, (end, code));
        }
    }

    /// Removes the parts of `[start, end)` that `code` still covers.
    pub fn remove(&mut self, start: u64, end: u64, code: u32) {
        if start < end {
            self.cut(start, end, |of| of == code);
        }
    }

    /// The function that covers `address`.
    pub fn find(&self, address: u64) -> Option<u32> {
        let (_, (end, code)) = self.map.range(..=address).next_back()?;
        (address < *end).then_some(*code)
    }

    /// Replaces `from` by `to` in `[start, end)`.
    pub fn rename(&mut self, start: u64, end: u64, from: u32, to: u32) {
        for (_, (_, code)) in self.map.range_mut(start..end.max(start)).filter(|(_, (_, code))| *code == from) {
            *code = to;
        }
    }

    /// The functions that cover a part of `[start, end)`.
    pub fn overlapped(&self, start: u64, end: u64) -> impl Iterator<Item = u32> + '_ {
        let before = self.map.range(..start).next_back().filter(move |(_, (of, _))| *of > start);
        let inside = self.map.range(start..end.max(start));
        before.into_iter().chain(inside).map(|(_, (_, code))| *code)
    }

    /// Removes `[start, end)` from the ranges of the functions for which `goes` is true.
    fn cut(&mut self, start: u64, end: u64, goes: impl Fn(u32) -> bool) {
        let before = self.map.range(..start).next_back().map(|(s, v)| (*s, *v));
        let inside: Vec<_> = self.map.range(start..end).map(|(s, v)| (*s, *v)).collect();
        for (old_start, (old_end, code)) in before.into_iter().chain(inside) {
            if old_end <= start || !goes(code) {
                continue;
            }
            self.map.remove(&old_start);
            if old_start < start {
                self.map.insert(old_start, (start, code));
            }
            if old_end > end {
                self.map.insert(end, (old_end, code));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Ranges;

    /// The oracle is an array with a cell for each address.
    #[test]
    fn ranges_agree_with_an_array() {
        let (mut ranges, mut cells) = (Ranges::default(), [None; 64]);
        let mut seed = 1u32;
        let mut random = |limit: u32| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (seed >> 8) % limit
        };
        let mut inserted = Vec::new();
        for code in 0..4000 {
            let (a, b) = (random(64), random(65));
            if code % 5 == 4 {
                let (start, end, code): (u32, u32, u32) = inserted[random(inserted.len() as u32) as usize];
                ranges.remove(u64::from(start), u64::from(end), code);
                cells.iter_mut().filter(|c| **c == Some(code)).for_each(|c| *c = None);
            } else {
                ranges.insert(u64::from(a), u64::from(b), code);
                (a..b).for_each(|at| cells[at as usize] = Some(code));
                inserted.push((a, b, code));
            }
            for at in 0..64u64 {
                assert_eq!(ranges.find(at), cells[at as usize], "address {at} after {code}");
            }
        }
    }
}
