//! Damaged recordings: every one is an error or a report with a warning, never a panic or an endless loop.

mod support;

use std::path::Path;
use support::recording;
use uunwind_random::Random;
use uunwind_recording::error::ReadError;
use uunwind_recording::Recording;
use uunwind_report::formats::{render, Format};
use uunwind_report::hide::NativeFrames;
use uunwind_symbolize::{functions, table, Elf};

/// Reads bytes and makes every report of what could be read.
fn use_all(bytes: &[u8]) -> Result<Recording, ReadError> {
    let recording = Recording::parse(bytes, Path::new("x.uu"))?;
    for format in Format::rendered() {
        for native_frames in [NativeFrames::Hide, NativeFrames::Show] {
            let made = render(format, &recording, native_frames);
            let is_empty = format == Format::Svg && recording.samples.is_empty();
            // Damage can make it one of allocations or of waits, which formats that show time refuse.
            let shows_no_time = recording.is_alloc() || recording.is_lock();
            assert!(made.is_ok() || is_empty || shows_no_time, "{format:?}: {made:?}");
        }
    }
    Ok(recording)
}

#[test]
fn a_whole_recording_is_read_without_a_warning() {
    let read = use_all(&recording()).expect("whole");
    assert_eq!(read.warnings, Vec::<String>::new());
    assert_eq!(read.samples.len(), 60);
}

#[test]
fn counters_may_have_any_value() {
    let mut read = Recording::parse(&recording(), Path::new("x.uu")).expect("whole");
    let end = read.end.as_mut().expect("whole recordings have an end");
    (end.cpu_used, end.recorder_cpu, end.samples) = (u64::MAX, u64::MAX, u64::MAX);
    (end.threads_without_block, end.processes_without_block) = (u64::MAX, u64::MAX);
    let (process, counters) = read.counters.first_mut().expect("whole recordings have counters");
    (counters.timers_failed, counters.frames_emitted) = (u64::MAX, u64::MAX);
    let again = (*process, counters.clone());
    read.counters.push(again);
    for format in Format::rendered() {
        render(format, &read, NativeFrames::Show).expect("a report");
    }
}

#[test]
fn cut_at_every_byte() {
    let whole = recording();
    let mut salvaged = 0;
    for len in 0..whole.len() {
        match Recording::parse(&whole[..len], Path::new("x.uu")) {
            Ok(read) => {
                // A cut just before the symbols section leaves a whole recording without names.
                let cut_is_reported = read.warnings.iter().any(|w| w.contains("truncated at offset"));
                assert!(
                    cut_is_reported || read.end.is_some() && read.symbols.is_none(),
                    "cut at {len}: {:?}",
                    read.warnings
                );
                salvaged += usize::from(!read.samples.is_empty());
            }
            Err(e) => {
                let text = e.to_string();
                assert!(
                    text.contains("x.uu")
                        && (text.contains("offset") || text.contains("empty") || text.contains("bytes"))
                );
            }
        }
    }
    assert!(salvaged > whole.len() / 20, "what stood before the cut is used");
    // Reports take longer, so only every 37th cut is reported.
    for len in (0..whole.len()).step_by(37) {
        let _ = use_all(&whole[..len]);
    }
}

#[test]
fn flipped_bytes_are_found_by_the_checksums() {
    let whole = recording();
    let mut random = Random::new(0x1234_5678_9abc_def1);
    for _ in 0..3000 {
        let mut bytes = whole.clone();
        let at = random.index(bytes.len());
        let change = 1 + random.index(255) as u8;
        bytes[at] ^= change;
        match Recording::parse(&bytes, Path::new("x.uu")) {
            Err(_) => {}
            // Bytes 12-15 are reserved; nothing depends on them.
            Ok(read) => assert!(!read.warnings.is_empty() || (12..16).contains(&at), "byte {at} changed by {change}"),
        }
    }
}

/// Sections with right checksums and wrong contents, which checksums do not detect.
#[test]
fn wrong_contents_under_right_checksums() {
    let whole = recording();
    let mut random = Random::new(0xfeed_beef_cafe_0001);
    let (mut refused, mut used) = (0, 0);
    for _ in 0..400 {
        let mut bytes = whole.clone();
        for _ in 0..1 + random.index(6) {
            let at = 16 + random.index(bytes.len() - 16);
            bytes[at] = random.number() as u8;
        }
        support::repair_checksums(&mut bytes);
        match use_all(&bytes) {
            Ok(_) => used += 1,
            Err(_) => refused += 1,
        }
    }
    assert!(refused > 0 && used > 0, "{refused} refused, {used} used");
}

#[test]
fn a_length_of_gigabytes_allocates_nothing() {
    let mut bytes = recording()[..16].to_vec();
    bytes.extend_from_slice(&7u32.to_le_bytes());
    bytes.extend_from_slice(&u32::MAX.to_le_bytes());
    bytes.extend_from_slice(&[0xff; 64]);
    let error = Recording::parse(&bytes, Path::new("x.uu")).expect_err("nothing in it");
    assert!(error.to_string().contains("damaged at offset 16"), "{error}");
}

/// ELF files are as hostile as recordings.
#[test]
fn reading_damaged_elf_files_ends() {
    let whole = std::fs::read("/bin/sh").expect("an ELF file");
    assert!(Elf::parse(&whole[..]).is_ok_and(|elf| !elf.build_id.is_empty()));
    let mut random = Random::new(0x0bad_cafe_1234_5678);
    let (mut good, mut bad) = (0, 0);
    for _ in 0..2000 {
        let mut bytes = whole.clone();
        // The headers decide most, so half of the damage goes there.
        for _ in 0..1 + random.index(4) {
            let limit = if random.index(2) == 0 { 1024 } else { bytes.len() };
            let at = random.index(limit);
            bytes[at] = random.number() as u8;
        }
        bytes.truncate(bytes.len() - random.index(3) * random.index(1000));
        let addresses: Vec<u64> = (0..20).map(|_| random.number() >> random.index(60)).collect();
        functions::in_image(&bytes[..], &addresses);
        let _ = table::in_image(&bytes[..], &addresses);
        match Elf::parse(&bytes[..]) {
            Ok(_) => good += 1,
            Err(_) => bad += 1,
        }
    }
    assert!(good > 0 && bad > 0, "{good} read, {bad} refused");
}
