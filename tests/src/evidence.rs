//! What a failed test tells besides its own message: the recordings that it made, each with all that `uu` said of it (what was lost,
//! what failed, where the samples are), so that nothing must be run again to find the cause.

use crate::uu::Recording;
use libtest_mimic::{Failed, Trial};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Once;

/// Recordings told of at most: the last ones.
const MOST: usize = 3;

thread_local! {
    /// Of the test that runs in this thread.
    static MADE: RefCell<VecDeque<String>> = const { RefCell::new(VecDeque::new()) };
}

/// Notes a recording. A panic in this thread tells of it.
pub fn note(recording: &Recording, command: &str) {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            before(info);
            // Where the harness keeps what tests print, this is kept, too.
            eprint!("{}", text());
        }));
    });
    let told = format!("--- recording {}\n{command}: {}\n", recording.file.display(), recording.outcome.text());
    MADE.with_borrow_mut(|made| {
        made.truncate(MOST - 1);
        made.push_front(told);
    });
}

/// The recordings of this thread's test, the last one first.
fn text() -> String {
    MADE.with_borrow(|made| made.iter().map(String::as_str).collect())
}

/// A test that is made when the program starts; its error tells of its recordings, too.
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
    fn the_last_recordings_are_told() {
        (0..5).for_each(|number| note(&recording(number), "uu record"));
        let told = text();
        assert_eq!(told.matches("--- recording x.uu\nuu record: exit 0").count(), MOST, "{told}");
        assert!(told.contains("lost 4 samples") && !told.contains("lost 1 samples"), "{told}");
    }
}
