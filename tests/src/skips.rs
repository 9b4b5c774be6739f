//! What could not be tested on this machine is named, never passed over in silence.

use std::io::Write;

/// Whether campaigns are to be run (`UU_CAMPAIGNS`, set by `ci/nightly`): searches for rare wrong stacks under a timer, whose finds
/// depend on chance. Where they are not, `what` is named as skipped.
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
    // Not eprint!: the test harness would swallow it when the test passes.
    let _ = write!(std::io::stderr(), "skipped: {line}");
    if let Some(path) = std::env::var_os("UU_TEST_SKIPS") {
        let file = std::fs::OpenOptions::new().append(true).create(true).open(path);
        file.and_then(|mut f| f.write_all(line.as_bytes())).expect("the file of skipped tests must be writable");
    }
}
