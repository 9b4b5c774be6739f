//! What could not be tested on this machine is named, never passed over in silence.

use std::io::Write;

/// Notes that `what` was skipped, and why: on standard error, and in the file `$UU_TEST_SKIPS`, from which `ci/test`
/// makes its summary.
pub fn skipped(what: &str, why: &str) {
    let line = format!("{what}: {why}\n");
    // Not eprint!: the test harness would swallow it when the test passes.
    let _ = write!(std::io::stderr(), "skipped: {line}");
    if let Some(path) = std::env::var_os("UU_TEST_SKIPS") {
        let file = std::fs::OpenOptions::new().append(true).create(true).open(path);
        file.and_then(|mut f| f.write_all(line.as_bytes())).expect("the file of skipped tests must be writable");
    }
}
