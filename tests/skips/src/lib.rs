//! What could not be tested on this machine is reported, never omitted silently.

use std::io::Write;

/// Whether campaigns are run (`UU_CAMPAIGNS`, set by `ci/nightly`): searches for rare wrong stacks under a timer, whose
/// results depend on chance. Otherwise `what` is reported as skipped.
pub fn campaign(what: &str) -> bool {
    let wanted = std::env::var_os("UU_CAMPAIGNS").is_some();
    if !wanted {
        skipped(what, "a campaign, for ci/nightly (UU_CAMPAIGNS=1)");
    }
    wanted
}

/// Notes that `what` was skipped, and why: on standard error, and in the file `$UU_TEST_SKIPS`, from which `ci/test`
/// makes its summary.
pub fn skipped(what: &str, why: &str) {
    let line = format!("{what}: {why}\n");
    // Not eprint!, whose output the test harness keeps to itself when the test passes.
    let _ = write!(std::io::stderr(), "skipped: {line}");
    if let Some(path) = std::env::var_os("UU_TEST_SKIPS") {
        let file = std::fs::OpenOptions::new().append(true).create(true).open(path);
        file.and_then(|mut f| f.write_all(line.as_bytes())).expect("the file of skipped tests must be writable");
    }
}
