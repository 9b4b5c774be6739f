//! A thread's single waits, as the scheduler sees them: each from the moment at which the thread was taken off its CPU,
//! because it waited, until it ran again.

use uunwind_recorder::kernel::event::Event;
use uunwind_recorder::kernel::records::{PerfRecord, SwitchTo};
use uunwind_recording::Wait;

/// Waits of a thread that are taken from one look to the next, at most: 25,000 a second at 99 Hz. More are counted.
const MOST: usize = 256;

/// What is known of a thread's waits.
pub struct Single {
    event: Event,
    began: Began,
    /// Waits that found no room, at least.
    pub left_out: u64,
}

/// The wait that a thread is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Began {
    /// None, or it began before anybody looked.
    No,
    /// It began at this time.
    At(u64),
}

impl Single {
    /// Begins to see the waits of a thread. `None`: the kernel does not allow it.
    pub fn of(tid: u32) -> Option<Single> {
        Some(Single { event: Event::switches(tid).ok()?, began: Began::No, left_out: 0 })
    }

    /// Takes the waits that have ended since the last call. `thread`: its index in the recording.
    pub fn take(&mut self, thread: u32, out: &mut Vec<Wait>) {
        let most = out.len() + MOST;
        let (began, left_out) = (&mut self.began, &mut self.left_out);
        self.event.drain(|record| match record {
            PerfRecord::Switch(switch) => {
                let Some((begin, duration)) = next(began, switch.time, switch.to) else { return };
                if out.len() < most {
                    out.push(Wait { thread, begin, duration });
                } else {
                    *left_out += 1;
                }
            }
            // Each wait has two records.
            PerfRecord::Lost(n) => {
                (*began, *left_out) = (Began::No, left_out.saturating_add(n / 2));
            }
            _ => {}
        });
    }
}

/// Follows a switch; when it ends a wait, returns its begin and length.
fn next(began: &mut Began, time: u64, to: SwitchTo) -> Option<(u64, u64)> {
    let before = std::mem::replace(began, Began::No);
    match (before, to) {
        (_, SwitchTo::Waiting) => *began = Began::At(time),
        (Began::At(begin), SwitchTo::Running) => return Some((begin, time.saturating_sub(begin))),
        _ => {}
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_lasts_until_the_thread_runs_and_others_take_its_cpu_in_none() {
        let mut began = Began::No;
        let switches = [
            (5, SwitchTo::Running),
            (10, SwitchTo::Waiting),
            (30, SwitchTo::Running),
            (40, SwitchTo::Ready),
            (55, SwitchTo::Running),
            (60, SwitchTo::Waiting),
            (61, SwitchTo::Running),
        ];
        let found: Vec<_> = switches.iter().filter_map(|(time, to)| next(&mut began, *time, *to)).collect();
        assert_eq!(found, [(10, 20), (60, 1)]);
    }
}
