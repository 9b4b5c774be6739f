//! AArch64's sections of the corpus, in either byte order: rules do what the rows say. Runs on any machine.

mod support;

use serde_json::Value;
use support::{cases, number};
use uunwind_core::cursor::Cursor;
use uunwind_core::memory::{Reader, Region};
use uunwind_core::regs::aarch64::{Regs, COUNT, FP, RA, SP};
use uunwind_core::rule::RuleKind;
use uunwind_core::span::Span;
use uunwind_core::stop_reason::StopReason;
use uunwind_sframe::rule::AArch64;
use uunwind_sframe::{find_for, Section};

const ANYWHERE: Span = Span::new(0, u64::MAX);
const MASK: u64 = 0x007f_0000_0000_0000;
const STACK: u64 = 0x10_0000;
const BYTES: u64 = 0x20_0000;

fn register(n: u8) -> u64 {
    STACK + BYTES / 4 + u64::from(n) * 0x100
}

/// No word is an address with bits of an authentication code.
fn word_at(address: u64) -> u64 {
    address.wrapping_mul(0x9e37_79b9_7f4a_7c15) | MASK
}

/// The value of an expected row's text: `BASE+N`, or `*(BASE+N)`.
fn value(text: &str, cfa: u64) -> u64 {
    let inner = text.strip_prefix("*(").map_or(text, |t| t.trim_end_matches(')'));
    let (base, offset) = inner.split_at(inner.find(['+', '-']).expect("an offset"));
    let base = match base {
        "c" => cfa,
        "sp" => register(SP),
        "fp" => register(FP),
        other => panic!("no section of AArch64 counts from {other}"),
    };
    let sum = base.wrapping_add_signed(offset.parse::<i64>().expect("an offset"));
    if inner == text {
        sum
    } else {
        word_at(sum)
    }
}

#[test]
fn rules_do_what_the_rows_say() {
    let memory: Vec<u8> = (0..BYTES / 8).flat_map(|n| word_at(STACK + n * 8).to_le_bytes()).collect();
    let stack = [Region { address: STACK, bytes: &memory }];
    let (mut rules, mut ends, mut in_x30, mut signed, mut big, mut signals) = (0, 0, 0, 0, 0, 0);
    for case in cases().iter().filter(|case| case.name.contains("/aarch64") && !case.name.ends_with(".o")) {
        let section = Section::new(Span::sized(case.address, case.bytes.len() as u64), ANYWHERE);
        let tables = [Region { address: case.address, bytes: &case.bytes }];
        for function in &case.functions {
            let (start, size) = (number(&function["pc"]), function["size"].as_u64().expect("a size"));
            let rows = function["rows"].as_array().expect("rows");
            for offset in (0..size).step_by(4) {
                let row = rows.iter().rfind(|row| row[0].as_u64() <= Some(offset));
                let at = format!("{} {start:#x}+{offset}: {row:?}", case.name);
                let answer = find_for::<AArch64>(&section, start + offset, &mut Reader::recorded(&tables));
                let answer = answer.unwrap_or_else(|reason| panic!("{at}: {reason:?}"));
                assert_eq!(answer.function, Span::sized(start, size), "{at}");
                if function["attrs"].to_string().contains("signal") {
                    assert_eq!(answer.rule, Err(StopReason::UnsupportedRule), "{at}");
                    signals += 1;
                    continue;
                }
                let row: &Value = row.unwrap_or_else(|| panic!("{at}: no row"));
                let rule = answer.rule.unwrap_or_else(|reason| panic!("{at}: {reason:?}"));
                if row[1] == "outermost" {
                    assert_eq!(rule.kind, RuleKind::End, "{at}");
                    ends += 1;
                    continue;
                }
                let values: [u64; COUNT] = std::array::from_fn(|n| register(n as u8) | if n == 30 { MASK } else { 0 });
                let regs = Regs::full(start + offset, values).with_pac_mask(MASK);
                let (mut cursor, mut reader) = (Cursor { regs, exact: true }, Reader::recorded(&stack));
                let cfa = value(row[1].as_str().expect("a CFA"), 0);
                assert_eq!(rule.pack().cfa(&cursor, &mut reader), Ok(cfa), "{at}");
                assert_eq!(rule.pack().advance(&mut cursor, cfa, &mut reader), Ok(()), "{at}");
                let is_signed = row[4] == "signed";
                let ra = row[2].as_str().map_or(values[usize::from(RA)], |text| value(text, cfa));
                assert_eq!(cursor.regs.pc, if is_signed { ra & !MASK } else { ra }, "{at}");
                let fp = row[3].as_str().map_or(register(FP), |text| value(text, cfa));
                assert_eq!((cursor.regs.get(FP), cursor.regs.get(SP)), (Some(fp), Some(cfa)), "{at}");
                assert!((0..29).all(|r| cursor.regs.get(r).is_none()), "{at}: honest bits");
                rules += 1;
                in_x30 += usize::from(row[2].is_null());
                signed += usize::from(is_signed);
                big += usize::from(case.name.contains("aarch64be"));
            }
        }
    }
    let counts = [rules, ends, in_x30, signed, big, signals];
    assert!(rules > 2000 && [ends, in_x30, signed, big, signals].iter().all(|n| *n > 0), "{counts:?}");
}

#[test]
fn sections_of_other_machines_give_no_rules() {
    let mut functions = 0;
    for case in cases().iter().filter(|case| !case.name.contains("/aarch64")) {
        let regions = [Region { address: case.address, bytes: &case.bytes }];
        let section = Section::new(Span::sized(case.address, case.bytes.len() as u64), ANYWHERE);
        for function in &case.functions {
            let found = find_for::<AArch64>(&section, number(&function["pc"]), &mut Reader::recorded(&regions));
            assert_eq!(found, Err(StopReason::BadUnwindInfo), "{}", case.name);
            functions += 1;
        }
    }
    assert!(functions > 100);
}
