//! `uu doctor` and `uu sframe make`: the bytes are an ELF file. The first byte selects the version to make.

use uunwind_doctor::doctor::diagnose;
use uunwind_doctor::make::{make, make_with_code};
use uunwind_doctor::Binary;

pub fn run(data: &[u8]) -> bool {
    let Some((version, bytes)) = data.split_first() else { return false };
    let binary = Binary { path: "input".into(), bytes: bytes.to_vec() };
    if let Ok(diagnosis) = diagnose(&binary) {
        let covered = diagnosis.eh_frame.map_or(0, |e| e.covered).max(diagnosis.sframe.map_or(0, |s| s.covered));
        assert!(covered <= diagnosis.text);
        // Every byte of text has one choice, with the table and without.
        for ranges in [diagnosis.chosen.into_iter().map(|(range, _)| range).collect(), diagnosis.without_table] {
            assert_eq!(ranges.iter().map(|range| range.end - range.start).sum::<u64>(), diagnosis.text);
            assert!(ranges.windows(2).all(|pair| pair[0].start < pair[0].end && pair[0].end <= pair[1].start));
        }
    }
    if let Err(why) = make_with_code(&binary, 2 + version % 2) {
        assert!(!why.0.contains("please report"), "{why}");
    }
    match make(&binary, 2 + version % 2) {
        Ok(made) => {
            assert!(
                made.bytes.len() > bytes.len() && made.by_sframe <= made.by_eh_frame && made.by_eh_frame <= made.text
            );
            true
        }
        Err(why) => {
            // What was written is read back, and a difference is reported with these words.
            assert!(!why.0.contains("please report"), "{why}");
            false
        }
    }
}
