//! A thread's single waits, as the scheduler sees them: each from the moment at which the thread was taken off its CPU,
//! because it waited, until it ran again.
//!
//! When uu stops a thread for its stack, the scheduler sees three waits where the program has one: until the stop, in
//! the stop, and after it, when the thread has entered its system call again. They are joined.

use crate::waiting::Stop;
use uunwind_recorder::kernel::event::Event;
use uunwind_recorder::kernel::records::{PerfRecord, Switch, SwitchTo};
use uunwind_recording::Wait;

/// Waits of a thread that are taken from one look to the next, at most: 25,000 a second at 99 Hz. More are counted.
const MOST: usize = 256;
/// Waits of a recording, at most: 20 MB.
const WAITS: usize = 1_000_000;
/// Longest time on a CPU from the end of a stop until the thread is in its system call again, in ns. One that runs for
/// longer has left the call: what it waited for had come by then.
const BACK: u64 = 200_000;

/// The single waits of a recording: those that were not written yet, and what is missing.
pub struct Singles {
    /// Room that is left.
    left: usize,
    waits: Vec<Wait>,
    /// Waits that found no room.
    left_out: u64,
    /// Times that a thread was asked to stop and did not in time: the waits it was in are missing.
    not_stopped: u64,
    /// Threads whose waits the kernel does not report.
    without: u64,
}

impl Default for Singles {
    fn default() -> Singles {
        Singles { left: WAITS, waits: Vec::new(), left_out: 0, not_stopped: 0, without: 0 }
    }
}

impl Singles {
    /// Takes the waits of a thread that have ended. `thread`: its index in the recording.
    pub fn take(&mut self, single: Option<&mut Single>, thread: u32) {
        let Some(single) = single else { return };
        single.take(thread, &mut self.waits);
        self.limit();
    }

    fn limit(&mut self) {
        self.left_out += self.waits.len().saturating_sub(self.left) as u64;
        self.waits.truncate(self.left);
    }

    /// The same of one that is watched no longer.
    pub fn end(&mut self, mut single: Option<Single>, thread: u32) {
        self.take(single.as_mut(), thread);
        match single {
            Some(single) => {
                self.left_out += single.left_out;
                self.not_stopped += single.not_stopped;
            }
            None => self.without += 1,
        }
    }

    /// What was taken, to be written.
    pub fn taken(&mut self) -> Vec<Wait> {
        self.left -= self.waits.len();
        std::mem::take(&mut self.waits)
    }

    /// What is missing, for people.
    pub fn note(&self) -> Option<String> {
        let Singles { without, left_out, not_stopped, .. } = self;
        let reasons = [
            (
                *without,
                "threads, because the kernel does not report them (kernel.perf_event_paranoid, open files, locked \
                 memory)",
            ),
            (*left_out, "waits that found no room"),
            (*not_stopped, "times that a thread was asked to stop for its stack and did not in time"),
        ];
        let reasons: Vec<String> =
            reasons.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("of {n} {what}")).collect();
        (!reasons.is_empty()).then(|| format!("lengths of single waits are missing: {}", reasons.join(", ")))
    }
}

/// What is known of a thread's waits.
pub struct Single {
    event: Event,
    course: Course,
    /// Waits that found no room, at least.
    left_out: u64,
    /// Times that the thread did not stop in time.
    not_stopped: u64,
}

/// Where a thread is, as far as its waits go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// Nobody has seen.
    #[default]
    Unknown,
    /// In none: it runs, or is ready to.
    Runs,
    /// In one that began at this time.
    Waits(u64),
    /// A stop has taken it out of its system call; of the wait in it, the begin, if that is known.
    Woken(Option<u64>),
    /// It stands still, and nothing but that.
    Stands,
    /// The same, in a system call.
    StandsInCall(Option<u64>),
    /// It was let go.
    Back(Back),
    /// A stop that nobody has seen may take it out of its system call.
    Hidden,
}

/// A thread after its stop in a system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Back {
    /// When its wait began, if that is known.
    begin: Option<u64>,
    /// When it ran again.
    at: u64,
    /// Time on a CPU since then, up to when it was last given one; `None`: it has none now.
    used: u64,
    on_cpu: Option<u64>,
}

impl Single {
    /// Begins to see the waits of a thread. `None`: the kernel does not allow it.
    pub fn of(tid: u32) -> Option<Single> {
        Some(Single { event: Event::switches(tid).ok()?, course: Course::default(), left_out: 0, not_stopped: 0 })
    }

    /// The thread was stopped since the last call of `take`.
    pub fn stopped(&mut self, stop: Stop) {
        self.course.stop = Some(stop);
    }

    /// The thread was asked to stop, and did not do so in time: it may stop later, and is let go by then.
    pub fn not_stopped(&mut self) {
        self.course.hidden_until = Some(u64::MAX);
        // The wait that it is in, if it is in one.
        self.not_stopped += 1;
    }

    /// From this time on (CLOCK_MONOTONIC, ns), no earlier call of [`Single::not_stopped`] stops the thread any more.
    pub fn seen_from(&mut self, time: u64) {
        self.course.hidden_until = self.course.hidden_until.map(|until| until.min(time));
    }

    fn take(&mut self, thread: u32, out: &mut Vec<Wait>) {
        let most = out.len() + MOST;
        let (course, left_out) = (&mut self.course, &mut self.left_out);
        self.event.drain(|record| match record {
            PerfRecord::Switch(switch) => {
                let Some((begin, duration)) = course.next(switch) else { return };
                if out.len() < most {
                    out.push(Wait { thread, begin, duration });
                } else {
                    *left_out += 1;
                }
            }
            // Each wait has two records.
            PerfRecord::Lost(n) => {
                (course.state, *left_out) = (State::Unknown, left_out.saturating_add(n.div_ceil(2)));
            }
            _ => {}
        });
    }
}

/// Follows a thread's switches.
#[derive(Default)]
struct Course {
    state: State,
    stop: Option<Stop>,
    /// Until then, a stop that nobody sees may interrupt the thread.
    hidden_until: Option<u64>,
}

impl Course {
    /// Follows a switch; when it shows that a wait has ended, returns its begin and length.
    fn next(&mut self, Switch { time, to }: Switch) -> Option<(u64, u64)> {
        if let Some(until) = self.hidden_until {
            if time <= until {
                self.state = hidden(time, to);
                return None;
            }
            // It may not have run since then.
            if !matches!(self.state, State::Back(_)) {
                self.state = State::Hidden;
            }
            self.hidden_until = None;
        }
        let within = |time: u64| self.stop.filter(|stop| (stop.from..=stop.stood).contains(&time));
        let stop = within(time);
        let stands = |stop: Option<Stop>| stop.is_some_and(|stop| !stop.in_call);
        let wait = |begin: u64, end: u64| (begin, end.saturating_sub(begin));
        let (state, ended) = match (self.state, to) {
            // To stand still is no wait.
            (State::Woken(begin), SwitchTo::Waiting) => (State::StandsInCall(begin), None),
            (State::Woken(begin), _) => (State::Woken(begin), None),
            (State::StandsInCall(begin), SwitchTo::Running) => {
                (State::Back(Back { begin, at: time, used: 0, on_cpu: Some(time) }), None)
            }
            (State::Hidden, _) => (hidden(time, to), None),
            (State::Back(mut back), _) => {
                back.used += back.on_cpu.map_or(0, |from| time.saturating_sub(from));
                back.on_cpu = (to == SwitchTo::Running).then_some(time);
                match to {
                    SwitchTo::Waiting if back.used <= BACK && !stands(stop) => {
                        (back.begin.map_or(State::Unknown, State::Waits), None)
                    }
                    SwitchTo::Waiting => {
                        let before = back.begin.filter(|begin| *begin < back.at);
                        let state = if stands(stop) { State::Stands } else { State::Waits(time) };
                        (state, before.map(|begin| wait(begin, back.at)))
                    }
                    _ => (State::Back(back), None),
                }
            }
            (State::Waits(begin), SwitchTo::Running) => match stop {
                Some(Stop { in_call: true, .. }) => (State::Woken(Some(begin)), None),
                // It was about to wait in its call, and stood still instead.
                None if within(begin).is_some_and(|stop| stop.in_call) => {
                    (State::Back(Back { begin: Some(begin), at: begin, used: 0, on_cpu: Some(time) }), None)
                }
                _ => (State::Runs, Some(wait(begin, time))),
            },
            (State::Unknown, SwitchTo::Running) if stop.is_some_and(|stop| stop.in_call) => (State::Woken(None), None),
            (_, SwitchTo::Waiting) => (if stands(stop) { State::Stands } else { State::Waits(time) }, None),
            (_, SwitchTo::Running | SwitchTo::Ready) => (State::Runs, None),
        };
        if matches!(state, State::Back(_)) && self.stop.is_some_and(|stop| stop.stood <= time) {
            // Another wait may begin within it. The next stop may be known already.
            self.stop = None;
        }
        self.state = state;
        ended
    }
}

/// Once a thread runs whose stop nobody has seen, it may be on the way back into its call.
fn hidden(time: u64, to: SwitchTo) -> State {
    match to {
        SwitchTo::Running => State::Back(Back { begin: None, at: time, used: 0, on_cpu: Some(time) }),
        SwitchTo::Waiting | SwitchTo::Ready => State::Hidden,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use SwitchTo::{Ready, Running, Waiting};

    fn found(stop: Option<Stop>, switches: &[(u64, SwitchTo)]) -> Vec<(u64, u64)> {
        let mut course = Course { stop, ..Course::default() };
        switches.iter().filter_map(|(time, to)| course.next(Switch { time: *time, to: *to })).collect()
    }

    #[test]
    fn a_wait_lasts_until_the_thread_runs_and_others_take_its_cpu_in_none() {
        let switches =
            [(5, Running), (10, Waiting), (30, Running), (40, Ready), (55, Running), (60, Waiting), (61, Running)];
        assert_eq!(found(None, &switches), [(10, 20), (60, 1)]);
    }

    /// A stop in a wait, from 90 to 150: it wakes at 100, stands still from 110, and is let go at 200.
    #[test]
    fn a_stop_splits_no_wait() {
        let stop = Some(Stop { from: 90, stood: 150, in_call: true });
        let before = [(10, Waiting), (100, Running), (110, Waiting), (200, Running)];
        let with = |rest: &[(u64, SwitchTo)]| found(stop, &[&before[..], rest].concat());
        // It goes on to wait, with or without a loss of its CPU meanwhile.
        assert_eq!(with(&[(210, Waiting), (900, Running)]), [(10, 890)]);
        assert_eq!(with(&[(205, Ready), (800_000, Running), (800_010, Waiting), (900_000, Running)]), [(10, 899_990)]);
        // What it waited for had come: it runs.
        let (left, next) = (210 + BACK, 900_000);
        assert_eq!(with(&[(left, Waiting), (next, Running)]), [(10, 190), (left, next - left)]);
        assert_eq!(with(&[]), []);
        // The begin of the wait was not observed: no part of it counts as one.
        assert_eq!(found(stop, &[&before[1..], &[(210, Waiting), (900, Running)]].concat()), []);
    }

    /// The next stop is known before the switch of being let go is read.
    #[test]
    fn a_stop_after_a_stop_splits_no_wait() {
        let with = |second: Stop, rest: &[(u64, SwitchTo)]| {
            let mut course = Course { stop: Some(Stop { from: 90, stood: 150, in_call: true }), ..Course::default() };
            let next = |course: &mut Course, switches: &[(u64, SwitchTo)]| -> Vec<(u64, u64)> {
                switches.iter().filter_map(|(time, to)| course.next(Switch { time: *time, to: *to })).collect()
            };
            assert_eq!(next(&mut course, &[(10, Waiting), (100, Running), (110, Waiting)]), []);
            course.stop = Some(second);
            next(&mut course, rest)
        };
        let in_call = Stop { from: 390, stood: 450, in_call: true };
        let twice = [(200, Running), (300, Waiting), (400, Running), (410, Waiting), (500, Running), (510, Waiting)];
        assert_eq!(with(in_call, &[&twice[..], &[(900, Running)]].concat()), [(10, 890)]);
        // It runs, and stands still outside of a call.
        let left = 200 + BACK;
        let outside = Stop { from: left, stood: left + 60, in_call: false };
        let runs = [(200, Running), (left + 10, Waiting), (left + 100, Running), (left + 500, Waiting)];
        let rest = [&runs[..], &[(left + 600, Running)]].concat();
        assert_eq!(with(outside, &rest), [(10, 190), (left + 500, 100)]);
    }

    /// A thread that did not stop in time, and does later, unseen: no part of the wait that this splits is one.
    #[test]
    fn a_late_stop_splits_no_wait() {
        let mut course = Course::default();
        let next = |course: &mut Course, switches: &[(u64, SwitchTo)]| -> Vec<(u64, u64)> {
            switches.iter().filter_map(|(time, to)| course.next(Switch { time: *time, to: *to })).collect()
        };
        assert_eq!(next(&mut course, &[(5, Running), (10, Waiting)]), []);
        course.hidden_until = Some(u64::MAX);
        assert_eq!(next(&mut course, &[(100, Running), (110, Waiting), (200, Running), (210, Waiting)]), []);
        course.hidden_until = Some(300);
        // Whatever ends now may have begun before.
        assert_eq!(next(&mut course, &[(400, Running), (410, Waiting), (500, Running)]), []);
        // It has run for longer than it needs to be back in its call.
        let left = 500 + 2 * BACK;
        assert_eq!(next(&mut course, &[(left, Waiting), (left + 70, Running)]), [(left, 70)]);
        assert_eq!(course.hidden_until, None);

        // Let go on the way, before it runs again.
        let mut course = Course { hidden_until: Some(300), ..Course::default() };
        assert_eq!(next(&mut course, &[(100, Running), (110, Waiting), (400, Running), (410, Waiting)]), []);
        // Now that wait has ended. The next one began when no stop was left.
        assert_eq!(next(&mut course, &[(500, Running), (600, Waiting), (700, Running)]), [(600, 100)]);
    }

    /// A thread that was not in a call when it was stopped has waited before, and to stand still is no wait.
    #[test]
    fn a_stop_is_no_wait() {
        let stop = Some(Stop { from: 90, stood: 150, in_call: false });
        let switches = [(10, Waiting), (100, Running), (110, Waiting), (200, Running), (300, Waiting), (320, Running)];
        assert_eq!(found(stop, &switches), [(10, 90), (300, 20)]);
        assert_eq!(found(stop, &switches[2..]), [(300, 20)]);
    }

    /// A thread that ran when it was to be stopped, and was in a call when it stood still, from 90 to 150.
    #[test]
    fn a_stop_before_a_wait_is_no_wait() {
        let stop = Some(Stop { from: 90, stood: 150, in_call: true });
        let (left, next) = (210 + BACK, 900_000);
        // It had not waited yet: it does so afterwards, or what it would have waited for is there.
        let stands = [(10, Running), (100, Waiting), (200, Running)];
        assert_eq!(found(stop, &[&stands[..], &[(210, Waiting), (900, Running)]].concat()), [(100, 800)]);
        let goes_on = [(left, Waiting), (next, Running)];
        assert_eq!(found(stop, &[&stands[..], &goes_on].concat()), [(left, next - left)]);
        // It had begun to.
        let waits = [(10, Running), (95, Waiting), (100, Running), (110, Waiting), (200, Running)];
        assert_eq!(found(stop, &[&waits[..], &[(210, Waiting), (900, Running)]].concat()), [(95, 805)]);
    }

    #[test]
    fn waits_beyond_the_room_are_counted() {
        let mut singles = Singles { left: 5, ..Singles::default() };
        let mut kept = Vec::new();
        for n in [3, 3, 3] {
            singles.waits = vec![Wait { thread: 0, begin: 1, duration: 2 }; n];
            singles.limit();
            kept.push(singles.taken().len());
        }
        assert_eq!((kept, singles.left_out), (vec![3, 2, 0], 4));
        // With the true reason, and no other one.
        let missing = "lengths of single waits are missing: ";
        assert_eq!(singles.note(), Some(format!("{missing}of 4 waits that found no room")));
        assert_eq!(Singles::default().note(), None);
        let late = Singles { not_stopped: 2, ..Singles::default() };
        assert!(late.note().is_some_and(|note| note.contains("of 2 times that a thread was asked to stop")));
    }
}
