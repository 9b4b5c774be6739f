//! Our rule against gimli's row, for every FDE of real objects, at the first and last address of every row.
//!
//! Both are executed on the same made-up registers and memory (a word's value is a hash of its address), and must agree
//! on the CFA and on where the return address and each callee-saved register come from.

use gimli::{BaseAddresses, CfaRule, EhFrame, LittleEndian, Register, RegisterRule, UnwindContext, UnwindSection};
use object::{Object, ObjectSection, ObjectSegment};
use std::path::{Path, PathBuf};
use uunwind_core::memory::{Reader, Region};
use uunwind_core::regs::{ucontext_offset, CALLEE_SAVED, RA};
use uunwind_core::rule::{Rule, RuleKind, RA_IN_REGISTER, RA_SLOT, SAME, UNKNOWN};
use uunwind_core::stop_reason::StopReason;

fn word_at(address: u64) -> u64 {
    (address ^ 0x1234_5678_9abc_def0).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn register(n: u16) -> u64 {
    0x7fff_0000_0000 + u64::from(n) * 0x10_0000
}

/// Where a register's value comes from.
#[derive(Debug, PartialEq, Clone, Copy)]
enum From {
    Same,
    Lost,
    Word(u64),
    Register(u16),
}

#[derive(Debug, PartialEq)]
struct Outcome {
    cfa: u64,
    callee_saved: [From; 6],
    ra: From,
}

fn ours(rule: &Rule) -> Option<Outcome> {
    let sum = register(u16::from(rule.cfa_register)).wrapping_add_signed(i64::from(rule.cfa_offset));
    let word = |r: u8| From::Word(sum + ucontext_offset(r));
    match rule.kind {
        RuleKind::End => return None,
        RuleKind::Signal => {
            let cfa = word_at(sum + ucontext_offset(7));
            return Some(Outcome { cfa, callee_saved: CALLEE_SAVED.map(word), ra: word(RA) });
        }
        RuleKind::Offset | RuleKind::Deref => {}
    }
    let cfa =
        if rule.kind == RuleKind::Deref { word_at(sum).wrapping_add_signed(i64::from(rule.cfa_addend)) } else { sum };
    let place = |index: usize| {
        let base = if rule.from_fp & (1 << index) != 0 { register(6) } else { cfa };
        match rule.slots[index] {
            SAME => From::Same,
            UNKNOWN => From::Lost,
            slot => From::Word(base.wrapping_add_signed(i64::from(slot) * 8)),
        }
    };
    let ra = if rule.flags & RA_IN_REGISTER != 0 { From::Register(rule.slots[RA_SLOT] as u16) } else { place(RA_SLOT) };
    Some(Outcome { cfa, callee_saved: [0, 1, 2, 3, 4, 5].map(place), ra })
}

type Slice<'a> = gimli::EndianSlice<'a, LittleEndian>;

/// Evaluates an expression on the made-up state.
fn evaluate(
    expression: gimli::Expression<Slice<'_>>,
    encoding: gimli::Encoding,
    pc: u64,
    initial: Option<u64>,
) -> Option<u64> {
    let mut evaluation = expression.evaluation(encoding);
    if let Some(value) = initial {
        evaluation.set_initial_value(value);
    }
    let mut result = evaluation.evaluate().ok()?;
    loop {
        result = match result {
            gimli::EvaluationResult::Complete => break,
            gimli::EvaluationResult::RequiresRegister { register: r, .. } => {
                let value = if r.0 == 16 { pc } else { register(r.0) };
                evaluation.resume_with_register(gimli::Value::Generic(value)).ok()?
            }
            gimli::EvaluationResult::RequiresMemory { address, .. } => {
                evaluation.resume_with_memory(gimli::Value::Generic(word_at(address))).ok()?
            }
            _ => return None,
        };
    }
    match evaluation.result().first()?.location {
        gimli::Location::Address { address } => Some(address),
        _ => None,
    }
}

/// What gimli says; `Err(())` where its row has something that no rule of ours can say.
fn theirs(
    row: &gimli::UnwindTableRow<usize>,
    frame: &EhFrame<Slice<'_>>,
    encoding: gimli::Encoding,
    pc: u64,
) -> Result<Option<Outcome>, ()> {
    let expression = |e: &gimli::UnwindExpression<usize>| e.get(frame).map_err(|_| ());
    // gimli forgets DW_CFA_undefined: an undefined return address has no entry.
    if matches!(row.register(Register(16)), RegisterRule::Undefined) {
        return Ok(None);
    }
    let cfa = match row.cfa() {
        CfaRule::RegisterAndOffset { register: r, offset } => register(r.0).wrapping_add_signed(*offset),
        CfaRule::Expression(e) => evaluate(expression(e)?, encoding, pc, None).ok_or(())?,
    };
    let place = |n: u16| {
        Ok(match row.register(Register(n)) {
            RegisterRule::Undefined | RegisterRule::SameValue => From::Same,
            RegisterRule::Offset(o) => From::Word(cfa.wrapping_add_signed(o)),
            RegisterRule::Register(r) => From::Register(r.0),
            RegisterRule::Expression(e) => From::Word(evaluate(expression(&e)?, encoding, pc, Some(cfa)).ok_or(())?),
            _ => From::Lost,
        })
    };
    let mut callee_saved = [From::Same; 6];
    for (to, n) in callee_saved.iter_mut().zip(CALLEE_SAVED) {
        *to = match place(u16::from(n))? {
            From::Register(_) => From::Lost,
            other => other,
        };
    }
    Ok(Some(Outcome { cfa, callee_saved, ra: place(16)? }))
}

#[derive(Default, Debug)]
struct Count {
    fdes: usize,
    rows: usize,
    ends: usize,
    beyond: usize,
}

fn compare(path: &Path) -> Option<Count> {
    let data = std::fs::read(path).ok()?;
    let file = object::File::parse(&*data).ok()?;
    let frame_section = file.section_by_name(".eh_frame")?;
    let hdr = file.section_by_name(".eh_frame_hdr")?.address();
    let frame_data = frame_section.data().ok()?;
    let frame = EhFrame::new(frame_data, LittleEndian);
    let text = file.section_by_name(".text").map_or(0, |s| s.address());
    let bases = BaseAddresses::default().set_eh_frame(frame_section.address()).set_text(text).set_eh_frame_hdr(hdr);
    let segments: Vec<(u64, Vec<u8>)> =
        file.segments().filter_map(|s| Some((s.address(), [s.data().ok()?, &[0; 16]].concat()))).collect();
    let regions: Vec<Region<'_>> =
        segments.iter().map(|(address, bytes)| Region { address: *address, bytes }).collect();
    let bounds =
        (regions.iter().map(|r| r.address).min()?, regions.iter().map(|r| r.address + r.bytes.len() as u64).max()?);
    let mut reader = Reader::recorded(&regions);
    let mut context = UnwindContext::new();
    let mut count = Count::default();
    let mut entries = frame.entries(&bases);
    while let Ok(Some(entry)) = entries.next() {
        let gimli::CieOrFde::Fde(partial) = entry else { continue };
        let fde = partial.parse(EhFrame::cie_from_offset).ok()?;
        if fde.len() == 0 {
            continue;
        }
        count.fdes += 1;
        let Ok(mut table) = fde.rows(&frame, &bases, &mut context) else { continue };
        while let Ok(Some(row)) = table.next_row() {
            if row.start_address() >= row.end_address() {
                continue;
            }
            for pc in [row.start_address(), row.end_address() - 1] {
                let at = || format!("{}: pc {pc:#x}, FDE {:#x}", path.display(), fde.initial_address());
                let answer = uunwind_eh_frame::find(hdr, bounds, pc, pc, &mut reader);
                let answer = match answer {
                    Ok(answer) => answer,
                    Err(reason) => panic!("{}: {reason:?}", at()),
                };
                assert_eq!(answer.function, (fde.initial_address(), fde.initial_address() + fde.len()), "{}", at());
                count.rows += 1;
                match (answer.rule, theirs(row, &frame, fde.cie().encoding(), pc)) {
                    (Ok(rule), Ok(theirs)) => {
                        count.ends += usize::from(theirs.is_none());
                        assert_eq!(ours(&rule), theirs, "{}\nrule {rule:?}\nrow {row:?}", at());
                    }
                    // Where we have no rule, it must be for something that no rule can say.
                    (Err(StopReason::UnsupportedRule), _) => count.beyond += 1,
                    (ours, theirs) => panic!("{}: {ours:?} against {theirs:?}", at()),
                }
            }
        }
    }
    Some(count)
}

fn candidates() -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = [
        "/lib/x86_64-linux-gnu/libc.so.6",
        "/lib/x86_64-linux-gnu/libm.so.6",
        "/lib64/ld-linux-x86-64.so.2",
        "/lib/x86_64-linux-gnu/libgcc_s.so.1",
        "/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
        "/usr/bin/python3",
        "/usr/bin/bash",
        "/usr/bin/git",
        "/usr/lib/x86_64-linux-gnu/libsqlite3.so.0",
        "/usr/lib/x86_64-linux-gnu/libcrypto.so.3",
    ]
    .iter()
    .map(PathBuf::from)
    .collect();
    paths.extend(std::env::current_exe());
    paths.extend(std::env::var_os("UU_EH_FRAME_OBJECTS").iter().flat_map(std::env::split_paths));
    paths
}

#[test]
fn every_row_of_real_objects() {
    let mut objects = 0;
    let mut skipped = 0;
    for path in candidates() {
        match compare(&path) {
            Some(count) => {
                println!("{}: {count:?}", path.display());
                // What no rule can say is rare: a handful of hand-written sequences.
                assert!(count.beyond * 1000 <= count.rows + 20_000, "{}: {count:?}", path.display());
                objects += 1;
            }
            None => {
                println!("skipped: {} (not here, or without .eh_frame)", path.display());
                skipped += 1;
            }
        }
    }
    println!("{objects} objects compared, {skipped} skipped");
    assert!(objects >= 2, "the C library and this test itself have unwind tables");
}
