//! Heapsort: in place, bounded, and without a path to a panic, which the standard library's sorts have.

/// Sorts by `key`, ascending. Not stable.
pub fn sort<T: Copy>(items: &mut [T], key: impl Fn(&T) -> u64) {
    if items.is_sorted_by_key(&key) {
        return;
    }
    let len = items.len();
    for root in (0..len / 2).rev() {
        sink(items, root, len, &key);
    }
    for end in (1..len).rev() {
        exchange(items, 0, end);
        sink(items, 0, end, &key);
    }
}

/// Lets the item at `root` sink to its place in the heap `items[..end]`.
fn sink<T: Copy>(items: &mut [T], mut root: usize, end: usize, key: &impl Fn(&T) -> u64) {
    let at = |items: &[T], i: usize| items.get(i).filter(|_| i < end).map(key);
    loop {
        let (left, right) = (2 * root + 1, 2 * root + 2);
        let (Some(own), Some(of_left)) = (at(items, root), at(items, left)) else { return };
        let child = if at(items, right).is_some_and(|of_right| of_right > of_left) { right } else { left };
        if at(items, child).is_none_or(|of_child| of_child <= own) {
            return;
        }
        exchange(items, root, child);
        root = child;
    }
}

fn exchange<T: Copy>(items: &mut [T], a: usize, b: usize) {
    let (Some(of_a), Some(of_b)) = (items.get(a).copied(), items.get(b).copied()) else { return };
    if let Some(place) = items.get_mut(a) {
        *place = of_b;
    }
    if let Some(place) = items.get_mut(b) {
        *place = of_a;
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn as_the_standard_library_sorts() {
        let mut seed = 7u64;
        for len in 0..200 {
            let mut items: Vec<u64> = (0..len)
                .map(|_| {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    seed >> 57
                })
                .collect();
            let mut expected = items.clone();
            expected.sort_unstable();
            super::sort(&mut items, |n| *n);
            assert_eq!(items, expected);
        }
    }
}
