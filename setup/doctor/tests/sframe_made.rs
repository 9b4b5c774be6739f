//! SFrame made from `.eh_frame`, for real objects: each row against the interpreter that walks use, which knows nothing
//! of how the section was made, and against another decoder.

use std::path::{Path, PathBuf};
use uunwind_core::memory::{Reader, Region};
use uunwind_core::rule::{Rule, RuleKind, RA_SLOT};
use uunwind_core::span::Span;
use uunwind_core::stop_reason::StopReason;
use uunwind_doctor::binary::Part;
use uunwind_doctor::make::{make, Made};
use uunwind_doctor::{sframe, Binary};
use uunwind_random::Random;
use uunwind_sframe::function::{Extent, Function};
use uunwind_sframe::row::{Base, Location, Row, Unwind};
use uunwind_sframe::table::Table;
use uunwind_sframe::{Fault, Section, Visitor};

/// What is looked at on every machine, and what is looked at where it is there.
fn objects() -> Vec<PathBuf> {
    let usual = [
        "/bin/ls",
        "/bin/bash",
        "/lib64/ld-linux-x86-64.so.2",
        "/lib/x86_64-linux-gnu/libc.so.6",
        "/lib/x86_64-linux-gnu/libm.so.6",
        "/lib/x86_64-linux-gnu/libgcc_s.so.1",
        "/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
        "/usr/bin/git",
    ];
    let mut paths: Vec<PathBuf> = usual.iter().map(PathBuf::from).filter(|path| path.exists()).collect();
    assert!(paths.len() >= 4, "the C library and basic tools are on every machine");
    paths.extend(std::env::current_exe());
    paths.extend(std::env::var_os("UU_SFRAME_OBJECTS").iter().flat_map(std::env::split_paths));
    paths
}

/// What both sources know: how the CFA, the return address and rbp are found.
fn common(rule: &Rule) -> (RuleKind, u8, i32, i16, [i16; 2], u8, u8) {
    if rule.kind == RuleKind::End {
        return (RuleKind::End, 0, 0, 0, [0; 2], 0, 0);
    }
    let slots = [rule.slots[1], rule.slots[RA_SLOT]];
    let from_fp = rule.from_fp & (1 << 1 | 1 << RA_SLOT);
    (rule.kind, rule.cfa_register, rule.cfa_offset, rule.cfa_addend, slots, from_fp, rule.flags)
}

fn segments(binary: &Binary) -> Vec<(u64, Vec<u8>)> {
    let view = binary.view().expect("an ELF file");
    view.loads.iter().map(|load| (load.address, [load.bytes, &[0; 16]].concat())).collect()
}

/// Both ends of every row, as a process would look them up.
fn against_the_interpreter(path: &Path, made: &Made) -> usize {
    let binary = Binary { path: path.to_path_buf(), bytes: made.bytes.clone() };
    let view = binary.view().expect("an ELF file");
    let segments = segments(&binary);
    let regions: Vec<Region<'_>> =
        segments.iter().map(|(address, bytes)| Region { address: *address, bytes }).collect();
    let mut reader = Reader::recorded(&regions);
    let part = view.sframe_segment.expect("the new segment");
    let section = Section::new(Span::sized(part.address, part.bytes.len() as u64), view.text_span());
    let hdr = view.eh_frame_hdr.expect("an index").address;
    let (mut rows, mut beyond) = (0, 0);
    for piece in sframe::read(&view).pieces {
        for pc in [piece.start, piece.end - 1] {
            let quick = uunwind_sframe::find(&section, pc, &mut reader).expect("a row was read here").rule;
            let slow = uunwind_eh_frame::find(hdr, Span::new(0, u64::MAX), pc, pc, &mut reader);
            let slow = slow.unwrap_or_else(|e| panic!("{}: {pc:#x}: {e:?}", path.display())).rule;
            match (quick, slow) {
                (Ok(quick), Ok(slow)) => {
                    assert_eq!(common(&quick), common(&slow), "{}: {pc:#x}: {quick:?} {slow:?}", path.display());
                }
                // libgcc's last steps of an exception's delivery: `.eh_frame` is where they are recognised.
                (_, Err(StopReason::StackInTransit)) => {}
                // Rules that only one can say.
                _ => beyond += 1,
            }
            rows += 1;
        }
    }
    assert!(beyond * 500 <= rows, "{}: {beyond} of {rows} rows not compared", path.display());
    rows
}

/// A function and its rows as text, `start: CFA, return address, rbp`.
type Decoded = Vec<(u64, u32, bool, Vec<String>)>;

#[derive(Default)]
struct Ours(Decoded);

fn text(l: Location) -> String {
    let base = match l.base {
        Base::Cfa => "c".to_owned(),
        Base::Sp => "r7".to_owned(),
        Base::Fp => "r6".to_owned(),
        Base::Register(n) => format!("r{n}"),
    };
    format!("{base}{:+}{}", l.offset, if l.deref { "*" } else { "" })
}

impl Visitor for Ours {
    fn function(&mut self, _: &Table, f: &Function) {
        self.0.push((f.start, f.size, f.extent != Extent::Whole, Vec::new()));
    }

    fn row(&mut self, _: &Table, _: &Function, row: &Row) {
        let decoded = match row.unwind {
            Unwind::Outermost => "outermost".to_owned(),
            Unwind::Caller { cfa, ra, fp } => {
                format!("{} {} {}", text(cfa), ra.map_or("-".into(), text), fp.map_or("-".into(), text))
            }
        };
        self.0.last_mut().expect("a function first").3.push(format!("{}: {decoded}", row.start));
    }

    fn fault(&mut self, fault: Fault) {
        panic!("{fault:?}");
    }
}

/// The decoder panics on rows that say "outermost" by having no words, which errata 2 brought; it gives such rows as
/// they are, as long as their offset is not looked up.
macro_rules! decode {
    ($module:ident, $bytes:expr, $address:expr, $flexible:expr) => {{
        use simple_frame_rs::$module as theirs;
        let section = theirs::SFrameSection::from($bytes, $address).expect("a section");
        let mut decoded: Decoded = Vec::new();
        for n in 0..section.get_fde_count() {
            let fde = section.get_fde(n).expect("a descriptor").expect("the count is in the header");
            let mut rows = Vec::new();
            let mut iterator = fde.iter_fre(&section);
            while let Some(row) = fallible_next(|| iterator_next!(iterator)) {
                let start = row.start_address.get();
                #[allow(clippy::redundant_closure_call, reason = "the versions differ in it")]
                let decoded = if row.stack_offsets.is_empty() {
                    "outermost".to_owned()
                } else if let Some(decoded) = $flexible(&fde, &row) {
                    decoded
                } else {
                    let base = if row.info.get_cfa_base_reg_id() == 1 { 7 } else { 6 };
                    let cfa = row.get_cfa_offset(&section).expect("a CFA");
                    let ra = row.get_ra_offset(&section).expect("a return address");
                    let fp = row.get_fp_offset(&section).map_or("-".to_owned(), |n| format!("c{n:+}*"));
                    format!("r{base}{cfa:+} c{ra:+}* {fp}")
                };
                rows.push(format!("{start}: {decoded}"));
            }
            decoded.push((fde.get_pc(&section), fde.func_size, fde.func_rep_size != 0, rows));
        }
        decoded
    }};
}

macro_rules! iterator_next {
    ($iterator:expr) => {{
        use fallible_iterator::FallibleIterator;
        $iterator.next().expect("a row")
    }};
}

fn fallible_next<T>(next: impl FnOnce() -> Option<T>) -> Option<T> {
    next()
}

fn by_another_decoder(bytes: &[u8], address: u64, version: u8) -> Decoded {
    if version == 2 {
        return decode!(v2, bytes, address, |_: &theirs::SFrameFDE, _: &theirs::SFrameFRE| None::<String>);
    }
    use simple_frame_rs::v3;
    decode!(v3, bytes, address, |fde: &v3::SFrameFDE, row: &v3::SFrameFRE| {
        if !matches!(fde.get_fde_type().expect("a type"), v3::SFrameFDEType::Flex) {
            return None;
        }
        let rules = row.get_flex_recovery_rules().expect("pairs");
        let decoded = |rule: v3::SFrameFlexRecoveryRule| {
            let base = if rule.control.reg_p() { format!("r{}", rule.control.regnum()) } else { "c".into() };
            format!("{base}{:+}{}", rule.offset, if rule.control.deref_p() { "*" } else { "" })
        };
        let ra = rules.ra.filter(|r| !r.control.is_padding()).map_or("c-8*".into(), decoded);
        let fp = rules.fp.filter(|r| !r.control.is_padding()).map_or("-".into(), decoded);
        Some(format!("{} {ra} {fp}", decoded(rules.cfa)))
    })
}

#[test]
fn rows_of_real_objects_agree_with_the_interpreter_and_with_another_decoder() {
    for path in objects() {
        let binary = Binary::open(&path).expect("a file");
        for version in [2, 3] {
            let made = make(&binary, version).unwrap_or_else(|e| panic!("{e}"));
            let rows = against_the_interpreter(&path, &made);
            let part = Part { address: made.address, bytes: &made.written.bytes };
            let mut ours = Ours::default();
            sframe::show(part, Span::new(0, u64::MAX), &mut ours);
            let theirs = by_another_decoder(&made.written.bytes, made.address, version);
            assert_eq!(ours.0.len(), theirs.len(), "{}", path.display());
            for (ours, theirs) in ours.0.iter().zip(&theirs) {
                assert_eq!(ours, theirs, "{}", path.display());
            }
            let share = |n: u64| n as f64 * 100.0 / made.text as f64;
            println!(
                "{} version {version}: {rows} looked up, {} functions, {:.2} % of text, .eh_frame {:.2} %, left out {:?}",
                path.display(),
                made.written.functions,
                share(made.by_sframe),
                share(made.by_eh_frame),
                made.written.beyond.iter().map(|b| b.end - b.start).sum::<u64>()
            );
            // Version 3 can say nearly all that compilers write.
            assert!(version == 2 || made.by_sframe * 1000 >= made.by_eh_frame * 999, "{}", path.display());
        }
    }
}

#[test]
fn what_cannot_be_made_is_refused_with_the_reason() {
    let refused = |bytes: Vec<u8>| match make(&Binary { path: "file".into(), bytes }, 3) {
        Ok(_) => panic!("made"),
        Err(why) => why.to_string(),
    };
    let good = std::fs::read("/bin/ls").expect("/bin/ls");
    let changed = |change: fn(&mut Vec<u8>)| {
        let mut bytes = good.clone();
        change(&mut bytes);
        refused(bytes)
    };
    for (len, why) in [
        (0, "an empty file".to_owned()),
        (40, "cut off: its ELF header ends at byte 64, the file at 40".to_owned()),
        (100, "cut off: its program headers end at byte".to_owned()),
        // The section headers are what ends a file.
        (
            good.len() - 1,
            format!("cut off: its section headers end at byte {}, the file at {}", good.len(), good.len() - 1),
        ),
    ] {
        let said = refused(good.get(..len).expect("shorter").to_vec());
        assert!(said.contains(&why), "{len} bytes: {said}");
    }
    assert!(changed(|b| b[54] = 1).contains("damaged"), "{}", changed(|b| b[54] = 1));
    assert!(changed(|b| b[18] = 183).contains("machine 183"));
    assert!(changed(|b| b[16] = 1).contains("relocatable"));
    assert!(changed(|b| b.extend(b"PK archive")).contains("10 bytes follow"));
    assert!(changed(|b| b[4] = 1).contains("32-bit"));
    assert!(refused(b"#!/bin/sh".to_vec()).contains("not an ELF file"));
    let made = make(&Binary { path: "ls".into(), bytes: good.clone() }, 3).expect("made");
    assert!(refused(made.bytes).contains("SFrame already"));
}

/// No damage to a file makes anything here panic; what is made of it anyway is as good as its .eh_frame.
#[test]
fn damaged_files_are_refused_or_made_right() {
    let good = std::fs::read("/bin/ls").expect("/bin/ls");
    let mut numbers = Random::new(0x5eed_0077);
    let mut random = move || numbers.number();
    let view = Binary { path: "ls".into(), bytes: good.clone() };
    let frame = view.view().expect("an ELF file").eh_frame.expect("unwind data").bytes;
    let frame_at = frame.as_ptr() as usize - view.bytes.as_ptr() as usize;
    let (mut made, mut refused) = (0, 0);
    for _ in 0..150 {
        let mut bytes = good.clone();
        for _ in 0..1 + random() % 4 {
            let at = match random() % 3 {
                0 => random() as usize % 1024,
                1 => frame_at + random() as usize % frame.len(),
                // The section headers, at the end.
                _ => bytes.len() - 1 - random() as usize % 2048,
            };
            bytes[at] = random() as u8;
        }
        match make(&Binary { path: "damaged".into(), bytes }, 2 + (random() % 2) as u8) {
            Ok(_) => made += 1,
            Err(why) => {
                assert!(!why.to_string().contains("please report"), "{why}");
                refused += 1;
            }
        }
    }
    assert!(made > 10 && refused > 10, "{made} made, {refused} refused");
}
