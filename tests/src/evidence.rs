//! What a failed test reports besides its own message: the recordings that it made, each with all that `uu` said about
//! it (what was lost, what failed, where the samples are), so that nothing must be run again to find the cause.

use crate::uu::Recording;
use libtest_mimic::{Failed, Trial};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Once;

/// Limit of recordings that are reported: the last ones.
const MOST: usize = 3;

thread_local! {
    /// Reports of the recordings that the test of this thread made.
    static MADE: RefCell<VecDeque<String>> = const { RefCell::new(VecDeque::new()) };
}

/// Notes a recording. A panic in this thread reports it.
pub fn note(recording: &Recording, command: &str) {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            before(info);
            // Printed where the harness keeps what tests print, so that it is kept with that.
            eprint!("{}", text());
        }));
    });
    let report = format!("--- recording {}\n{command}: {}\n", recording.file.display(), recording.outcome.text());
    MADE.with_borrow_mut(|made| {
        made.truncate(MOST - 1);
        made.push_front(report);
    });
}

/// The recordings of this thread's test, the last one first.
fn text() -> String {
    MADE.with_borrow(|made| made.iter().map(String::as_str).collect())
}

/// A test that is made when the program starts; its error reports its recordings as well.
pub fn trial(name: impl Into<String>, run: impl FnOnce() -> Result<(), String> + Send + 'static) -> Trial {
    Trial::test(name, move || {
        // The thread may have run another test before.
        MADE.with_borrow_mut(VecDeque::clear);
        run().map_err(|why| Failed::from(format!("{why}\n{}", text())))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Outcome;
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    fn recording(number: usize) -> Recording {
        let (stdout, stderr) = (String::new(), format!("lost {number} samples"));
        let outcome = Outcome { status: ExitStatus::from_raw(0), stdout, stderr, cpu: 0., wall: 0. };
        Recording::made("x.uu".into(), outcome, "scratch".into())
    }

    #[test]
    fn the_last_recordings_are_reported() {
        (0..5).for_each(|number| note(&recording(number), "uu record"));
        let report = text();
        assert_eq!(report.matches("--- recording x.uu\nuu record: exit 0").count(), MOST, "{report}");
        assert!(report.contains("lost 4 samples") && !report.contains("lost 1 samples"), "{report}");
    }
}
