//! Damaged tables: every lookup ends with a rule or a reason, within its stated work; no byte outside of the section is
//! read. Deterministic: the mutants are the same every time. `UU_SFRAME_MUTANTS` sets their number for a long campaign.

mod support;

use std::io;
use support::{cases, number};
use uunwind_core::cursor::Cursor;
use uunwind_core::memory::{Mode, Reader, Region};
use uunwind_core::regs::Regs;
use uunwind_core::span::Span;
use uunwind_core::stop_reason::StopReason;
use uunwind_random::Random;
use uunwind_sframe::{find, visit, Fault, Section, Visitor};

const PAGE: usize = 4096;
const ROOM: usize = 4 * PAGE;

/// Memory between two inaccessible pages.
struct Guarded(*mut u8);

impl Guarded {
    fn new() -> Guarded {
        // SAFETY: a new private mapping; its first and last page are then made inaccessible.
        unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let prot = libc::PROT_READ | libc::PROT_WRITE;
            let base = libc::mmap(std::ptr::null_mut(), ROOM + 2 * PAGE, prot, flags, -1, 0);
            assert!(base != libc::MAP_FAILED, "mmap: {}", io::Error::last_os_error());
            let base = base.cast::<u8>();
            for page in [base, base.add(PAGE + ROOM)] {
                assert_eq!(libc::mprotect(page.cast(), PAGE, libc::PROT_NONE), 0);
            }
            Guarded(base.add(PAGE))
        }
    }

    /// Copies the bytes to the end, before the inaccessible page, or to the beginning, after the other one.
    fn place(&mut self, bytes: &[u8], at_end: bool) -> u64 {
        assert!(bytes.len() <= ROOM);
        // SAFETY: ROOM bytes are ours, and the source is another object.
        unsafe {
            let at = if at_end { self.0.add(ROOM - bytes.len()) } else { self.0 };
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), at, bytes.len());
            at as u64
        }
    }
}

/// A reader that really loads. No handler turns a fault into a failed read here: a byte that is read outside of a
/// section ends this test by SIGSEGV at the inaccessible page.
fn loading() -> Reader<'static> {
    // SAFETY: no fault is expected; one that happens ends the process, which is what the test is for.
    unsafe { Reader::new(Mode::Guarded) }
}

#[derive(Default)]
struct Faults(usize);

impl Visitor for Faults {
    fn fault(&mut self, _: Fault) {
        self.0 += 1;
    }
}

fn damage(bytes: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..1 + random.below(4) {
        let len = bytes.len() as u64;
        if len == 0 {
            return;
        }
        // Half of the damage goes to the header, on which everything depends.
        let at = if random.below(2) == 0 { random.below(len.min(48)) } else { random.below(len) } as usize;
        match random.below(8) {
            0 => bytes[at] = 0,
            1 => bytes[at] = 0xff,
            2 | 3 => bytes[at] ^= 1 << random.below(8),
            4 => bytes[at] = random.number() as u8,
            5 => bytes[at] = bytes[at].wrapping_add(1),
            6 => bytes.truncate(at + 1),
            _ => {
                let copy = bytes[at..(at + 1 + random.below(16) as usize).min(len as usize)].to_vec();
                let to = random.below(len) as usize;
                for (place, byte) in bytes[to..].iter_mut().zip(copy) {
                    *place = byte;
                }
            }
        }
    }
}

#[test]
fn mutants_end_with_a_rule_or_a_reason() {
    let mutants = match std::env::var("UU_SFRAME_MUTANTS") {
        Ok(number) => number.parse().expect("UU_SFRAME_MUTANTS: a number"),
        Err(_) if cfg!(debug_assertions) => 60_000,
        Err(_) => 1_000_000,
    };
    let cases: Vec<_> = cases().into_iter().filter(|case| case.bytes.len() >= 28 && case.bytes.len() < ROOM).collect();
    assert!(cases.len() > 190);
    let mut memory = Guarded::new();
    let mut random = Random::new(0x5eed_5f4a);
    let (mut rules, mut reasons, mut faults) = (0u64, 0u64, 0u64);
    for n in 0..mutants {
        let case = &cases[random.below(cases.len() as u64) as usize];
        let mut bytes = case.bytes.clone();
        damage(&mut bytes, &mut random);
        let at = memory.place(&bytes, n % 2 == 0);
        let text = match random.below(4) {
            0 => Span::new(case.address & !0xffff, case.address.saturating_add(1 << 20)),
            _ => Span::new(0, u64::MAX),
        };
        let section = Section { at, len: bytes.len() as u64, origin: case.address, text };
        let mut reader = loading();
        let mut seen = Faults::default();
        visit(&section, &mut reader, &mut seen);
        faults += u64::from(seen.0 != 0);
        for _ in 0..4 {
            let function = &case.functions.get(random.below(case.functions.len().max(1) as u64) as usize);
            let pc = function.map_or(0, |f| number(&f["pc"]) + random.below(f["size"].as_u64().unwrap_or(0) + 2));
            let pc = if random.below(16) == 0 { random.number() } else { pc };
            match find(&section, pc, &mut reader) {
                Ok(answer) => {
                    assert!(answer.function.contains(pc), "a rule for another function");
                    assert!(text.covers(answer.function), "a rule for foreign text");
                    rules += u64::from(answer.rule.is_ok());
                    if let Ok(rule) = answer.rule {
                        // Executed with registers that point nowhere: any outcome is valid, but there must be one.
                        let regs = Regs::full(pc, std::array::from_fn(|_| 0x1000 + random.below(1 << 16)));
                        let mut cursor = Cursor { regs, exact: true };
                        let stack = [Region { address: 0x1000, bytes: &bytes }];
                        let mut reader = Reader::recorded(&stack);
                        if let Ok(cfa) = rule.pack().cfa(&cursor, &mut reader) {
                            let _ = rule.pack().advance(&mut cursor, cfa, &mut reader);
                        }
                    }
                }
                Err(
                    StopReason::NoRule
                    | StopReason::BadUnwindInfo
                    | StopReason::UnreadableUnwindInfo
                    | StopReason::UnsupportedRule,
                ) => reasons += 1,
                Err(other) => panic!("{other:?} is no reason of unwind data"),
            }
        }
    }
    println!("{mutants} mutants: {rules} rules, {reasons} reasons, faults found in {faults}");
    assert!(rules > mutants / 20 && reasons > mutants / 20 && faults > mutants / 20, "all outcomes must be met");
}

/// Tables, descriptors and rows beyond the limits end a lookup with a reason.
#[test]
fn the_work_of_one_lookup_is_bounded() {
    let (machine, fixed_ra) = if cfg!(target_arch = "aarch64") { (2, 0) } else { (3, 0xf8) };
    let header = |version: u8, flags: u8, functions: u32, rows: u32, rows_len: u32, rows_at: u32| {
        let mut bytes = vec![0xe2, 0xde, version, flags, machine, 0, fixed_ra, 0];
        for word in [functions, rows, rows_len, 0, rows_at] {
            bytes.extend(word.to_le_bytes());
        }
        bytes
    };
    let empty = header(3, 5, 0, 0, 0, 0);
    // 28 bytes, padded to 32.
    let many: Vec<u8> = empty.iter().copied().chain([0; 4]).cycle().take(32 * 10_000).collect();
    let unsorted = {
        let functions = 5000u32;
        let mut bytes = header(2, 0, functions, 0, 0, functions * 20);
        bytes.extend(std::iter::repeat_n(0u8, functions as usize * 20));
        bytes
    };
    let rows = {
        // Version 1 counts rows in 32 bits.
        let count = 1u32 << 20;
        let mut bytes = header(1, 1, 1, count, count * 7, 17);
        bytes.extend(0x10_0000i32.to_le_bytes());
        bytes.extend((count + 1).to_le_bytes());
        bytes.extend(0u32.to_le_bytes());
        bytes.extend(count.to_le_bytes());
        bytes.push(2);
        for n in 0..count {
            bytes.extend(n.to_le_bytes());
            bytes.extend([3, 8, 0]);
        }
        bytes
    };
    for (name, bytes, pc, expected) in [
        ("tables", &many, 5u64, StopReason::UnsupportedRule),
        ("functions", &unsorted, 5, StopReason::UnsupportedRule),
        ("rows", &rows, 0x10_0000 + (1 << 20), StopReason::BadUnwindInfo),
    ] {
        let regions = [Region { address: 0, bytes }];
        let section = Section::new(Span::sized(0, bytes.len() as u64), Span::new(0, u64::MAX));
        let found = find(&section, pc, &mut Reader::recorded(&regions));
        assert_eq!(found, Err(expected), "{name}");
    }
}
