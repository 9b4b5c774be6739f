//! Rule tables of objects of all makes: what they are built of may differ, what they say may not.

use object::{Object, ObjectSegment, ObjectSymbol};
use std::path::{Path, PathBuf};
use std::process::Command;
use uunwind_core::memory::{Reader, Region};
use uunwind_core::rule::Packed;
use uunwind_core::span::Span;
use uunwind_elf::Image;
use uunwind_tables::format::{TableHead, FROM_CODE, FROM_DEBUG_FRAME, FROM_EH_FRAME};
use uunwind_tables::{Refused, Table, TableAnswer};
use uunwind_tables_build::{debug_frame, of_image, NoTable};

const SHAPES: &str = "
    int sink(void *p) { return *(int *)p; }
    int saves(int a, int b, int c) { int x[9]; x[0] = a; sink(x); sink(&b); sink(&c); return x[0] + a + b + c; }
    int varied(int n) { char x[n]; sink(x); return n; }
    int aligned(int n) { __attribute__((aligned(64))) int x[16]; x[n & 15] = n; sink(x); return x[0]; }
    int main(int argc, char **argv) { return saves(argc, 2, 3) + varied(argc) + aligned(argc); }
";
const FUNCTIONS: [&str; 5] = ["sink", "saves", "varied", "aligned", "main"];

fn compile(name: &str, options: &[&str]) -> PathBuf {
    compile_source(name, SHAPES, options)
}

fn compile_source(name: &str, text: &str, options: &[&str]) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("uu-rules-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a temporary folder");
    let (source, out) = (folder.join(format!("{name}.c")), folder.join(name));
    std::fs::write(&source, text).expect("a source file");
    let mut gcc = Command::new("gcc");
    gcc.args(["-O2", "-fno-inline", "-fno-ipa-icf"]).args(options);
    let done = gcc.arg("-o").arg(&out).arg(&source).output().expect("gcc runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    out
}

fn table_of(path: &Path) -> Vec<u8> {
    of_image(&Image::open(path).expect("an ELF file"), 1).expect("a table")
}

/// What the table says of each byte of each function.
fn rules(path: &Path, bytes: &[u8]) -> Vec<(String, Vec<Option<Packed>>)> {
    rules_of(&FUNCTIONS, path, bytes)
}

fn rules_of(functions: &[&str], path: &Path, bytes: &[u8]) -> Vec<(String, Vec<Option<Packed>>)> {
    let data = std::fs::read(path).expect("the file");
    let file = object::File::parse(&*data).expect("an ELF file");
    let table = Table::new(bytes).expect("a table");
    let of = |name: &str| {
        let symbol = file.symbols().find(|s| s.name() == Ok(name)).expect("not stripped");
        let function = Span::sized(symbol.address(), symbol.size());
        assert_eq!(table.function(function.start + 1), Some(function), "{name}");
        let rule = |pc| match table.find(pc) {
            TableAnswer::Short(rule) => Some(rule.pack()),
            TableAnswer::Long(rule) => Some(rule),
            TableAnswer::Ask | TableAnswer::Nothing => None,
        };
        (name.to_owned(), (function.start..function.end).map(rule).collect())
    };
    functions.iter().map(|name| of(name)).collect()
}

/// Which sections a table is made of. Start files leave some code without rows, which are made from it.
fn sources(bytes: &[u8]) -> u8 {
    TableHead::read(bytes).expect("a head").sources & !FROM_CODE
}

/// A function whose stack GCC realigns: in its epilogue rbp is the caller's before the stack pointer is, and its rows
/// say neither, so that the rule depends on the code.
const REALIGNED: &str = "
    int sink(void *p) { return *(int *)p; }
    int realigned(int n, int m) {
        __attribute__((aligned(64))) int x[16];
        char y[n];
        x[n & 15] = n;
        sink(x);
        sink(&m);
        for (int i = 0; i < n; i++) x[i & 15] += sink(y + i) * m;
        return x[0] + n + m;
    }
    int main(int argc, char **argv) { return realigned(argc, 2); }
";

#[test]
fn rows_that_depend_on_the_code_have_rules_in_debug_frame_too() {
    let described = compile_source("realigned", REALIGNED, &["-g"]);
    let data = std::fs::read(&described).expect("the file");
    let file = object::File::parse(&*data).expect("an ELF file");
    let symbol = file.symbols().find(|s| s.name() == Ok("realigned")).expect("not stripped");
    let function = Span::sized(symbol.address(), symbol.size());
    // What walks find in .eh_frame, which they interpret in place.
    let segments: Vec<Region<'_>> = file
        .segments()
        .map(|segment| Region { address: segment.address(), bytes: segment.data().expect("its bytes") })
        .collect();
    let image = Image::open(&described).expect("an ELF file");
    let index = image.segment(object::elf::PT_GNU_EH_FRAME).expect("an index").address;
    let mut reader = Reader::recorded(&segments);
    let in_place: Vec<Option<Packed>> = (function.start..function.end)
        .map(|pc| uunwind_eh_frame::find(index, Span::new(0, 1 << 32), pc, pc, &mut reader).ok()?.rule.ok())
        .map(|rule| rule.map(|rule| rule.pack()))
        .collect();
    let bytes = table_of(&described);
    let table = Table::new(&bytes).expect("a table");
    let asks = (function.start..function.end).filter(|pc| table.find(*pc) == TableAnswer::Ask).count();
    assert!(asks > 0, "GCC realigns stacks in another way: the test needs another function");
    assert_eq!(table.described_without_rule(function.end - 1), None);

    let debug = ["-g", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables"];
    let debug = compile_source("realigned-debug", REALIGNED, &debug);
    let bytes = table_of(&debug);
    let (_, from_debug) = rules_of(&["realigned"], &debug, &bytes).remove(0);
    let differing = || in_place.iter().zip(&from_debug).position(|(one, other)| one != other);
    assert!(from_debug == in_place, "at byte {:?} of the function", differing());
}

#[test]
fn every_make_of_unwind_information_says_the_same() {
    let usual = compile("usual", &["-g"]);
    let bytes = table_of(&usual);
    assert_eq!(sources(&bytes), FROM_EH_FRAME);
    let expected = rules(&usual, &bytes);
    assert!(expected.iter().all(|(_, rules)| rules.iter().all(Option::is_some)), "{expected:?}");

    let without_index = compile("no-hdr", &["-g", "-Wl,--no-eh-frame-hdr"]);
    let image = Image::open(&without_index).expect("an ELF file");
    assert!(image.segment(object::elf::PT_GNU_EH_FRAME).is_none());
    assert_eq!(rules(&without_index, &table_of(&without_index)), expected, "without .eh_frame_hdr");

    // The start files of libc have .eh_frame; the functions have .debug_frame only.
    let debug = compile("debug", &["-g", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables"]);
    let bytes = table_of(&debug);
    assert_eq!(sources(&bytes), FROM_EH_FRAME | FROM_DEBUG_FRAME);
    assert_eq!(rules(&debug, &bytes), expected, "from .debug_frame");

    for kind in ["zlib", "zlib-gnu", "zstd"] {
        let compressed = debug.with_file_name(kind);
        let option = format!("--compress-debug-sections={kind}");
        let done =
            Command::new("objcopy").arg(&option).args([&debug, &compressed]).output().expect("objcopy (binutils)");
        assert!(
            done.status.success(),
            "{option} (binutils 2.40 knows all three): {}",
            String::from_utf8_lossy(&done.stderr)
        );
        let image = Image::open(&compressed).expect("an ELF file");
        let section = |name: &[u8]| image.section(name).map(|section| section.size);
        let size = section(b".debug_frame").or_else(|| section(b".zdebug_frame"));
        let whole = Image::open(&debug).expect("an ELF file").section(b".debug_frame").expect("the section").size;
        assert!(size.is_some_and(|size| size < whole), "{kind}: {size:?} bytes of {whole}: is it compressed?");
        assert_eq!(debug_frame(&image).and_then(Result::err), None);
        assert_eq!(rules(&compressed, &table_of(&compressed)), expected, "from .debug_frame, compressed by {kind}");
    }

    // Without section headers: .eh_frame is where .eh_frame_hdr says.
    let mut data = std::fs::read(&usual).expect("the file");
    data[40..48].fill(0);
    data[58..64].fill(0);
    let bare = usual.with_file_name("bare");
    std::fs::write(&bare, data).expect("a file");
    assert_eq!(rules(&usual, &table_of(&bare)), expected, "without section headers");
}

/// The same code with and without unwind information: what the code says is what the compiler knew.
#[test]
fn without_unwind_information_the_code_says_the_same() {
    let usual = compile("with", &["-g"]);
    let without = ["-g0", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables"];
    let without = compile("without", &without);
    let (usual_table, bytes) = (table_of(&usual), table_of(&without));
    assert_eq!(TableHead::read(&bytes).expect("a head").sources, FROM_EH_FRAME | FROM_CODE);
    let (usual_table, table) = (Table::new(&usual_table).expect("a table"), Table::new(&bytes).expect("a table"));
    let function = |path: &Path, name: &str| {
        let data = std::fs::read(path).expect("the file");
        let file = object::File::parse(&*data).expect("an ELF file");
        let symbol = file.symbols().find(|s| s.name() == Ok(name)).expect("not stripped");
        Span::sized(symbol.address(), symbol.size())
    };
    for name in FUNCTIONS {
        let (one, other) = (function(&usual, name), function(&without, name));
        assert_eq!(one.end - one.start, other.end - other.start, "{name}: another code");
        let mut starts = 0;
        for at in 0..one.end - one.start {
            assert!(table.is_by_code(other.start + at) && !usual_table.is_by_code(one.start + at), "{name}+{at}");
            assert_eq!(table.function(other.start + at), None, "nothing describes it");
            // Both count from a register of their own choice.
            let (a, b) = (usual_table.find(one.start + at), table.find(other.start + at));
            if let (TableAnswer::Short(a), TableAnswer::Short(b)) = (a, b) {
                if a.pack().cfa_parts().0 == b.pack().cfa_parts().0 {
                    assert_eq!(a.pack().cfa_parts(), b.pack().cfa_parts(), "{name}+{at}");
                    starts += 1;
                }
            }
        }
        assert!(starts > 0, "{name}: nothing was compared");
    }
}

/// Nothing describes it, and its one function is not understood.
#[test]
fn a_file_of_which_nothing_is_known_has_no_table() {
    let none = ["-static", "-nostdlib", "-Wl,-e,main", "-fno-asynchronous-unwind-tables"];
    let lost = "__asm__(\".globl main\\n.type main,@function\\nmain: mov (%rdi),%rsp\\nret\\n.size main,.-main\");";
    let path = compile_source("none", lost, &none);
    assert_eq!(of_image(&Image::open(&path).expect("an ELF file"), 1), Err(NoTable::Nothing));
}

#[test]
fn a_table_of_another_version_is_refused() {
    let mut table = table_of(&compile("version", &[]));
    table[3] += 1;
    assert!(matches!(Table::new(&table), Err(Refused::Magic(_))));
}
