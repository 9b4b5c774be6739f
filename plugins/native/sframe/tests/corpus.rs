//! Every section of the corpus: its rows agree with an independent decoder, and rules do what the rows say.
#![cfg(target_arch = "x86_64")]

mod support;

use serde_json::{json, Value};
use support::{cases, number, Case};
use uunwind_core::cursor::Cursor;
use uunwind_core::memory::{Reader, Region};
use uunwind_core::regs::{Regs, RBP};
use uunwind_core::rule::RuleKind;
use uunwind_core::span::Span;
use uunwind_core::stop_reason::StopReason;
use uunwind_sframe::function::{Extent, Function};
use uunwind_sframe::row::{Base, Location, Row, Unwind};
use uunwind_sframe::table::Table;
use uunwind_sframe::{find, visit, Check, Fault, Section, Visitor};

const ANYWHERE: Span = Span::new(0, u64::MAX);

#[derive(Default)]
struct Seen {
    functions: Vec<Value>,
    tables: usize,
    faults: Vec<Fault>,
}

fn location(l: Location) -> String {
    let base = match l.base {
        Base::Cfa => "c".to_owned(),
        Base::Sp => "sp".to_owned(),
        Base::Fp => "fp".to_owned(),
        Base::Register(n) => format!("r{n}"),
    };
    let sum = format!("{base}{:+}", l.offset);
    if l.deref {
        format!("*({sum})")
    } else {
        sum
    }
}

impl Visitor for Seen {
    fn table(&mut self, _: &Table) {
        self.tables += 1;
    }

    fn function(&mut self, _: &Table, f: &Function) {
        let names =
            [(f.extent != Extent::Whole, "mask"), (f.signal, "signal"), (f.flexible, "flex"), (f.key_b, "key_b")];
        let attrs: Vec<_> = names.iter().filter(|(is, _)| *is).map(|(_, name)| *name).collect();
        self.functions.push(
            json!({"pc": format!("{:#x}", f.start), "size": f.size, "attrs": attrs, "rows": Vec::<Value>::new()}),
        );
    }

    fn row(&mut self, _: &Table, _: &Function, row: &Row) {
        let mut value = match row.unwind {
            Unwind::Outermost => vec![json!(row.start), json!("outermost")],
            Unwind::Caller { cfa, ra, fp } => {
                vec![json!(row.start), json!(location(cfa)), json!(ra.map(location)), json!(fp.map(location))]
            }
        };
        if row.signed_ra {
            value.push(json!("signed"));
        }
        self.functions.last_mut().expect("a function first")["rows"].as_array_mut().expect("rows").push(json!(value));
    }

    fn fault(&mut self, fault: Fault) {
        self.faults.push(fault);
    }
}

fn seen(case: &Case, text: Span) -> Seen {
    let regions = [Region { address: case.address, bytes: &case.bytes }];
    let mut seen = Seen::default();
    let section = Section::new(Span::sized(case.address, case.bytes.len() as u64), text);
    visit(&section, &mut Reader::recorded(&regions), &mut seen);
    seen
}

#[test]
fn every_row_of_every_case() {
    let (mut count, mut rows) = (0, 0);
    for case in cases() {
        let seen = seen(&case, ANYWHERE);
        let expected: Vec<Value> = case
            .functions
            .iter()
            .map(|f| json!({"pc": f["pc"], "size": f["size"], "attrs": f["attrs"], "rows": f["rows"]}))
            .collect();
        assert_eq!(seen.functions, expected, "{}", case.name);
        rows += expected.iter().map(|f| f["rows"].as_array().expect("rows").len()).sum::<usize>();
        // The only error of a producer that a check can find: register 0x1fffffff.
        let expected_faults = usize::from(case.name == "v3/amd64/escapes.exe");
        assert_eq!(seen.faults.len(), expected_faults, "{}: {:?}", case.name, seen.faults);
        assert!(seen.faults.iter().all(|f| f.check == Check::Control && f.found == 0x1fff_ffff), "{:?}", seen.faults);
        assert_eq!(seen.tables > 1, case.name.contains("concat"), "{}", case.name);
        count += 1;
    }
    assert!(count >= 200 && rows > 2000, "{count} cases, {rows} rows");
}

/// The machine state with which rules are executed.
const STACK: u64 = 0x10_0000;

fn register(n: u64) -> u64 {
    STACK + 0x1000 + n * 0x100
}

fn word_at(address: u64) -> u64 {
    address.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1
}

/// The value of an expected row's text.
fn value(text: &str, cfa: u64) -> u64 {
    let inner = text.strip_prefix("*(").map_or(text, |t| t.trim_end_matches(')'));
    let split = inner.find(['+', '-']).expect("an offset");
    let (base, offset) = inner.split_at(split);
    let base = match base {
        "c" => cfa,
        "sp" => register(7),
        "fp" => register(6),
        r => register(r[1..].parse().expect("a register")),
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
    let memory: Vec<u8> = (0..0x4000 / 8).flat_map(|n| word_at(STACK + n * 8).to_le_bytes()).collect();
    let (mut rules, mut ends, mut refused) = (0, 0, Vec::new());
    for case in cases().iter().filter(|case| case.name.contains("/amd64/") && !case.name.ends_with(".o")) {
        let section = Section::new(Span::sized(case.address, case.bytes.len() as u64), ANYWHERE);
        let tables = [Region { address: case.address, bytes: &case.bytes }];
        let stack = [Region { address: STACK, bytes: &memory }];
        for function in &case.functions {
            let (start, size) = (number(&function["pc"]), function["size"].as_u64().expect("a size"));
            let rows = function["rows"].as_array().expect("rows");
            let attributes = function["attrs"].to_string();
            let mask = attributes.contains("mask");
            let block = if mask { function["rep"].as_u64().expect("a block size") } else { size };
            // Every address of small functions; of large ones those around each row's start.
            let around = |row: &Value| row[0].as_u64().map_or(0..0, |at| at.saturating_sub(1)..(at + 2).min(size));
            let offsets: Vec<u64> =
                if size <= 256 { (0..size).collect() } else { rows.iter().flat_map(around).collect() };
            for offset in offsets {
                let within = if block == 0 { 0 } else { offset % block };
                let row = rows.iter().rfind(|row| row[0].as_u64() <= Some(within));
                let at = format!("{} {start:#x}+{offset}: {row:?}", case.name);
                let found = find(&section, start + offset, &mut Reader::recorded(&tables));
                let damaged = row.is_some_and(|row| row.to_string().contains("r536870911"));
                if damaged {
                    assert_eq!(found, Err(StopReason::BadUnwindInfo), "{at}");
                    continue;
                }
                let answer = found.unwrap_or_else(|reason| panic!("{at}: {reason:?}"));
                assert_eq!(answer.function, Span::sized(start, size), "{at}");
                let rule = match (row, answer.rule) {
                    (Some(row), Ok(rule)) if row[1] == "outermost" => {
                        assert_eq!(rule.kind, RuleKind::End, "{at}");
                        ends += 1;
                        continue;
                    }
                    (Some(_), Ok(rule)) => rule,
                    (_, Err(reason)) => {
                        refused.push(format!("{} {start:#x} {attributes} {reason:?}", case.name));
                        refused.dedup();
                        continue;
                    }
                    (None, Ok(rule)) => panic!("{at}: {rule:?}"),
                };
                let row = row.expect("a row");
                let text = |n: usize| row[n].as_str();
                let cfa = value(text(1).expect("a CFA"), 0);
                let registers = Regs::full(start + offset, std::array::from_fn(|n| register(n as u64)));
                let mut cursor = Cursor { regs: registers, exact: true };
                let mut reader = Reader::recorded(&stack);
                assert_eq!(rule.pack().cfa(&cursor, &mut reader), Ok(cfa), "{at}");
                if !(STACK..STACK + 0x3000).contains(&cfa) {
                    // Wide offsets lead out of the small stack.
                    continue;
                }
                assert_eq!(rule.pack().advance(&mut cursor, cfa, &mut reader), Ok(()), "{at}");
                assert_eq!(cursor.regs.pc, value(text(2).expect("a return address"), cfa), "{at}");
                // A rule describes slots that count from the CFA or rbp; registers elsewhere are lost, not guessed.
                let expressible =
                    text(3).is_none_or(|t| ["*(c", "*(r6", "*(fp"].iter().any(|base| t.starts_with(base)));
                let fp = text(3).map_or(register(6), |t| value(t, cfa));
                assert_eq!(cursor.regs.get(RBP), expressible.then_some(fp), "{at}");
                assert!([3, 12, 13, 14, 15].iter().all(|r| cursor.regs.get(*r).is_none()), "{at}: honest bits");
                rules += 1;
            }
        }
    }
    assert!(rules > 3000 && ends > 20, "{rules} rules, {ends} ends");
    // Refusals must be among those whose reason is listed here.
    let expected = |r: &String| {
        // The blocks of .plt.got, which GNU ld describes wrongly; blocks of version 1, whose size is not recorded.
        (r.contains("mask") && r.contains("/plt.") && r.contains("NoRule"))
            // A signal frame whose caller's pc would be exact, which only a ucontext's rule can say, or one without
            // rows.
            || (r.contains("sigframe.exe") && r.contains("signal"))
            // Its first row begins after its first instruction.
            || (r.contains("handcfi.exe") && r.contains("NoRule"))
            // The return address is a register plus an offset, or a slot no rule reaches.
            || r.contains("regs.exe")
    };
    let unexpected: Vec<_> = refused.iter().filter(|r| !expected(r)).collect();
    assert!(unexpected.is_empty(), "{unexpected:#?}");
    assert!(refused.iter().any(|r| r.contains("v3/amd64/plt.lazy.exe 0x1040")), "the row of .plt.got: {refused:#?}");
}

#[test]
fn outside_of_functions_and_text_there_is_no_rule() {
    let case = cases().into_iter().find(|case| case.name == "v3/amd64/many.exe").expect("a case");
    let regions = [Region { address: case.address, bytes: &case.bytes }];
    let mut reader = Reader::recorded(&regions);
    let first = number(&case.functions[0]["pc"]);
    let section = |text| Section::new(Span::sized(case.address, case.bytes.len() as u64), text);
    assert_eq!(find(&section(ANYWHERE), first - 1, &mut reader), Err(StopReason::NoRule));
    assert!(find(&section(Span::sized(first, 0x1000)), first, &mut reader).is_ok());
    assert_eq!(
        find(&section(Span::new(first + 1, first + 0x1000)), first, &mut reader),
        Err(StopReason::BadUnwindInfo)
    );
    // The same bytes at another address, as from a JIT: the origin says which address start addresses count from.
    let moved = [Region { address: 0x7000_0003, bytes: &case.bytes }];
    let away = Section { at: 0x7000_0003, ..section(ANYWHERE) };
    let here = find(&section(ANYWHERE), first, &mut reader);
    assert_eq!(find(&away, first, &mut Reader::recorded(&moved)), here);
}

#[test]
fn sections_of_other_machines_give_no_amd64_rules() {
    let mut machines = 0;
    for case in cases().iter().filter(|case| !case.name.contains("/amd64/")) {
        let regions = [Region { address: case.address, bytes: &case.bytes }];
        let section = Section::new(Span::sized(case.address, case.bytes.len() as u64), ANYWHERE);
        for function in &case.functions {
            let pc = number(&function["pc"]);
            let found = find(&section, pc, &mut Reader::recorded(&regions));
            assert_eq!(found, Err(StopReason::BadUnwindInfo), "{}", case.name);
            machines += 1;
        }
    }
    assert!(machines > 100);
}

/// Errors of producers, which only another source can show: the rows follow the bytes all the same.
#[test]
fn errors_of_producers_are_read_as_they_are() {
    let all = cases();
    let mut names = Vec::new();
    for case in all.iter().filter(|case| !case.wrong.is_empty()) {
        let rows = seen(case, ANYWHERE).functions;
        for wrong in &case.wrong {
            // "pc 0x1040: CFA is reg:7+16 here, rsp+8 in .eh_frame"
            let (pc, said) = wrong.strip_prefix("pc ").and_then(|w| w.split_once(": ")).expect("a pc");
            let pc = number(&json!(pc));
            let function =
                rows.iter().find(|f| pc.wrapping_sub(number(&f["pc"])) < f["size"].as_u64().expect("a size"));
            let function = function.unwrap_or_else(|| panic!("{}: {wrong}", case.name));
            let offset = pc - number(&function["pc"]);
            let row = function["rows"].as_array().expect("rows").iter().find(|row| row[0] == offset).expect("a row");
            let column = [("CFA is reg:7+", 1, "sp+"), ("ra is c-8", 2, "*(c-8"), ("rbp is c-", 3, "*(c-")];
            let (prefix, column, ours) = column.iter().find(|(prefix, ..)| said.starts_with(prefix)).expect("known");
            let value = said[prefix.len()..].split_once(" here").expect("a value").0;
            let ours = format!("{ours}{value}{}", if ours.starts_with('*') { ")" } else { "" });
            assert_eq!(row[*column], ours, "{}: {wrong}", case.name);
        }
        names.push(case.name.as_str());
    }
    let expected = [
        "v1/amd64/handcfi.exe",
        "v1/amd64/plt.ibt.exe",
        "v1/amd64/plt.lazy.exe",
        "v1/amd64/plt.now.exe",
        "v1/amd64/regs.exe",
        "v1/amd64/start.exe",
        "v2/amd64/handcfi.exe",
        "v2/amd64/plt.ibt.exe",
        "v2/amd64/plt.lazy.exe",
        "v2/amd64/plt.now.exe",
        "v2/amd64/regs.exe",
        "v2/amd64/start.exe",
        "v3/amd64/plt.ibt.exe",
        "v3/amd64/plt.lazy.exe",
        "v3/amd64/plt.now.exe",
    ];
    assert_eq!(names, expected);
}

/// Each numbered check of a table, by the smallest damage that violates it, in a version 3 table.
#[test]
fn each_check_finds_its_damage() {
    let case = cases().into_iter().find(|case| case.name == "v3/amd64/drap.exe").expect("a case");
    let text = Span::new(0x40_1000, 0x40_1029);
    assert_eq!(seen(&case, text).faults, []);
    let index = 28;
    // 16 bytes for each entry, two functions; then the attributes and rows of the first.
    let rows = index + 32;
    let damage: &[(usize, &[u8], Check)] = &[
        (0, &[1], Check::Preamble),
        (2, &[4], Check::Preamble),
        (3, &[0x85], Check::Preamble),
        (4, &[2 + 3], Check::Machine),
        (4, &[1], Check::Machine),
        (5, &[1], Check::FixedOffsets),
        (6, &[100], Check::FixedOffsets),
        (7, &[0xff], Check::HeaderLength),
        (12, &[7], Check::TotalRows),
        (16, &[0xff], Check::SubSections),
        (20, &[0xff, 0xff, 0xff, 0xff], Check::SubSections),
        (8, &[0xff, 0xff, 0xff, 0x0f], Check::SubSections),
        (index, &[0, 0, 0, 0], Check::Range),
        (index + 8, &[0xff], Check::Range),
        (index + 12, &[0xff], Check::FirstRow),
        (rows + 2, &[3], Check::Encoding),
        (rows + 2, &[0x40], Check::FunctionType),
        (rows + 3, &[2], Check::FunctionType),
        (rows, &[0xff], Check::RowCount),
        (rows + 2, &[0x10], Check::Block),
        (rows + 5, &[200], Check::RowOrder),
        (rows + 6, &[0x60], Check::Encoding),
        (rows + 6, &[0x0e | 0x10], Check::WordCount),
        (rows + 6, &[0x02], Check::WordCount),
        (rows + 7, &[0x3d], Check::Control),
    ];
    for (at, bytes, check) in damage {
        let mut damaged = case_of(&case);
        damaged.bytes[*at..*at + bytes.len()].copy_from_slice(bytes);
        let faults = seen(&damaged, text).faults;
        assert!(faults.iter().any(|f| f.check == *check), "{check:?} at {at}: {faults:?}");
    }
    for len in 1..case.bytes.len() {
        let mut cut = case_of(&case);
        cut.bytes.truncate(len);
        assert!(!seen(&cut, text).faults.is_empty(), "cut to {len} bytes");
    }
    // The two functions in the wrong order, in a table whose flags say that it is sorted.
    let mut swapped = case_of(&case);
    let (one, other) = (case.bytes[index..index + 16].to_vec(), case.bytes[index + 16..index + 32].to_vec());
    let moved = |entry: &[u8], by: i64| {
        let start = i64::from_le_bytes(entry[..8].try_into().expect("8 bytes")) + by;
        [&start.to_le_bytes(), &entry[8..]].concat()
    };
    swapped.bytes[index..index + 16].copy_from_slice(&moved(&other, 16));
    swapped.bytes[index + 16..index + 32].copy_from_slice(&moved(&one, -16));
    let faults = seen(&swapped, text).faults;
    assert!(faults.iter().any(|f| f.check == Check::Sorted), "{faults:?}");
}

fn case_of(case: &Case) -> Case {
    Case {
        name: case.name.clone(),
        address: case.address,
        bytes: case.bytes.clone(),
        functions: Vec::new(),
        wrong: Vec::new(),
    }
}
