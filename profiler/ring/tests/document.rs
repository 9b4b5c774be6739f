//! docs/ring-format.md says what the code does: sizes, offsets and numbers.

use std::mem::offset_of;
use uunwind_ring::layout::*;
use uunwind_ring::openings;
use uunwind_ring::record::RecordType;
use uunwind_ring::samples::{Callers, Sum, Words, FOLLOWERS, GAP, RESTART, RESTART_EVERY, STATE, WEIGHT};

const TEXT: &str = include_str!("../../../docs/ring-format.md");

/// The text between two headings, its lines joined.
fn section(heading: &str) -> String {
    let (_, rest) = TEXT.split_once(&format!("\n## {heading}\n")).expect(heading);
    rest.split("\n## ").next().unwrap_or(rest).replace('\n', " ")
}

fn with_commas(number: usize) -> String {
    let digits = number.to_string();
    let groups = digits.as_bytes().rchunks(3).rev().map(|group| std::str::from_utf8(group).expect("digits"));
    groups.collect::<Vec<_>>().join(",")
}

#[track_caller]
fn says(section: &str, words: &str) {
    assert!(section.contains(words), "docs/ring-format.md does not say: {words}");
}

#[test]
fn sizes_and_offsets_of_the_session() {
    assert!(TEXT
        .starts_with(&format!("# The session: rings between programs and the recorder, version {SESSION_VERSION}\n")));
    let text = section("The session");
    says(&text, &format!("A memfd of {} bytes", with_commas(SESSION_BYTES)));
    says(&text, &format!("| {STATES_OFFSET} | {} | states of the blocks: {BLOCKS} of u32 |", BLOCKS * 4));
    says(&text, &format!("| {DATA_OFFSET} | {BLOCKS} * {BLOCK_BYTES} | the blocks: at most so many |"));
    says(&text, &format!("a header of {BLOCK_HEADER} bytes and, for a thread, a ring of {RING_BYTES} bytes"));
    let trust = include_str!("../../../docs/trust.md");
    let (session, rules) = (SESSION_BYTES >> 20, uunwind_ring::facts::PUBLISHED_BYTES >> 20);
    let words = format!("{session} MiB of the session, {rules} MiB of rules");
    assert!(trust.contains(&words), "docs/trust.md does not say: {words}");
    for (what, offset) in [
        ("u64 magic `uu-ring1`", offset_of!(SessionHeader, magic)),
        ("u32 version", offset_of!(SessionHeader, version)),
        ("u32 bytes of a block", offset_of!(SessionHeader, block_bytes)),
        ("u32 number of blocks", offset_of!(SessionHeader, blocks)),
        ("u32 pid of the recorder", offset_of!(SessionHeader, recorder)),
        ("u32 threads that found no block", offset_of!(SessionHeader, threads_without_block)),
        ("u32 processes that found no block", offset_of!(SessionHeader, processes_without_block)),
        ("u32 block at which the next search for a free one begins", offset_of!(SessionHeader, claim_hint)),
        ("u32 bell", offset_of!(SessionHeader, bell)),
        ("u32 number of openings", offset_of!(SessionHeader, openings)),
        ("u32 whether the recorder rests", offset_of!(SessionHeader, resting)),
        ("u32 version of a process that could not record", OTHER_VERSION_OFFSET),
    ] {
        says(&text, &format!("{what} at {offset}"));
    }
    says(&text, &format!("{} openings at {OPENINGS_OFFSET}", openings::SLOTS));
    says(&text, &format!("a path of at most {} bytes", openings::PATH_BYTES));
    assert_eq!(SESSION_MAGIC.to_le_bytes(), *b"uu-ring1");
    let states = [(FREE, "free"), (CLAIMED, "claimed"), (LIVE_PROCESS, "of a process"), (LIVE_THREAD, "of a thread |")];
    for (state, what) in states.into_iter().chain([(ENDED_THREAD, "of a thread that has ended")]) {
        says(&text, &format!("| {state} | {what}"));
    }
    for (what, offset, bytes) in [
        ("tid", offset_of!(ThreadBlock, tid), 4),
        ("tid in the thread's own pid namespace", offset_of!(ThreadBlock, own_tid), 4),
        ("block of the process", offset_of!(ThreadBlock, process), 4),
        ("pid of the process", offset_of!(ThreadBlock, pid), 4),
        ("head", offset_of!(ThreadBlock, head), 8),
        ("tail", offset_of!(ThreadBlock, tail), 8),
        ("samples lost because", offset_of!(ThreadBlock, lost), 8),
        ("their weight", offset_of!(ThreadBlock, lost_weight), 8),
        ("other records", offset_of!(ThreadBlock, lost_other), 8),
        ("number of samples", offset_of!(ThreadBlock, sequence), 4),
        ("CPU time in ns that the thread had used when", offset_of!(ThreadBlock, cpu_before), 8),
        ("time of CLOCK_MONOTONIC in ns at which", offset_of!(ThreadBlock, began), 8),
        ("the same of the thread's end", offset_of!(ThreadBlock, ended), 8),
        ("CPU time in ns that it had used by then", offset_of!(ThreadBlock, cpu_at_end), 8),
    ] {
        says(&text, &format!("| {offset} | {bytes} | {what}"));
    }
    assert_eq!(RING_OFFSET, BLOCK_HEADER);
}

#[test]
fn numbers_of_records() {
    let text = section("Records");
    for (kind, what) in [
        (RecordType::Pad, "padding"),
        (RecordType::Sample, "sample"),
        (RecordType::Name, "name of a code object"),
        (RecordType::Object, "loaded object"),
        (RecordType::Lost, "losses"),
        (RecordType::Copy, "sample with a copy of the stack"),
        (RecordType::Thread, "name of the thread"),
    ] {
        says(&text, &format!("| {} | {what}", kind.number()));
    }
    let undocumented = (0..u16::MAX)
        .filter_map(RecordType::from_number)
        .find(|kind| !text.contains(&format!("| {} | ", kind.number())));
    assert_eq!(undocumented, None);
    says(&text, &format!("its position modulo {RING_BYTES}"));
}

#[test]
fn how_samples_are_coded() {
    let text = section("Samples");
    says(&text, &format!("a table of {FOLLOWERS} frames"));
    says(&text, &format!("at least every {RESTART_EVERY}th"));
    says(
        &text,
        &format!("{RESTART}: empty everything before; {STATE}: state follows; {WEIGHT}: weight follows; {GAP}: losses follow"),
    );
    // The sums, as the document has them.
    let folded = |frame: Words| frame.word ^ frame.second.rotate_left(32);
    let mixed = |s: u64, word: u64| (s.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let (a, b) = (Words { word: 1 << 56 | 0x1234, second: 0 }, Words { word: 2 << 56 | 9, second: 5 });
    let bits = FOLLOWERS.ilog2();
    says(&text, &format!("the upper {bits} bits"));
    assert_eq!(Callers(a, b).index() as u64, mixed(folded(a), folded(b)) >> (64 - bits));
    let marked = Sum::default().with_shared(7).with(a).with(b);
    assert_eq!(u64::from(marked.mark()), mixed(mixed(mixed(0, !7), folded(a)), folded(b)) >> 48);
}
