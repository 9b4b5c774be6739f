//! Questions of several recordings that are asked in one go: each run of the naming process reads the debug information
//! of a file anew, which costs more than all that is asked of it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use uunwind_clock::{Bell, Instant};

/// Longest wait between looks at whether a round is over.
const LOOK: Duration = Duration::from_secs(60);

/// Rounds of questions, one after the other. One thread of a round waits for more questions, then asks for all.
pub struct Rounds<Q> {
    gathers: Duration,
    state: Mutex<State<Q>>,
    /// Rung when a round is over.
    over: Bell,
    /// Rung when nobody is to wait for more questions.
    hurry: Bell,
    hurries: AtomicBool,
    /// Held while a round is answered.
    answering: Mutex<()>,
}

struct State<Q> {
    /// The questions of the round that begins next.
    gathered: Vec<Q>,
    /// A thread waits for more of them.
    is_led: bool,
    /// Number of rounds that have begun, and of those that are over.
    begun: u64,
    over: u64,
}

/// Notes the end of a round, also where it ends by a panic.
struct Ends<'r, Q>(&'r Rounds<Q>);

impl<Q> Drop for Ends<'_, Q> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.over = state.begun;
        drop(state);
        self.0.over.ring();
    }
}

impl<Q> Rounds<Q> {
    /// Rounds that wait for more questions this long.
    pub fn new(gathers: Duration) -> Rounds<Q> {
        Rounds {
            gathers,
            state: Mutex::new(State { gathered: Vec::new(), is_led: false, begun: 0, over: 0 }),
            over: Bell::default(),
            hurry: Bell::default(),
            hurries: AtomicBool::new(false),
            answering: Mutex::new(()),
        }
    }

    /// Adds questions to the next round, and returns when it is over. One of its threads calls `answer` with all of
    /// them. `at_once`: it does not wait for more.
    pub fn ask(&self, questions: Vec<Q>, at_once: bool, answer: impl FnOnce(Vec<Q>)) {
        let mut state = self.lock();
        state.gathered.extend(questions);
        let own = state.begun + 1;
        let leads = at_once || !std::mem::replace(&mut state.is_led, true);
        drop(state);
        if !leads {
            return self.wait_for(own);
        }
        if !at_once {
            self.gather();
        }
        let _answering = self.alone();
        let mut state = self.lock();
        let gathered = std::mem::take(&mut state.gathered);
        state.is_led &= at_once;
        // Another round may have taken them all, and is over.
        if gathered.is_empty() {
            return;
        }
        state.begun += 1;
        drop(state);
        let _ends = Ends(self);
        answer(gathered);
    }

    /// Waits until no round is being answered, and keeps others from it.
    pub fn alone(&self) -> MutexGuard<'_, ()> {
        self.answering.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on nobody waits for more questions.
    pub fn hurry(&self) {
        self.hurries.store(true, Ordering::SeqCst);
        self.hurry.ring();
    }

    fn gather(&self) {
        let begun = Instant::now();
        loop {
            let mark = self.hurry.mark();
            let left = self.gathers.saturating_sub(begun.elapsed());
            if left.is_zero() || self.hurries.load(Ordering::SeqCst) {
                return;
            }
            self.hurry.wait(mark, left);
        }
    }

    fn wait_for(&self, round: u64) {
        loop {
            let mark = self.over.mark();
            if self.lock().over >= round {
                return;
            }
            self.over.wait(mark, LOOK);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<Q>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    /// Starts this number of threads with a question each, of which the first waits for all others.
    fn asked(rounds: &Rounds<usize>, threads: usize, at_once: bool) -> Vec<Vec<usize>> {
        let all = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for question in 0..threads {
                let all = &all;
                scope.spawn(move || rounds.ask(vec![question], at_once, |asked| all.lock().expect("it").push(asked)));
            }
            // All have asked.
            while !at_once && rounds.lock().gathered.len() < threads {
                std::thread::yield_now();
            }
            rounds.hurry();
        });
        all.into_inner().expect("it")
    }

    #[test]
    fn questions_of_threads_are_asked_together() {
        let mut all = asked(&Rounds::new(Duration::from_secs(3600)), 8, false);
        all.iter_mut().for_each(|round| round.sort_unstable());
        assert_eq!(all, [(0..8).collect::<Vec<_>>()]);
    }

    #[test]
    fn each_question_is_asked_once_and_before_its_thread_goes_on() {
        let mut all = asked(&Rounds::new(Duration::ZERO), 8, true).concat();
        all.sort_unstable();
        assert_eq!(all, (0..8).collect::<Vec<_>>());
        let (rounds, answered) = (Rounds::new(Duration::from_micros(100)), AtomicUsize::new(0));
        let answered_of = |thread: usize| 1 << thread;
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (rounds, answered) = (&rounds, &answered);
                scope.spawn(move || {
                    for turn in 0..200 {
                        answered.fetch_and(!answered_of(thread), Ordering::SeqCst);
                        rounds.ask(vec![thread], (turn + thread) % 3 == 0, |asked| {
                            asked.iter().for_each(|one| {
                                answered.fetch_or(answered_of(*one), Ordering::SeqCst);
                            });
                        });
                        assert!(answered.load(Ordering::SeqCst) & answered_of(thread) != 0);
                    }
                });
            }
        });
    }

    #[test]
    fn a_panic_ends_its_round() {
        let rounds = Rounds::new(Duration::ZERO);
        let panics = || rounds.ask(vec![1], false, |_| panic!("on purpose"));
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).is_err());
        let mut asked = Vec::new();
        rounds.ask(vec![2], false, |all| asked = all);
        assert_eq!((asked, rounds.lock().over), (vec![2], 2));
    }
}
