//! A thread's deferred requests: clients that ask, deliveries, and whoever makes requests void, in every interleaving.
//! In the product most of them are handlers of one thread, each of which runs to its end: fewer interleavings than
//! these. And the same with one step wrong, which the checker must notice.

use loom::sync::Arc;
use loom::thread;
use std::sync::Mutex;
use uunwind_model::deferred::Deferred;
use uunwind_model::sync::{AtomicU64, Ordering};

/// What happened, by the request's count.
#[derive(Default)]
struct Log {
    /// Who was given which cookie.
    cookies: Vec<(u32, u64)>,
    stacks: Vec<u64>,
    /// Calls of clients.
    calls: Vec<(u32, u64)>,
    void: Vec<u64>,
}

struct World {
    deferred: Deferred,
    /// Signals that were sent and have not arrived.
    signals: AtomicU64,
    /// Not one of the checker's: only what happened is written down.
    log: Mutex<Log>,
}

impl World {
    fn log(&self) -> std::sync::MutexGuard<'_, Log> {
        self.log.lock().expect("no panic")
    }

    fn trigger(&self, client: u32) {
        let asked = self.deferred.ask(client).expect("room for tries");
        self.send(asked.is_first);
        if asked.is_first {
            self.deferred.sent(asked.count);
        }
        self.log().cookies.push((client, asked.count));
    }

    fn send(&self, is_first: bool) {
        if is_first {
            self.signals.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// As if the cookie were read before the bit is set.
    fn trigger_in_two_steps(&self, client: u32) {
        let early = self.deferred.pending();
        let asked = self.deferred.ask(client).expect("room for tries");
        self.send(asked.is_first);
        self.log().cookies.push((client, early.unwrap_or(asked.count)));
    }

    /// Whether a signal arrives.
    fn receives(&self) -> bool {
        let fewer = |sent: u64| sent.checked_sub(1);
        self.signals.fetch_update(Ordering::AcqRel, Ordering::Acquire, fewer).is_ok()
    }

    fn handler(&self) {
        if self.receives() {
            if let Some(count) = self.deferred.begin() {
                self.deliver(count);
            }
        }
    }

    /// The handler of a signal that was sent for another purpose.
    fn other_handler(&self) {
        if self.deferred.unsent().is_none() {
            if let Some(count) = self.deferred.begin() {
                self.deliver(count);
            }
        }
    }

    fn deliver(&self, count: u64) {
        self.log().stacks.push(count);
        let mut served = 0;
        loop {
            let waiting = self.deferred.next(count, served);
            if waiting == 0 {
                return;
            }
            served |= self.call(count, waiting);
        }
    }

    fn call(&self, count: u64, waiting: u64) -> u64 {
        for client in (0..16).filter(|client| waiting & 1 << client != 0) {
            self.log().calls.push((client, count));
        }
        waiting
    }

    /// As if the delivery did not begin by a change of the word.
    fn handler_that_does_not_begin(&self) {
        if let Some(count) = self.deferred.pending() {
            self.log().stacks.push(count);
            let waiting = self.deferred.pending().map_or(0, |_| 1);
            self.call(count, waiting);
            self.deferred.void(count);
        }
    }

    /// As if the request ended whoever has asked meanwhile.
    fn handler_that_ends_at_once(&self) {
        if self.receives() {
            if let Some(count) = self.deferred.begin() {
                self.log().stacks.push(count);
                let waiting = self.deferred.next(count, 0);
                self.call(count, waiting);
                self.deferred.void(count);
            }
        }
    }

    fn sweep(&self) {
        if let Some(count) = self.deferred.pending() {
            if self.deferred.void(count).is_some() {
                self.log().void.push(count);
            }
        }
    }

    fn check(&self) {
        while self.receives() {
            if let Some(count) = self.deferred.begin() {
                self.deliver(count);
            }
        }
        let log = self.log();
        assert_eq!(self.deferred.pending(), None, "a request without a signal");
        for stack in &log.stacks {
            assert_eq!(log.stacks.iter().filter(|other| *other == stack).count(), 1, "two stacks with cookie {stack}");
        }
        for call in &log.calls {
            assert_eq!(log.calls.iter().filter(|other| *other == call).count(), 1, "called twice: {call:?}");
            assert!(log.cookies.contains(call), "called without having asked: {call:?}");
        }
        for cookie in &log.cookies {
            assert!(log.calls.contains(cookie) || log.void.contains(&cookie.1), "{cookie:?} has no stack, nor is void");
        }
    }
}

type Step = fn(&World);

fn check(steps: &'static [&'static [Step]]) {
    let mut builder = loom::model::Builder::new();
    // With a fourth preemption, three threads have interleavings for many minutes.
    let most = if steps.len() > 2 { 3 } else { usize::MAX };
    builder.preemption_bound = Some(builder.preemption_bound.unwrap_or(2).min(most));
    builder.check(move || {
        let world = Arc::new(World { deferred: Deferred::new(), signals: AtomicU64::new(0), log: Mutex::default() });
        let threads: Vec<_> = steps
            .iter()
            .map(|steps| {
                let world = world.clone();
                thread::spawn(move || steps.iter().for_each(|step| step(&world)))
            })
            .collect();
        for thread in threads {
            thread.join().expect("it ends");
        }
        world.check();
    });
}

#[track_caller]
fn must_fail(steps: &'static [&'static [Step]]) {
    let outcome = std::panic::catch_unwind(|| check(steps));
    assert!(outcome.is_err(), "the checker does not notice");
}

const A: Step = |world| world.trigger(0);
const B: Step = |world| world.trigger(1);

#[test]
fn each_cookie_has_one_stack_and_everyone_who_asked_gets_it() {
    check(&[&[A, World::handler, A], &[B], &[World::handler]]);
}

#[test]
fn asking_while_clients_are_called_is_served_by_the_same_stack_or_the_next_one() {
    check(&[&[A, World::handler], &[B, A]]);
}

#[test]
fn signals_for_another_purpose_deliver_what_was_sent() {
    check(&[&[A, World::handler, A], &[World::other_handler], &[B]]);
}

#[test]
fn what_is_void_is_delivered_to_nobody_new() {
    check(&[&[A, World::handler], &[B], &[World::sweep]]);
}

#[test]
fn two_deliveries_at_once_take_one_stack() {
    check(&[&[A, World::handler], &[World::handler], &[B]]);
}

#[test]
fn the_cookie_must_be_read_with_the_change() {
    must_fail(&[&[A, World::handler], &[World::trigger_in_two_steps_of_b]]);
}

impl World {
    fn trigger_in_two_steps_of_b(&self) {
        self.trigger_in_two_steps(1);
    }
}

#[test]
fn a_delivery_must_begin_by_a_change() {
    must_fail(&[&[A, World::handler_that_does_not_begin], &[World::handler_that_does_not_begin]]);
}

#[test]
fn a_request_must_not_end_while_somebody_waits() {
    must_fail(&[&[A, World::handler_that_ends_at_once], &[B]]);
}
