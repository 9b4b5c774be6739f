//! Stacks recorded on AArch64 (`ci/aarch64 --record`), walked on any machine: the result must be the stack that libgcc
//! reported there, and the one that the program itself kept.

use std::path::Path;
use uunwind_aarch64_tests::recording::{holds, Recording};
use uunwind_core::stop_reason::StopReason;

fn recordings() -> Vec<(String, Recording)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("recordings");
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder).expect("the recordings") {
        let path = entry.expect("an entry").path();
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        let recording = Recording::parse(&std::fs::read_to_string(&path).expect("text"));
        all.push((name.clone(), recording.unwrap_or_else(|error| panic!("{name}: {error}"))));
    }
    all.sort_by(|a, b| a.0.cmp(&b.0));
    all
}

#[test]
fn recorded_stacks_are_those_that_libgcc_reported() {
    let names: Vec<String> = recordings().into_iter().map(|(name, _)| name).collect();
    let expected = [
        "plain-entry",
        "plain-leaf",
        "plain-nested",
        "pointers-leaf",
        "pointers-nested",
        "signed-entry",
        "signed-leaf",
        "signed-nested",
    ];
    assert_eq!(names, expected);
    for (name, recording) in recordings() {
        let (chain, stop) = recording.walk();
        assert!(recording.shadow.len() > 4, "{name}");
        assert!(holds(&chain, &recording.shadow), "{name}: {chain:x?} has not all of {:x?}", recording.shadow);
        if name.starts_with("pointers") {
            assert!(matches!(stop, StopReason::Complete | StopReason::FramePointerEnd), "{name}: {stop:?}");
        } else {
            assert_eq!((&chain, stop), (&recording.chain, StopReason::Complete), "{name}");
        }
    }
}

/// Shows that the test above can fail: without the mask, signed addresses lead elsewhere. Without some line of memory,
/// frames may be missing, but none is invented.
#[test]
fn damaged_recordings_make_no_frame_up() {
    let mut signed = 0;
    for (name, recording) in recordings() {
        let (whole, _) = recording.walk();
        if name.starts_with("signed") {
            let (chain, _) = Recording { mask: 0, ..recording.clone() }.walk();
            assert_ne!(chain, whole, "{name}");
            signed += 1;
        }
        let mut shorter = 0;
        for gone in 0..recording.memory.len() {
            let mut damaged = recording.clone();
            let (address, _) = damaged.memory.remove(gone);
            let (chain, _) = damaged.walk();
            let outermost_first: Vec<u64> = chain.iter().rev().copied().collect();
            assert!(holds(&whole, &outermost_first), "{name} without {address:x}: {chain:x?}");
            assert_eq!(chain.first(), whole.first(), "{name} without {address:x}");
            shorter += usize::from(chain.len() < whole.len());
        }
        assert!(shorter > 10, "{name}: {shorter} of {} lines matter", recording.memory.len());
    }
    assert_eq!(signed, 3);
}

#[test]
fn an_error_in_a_recording_names_its_line() {
    for (text, line) in [("mask zz\n", 1), ("mask 0\npc\n", 2), ("mask 0\npc 1\nmemory 10 abc\n", 3), ("other 1\n", 1)]
    {
        let error = Recording::parse(text).expect_err("nonsense");
        assert!(error.starts_with(&format!("line {line} ")), "{error}");
    }
    for (name, recording) in recordings() {
        assert_eq!(Recording::parse(&recording.print()), Ok(recording), "{name}");
    }
}
