//! AArch64's rules against gimli's rows, for every row of unwind tables: of our own chains of calls, with and without
//! signed return addresses, and of Debian's libraries where its cross compiler is installed. On any machine.

use gimli::{
    BaseAddresses, CfaRule, EhFrame, LittleEndian, Register, RegisterRule, UnwindContext, UnwindSection, Vendor,
};
use object::{Object, ObjectSection};
use std::path::Path;
use uunwind_aarch64_tests::recording::Recording;
use uunwind_core::memory::{Reader, Region};
use uunwind_core::regs::aarch64::{CALLEE_SAVED, RA};
use uunwind_core::rule::aarch64::{Rule, RA_SIGNED, RA_SLOT};
use uunwind_core::rule::{RuleKind, RA_IN_REGISTER, SAME, UNKNOWN};
use uunwind_core::span::Span;
use uunwind_core::stop_reason::StopReason;
use uunwind_eh_frame::cpu::AArch64;
use uunwind_eh_frame::find_for;
use uunwind_tests::skips::skipped;

/// DWARF number of RA_SIGN_STATE.
const RA_SIGN_STATE: Register = Register(34);

#[derive(Default, Debug)]
struct Count {
    rows: usize,
    ends: usize,
    in_x30: usize,
    signed: usize,
    saved: usize,
    /// Functions that have something that no rule can say: where they begin.
    beyond: Vec<u64>,
}

/// Sections `(address, bytes)`.
struct Tables {
    hdr: (u64, Vec<u8>),
    frame: (u64, Vec<u8>),
}

/// What gimli's row says, as a rule; `None` if no rule can.
fn theirs(row: &gimli::UnwindTableRow<usize>) -> Option<Rule> {
    let CfaRule::RegisterAndOffset { register, offset } = row.cfa() else { return None };
    let mut rule = Rule::simple(u8::try_from(register.0).ok()?, i32::try_from(*offset).ok()?);
    let words = |offset: i64| (offset % 8 == 0).then(|| i16::try_from(offset / 8).ok()).flatten();
    for (slot, register) in rule.slots.iter_mut().zip(CALLEE_SAVED) {
        *slot = match row.register(Register(u16::from(register))).unwrap_or(RegisterRule::Undefined) {
            RegisterRule::Undefined | RegisterRule::SameValue => SAME,
            RegisterRule::Offset(offset) => words(offset)?,
            _ => UNKNOWN,
        };
    }
    match row.register(Register(u16::from(RA))).unwrap_or(RegisterRule::Undefined) {
        RegisterRule::Undefined | RegisterRule::SameValue => {}
        RegisterRule::Offset(offset) => {
            rule.slots[RA_SLOT] = words(offset)?;
            rule.flags &= !RA_IN_REGISTER;
        }
        _ => return None,
    }
    match row.register(RA_SIGN_STATE).unwrap_or(RegisterRule::Undefined) {
        RegisterRule::Constant(1) => rule.flags |= RA_SIGNED,
        RegisterRule::Undefined | RegisterRule::Constant(0) => {}
        _ => return None,
    }
    Some(rule)
}

fn compare(name: &str, tables: &Tables) -> Count {
    let mut frame = EhFrame::new(&tables.frame.1, LittleEndian);
    frame.set_vendor(Vendor::AArch64);
    let bases = BaseAddresses::default().set_eh_frame(tables.frame.0).set_eh_frame_hdr(tables.hdr.0);
    // As in memory, with bytes before and after them, because they are read by aligned words.
    let start = tables.hdr.0 & !7;
    let mut image = vec![0; (tables.frame.0 - start) as usize + tables.frame.1.len() + 16];
    for (address, bytes) in [&tables.hdr, &tables.frame] {
        image[(address - start) as usize..][..bytes.len()].copy_from_slice(bytes);
    }
    let regions = [Region { address: start, bytes: &image }];
    let mut reader = Reader::recorded(&regions);
    let (mut context, mut count, mut entries) = (UnwindContext::new(), Count::default(), frame.entries(&bases));
    while let Ok(Some(entry)) = entries.next() {
        let gimli::CieOrFde::Fde(partial) = entry else { continue };
        let fde = partial.parse(EhFrame::cie_from_offset).expect("an FDE");
        if fde.cie().return_address_register() != Register(30) {
            // glibc's rawmemchr has x15 for it, also where that is not set yet: nothing that we could trust.
            let answer =
                find_for::<AArch64>(tables.hdr.0, Span::new(0, u64::MAX), fde.initial_address(), 0, &mut reader);
            assert_eq!(answer, Err(StopReason::UnsupportedRule), "{name}: FDE {:#x}", fde.initial_address());
            count.beyond.push(fde.initial_address());
            continue;
        }
        let mut rows = fde.rows(&frame, &bases, &mut context).expect("rows");
        while let Some(row) = rows.next_row().expect("a row") {
            let (first, last) = (row.start_address(), row.end_address().saturating_sub(1));
            if first > last {
                continue;
            }
            for pc in [first, last] {
                let at = format!("{name}: pc {pc:#x}, FDE {:#x}", fde.initial_address());
                let answer = find_for::<AArch64>(tables.hdr.0, Span::new(0, u64::MAX), pc, pc, &mut reader);
                let answer = answer.unwrap_or_else(|reason| panic!("{at}: {reason:?}"));
                assert_eq!(answer.function, Span::sized(fde.initial_address(), fde.len()), "{at}");
                let theirs = theirs(row);
                match answer.rule {
                    // gimli drops DW_CFA_undefined; then it must not have a rule for the return address.
                    Ok(rule) if rule.kind == RuleKind::End => {
                        assert_eq!(
                            row.register(Register(30)).unwrap_or(RegisterRule::Undefined),
                            RegisterRule::Undefined,
                            "{at}"
                        );
                        count.ends += 1;
                    }
                    Ok(rule) => {
                        assert_eq!(Some(rule), theirs, "{at}\n{row:?}");
                        count.rows += 1;
                        count.in_x30 += usize::from(rule.flags & RA_IN_REGISTER != 0);
                        count.signed += usize::from(rule.flags & RA_SIGNED != 0);
                        count.saved += rule.slots.iter().filter(|slot| !matches!(**slot, SAME | UNKNOWN)).count();
                    }
                    Err(reason) => {
                        assert_eq!((reason, &theirs), (StopReason::UnsupportedRule, &None), "{at}\n{row:?}");
                        count.beyond.push(fde.initial_address());
                    }
                }
            }
        }
    }
    count.beyond.dedup();
    count
}

#[test]
fn rows_of_our_chains() {
    for (name, signed) in [("plain", false), ("signed", true)] {
        let path = format!("{}/aarch64/tables/{name}.txt", env!("CARGO_MANIFEST_DIR"));
        let mut sections = Recording::parse(&std::fs::read_to_string(path).expect("text")).expect("tables").memory;
        let (frame, hdr) = (sections.pop().expect("two sections"), sections.pop().expect("two sections"));
        let count = compare(name, &Tables { hdr, frame });
        assert!(count.rows > 100 && count.in_x30 > 20 && count.saved > 200, "{name}: {count:?}");
        assert!((count.signed > 50) == signed && count.beyond.is_empty(), "{name}: {count:?}");
    }
}

#[test]
fn rows_of_debians_libraries() {
    let folder = Path::new("/usr/aarch64-linux-gnu/lib");
    let (mut all, mut rows) = (0, 0);
    for name in ["libc.so.6", "libm.so.6", "ld-linux-aarch64.so.1", "libgcc_s.so.1", "libstdc++.so.6", "libasan.so.8"] {
        let Ok(data) = std::fs::read(folder.join(name)) else { continue };
        let file = object::File::parse(&*data).expect("an ELF file");
        let section = |name: &str| {
            let section = file.section_by_name(name).expect("a section");
            (section.address(), section.data().expect("its bytes").to_vec())
        };
        let count = compare(name, &Tables { hdr: section(".eh_frame_hdr"), frame: section(".eh_frame") });
        println!("{name}: {} rows, {} ends, {} beyond", count.rows, count.ends, count.beyond.len());
        assert!(count.beyond.len() <= 2, "{name}: {:x?}", count.beyond);
        all += 1;
        rows += count.rows;
    }
    if all == 0 {
        skipped("AArch64's rows of Debian's libraries", "no /usr/aarch64-linux-gnu/lib (package libc6-arm64-cross)");
    } else {
        assert!(rows > 1000, "{rows} rows of {all} libraries");
    }
}
