//! A walk that follows a hint to a cell, while a writer takes the window there out, gives the cell back, and uses it
//! for another: what the walk accepts is in its tree, and is not overwritten under it. And the same with one step
//! wrong.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use uunwind_model::grace::{holds, Epoch, Mark};
use uunwind_model::life::Life;
use uunwind_model::sync::{AtomicU64, Ordering};

/// Two windows that lie in the same cell, one after the other: where, and in the trees of which changes.
const FIRST: (u64, u64) = (10, 20);
const SECOND: (u64, u64) = (30, 40);
/// An address in each.
const KEYS: [u64; 2] = [15, 35];
const PUT_IN: u64 = 1;
const TAKEN_OUT: u64 = 2;
const USED_AGAIN: u64 = 3;

struct World {
    epoch: Epoch,
    mark: Mark,
    /// The change that made the published tree: what a root says.
    tree: AtomicU64,
    life: Life,
    /// Whether the second window comes into a tree at all.
    again: bool,
    /// The rest of the cell, which is not atomic: it says whose it is.
    rest: UnsafeCell<u64>,
}

// SAFETY: what is not atomic is watched by the checker.
unsafe impl Sync for World {}
// SAFETY: as above.
unsafe impl Send for World {}

impl World {
    fn new(again: bool) -> World {
        let world = World {
            again,
            epoch: Epoch::new(),
            mark: Mark::new(),
            tree: AtomicU64::new(PUT_IN),
            life: Life::default(),
            rest: UnsafeCell::new(FIRST.0),
        };
        world.life.begin(FIRST.0, FIRST.1, 1, PUT_IN);
        world
    }

    fn walk(&self, key: u64) {
        self.mark.set(self.epoch.now());
        let tree = self.tree.load(Ordering::Acquire);
        if self.life.covers(key, tree) {
            // SAFETY: whether it may be read is what is checked.
            let start = self.rest.with(|rest| unsafe { *rest });
            let (first, in_tree) =
                if key < FIRST.1 { (FIRST.0, tree == PUT_IN) } else { (SECOND.0, self.again && tree == USED_AGAIN) };
            assert!(in_tree, "a window that is not in the tree of change {tree}");
            assert_eq!(start, first, "another window's cell");
        }
        self.mark.restore(0);
    }

    fn take_out(&self) {
        self.life.unlink(TAKEN_OUT);
        self.tree.store(TAKEN_OUT, Ordering::Release);
    }

    /// Whether no walk can read what was taken out.
    fn is_free(&self) -> bool {
        let ticket = self.epoch.advance();
        !holds(self.mark.seen(), ticket)
    }

    fn rewrite(&self) {
        // SAFETY: as above.
        self.rest.with_mut(|rest| unsafe { *rest = SECOND.0 });
    }

    fn use_again(&self) {
        self.rewrite();
        self.life.begin(SECOND.0, SECOND.1, 2, USED_AGAIN);
        self.tree.store(USED_AGAIN, Ordering::Release);
    }

    fn write(&self) {
        self.take_out();
        if self.is_free() {
            self.life.end();
            self.use_again();
        }
    }
}

fn check(again: bool, write: fn(&World)) {
    for key in KEYS {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = builder.preemption_bound.or(Some(2));
        builder.check(move || {
            let world = Arc::new(World::new(again));
            let other = world.clone();
            let walker = thread::spawn(move || other.walk(key));
            write(&world);
            walker.join().expect("the walker ends");
        });
    }
}

#[track_caller]
fn must_fail(again: bool, write: fn(&World)) {
    let outcome = std::panic::catch_unwind(|| check(again, write));
    assert!(outcome.is_err(), "the checker does not notice");
}

#[test]
fn a_hint_leads_to_windows_of_the_walks_own_tree() {
    check(true, World::write);
}

/// A change that fails when it has written a window. Its number is that of the next one, which succeeds.
fn fail(world: &World, end: fn(&Life)) {
    world.take_out();
    if world.is_free() {
        world.life.end();
        world.rewrite();
        world.life.begin(SECOND.0, SECOND.1, 2, USED_AGAIN);
        end(&world.life);
        world.tree.store(USED_AGAIN, Ordering::Release);
    }
}

#[test]
fn a_change_that_fails_shows_nothing() {
    check(false, |world| fail(world, Life::end));
}

#[test]
fn a_window_of_a_change_that_fails_must_end() {
    must_fail(false, |world| fail(world, |_| {}));
}

#[test]
fn taking_out_must_be_noted_before_the_tree_is_published() {
    must_fail(true, |world| {
        world.tree.store(TAKEN_OUT, Ordering::Release);
        world.life.unlink(TAKEN_OUT);
    });
}

#[test]
fn taking_out_must_be_noted_at_all() {
    must_fail(true, |world| {
        world.tree.store(TAKEN_OUT, Ordering::Release);
    });
}

#[test]
fn a_cell_must_not_be_used_again_under_a_walk() {
    must_fail(true, |world| {
        world.take_out();
        world.life.end();
        world.use_again();
    });
}

#[test]
fn the_rest_must_be_written_before_the_window_begins() {
    must_fail(true, |world| {
        world.take_out();
        if world.is_free() {
            world.life.begin(SECOND.0, SECOND.1, 2, PUT_IN);
            world.rewrite();
        }
    });
}

#[test]
fn a_window_must_not_begin_before_its_change() {
    must_fail(true, |world| {
        world.take_out();
        if world.is_free() {
            world.rewrite();
            world.life.begin(SECOND.0, SECOND.1, 2, TAKEN_OUT);
        }
    });
}
