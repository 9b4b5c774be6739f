//! Rows made from machine code, against the rows that the same objects have: `.eh_frame` is hidden from the analysis,
//! and then compared at every instruction of the functions that it describes. What is claimed must follow from the
//! file's rows; what is not claimed is counted, and how much of it only exceptions enter: unwind data leads there, and
//! nothing in the code does.
//!
//! `UU_CAMPAIGNS=1` compares all objects of this machine instead of a few, `UU_OBJECTS=PATH:PATH` these.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, Register};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Duration;
use uunwind_core::regs::RSP;
use uunwind_core::rule::{Rule, RuleKind, SAME, UNKNOWN};
use uunwind_elf::Image;
use uunwind_from_code::state::State;
use uunwind_from_code::{analyse, row, Budget, Code, Found};
use uunwind_tables::{Table, TableAnswer};
use uunwind_tables_build::of_image;
use uunwind_tests::landing_pads::landing_pads;
use uunwind_tests::objects::{all, usual};
use uunwind_tests::{compile, paths};

/// Instructions that may be carried out for one object.
const BUDGET: Budget = Budget { steps: 2_000_000_000 };
/// Size in bytes of the objects that every run compares.
const MOST: u64 = 2 << 20;
/// The share of instructions, in percent, that must be known of a library of C.
const KNOWN: u64 = 85;

/// Bytes at a distance from where a function begins.
type Mark = (usize, &'static [u8]);

/// Functions whose rows in `.eh_frame` are not true, by some of their bytes.
const WRONG: [(&[Mark], &str); 10] = [
    (
        &[(0, &[0x53, 0x55, 0x48, 0x8d, 0x1a, 0x48, 0xf7, 0xdb, 0x48, 0x8b, 0x06, 0x4c, 0x8b, 0x17])],
        "glibc, __mpn_addmul_1 and __mpn_submul_1: the pushes are not described",
    ),
    (
        &[(0, &[0x48, 0x89, 0xe0, 0x55, 0x53, 0x41, 0x54, 0x41, 0x55, 0x41, 0x56, 0x41, 0x57, 0x48, 0x8d, 0x64])],
        "OpenSSL, bsaes: subtractions of a register from the stack pointer are not described",
    ),
    (
        &[(0, &[0x4c, 0x8d, 0x14, 0x24, 0x48, 0x81, 0xec, 0x08, 0x01, 0x00, 0x00, 0x48, 0x8d, 0x05])],
        "OpenSSL, bn_gather5: its frame is not described",
    ),
    (
        &[(0, &[0x55, 0x53, 0x41, 0x54, 0x41, 0x55, 0x41, 0x56, 0x41, 0x57, 0x48, 0x8d, 0x64, 0x24, 0xd8, 0x48])],
        "OpenSSL, x25519_fe51_mul: at the return the frame is described, which has ended",
    ),
    (
        &[(0, &[0x55, 0x53, 0x41, 0x54, 0x41, 0x55, 0x41, 0x56, 0x41, 0x57, 0x57, 0x48, 0x8d, 0x64, 0x24, 0xf0])],
        "OpenSSL, x25519_fe64_mul: at the return the frame is described, which has ended",
    ),
    (
        &[(0, &[0x48, 0x8b, 0x0d]), (7, &[0x48, 0x0f, 0xba, 0xe1, 0x3d, 0x0f, 0x82])],
        "OpenSSL, sha1_multi_block: its jumps lead to other forms of it, whose frames are not described",
    ),
    (
        &[(4, &[0x49, 0x89, 0xe3, 0x48, 0x83, 0xe4, 0xe0, 0x48, 0x81, 0xec, 0x00, 0x03, 0x00, 0x00])],
        "AWS-LC, sha3_keccak4_f1600_alt: the CFA counts from r11, and is said to count from the aligned stack pointer",
    ),
    (
        &[(0, &[0x48, 0x83, 0xec, 0x78, 0x4c, 0x89, 0x44, 0x24, 0x30, 0x48, 0x89, 0x5c, 0x24, 0x40, 0x48, 0x89])],
        "BoringSSL, abi_test_trampoline: `pushf; popf` are not described",
    ),
    (
        &[(0, &[0x41, 0x54, 0x4c, 0x89, 0xe0, 0x48, 0xff, 0xc0, 0x48, 0x89, 0x04, 0x24, 0x4c, 0x89, 0x24, 0x24])],
        "BoringSSL, abi_test_bad_unwind_wrong_register: wrong on purpose",
    ),
    (
        &[(0, &[0x48, 0x63, 0xf6]), (0x12, &[0x48, 0x81, 0xec, 0x00, 0x01, 0x00, 0x00, 0x41, 0x57])],
        "Valgrind, local_sys_write_stderr: inline assembly that keeps off the red zone, and pushes, is not described",
    ),
];

/// LLVM moves a comparison and its jump (at most this number of bytes) between `add $n,%rsp` and the pops of an
/// epilogue, and the row that belongs to the addition follows them (libc++abi's demangler, Rust's drop glue, LLVM 14);
/// a load or a jump between the pushes of a call's arguments, and what aligns the stack before them (lld 14, LLVM
/// 14); and inline assembly (`pushf; pop`) is not described (llvm-exegesis).
const LATE: u64 = 16;
/// What compilers align functions to.
const ALIGNMENT: u64 = 16;
/// Bytes that a push takes.
const WORD: i32 = 8;

/// Intel's compiler says of registers that they are restored one instruction before their `pop` (its vector functions
/// are part of numpy's `_multiarray_umath`), and GCC, where it realigns the stack by another register than r10, that
/// this one is, before the stack pointer is computed from it and it is popped (OpenCV's `cv2`). At most this number of
/// bytes.
///
/// GCC says of registers that were popped, or never pushed on the way to code that traps, that they are saved below the
/// stack pointer (node).
const EARLY: usize = 8;
/// Registers that are saved, in the order of slots.
const SAVED: [Register; 6] = [Register::RBX, Register::RBP, Register::R12, Register::R13, Register::R14, Register::R15];

/// Objects whose rows are not true in places, by a part of their names.
const OBJECTS: [(&str, &str); 6] = [
    ("local-extract", "Google's SDK: `lea -0x80(%rsp),%rsp; pushf`, put in after compiling, is not described"),
    ("libjsvml", "Intel's vector functions: rows say of registers that they are restored, one instruction before"),
    ("libmvec", "glibc's vector functions: pushes are counted where the CFA counts from rbp"),
    ("libgcrypt", "`pushf; popf` of inline assembly are not described; registers saved at places with the wrong sign"),
    ("/ocaml", "OCaml's functions keep no register for their callers, and rows say nothing of those that they save"),
    ("luajit", "LuaJIT's VM: the frame of the interpreter is described in the functions that it calls, too"),
];

/// Registers that are global variables of a program, by a part of its name, as indices of slots: code that is called by
/// others saves them by hand, and rows say that they are unchanged.
const VARIABLES: (&str, [usize; 2]) = ("opcache", [4, 5]);

/// Differences of an object that are shown.
const SHOWN: usize = 20;

fn is_wrong(function: &[u8]) -> bool {
    let has = |(at, bytes): &Mark| function.get(*at..).is_some_and(|rest| rest.starts_with(bytes));
    WRONG.iter().any(|(marks, _)| marks.iter().all(has))
}

#[derive(Clone, Copy, Default, Debug)]
struct Count {
    functions: u64,
    instructions: u64,
    known: u64,
    /// Not known, and only exceptions lead there.
    by_exceptions: u64,
    /// In functions whose rows are known to be wrong.
    wrong: u64,
    /// CPU time of the analysis alone.
    analysis: Duration,
}

/// Of this thread.
fn cpu_time() -> Duration {
    // SAFETY: two integers, which the call fills in.
    let mut time: libc::timespec = unsafe { std::mem::zeroed() };
    // SAFETY: the place is the call's alone.
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) }, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn rule_at(table: &Table<'_>, address: u64) -> Option<Rule> {
    match table.find(address) {
        TableAnswer::Short(rule) => rule.pack().unpack().ok(),
        TableAnswer::Long(rule) => rule.unpack().ok(),
        TableAnswer::Ask | TableAnswer::Nothing => None,
    }
}

/// For each register, whether these instructions pop it soon.
fn popped_soon(bytes: &[u8]) -> [bool; SAVED.len()] {
    let mut popped = [false; SAVED.len()];
    let decoder = Decoder::new(64, bytes, DecoderOptions::NONE);
    let near = decoder.into_iter().take_while(|instruction| instruction.ip() < EARLY as u64);
    for instruction in near.filter(|instruction| instruction.mnemonic() == Mnemonic::Pop) {
        let slot = SAVED.iter().position(|register| *register == instruction.op0_register());
        slot.into_iter().for_each(|slot| popped[slot] = true);
    }
    popped
}

/// The frame of these instructions, if nothing but a comparison and its jump stands before pops up to the end.
fn popped_to_end(bytes: &[u8]) -> Option<i32> {
    let mut pops = 0;
    for instruction in &mut Decoder::new(64, bytes, DecoderOptions::NONE) {
        match (instruction.mnemonic(), instruction.flow_control()) {
            (Mnemonic::Pop, _) => pops += 1,
            (_, FlowControl::Return | FlowControl::UnconditionalBranch) if pops > 0 => return Some((pops + 1) * WORD),
            (Mnemonic::Cmp | Mnemonic::Test, _) | (_, FlowControl::ConditionalBranch)
                if pops == 0 && instruction.ip() < LATE => {}
            _ => return None,
        }
    }
    None
}

/// Whether a jump leads to where a function begins and has, by the file, the frame that the code shows there. GCC lets
/// what can never happen jump to the end of the function's part: another function's part begins there.
fn jumps_with(image: &Image, code: &Code<'_>, table: &Table<'_>, to: u64, state: &State) -> bool {
    let leads_there = |instruction: &Instruction| {
        matches!(instruction.flow_control(), FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch)
            && instruction.near_branch_target() == to
    };
    image.functions().into_iter().map(|function| function.span).any(|span| {
        let Some(bytes) = code.part(span.start).and_then(|part| part.from(span.start)) else { return false };
        let decoder = Decoder::with_ip(64, bytes, span.start, DecoderOptions::NONE);
        let mut all = decoder.into_iter().take_while(|instruction| instruction.ip() < span.end);
        all.any(|at| leads_there(&at) && rule_at(table, at.ip()).is_some_and(|rule| row::follows(state, &rule)))
    })
}

/// Whether the code before a function runs into it with the frame that the code shows there. GCC ends what can never
/// run without a jump, before a part that exceptions enter: where unwind data is missing, none does.
fn runs_into(image: &Image, table: &Table<'_>, start: u64, state: &State) -> bool {
    let ends: Vec<u64> = image.functions().into_iter().map(|function| function.span.end).collect();
    // Or into the space before it.
    let mut before = (start - ALIGNMENT + 1..=start).rev().filter(|end| ends.contains(end));
    before.any(|end| rule_at(table, end - 1).is_some_and(|rule| row::follows(state, &rule)))
}

/// The instructions that exceptions lead to and nothing else, up to what is claimed.
fn by_exceptions(code: &Code<'_>, bytes: &[u8], found: &Found) -> HashSet<u64> {
    let claimed: HashSet<u64> = found.claims.iter().filter(|claim| claim.facts.is_some()).map(|c| c.address).collect();
    let mut seen = HashSet::new();
    let mut queue: Vec<u64> = landing_pads(bytes).into_iter().collect();
    while let Some(start) = queue.pop() {
        let Some(bytes) = code.part(start).and_then(|part| part.from(start)) else { continue };
        for at in &mut Decoder::with_ip(64, bytes, start, DecoderOptions::NONE) {
            if claimed.contains(&at.ip()) || at.is_invalid() || !seen.insert(at.ip()) {
                break;
            }
            let target = at.near_branch_target();
            match at.flow_control() {
                FlowControl::ConditionalBranch => queue.push(target),
                FlowControl::UnconditionalBranch => {
                    queue.push(target);
                    break;
                }
                FlowControl::Call if code.never.contains(&target) || code.begins_part(at.next_ip()) => break,
                FlowControl::Return | FlowControl::IndirectBranch | FlowControl::Exception => break,
                _ => {}
            }
        }
    }
    seen
}

/// `differing`: gets what is claimed and does not follow from the file's rows.
fn compare(path: &Path, differing: &mut Vec<String>) -> Option<Count> {
    let image = Image::open(path).ok()?;
    let bytes = image.read_file(0, image.len())?;
    let built = of_image(&image, 1).ok()?;
    let mut words = vec![0u64; built.len().div_ceil(8)];
    // SAFETY: integers, as bytes.
    let place = unsafe { words.align_to_mut::<u8>().1.get_mut(..built.len())? };
    place.copy_from_slice(&built);
    let table = Table::new(place).expect("what was built is a table");

    let code = Code::of_file(&bytes, &[]);
    let before = cpu_time();
    let found = analyse(&code, BUDGET);
    let analysis = cpu_time() - before;
    let by_exceptions = by_exceptions(&code, &bytes, &found);
    let mut claims = found.claims.iter().peekable();
    let mut count = Count { analysis, ..Count::default() };
    let is_listed = OBJECTS.iter().any(|(name, _)| path.to_string_lossy().contains(name));
    for function in image.functions() {
        let span = function.span;
        let Some(bytes) = code.part(span.start).and_then(|part| part.from(span.start)) else { continue };
        count.functions += 1;
        let mut decoder = Decoder::with_ip(64, bytes, span.start, DecoderOptions::NONE);
        let mut instruction = Instruction::default();
        // Where the last `add $n,%rsp` ends, and n.
        let mut freed: Option<(u64, i32)> = None;
        let mut is_unreachable = false;
        // Where the last push, or what aligns the stack before pushes, ends.
        let mut pushed = 0;
        while decoder.can_decode() && decoder.ip() < span.end {
            decoder.decode_out(&mut instruction);
            if matches!(instruction.mnemonic(), Mnemonic::Nop | Mnemonic::Int3) {
                continue;
            }
            count.instructions += 1;
            let ip = instruction.ip();
            let is_freed = instruction.mnemonic() == Mnemonic::Add && instruction.op0_register() == Register::RSP;
            if let Some(n) = instruction.try_immediate(1).ok().filter(|_| is_freed) {
                freed = Some((instruction.next_ip(), n as i32));
            }
            let pads = instruction.mnemonic() == Mnemonic::Sub
                && instruction.op0_register() == Register::RSP
                && instruction.try_immediate(1).is_ok_and(|n| n == WORD as u64);
            let pushes = matches!(instruction.mnemonic(), Mnemonic::Push | Mnemonic::Pushfq);
            if pushes || pads {
                pushed = instruction.next_ip();
            }
            while claims.next_if(|claim| claim.address < ip).is_some() {}
            let state = claims.peek().filter(|claim| claim.address == ip).and_then(|claim| found.facts_of(claim));
            let Some((state, rule)) = state.and_then(|state| Some((state, row::rule(state)?))) else {
                count.by_exceptions += u64::from(by_exceptions.contains(&ip));
                continue;
            };
            count.known += 1;
            let Some(theirs) = rule_at(&table, ip) else { continue };
            let has_caller = matches!(theirs.kind, RuleKind::Offset | RuleKind::Deref);
            // Where we claim nothing of a register, there is nothing to compare: inline assembly keeps rbx elsewhere
            // around `cpuid`, of which no row says anything.
            let mut compared = theirs;
            for (slot, ours) in compared.slots.iter_mut().zip(rule.slots) {
                *slot = if ours == UNKNOWN { UNKNOWN } else { *slot };
            }
            if path.to_string_lossy().contains(VARIABLES.0) {
                VARIABLES.1.into_iter().for_each(|slot| compared.slots[slot] = UNKNOWN);
            }
            if has_caller && row::follows(state, &compared) {
                continue;
            }
            let at = format!("{} at {ip:#x}, in the function at {:#x}", path.display(), span.start);
            is_unreachable |= ip == span.start
                && (jumps_with(&image, &code, &table, ip, state) || runs_into(&image, &table, ip, state));
            let late = freed.is_some_and(|(at, n)| ip < at + LATE && theirs.cfa_offset - rule.cfa_offset == n)
                || ip < pushed + LATE && rule.cfa_offset - theirs.cfa_offset == WORD
                || popped_to_end(bytes.get((ip - span.start) as usize..).unwrap_or_default()) == Some(rule.cfa_offset);
            // What a return takes is the return address, whatever a row says.
            let returns = instruction.mnemonic() == Mnemonic::Ret && rule.cfa_offset == WORD;
            let popped = popped_soon(bytes.get((ip - span.start) as usize..).unwrap_or_default());
            for (slot, popped) in popped.into_iter().enumerate() {
                let is_left = theirs.cfa_register == RSP && i32::from(theirs.slots[slot]) * WORD < -theirs.cfa_offset;
                if is_left || popped && theirs.slots[slot] == SAME {
                    compared.slots[slot] = UNKNOWN;
                }
            }
            let early = has_caller && row::follows(state, &compared);
            if late || early || returns || is_unreachable || is_listed || is_wrong(bytes) {
                count.wrong += 1;
            } else {
                differing.push(format!("{at}: from the code {rule:?}, by the file {theirs:?}"));
            }
        }
    }
    Some(count)
}

fn show(path: &Path, count: &Count) {
    let Count { functions, instructions, known, by_exceptions, wrong, analysis } = count;
    let share = |all: u64| *known as f64 * 100.0 / all.max(1) as f64;
    println!(
        "{}: {functions} functions, {instructions} instructions, {known} known ({:.1} %; {:.1} % of what not only \
         exceptions enter), {wrong} in functions whose rows are wrong, {:.2} s of analysis",
        path.display(),
        share(*instructions),
        share(instructions - by_exceptions),
        analysis.as_secs_f64()
    );
}

fn compare_all(paths: impl Iterator<Item = PathBuf>) -> Vec<(PathBuf, Count)> {
    let mut sum = Count::default();
    let (mut counts, mut differing) = (Vec::new(), Vec::new());
    for path in paths {
        let before = differing.len();
        let Some(count) = compare(&path, &mut differing) else { continue };
        show(&path, &count);
        differing.iter().skip(before).take(SHOWN).for_each(|difference| println!("  {difference}"));
        sum.functions += count.functions;
        sum.instructions += count.instructions;
        sum.known += count.known;
        sum.by_exceptions += count.by_exceptions;
        sum.wrong += count.wrong;
        sum.analysis += count.analysis;
        counts.push((path, count));
    }
    show(Path::new(&format!("{} objects", counts.len())), &sum);
    assert!(differing.is_empty(), "{} instructions differ, the first one:\n{}", differing.len(), differing[0]);
    counts
}

/// glibc's error(3) returns only where its first argument is zero: what follows other calls may be another function.
#[test]
fn a_call_that_ends_a_function_does_not_lead_to_the_next_one() {
    let folder = paths::scratch("from-code-error");
    // The call is the last instruction of its function, and functions stay in the file's order.
    let flags = ["-O2", "-s", "-fno-reorder-blocks-and-partition", "-fno-toplevel-reorder"];
    let program = compile::gcc(&folder, "ends", &["native/ends_in_error.c"], &flags);
    let mut differing = Vec::new();
    let count = compare(&program, &mut differing).expect("an object");
    assert!(differing.is_empty(), "{}", differing.join("\n"));
    // What follows the call that may return is known.
    assert!(count.known * 100 >= count.instructions * 60, "{count:?}");
}

/// GCC puts what seldom runs of many functions in a row: a call of a function that may return is followed by another
/// function's part, with another frame.
#[test]
fn parts_of_functions_do_not_lead_into_each_other() {
    let folder = paths::scratch("from-code-parts");
    let program = compile::gcc(&folder, "parts", &["native/parts_in_a_row.c"], &["-O2", "-s", "-fno-toplevel-reorder"]);
    let mut differing = Vec::new();
    let count = compare(&program, &mut differing).expect("an object");
    assert!(differing.is_empty(), "{}", differing.join("\n"));
    assert!(count.known * 100 >= count.instructions * 40, "{count:?}");
}

#[test]
fn no_row_from_code_contradicts_the_rows_of_the_file() {
    if let Some(paths) = std::env::var_os("UU_OBJECTS") {
        compare_all(std::env::split_paths(&paths));
        return;
    }
    if std::env::var_os("UU_CAMPAIGNS").is_some() {
        compare_all(all(usize::MAX).into_iter());
        return;
    }
    let is_small = |path: &PathBuf| std::fs::metadata(path).is_ok_and(|file| file.len() < MOST);
    let counts = compare_all(usual().into_iter().filter(is_small));
    assert!(!counts.is_empty(), "no object was compared");
    let of_c = |path: &Path| ["libsqlite3.so.0", "libz.so.1"].iter().any(|name| path.ends_with(name));
    for (path, count) in counts.iter().filter(|(path, _)| of_c(path)) {
        assert!(count.known * 100 >= count.instructions * KNOWN, "{}: {count:?}", path.display());
    }
}
