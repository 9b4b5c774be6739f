//! Lookups that remember the last CIE, and that read this process's memory directly, give what single lookups in saved
//! bytes give: on this system's libc and on this test, as they are loaded, in random order.
#![cfg(target_arch = "x86_64")]

use uunwind_core::cache::short::Short;
use uunwind_core::memory::{Mode, Reader, Region};
use uunwind_core::regs::RSP;
use uunwind_core::rule::{Packed, Rule};
use uunwind_core::span::Span;
use uunwind_core::stop_reason::StopReason;
use uunwind_eh_frame::{find, find_form_with, find_with, Answer, Form, LastCie};
use uunwind_random::Random;

#[repr(C)]
struct Found {
    flags: u64,
    map_start: u64,
    map_end: u64,
    link_map: u64,
    eh_frame: u64,
    reserved: [u64; 7],
}

extern "C" {
    fn _dl_find_object(address: u64, found: *mut Found) -> i32;
    fn getenv(name: *const u8) -> *mut u8;
}

/// The object around an address: its range, and the address of its index.
fn object(address: u64) -> (Span, u64) {
    let mut found = Found { flags: 0, map_start: 0, map_end: 0, link_map: 0, eh_frame: 0, reserved: [0; 7] };
    // SAFETY: struct dl_find_object of glibc 2.35, with its reserve.
    assert_eq!(unsafe { _dl_find_object(address, &mut found) }, 0, "no object at {address:#x}");
    (Span::new(found.map_start, found.map_end), found.eh_frame)
}

/// The object's bytes that are readable, page by page; others are zero and in no region.
fn saved(span: Span) -> Vec<(u64, Vec<u8>)> {
    let mut reader = Reader::probed();
    let mut runs: Vec<(u64, Vec<u8>)> = Vec::new();
    for page in (span.start..span.end).step_by(4096) {
        let mut bytes = vec![0; 4096];
        if !reader.read(page, &mut bytes) {
            continue;
        }
        match runs.last_mut() {
            Some((start, run)) if *start + run.len() as u64 == page => run.extend(bytes),
            _ => runs.push((page, bytes)),
        }
    }
    runs
}

fn packed(answer: Answer<Form>) -> (Result<Packed, StopReason>, Span) {
    (answer.rule.map(Form::pack), answer.function)
}

fn packed_whole(answer: Answer) -> (Result<Packed, StopReason>, Span) {
    (answer.rule.map(Rule::pack), answer.function)
}

#[test]
fn a_remembered_cie_and_direct_memory_change_no_answer() {
    let mut random = Random::new(0x1a57_0c1e);
    for address in [getenv as *const () as u64, object as *const () as u64] {
        let (span, hdr) = object(address);
        let runs = saved(span);
        let regions: Vec<Region<'_>> =
            runs.iter().map(|(address, bytes)| Region { address: *address, bytes }).collect();
        let (mut probed, mut guarded_cie) = (LastCie::new(), LastCie::new());
        let (mut rules, mut simple, mut fit) = (0, 0, 0);
        for _ in 0..20_000 {
            let pc = span.start + random.below(span.end - span.start);
            let wanted = find(hdr, span, pc, pc, &mut Reader::recorded(&regions));
            assert_eq!(find_with(&mut probed, hdr, span, pc, pc, &mut Reader::probed()), wanted, "{pc:#x}, probed");
            // SAFETY: the object is loaded, and all of its unwind data is readable, so that none of the loads faults.
            let mut guarded = unsafe { Reader::new(Mode::Guarded) };
            assert_eq!(find_with(&mut guarded_cie, hdr, span, pc, pc, &mut guarded), wanted, "{pc:#x}, guarded");
            let form = find_form_with(&mut probed, hdr, span, pc, pc, &mut Reader::probed());
            assert_eq!(form.map(packed), wanted.map(packed_whole), "{pc:#x}, in one word where that is simple");
            let short = wanted.and_then(|answer| answer.rule).ok().and_then(|rule| Short::of_any(&rule));
            let form = form.and_then(|answer| answer.rule).ok();
            assert_eq!(form.and_then(|form| form.short()), short, "{pc:#x}, in one word");
            simple += usize::from(matches!(form, Some(Form::Short(_))));
            fit += usize::from(short.is_some());
            rules += usize::from(wanted.is_ok_and(|answer| answer.rule.is_ok()));
        }
        assert!(rules > 2000, "only {rules} rules");
        assert!(simple > fit / 10 * 9, "of {fit} rules that fit into a word, {simple} were made so at once");
    }
}

/// Two functions with a CIE each, whose CFAs differ, asked for in turn.
#[test]
fn each_function_has_the_row_of_its_own_cie() {
    const AT: u64 = 0x8000;
    let cie = |cfa: u8| [16, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0x78, 16, 0x0c, 7, cfa, 0x90, 1, 0, 0];
    let mut bytes = vec![0; 28];
    let mut entries = Vec::new();
    for (start, cfa) in [(0x1000u64, 8), (0x2000, 24)] {
        bytes.extend(cie(cfa));
        entries.extend([start as u32, AT as u32 + bytes.len() as u32].map(|at| at.wrapping_sub(AT as u32)));
        // The distance to the CIE counts from its own place.
        bytes.extend([20, 0, 0, 0, 24, 0, 0, 0]);
        bytes.extend([start.to_le_bytes(), 16u64.to_le_bytes()].concat());
    }
    // The index: version, encodings (udata4, udata4, datarel sdata4), .eh_frame, number of entries.
    let words = [0x3b03_0301, AT as u32 + 28, 2].into_iter().chain(entries);
    let index: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
    bytes[..28].copy_from_slice(&index);
    let bounds = Span::sized(AT, bytes.len() as u64);
    // Words are read aligned.
    bytes.extend([0; 8]);
    let regions = [Region { address: AT, bytes: &bytes }];
    let mut last = LastCie::new();
    for (pc, cfa) in [(0x1004, 8), (0x2004, 24), (0x2005, 24), (0x1008, 8), (0x2000, 24)] {
        let answer = find_with(&mut last, AT, bounds, pc, pc, &mut Reader::recorded(&regions));
        let rule = answer.and_then(|answer| answer.rule).expect("a rule");
        assert_eq!((rule.cfa_register, rule.cfa_offset), (RSP, cfa), "{pc:#x}");
    }
}
