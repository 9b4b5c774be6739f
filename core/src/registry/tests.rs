//! The registry against a sorted map, and its promises one by one.

use super::window::Kind;
use super::*;
use crate::errno::{EBUSY, EEXIST};
use std::collections::BTreeMap;
use uunwind_random::Random;

fn slots() -> Box<Slots> {
    // SAFETY: all-zero is the free pool.
    unsafe { Box::<Slots>::new_zeroed().assume_init() }
}

fn window(start: u64, end: u64) -> Window {
    Window::new(start, end, Kind::FramePointer)
}

fn find(registry: &Registry, pc: u64) -> Option<u64> {
    // SAFETY: one thread changes and reads, and nothing is freed during the call.
    unsafe { registry.windows() }.find(pc).map(|held| held.window().start)
}

fn all(registry: &Registry) -> Vec<(u64, u64)> {
    let mut all = Vec::new();
    // SAFETY: as above.
    unsafe { tree::each(registry.shown.root.load(), &mut |held| all.push((held.window.start, held.window.end))) };
    all
}

#[test]
fn windows_are_found_and_overlaps_refused() {
    let (registry, slots) = (Registry::new(), slots());
    for i in 0..300u64 {
        let start = 0x1000 * (1 + (i * 7) % 300);
        assert!(registry.register(window(start, start + 0x800), &slots).is_ok());
    }
    for i in 1..=300u64 {
        assert_eq!(find(&registry, 0x1000 * i), Some(0x1000 * i));
        assert_eq!(find(&registry, 0x1000 * i + 0x7ff), Some(0x1000 * i));
        assert_eq!(find(&registry, 0x1000 * i + 0x800), None);
    }
    for (start, end) in [(0x1000, 0x1001), (0x1700, 0x1900), (0x800, 0x1001), (0x800, 0x40_0000)] {
        assert_eq!(registry.register(window(start, end), &slots), Err(EEXIST));
    }
    assert_eq!(registry.register(window(0x900_0000, 0x900_0000), &slots), Err(EINVAL));
    assert_eq!(registry.unlink(0x1001, &slots), Err(ENOENT));
    assert_eq!(registry.seal(0x1001, &slots), Err(ENOENT));
    assert_eq!(registry.synchronize(registry.epoch() + 1, 0, &slots), Err(EINVAL));
}

/// The registry compared with a map from start to end, through many changes of all kinds.
#[test]
fn it_agrees_with_a_sorted_map() {
    for (seed, order) in [(1u64, 0), (2, 1), (3, 2), (4, 0)] {
        let (registry, slots, mut map) = (Registry::new(), slots(), BTreeMap::new());
        let mut random = Random::new(seed * 0x9e37_79b9);
        for step in 0..6000u64 {
            let growing = step < 4000;
            let start = match order {
                1 if growing => 0x10_0000 + step * 64,
                2 if growing => 0x10_0000 + (6000 - step) * 64,
                _ => 0x10_0000 + random.number() % 6000 * 64,
            };
            let end = start + 1 + random.number() % 200;
            if random.number() % 16 < if growing { 12 } else { 3 } {
                let overlaps = map.range(..end).next_back().is_some_and(|(_, e): (&u64, &u64)| *e > start);
                let result = registry.register(window(start, end), &slots);
                assert_eq!(result.is_err(), overlaps, "{start:#x}..{end:#x}: {result:?}");
                if !overlaps {
                    map.insert(start, end);
                }
            } else if random.number().is_multiple_of(4) {
                // Two adjacent windows replace up to five at once.
                let old: Vec<u64> = map.range(start..).take(5).map(|(s, _)| *s).collect();
                let new = [window(start, start + 8), window(start + 8, start + 16)];
                let kept = map.iter().filter(|(s, _)| !old.contains(s));
                let overlaps = kept.clone().any(|(s, e)| *s < start + 16 && *e > start);
                let result = registry.replace(&old, new.into_iter(), &slots);
                assert_eq!(result, if overlaps { Err(EEXIST) } else { result }, "{result:?}");
                assert_eq!(result.is_err(), overlaps);
                if !overlaps {
                    map = kept.map(|(s, e)| (*s, *e)).chain([(start, start + 8), (start + 8, start + 16)]).collect();
                }
            } else {
                let start = map.range(start..).next().map_or(start, |(s, _)| *s);
                let result = registry.unlink(start, &slots);
                assert_eq!(result.is_ok(), map.remove(&start).is_some(), "{start:#x}: {result:?}");
            }
            if step % 97 == 0 {
                assert_eq!(all(&registry), map.iter().map(|(s, e)| (*s, *e)).collect::<Vec<_>>());
            }
            let pc = 0x10_0000 + random.number() % (6000 * 64);
            let wanted = map.range(..=pc).next_back().filter(|(_, e)| pc < **e).map(|(s, _)| *s);
            assert_eq!(find(&registry, pc), wanted, "{pc:#x}");
        }
        let keys: Vec<u64> = map.into_keys().collect();
        for key in keys {
            assert!(registry.unlink(key, &slots).is_ok());
        }
        // SAFETY: as in `find`.
        assert!(unsafe { registry.windows() }.is_empty() && all(&registry).is_empty());
    }
}

#[test]
fn a_change_that_fails_changes_nothing() {
    let (registry, slots) = (Registry::new(), slots());
    for i in 1..=200u64 {
        registry.register(window(i * 0x1000, i * 0x1000 + 0x800), &slots).expect("no overlap");
    }
    let before = all(&registry);
    let fails = [
        registry.replace(&[0x1000, 0x1001], [].into_iter(), &slots),
        registry.replace(&[0x1000], [window(0x1000, 0x1100), window(0x2700, 0x2900)].into_iter(), &slots),
        registry.replace(&[], [window(0x900, 0xa00), window(0x980, 0xb00)].into_iter(), &slots),
        registry.replace(&[0x1000, 0x1000], [].into_iter(), &slots),
    ];
    assert_eq!(fails, [Err(ENOENT), Err(EEXIST), Err(EEXIST), Err(ENOENT)]);
    assert_eq!(all(&registry), before);
    assert!(registry.replace(&[0x1000], [window(0x1000, 0x1100)].into_iter(), &slots).is_ok());
}

#[test]
fn an_unlinked_window_is_pinned_until_the_walks_before_it_end() {
    let (registry, slots) = (Registry::new(), slots());
    let first = registry.register(window(0x1000, 0x2000), &slots).expect("first");
    let slots = &*slots;
    std::thread::scope(|scope| {
        let (entered, wait_entered) = std::sync::mpsc::channel();
        let (go_on, wait) = std::sync::mpsc::channel::<()>();
        let epoch = registry.epoch();
        scope.spawn(move || {
            let walking = slots.enter(1000, epoch).expect("a walk");
            entered.send(()).expect("sent");
            wait.recv().expect("received");
            walking.leave();
        });
        wait_entered.recv().expect("entered");
        let ticket = registry.unlink(0x1000, slots).expect("unlinked");
        assert_eq!(find(&registry, 0x1000), None, "new walks do not see it");
        assert_eq!(registry.synchronize(ticket, 2_000_000, slots), Err(ETIMEDOUT));
        assert_eq!(registry.synchronize(ticket, 0, slots), Err(ETIMEDOUT));
        assert_eq!(registry.register(window(0x1000, 0x2000), slots), Err(EBUSY));
        assert_eq!(registry.register(window(0x1800, 0x1801), slots), Err(EBUSY), "the text may still be read");
        assert_eq!(registry.waiting().0, 1);
        // There is no limit on unlinked windows.
        for i in 0..1000u64 {
            registry.register(window(0x10_0000 + i * 16, 0x10_0010 + i * 16), slots).expect("room");
            registry.unlink(0x10_0000 + i * 16, slots).expect("room");
        }
        assert_eq!(registry.waiting().0, 1001);
        assert_eq!(registry.register(window(0x10_0000 + 900 * 16, 0x10_0004 + 900 * 16), slots), Err(EBUSY));
        go_on.send(()).expect("sent");
        assert_eq!(registry.synchronize(ticket, 5_000_000_000, slots), Ok(()));
        let second = registry.register(window(0x1000, 0x2000), slots).expect("no walk reads it");
        assert!(second > first, "another generation");
        assert!(registry.register(window(0x10_0000 + 900 * 16, 0x10_0004 + 900 * 16), slots).is_ok());
    });
    let walking = slots.enter(crate::slots::stack_pointer(), registry.epoch()).expect("a walk");
    assert_eq!(registry.unlink(0x1000, slots), Err(EDEADLK));
    assert_eq!(registry.synchronize(1, 0, slots), Err(EDEADLK));
    walking.leave();
}

/// With enough windows for hints: a walk that began before a change sees the old windows, one after it the
/// new ones.
#[test]
fn each_walk_sees_its_own_tree() {
    const COUNT: u64 = 3000;
    let place = |i: u64| 0x10_0000 + i * 0x100;
    let (registry, slots) = (Registry::new(), slots());
    for i in 0..COUNT {
        registry.register(window(place(i), place(i) + 0x80), &slots).expect("room");
    }
    assert!(!registry.shown.recent.load(Ordering::Relaxed).is_null(), "no hints are kept");
    let (registry, slots) = (&registry, &*slots);
    let generations = |windows: Windows<'_>| -> Vec<u64> {
        (0..COUNT).map(|i| windows.find(place(i) + 0x7f).map_or(0, |held| held.window().generation)).collect()
    };
    std::thread::scope(|scope| {
        let (begin, begun) = std::sync::mpsc::channel();
        let (go_on, wait) = std::sync::mpsc::channel::<()>();
        scope.spawn(move || {
            let walking = slots.enter(crate::slots::stack_pointer(), registry.epoch()).expect("a walk");
            // SAFETY: inside a walk.
            let windows = unsafe { registry.windows() };
            let first = generations(windows);
            begin.send(()).expect("sent");
            wait.recv().expect("received");
            // The hints are those of the other walk now.
            assert!(first.iter().all(|generation| *generation != 0) && generations(windows) == first);
            assert_eq!(generations(windows), first);
            walking.leave();
        });
        begun.recv().expect("the walk has begun");
        for i in (0..COUNT).step_by(3) {
            registry.replace(&[place(i)], [window(place(i), place(i) + 0x80)].into_iter(), slots).expect("room");
            registry.unlink(place(i + 1), slots).expect("it is there");
        }
        let walking = slots.enter(crate::slots::stack_pointer(), registry.epoch()).expect("a walk");
        for _ in 0..2 {
            // SAFETY: inside a walk.
            let now = generations(unsafe { registry.windows() });
            for (i, generation) in (0..).zip(now) {
                let wanted = [generation > COUNT, generation == 0, (1..=COUNT).contains(&generation)];
                assert!(wanted[i % 3], "window {i} has generation {generation}");
            }
        }
        walking.leave();
        go_on.send(()).expect("sent");
    });
}

/// A walk may take its mark from an epoch and set it much later. What was free by then is not pinned.
#[test]
fn a_late_mark_of_an_old_epoch_pins_nothing() {
    let (registry, slots) = (Registry::new(), slots());
    registry.register(window(0x1000, 0x2000), &slots).expect("first");
    let old = registry.epoch();
    let ticket = registry.unlink(0x1000, &slots).expect("it is there");
    assert_eq!(registry.synchronize(ticket, 0, &slots), Ok(()));
    let slots = &*slots;
    std::thread::scope(|scope| {
        let (begin, begun) = std::sync::mpsc::channel();
        let (go_on, wait) = std::sync::mpsc::channel::<()>();
        scope.spawn(move || {
            let walking = slots.enter(1000, old).expect("a walk");
            begin.send(()).expect("sent");
            wait.recv().expect("received");
            walking.leave();
        });
        begun.recv().expect("the walk has begun");
        assert!(registry.register(window(0x1000, 0x2000), slots).is_ok(), "synchronize found that no walk reads it");
        assert_eq!(registry.unlink(0x1000, slots).and_then(|t| registry.synchronize(t, 0, slots)), Err(ETIMEDOUT));
        assert_eq!(registry.register(window(0x1000, 0x2000), slots), Err(EBUSY));
        go_on.send(()).expect("sent");
    });
}

#[test]
fn marks_of_dead_threads_do_not_hold_a_window() {
    let (registry, slots) = (Registry::new(), slots());
    registry.register(window(0x1000, 0x2000), &slots).expect("first");
    let slots = &*slots;
    let epoch = registry.epoch();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let _left_without_its_exit = slots.enter(1000, epoch).expect("a walk");
        });
    });
    let ticket = registry.unlink(0x1000, slots).expect("unlinked");
    assert_eq!(registry.synchronize(ticket, 10_000_000_000, slots), Ok(()));
}

#[test]
fn a_writer_lost_in_a_fork_leaves_a_usable_registry() {
    let (registry, slots) = (Registry::new(), slots());
    for i in 1..=100u64 {
        registry.register(window(i * 0x1000, i * 0x1000 + 0x800), &slots).expect("no overlap");
    }
    std::thread::scope(|scope| {
        scope.spawn(|| assert!(registry.fork_begins(), "a writer holds the lock like this"));
    });
    registry.after_fork();
    assert_eq!(find(&registry, 0x1000), Some(0x1000));
    registry.unlink(0x1000, &slots).expect("the lock is free");
    registry.register(window(0x1000, 0x1800), &slots).expect("the lock is free");
    assert!(registry.fork_begins());
    assert!(!registry.fork_begins(), "a handler that interrupted the holder is refused");
    assert_eq!(registry.unlink(0x1000, &slots), Err(EDEADLK));
    registry.after_fork();
    assert_eq!(registry.unlink(0x1000, &slots), Err(EDEADLK), "this thread's own lock is no lost one");
    registry.fork_is_done();
    assert!(registry.unlink(0x1000, &slots).is_ok());
}
