//! Damaged unwind data: every lookup ends with a rule or a reason; nothing outside the object is used as unwind
//! data; and the work is bounded. Deterministic: the mutants are the same every time.

use object::{Object, ObjectSection};
use std::time::Instant;
use uunwind_core::cursor::Cursor;
use uunwind_core::memory::{Reader, Region};
use uunwind_core::regs::Regs;
use uunwind_core::span::Span;
use uunwind_core::stop_reason::StopReason;
use uunwind_random::Random;

/// `.eh_frame_hdr` and `.eh_frame` of this test, as one image; and the range of its text.
fn image() -> (u64, u64, Vec<u8>, Span) {
    let data = std::fs::read(std::env::current_exe().expect("own path")).expect("own file");
    let file = object::File::parse(&*data).expect("an ELF file");
    let hdr = file.section_by_name(".eh_frame_hdr").expect("an unwind index");
    let frame = file.section_by_name(".eh_frame").expect("unwind data");
    // Mappings begin at page boundaries; words are read aligned.
    let start = hdr.address().min(frame.address()) & !7;
    let end = (hdr.address() + hdr.size()).max(frame.address() + frame.size());
    let mut image = vec![0; (end - start) as usize];
    for section in [&hdr, &frame] {
        let at = (section.address() - start) as usize;
        let bytes = section.data().expect("section bytes");
        image[at..at + bytes.len()].copy_from_slice(bytes);
    }
    let text = file.section_by_name(".text").expect("code");
    (hdr.address(), start, image, Span::sized(text.address(), text.size()))
}

#[test]
fn mutants_end_with_a_rule_or_a_reason() {
    let (hdr, start, mut bytes, text) = image();
    let end = start + bytes.len() as u64;
    bytes.extend([0; 16]);
    let mutants = if cfg!(debug_assertions) { 20_000 } else { 300_000 };
    let mut random = Random::new(0x5eed_0001);
    let (mut rules, mut reasons) = (0u32, 0u32);
    let begun = Instant::now();
    for _ in 0..mutants {
        let mut undo = Vec::new();
        for _ in 0..1 + random.below(8) {
            // Half of the damage goes to the index, on which everything depends.
            let at =
                if random.below(2) == 0 { random.below(64) } else { random.below(bytes.len() as u64 - 16) } as usize;
            undo.push((at, bytes[at]));
            bytes[at] = match random.below(4) {
                0 => 0,
                1 => 0xff,
                2 => bytes[at] ^ (1 << random.below(8)),
                _ => random.number() as u8,
            };
        }
        let regions = [Region { address: start, bytes: &bytes }];
        let mut reader = Reader::recorded(&regions);
        // An address in the text that the index covers, or any address.
        let pc = if random.below(8) == 0 { random.number() } else { text.start + random.below(text.len()) };
        match uunwind_eh_frame::find(hdr, Span::new(start, end), pc, pc, &mut reader) {
            Ok(answer) => {
                assert!(answer.function.contains(pc), "a rule for another function");
                rules += 1;
                if let Ok(rule) = answer.rule {
                    // Executed with registers that point into the damaged bytes: any outcome is valid, but there must
                    // be one.
                    let regs = Regs::full(pc, std::array::from_fn(|_| start.wrapping_add(random.below(1 << 16))));
                    let mut cursor = Cursor { regs, exact: true };
                    if let Ok(cfa) = rule.pack().cfa(&cursor, &mut reader) {
                        let _ = rule.pack().advance(&mut cursor, cfa, &mut reader);
                    }
                }
            }
            Err(reason) => {
                assert!(
                    matches!(
                        reason,
                        StopReason::NoRule
                            | StopReason::BadUnwindInfo
                            | StopReason::UnreadableUnwindInfo
                            | StopReason::UnsupportedRule
                    ),
                    "{reason:?}"
                );
                reasons += 1;
            }
        }
        for (at, old) in undo.into_iter().rev() {
            bytes[at] = old;
        }
    }
    println!("{mutants} mutants in {:?}: {rules} rules, {reasons} reasons", begun.elapsed());
    assert!(rules > 0 && reasons > 0, "both outcomes must be met, or the test tests nothing");
}

#[test]
fn random_bytes_are_no_unwind_data() {
    let mut random = Random::new(0x5eed_0002);
    let mut bytes = vec![0u8; 4096 + 16];
    for _ in 0..if cfg!(debug_assertions) { 5_000 } else { 50_000 } {
        for b in &mut bytes {
            *b = random.number() as u8;
        }
        // A plausible header, so that the search begins.
        bytes[..4].copy_from_slice(&[1, 0x1b, 0x03, 0x3b]);
        bytes[8..12].copy_from_slice(&(random.below(600) as u32).to_le_bytes());
        let regions = [Region { address: 0x10_0000, bytes: &bytes }];
        let mut reader = Reader::recorded(&regions);
        let pc = 0x10_0000u64.wrapping_add(random.number() as u32 as u64).wrapping_sub(1 << 31);
        let _ = uunwind_eh_frame::find(0x10_0000, Span::sized(0x10_0000, 0x1000), pc, pc, &mut reader);
    }
}
