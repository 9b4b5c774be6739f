//! Threads that wait for each other in a circle.

use super::{Held, WaitsFor};
use std::collections::HashMap;

/// Threads that wait for each other in a circle, each after the one that waits for it; a thread that waits for itself
/// is one alone.
pub fn circles(waits: impl Iterator<Item = (u32, Option<WaitsFor>)>) -> Vec<Vec<u32>> {
    let next: HashMap<u32, u32> = waits
        .filter_map(|(tid, waits)| match waits?.held {
            Held::Thread(holder) => Some((tid, holder)),
            Held::Readers(_) => None,
        })
        .collect();
    let mut found: Vec<Vec<u32>> = Vec::new();
    // The way on which a thread was met first, by that way's first thread.
    let mut seen: HashMap<u32, u32> = HashMap::new();
    let mut starts: Vec<u32> = next.keys().copied().collect();
    starts.sort_unstable();
    for start in starts {
        let mut at = start;
        while let Some(holder) = next.get(&at).filter(|_| !seen.contains_key(&at)) {
            seen.insert(at, start);
            at = *holder;
        }
        // It ends where a thread of this very way stands: that one is in a circle.
        if seen.get(&at) == Some(&start) && next.contains_key(&at) {
            let circle = std::iter::successors(Some(at), |tid| next.get(tid).copied().filter(|tid| *tid != at));
            found.push(circle.collect());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::What;
    use super::*;

    #[test]
    fn circles_are_found_once_and_ways_into_them_are_none() {
        let waits = |pairs: &[(u32, u32)]| {
            let waits = |holder| WaitsFor { what: What::Mutex, address: 0, held: Held::Thread(holder) };
            let mut found = circles(pairs.iter().map(|(tid, holder)| (*tid, Some(waits(*holder)))));
            found.iter_mut().for_each(|circle| circle.sort_unstable());
            found
        };
        assert_eq!(waits(&[(1, 2), (2, 3)]), Vec::<Vec<u32>>::new());
        assert_eq!(waits(&[(1, 2), (2, 3), (3, 2), (4, 1), (5, 5), (6, 5)]), [vec![2, 3], vec![5]]);
        let readers = WaitsFor { what: What::RwLock, address: 0, held: Held::Readers(1) };
        assert_eq!(circles([(1, Some(readers)), (2, None)].into_iter()), Vec::<Vec<u32>>::new());
    }
}
