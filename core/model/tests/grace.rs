//! Walks against a writer, in every interleaving: nothing is read after it was given back. And the same with one step
//! wrong, which the checker must notice: else it checks nothing.
//!
//! `ci/model` looks deeper than an ordinary test run does (LOOM_MAX_PREEMPTIONS).

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use uunwind_model::grace::{holds, Epoch, Mark, Root};
use uunwind_model::sync::{AtomicU64, Ordering};

/// What walks read. Given back means overwritten: the checker fails when that meets a read.
struct Node(UnsafeCell<u64>);

const GOOD: u64 = 7;
const GIVEN_BACK: u64 = 0xdead;

/// Up to three trees, one published after the other.
struct World {
    epoch: Epoch,
    root: Root<Node>,
    nodes: Vec<Node>,
    marks: Vec<Mark>,
    tids: Vec<AtomicU64>,
}

// SAFETY: what the nodes hold is watched by the checker; all else is atomic.
unsafe impl Sync for World {}
// SAFETY: as above.
unsafe impl Send for World {}

impl World {
    fn new(walkers: usize) -> Arc<World> {
        let world = World {
            epoch: Epoch::new(),
            root: Root::new(),
            nodes: (0..3).map(|_| Node(UnsafeCell::new(GOOD))).collect(),
            marks: (0..walkers).map(|_| Mark::new()).collect(),
            tids: (0..walkers).map(|_| AtomicU64::new(1)).collect(),
        };
        world.root.publish(world.node(0));
        Arc::new(world)
    }

    fn node(&self, index: usize) -> *mut Node {
        core::ptr::from_ref(&self.nodes[index]).cast_mut()
    }

    /// Reads the tree that this walk loaded.
    fn read(&self, root: *mut Node) {
        // SAFETY: a node of this world; whether it may still be read is what is checked.
        let value = unsafe { (*root).0.with(|value| *value) };
        assert_eq!(value, GOOD, "read after it was given back");
    }

    fn give_back(&self, index: usize) {
        // SAFETY: as above.
        unsafe { self.nodes[index].0.with_mut(|value| *value = GIVEN_BACK) };
    }

    fn walk(&self, walker: usize) {
        self.marks[walker].set(self.epoch.now());
        self.read(self.root.load());
        self.marks[walker].restore(0);
    }

    fn is_released(&self, ticket: u64) -> bool {
        !self.marks.iter().any(|mark| holds(mark.seen(), ticket))
    }

    /// Publishes tree `next` and gives the one before back, if no reader can hold it. Looking once is enough: a writer
    /// that looks again is another interleaving.
    fn change(&self, next: usize) {
        self.root.publish(self.node(next));
        let ticket = self.epoch.advance();
        if self.is_released(ticket) {
            self.give_back(next - 1);
        }
    }
}

/// Every interleaving with at most `LOOM_MAX_PREEMPTIONS` preemptions, or three where that is not set.
fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(3));
    builder.check(model);
}

/// As [`check`], but some interleaving must go wrong.
fn must_fail(what: &str, model: impl Fn() + Sync + Send + 'static) {
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| check(model)));
    assert!(outcome.is_err(), "{what}: the checker does not notice");
}

/// One walker and one writer.
fn two(walk: fn(&World), write: fn(&World)) -> impl Fn() {
    move || {
        let world = World::new(1);
        let other = world.clone();
        let walker = thread::spawn(move || walk(&other));
        write(&world);
        walker.join().expect("the walker ends");
    }
}

#[test]
fn nothing_is_given_back_under_a_walk() {
    check(two(|world| world.walk(0), |world| world.change(1)));
}

#[test]
fn nor_in_two_changes_and_two_walks() {
    check(two(
        |world| {
            world.walk(0);
            world.walk(0);
        },
        |world| {
            world.change(1);
            world.change(2);
        },
    ));
}

#[test]
fn one_ticket_serves_the_changes_before_it() {
    check(two(
        |world| world.walk(0),
        |world| {
            world.root.publish(world.node(1));
            world.epoch.advance();
            world.root.publish(world.node(2));
            let ticket = world.epoch.advance();
            if world.is_released(ticket) {
                world.give_back(0);
                world.give_back(1);
            }
        },
    ));
}

#[test]
fn two_walkers_and_a_writer() {
    check(|| {
        let world = World::new(2);
        let others: Vec<_> = (0..2)
            .map(|walker| {
                let world = world.clone();
                thread::spawn(move || world.walk(walker))
            })
            .collect();
        world.change(1);
        for other in others {
            other.join().expect("the walker ends");
        }
    });
}

/// A walk that a handler interrupts, whose own walk ends first.
fn nested(world: &World, inner_ends: fn(&Mark, u64)) {
    let mark = &world.marks[0];
    mark.set(world.epoch.now());
    let outer = world.root.load();
    let old = mark.own();
    mark.set(if old == 0 { world.epoch.now() } else { old });
    world.read(world.root.load());
    inner_ends(mark, old);
    world.read(outer);
    mark.restore(0);
}

#[test]
fn a_nested_walk_leaves_the_outer_ones_mark() {
    check(two(|world| nested(world, Mark::restore), |world| world.change(1)));
    must_fail(
        "the inner walk's exit ends the outer one",
        two(|world| nested(world, |mark, _| mark.restore(0)), |world| world.change(1)),
    );
}

/// A slot whose owner died in a walk, and got a new owner. The writer does not count marks of the dead.
fn taken_over(writer: fn(&World, u64)) -> impl Fn() {
    move || {
        let world = World::new(1);
        world.marks[0].set(world.epoch.now());
        let other = world.clone();
        let walker = thread::spawn(move || {
            // The new owner's id stands before its first mark.
            other.tids[0].store(2, Ordering::Relaxed);
            other.walk(0);
        });
        for next in 1..3 {
            world.root.publish(world.node(next));
            let ticket = world.epoch.advance();
            writer(&world, ticket);
            let mark = world.marks[0].seen();
            let gone = || world.tids[0].load(Ordering::Relaxed) == 1;
            if !holds(mark, ticket) || gone() {
                world.give_back(next - 1);
            }
        }
        walker.join().expect("the walker ends");
    }
}

#[test]
fn marks_of_the_dead_do_not_count_and_those_of_their_heirs_do() {
    check(taken_over(|_, _| {}));
    must_fail("the id is looked at before the mark", || {
        let world = World::new(1);
        world.marks[0].set(world.epoch.now());
        let other = world.clone();
        let walker = thread::spawn(move || {
            other.tids[0].store(2, Ordering::Relaxed);
            other.walk(0);
        });
        world.root.publish(world.node(1));
        let gone = world.tids[0].load(Ordering::Relaxed) == 1;
        let ticket = world.epoch.advance();
        if !holds(world.marks[0].seen(), ticket) || gone {
            world.give_back(0);
        }
        walker.join().expect("the walker ends");
    });
}

#[test]
fn a_walk_that_loads_the_root_before_its_mark_is_noticed() {
    let walk = |world: &World| {
        let root = world.root.load();
        world.marks[0].set(world.epoch.now());
        world.read(root);
        world.marks[0].restore(0);
    };
    must_fail("root before mark", two(walk, |world| world.change(1)));
}

#[test]
fn a_walk_that_reads_behind_its_mark_is_noticed() {
    let walk = |world: &World| {
        world.marks[0].set(world.epoch.now());
        let root = world.root.load();
        world.marks[0].restore(0);
        world.read(root);
    };
    must_fail("mark taken back too early", two(walk, |world| world.change(1)));
}

#[test]
fn a_mark_without_a_barrier_is_noticed() {
    let walk = |world: &World| {
        world.marks[0].restore(world.epoch.now()); // a plain release store
        world.read(world.root.load());
        world.marks[0].restore(0);
    };
    must_fail("no barrier after the mark", two(walk, |world| world.change(1)));
}

#[test]
fn a_writer_that_does_not_look_is_noticed() {
    let write = |world: &World| {
        world.root.publish(world.node(1));
        world.epoch.advance();
        world.give_back(0);
    };
    must_fail("no mark was read", two(|world| world.walk(0), write));
}

#[test]
fn a_ticket_from_before_the_change_is_noticed() {
    let write = |world: &World| {
        let ticket = world.epoch.advance();
        world.root.publish(world.node(1));
        if world.is_released(ticket) {
            world.give_back(0);
        }
    };
    must_fail("ticket before the change", two(|world| world.walk(0), write));
}

#[test]
fn marks_that_are_looked_at_too_early_are_noticed() {
    let write = |world: &World| {
        let unheld = world.marks[0].seen() == 0;
        world.root.publish(world.node(1));
        world.epoch.advance();
        if unheld {
            world.give_back(0);
        }
    };
    must_fail("looked before the change", two(|world| world.walk(0), write));
}

/// A growing table: entries, then the counter.
fn growing(order: Ordering) -> impl Fn() {
    move || {
        let table = Arc::new(((UnsafeCell::new(0u64)), AtomicU64::new(0)));
        let writer = table.clone();
        let jit = thread::spawn(move || {
            // SAFETY: written before it is published.
            unsafe { writer.0.with_mut(|entry| *entry = GOOD) };
            writer.1.store(1, order);
        });
        if table.1.load(Ordering::Acquire) == 1 {
            // SAFETY: published.
            assert_eq!(unsafe { table.0.with(|entry| *entry) }, GOOD);
        }
        jit.join().expect("the writer ends");
    }
}

#[test]
fn functions_are_whole_once_they_are_counted() {
    check(growing(Ordering::Release));
    must_fail("a counter without release", growing(Ordering::Relaxed));
}
