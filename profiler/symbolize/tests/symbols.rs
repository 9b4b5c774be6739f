//! Names, lines and inlined functions, compared with binutils' addr2line for a program that the test builds.

use std::path::{Path, PathBuf};
use std::process::Command;
use uunwind_core::frame::{native_word, FLAG_EXACT};
use uunwind_recording::objects::ObjectMap;
use uunwind_recording::{Node, Object, Process, Recording, Sample, Symbol, Thread};
use uunwind_symbolize::{own_path, symbolize, Elf};

const SOURCE: &str = "
#include <stdlib.h>
static inline __attribute__((always_inline)) double innermost(double x) {
    for (int i = 0; i < 10; i++)
        x = x * 1.5 + i;
    return x;
}
static inline __attribute__((always_inline)) double middle(double x) {
    if (x > 3)
        return innermost(x) + 1;
    return innermost(-x);
}
__attribute__((noinline)) double outermost(double x) {
    return middle(x) * middle(x + 2);
}
int main(int argc, char **argv) {
    return outermost(argc) > 7 ? abort(), 1 : 0;
}
";

fn folder(test: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("uu-report-{test}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("temporary folder");
    folder
}

fn build(folder: &Path, options: &[&str]) -> PathBuf {
    std::fs::write(folder.join("a.c"), SOURCE).expect("source");
    let mut cc = Command::new("cc");
    assert!(cc.args(options).args(["-o", "a", "a.c"]).current_dir(folder).status().expect("cc").success());
    folder.join("a")
}

fn output(command: &mut Command) -> String {
    let output = command.output().expect("binutils");
    assert!(output.status.success());
    String::from_utf8(output.stdout).expect("text")
}

/// A recording whose stacks are these addresses of one object, mapped at `bias`.
fn recording(program: &Path, addresses: &[u64], bias: u64) -> Recording {
    let elf = Elf::read(program).expect("ELF");
    let facts_key = uunwind_core::object_key::key(if elf.build_id.is_empty() { &elf.headers } else { &elf.build_id });
    let object = Object {
        bias,
        start: bias,
        end: bias + 0x10_0000,
        facts_key,
        build_id: elf.build_id,
        path: program.to_str().expect("text").as_bytes().to_vec(),
        ..Object::default()
    };
    let word = |address: &u64| native_word(bias + address, FLAG_EXACT);
    let sample = |stack| Sample { thread: 0, stack, time: 0, weight: 1, stop: 1, kind: 0, flags: 0 };
    Recording {
        processes: vec![Process::default()],
        threads: vec![Thread::default()],
        objects: vec![object],
        nodes: addresses.iter().map(|a| Node { parent: 0, word: word(a), position: 0 }).collect(),
        samples: (1..=addresses.len() as u32).map(sample).collect(),
        ..Recording::default()
    }
}

fn look_up(program: &Path, addresses: &[u64]) -> Vec<Symbol> {
    let recording = recording(program, addresses, 0x5555_0000_0000);
    let symbols = symbolize(&recording, &mut ObjectMap::new(&recording), &own_path);
    assert_eq!(symbols.unusable, []);
    symbols.entries
}

/// Start and size of a function, from nm.
fn function(program: &Path, name: &str) -> (u64, u64) {
    let table = output(Command::new("nm").arg("-S").arg(program));
    let row = table.lines().find(|row| row.ends_with(&format!(" {name}"))).expect("in the table");
    let mut words = row.split_whitespace().map(|w| u64::from_str_radix(w, 16).expect("hexadecimal"));
    (words.next().expect("address"), words.next().expect("size"))
}

#[test]
fn every_address_of_a_function_agrees_with_addr2line() {
    let dir = folder("symbols");
    let program = build(&dir, &["-O2", "-g", "-Wl,--build-id"]);
    let (start, size) = function(&program, "outermost");
    let addresses: Vec<u64> = (start..start + size).collect();
    let symbols = look_up(&program, &addresses);
    assert_eq!(symbols.len(), addresses.len());
    let mut inlined = 0;
    for symbol in &symbols {
        assert_eq!((symbol.name.as_str(), symbol.start), ("outermost", start));
        let mut ours: Vec<(&str, &str, u32)> =
            symbol.inlined.iter().map(|i| (i.name.as_str(), i.file.as_str(), i.line)).collect();
        ours.push((&symbol.name, &symbol.file, symbol.line));
        inlined += ours.len() - 1;
        let address = format!("{:#x}", symbol.address);
        let truth = output(Command::new("addr2line").args(["-f", "-i", "-e"]).arg(&program).arg(&address));
        let truth: Vec<&str> = truth.lines().collect();
        assert_eq!(ours.len(), truth.len() / 2, "{address}: {truth:?}");
        for (our, truth) in ours.iter().zip(truth.chunks(2)) {
            assert_eq!(our.0, truth[0], "{address}");
            let place = truth[1].split(" (discriminator").next().expect("a part");
            // addr2line prints `?` for line 0 (no line).
            let line = if our.2 == 0 { "?".to_owned() } else { our.2.to_string() };
            assert_eq!(format!("{}:{line}", our.1), place, "{address}");
        }
    }
    assert!(inlined > 20, "the compiler inlined: {inlined}");
    std::fs::remove_dir_all(dir).expect("cleaned");
}

#[test]
fn a_file_that_changed_gives_no_names() {
    let dir = folder("changed");
    let program = build(&dir, &["-O1", "-Wl,--build-id"]);
    let (start, _) = function(&program, "main");
    let recording = recording(&program, &[start], 0);
    let symbols = symbolize(&recording, &mut ObjectMap::new(&recording), &own_path);
    assert_eq!(symbols.entries[0].name, "main");
    build(&dir, &["-O2", "-g", "-Wl,--build-id"]);
    let symbols = symbolize(&recording, &mut ObjectMap::new(&recording), &own_path);
    assert!(symbols.entries.is_empty() && symbols.unusable[0].1.contains("the file changed"), "{symbols:?}");
    // A copy that was kept is found after it.
    let kept = build(&folder("kept"), &["-O1", "-Wl,--build-id"]);
    let files = |o: &Object| [own_path(o), vec![kept.clone()]].concat();
    assert_eq!(symbolize(&recording, &mut ObjectMap::new(&recording), &files).entries[0].name, "main");
    std::fs::remove_dir_all(kept.parent().expect("folder")).expect("cleaned");
    std::fs::remove_dir_all(dir).expect("cleaned");
}

#[test]
fn without_a_build_id_the_headers_vouch() {
    let dir = folder("headers");
    let program = build(&dir, &["-O1", "-Wl,--build-id=none"]);
    let (start, _) = function(&program, "main");
    let recording = recording(&program, &[start], 0);
    let symbols = symbolize(&recording, &mut ObjectMap::new(&recording), &own_path);
    assert_eq!(symbols.entries[0].name, "main");
    build(&dir, &["-O2", "-static", "-Wl,--build-id=none"]);
    let symbols = symbolize(&recording, &mut ObjectMap::new(&recording), &own_path);
    assert!(symbols.unusable[0].1.contains("not those that were mapped"), "{symbols:?}");
    std::fs::remove_dir_all(dir).expect("cleaned");
}

#[test]
fn code_that_no_symbol_covers_stays_unnamed() {
    let dir = folder("plt");
    let program = build(&dir, &["-O1", "-Wl,--build-id"]);
    let sections = output(Command::new("readelf").args(["-SW"]).arg(&program));
    let plt = sections.lines().find(|l| l.contains(" .plt ")).expect("a PLT");
    let mut words = plt.split_once("PROGBITS").expect("its type").1.split_whitespace();
    let start = u64::from_str_radix(words.next().expect("address"), 16).expect("hexadecimal");
    assert_eq!(look_up(&program, &[start, start + 16])[0].name, "", "not that of a symbol in another section");
    assert!(Command::new("strip").arg(&program).status().expect("strip").success());
    let (text, _) = (start + 0x100, ());
    assert_eq!(look_up(&program, &[text])[0].name, "", "a stripped program has no names");
    std::fs::remove_dir_all(dir).expect("cleaned");
}

/// Every FDE of a few objects, against readelf.
#[test]
fn functions_of_stripped_code_agree_with_readelf() {
    let dir = folder("fdes");
    let mut objects = vec![build(&dir, &["-O2", "-s"])];
    objects.extend(["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/libc.so.6", "/bin/sh"].map(PathBuf::from));
    let mut checked = 0;
    for object in objects.iter().filter(|o| o.exists()) {
        let dump = output(Command::new("readelf").args(["--debug-dump=frames,no-follow-links"]).arg(object));
        let ranges =
            dump.lines().filter(|l| l.contains(" FDE ")).filter_map(|l| l.split_once("pc=")?.1.split_once(".."));
        let hexadecimal = |s: &str| u64::from_str_radix(s.trim(), 16).expect("hexadecimal");
        let ranges: Vec<(u64, u64)> =
            ranges.map(|(a, b)| (hexadecimal(a), hexadecimal(b))).filter(|(a, b)| a < b).collect();
        let addresses: Vec<u64> = ranges.iter().flat_map(|(a, b)| [*a, (a + b) / 2, b - 1]).collect();
        let found = uunwind_symbolize::functions::covering(object, &addresses).expect("a table");
        for ((start, end), found) in ranges.iter().zip(found.chunks(3)) {
            assert!(
                found.iter().all(|f| *f == Some(*start..*end)),
                "{}: {start:#x}..{end:#x}: {found:x?}",
                object.display()
            );
        }
        let after = ranges.iter().map(|r| r.1).max().expect("ranges");
        assert_eq!(uunwind_symbolize::functions::covering(object, &[after, 0]).expect("a table"), [None, None]);
        checked += ranges.len();
    }
    assert!(checked > 1000, "{checked} functions");
    std::fs::remove_dir_all(dir).expect("cleaned");
}

/// Link-time optimization with debug information leaves symbols without a type whose values are offsets in
/// `.debug_info` and look like addresses of code. Its functions, as nm lists them, are the oracle.
#[test]
fn symbols_of_debug_information_name_no_code() {
    let dir = folder("lto");
    let files: Vec<String> = (0..40).map(|n| format!("f{n}.c")).collect();
    for (n, file) in files.iter().enumerate() {
        let steps: String = (0..60).map(|step| format!("x = x * {step} + y; ")).collect();
        let function =
            format!("__attribute__((noinline)) int f{n}(volatile int x, volatile int y) {{ {steps}return x; }}\n");
        let types: String = (0..4).map(|t| format!("struct s{n}_{t} {{ int a, b; }} v{n}_{t};\n")).collect();
        std::fs::write(dir.join(file), types + &function).expect("source");
    }
    let calls: String = (0..files.len()).map(|n| format!("int f{n}(int, int); ")).collect();
    let sum: String = (0..files.len()).map(|n| format!("+ f{n}(c, c) ")).collect();
    std::fs::write(dir.join("main.c"), format!("{calls}int main(int c) {{ return 0 {sum}; }}\n")).expect("source");
    let mut cc = Command::new("cc");
    cc.args(["-O1", "-g", "-flto=1", "-Wl,--build-id", "-o", "a", "main.c"]).args(&files).current_dir(&dir);
    assert!(cc.status().expect("cc").success());
    let program = dir.join("a");
    let sections = output(Command::new("readelf").args(["-SW"]).arg(&program));
    let debug = sections.lines().find(|line| line.contains(" .debug_info ")).expect("debug information");
    let debug = debug.trim_start().trim_start_matches('[').split(']').next().expect("its number").to_owned();
    let symbols = output(Command::new("readelf").args(["-sW"]).arg(&program));
    let (mut decoys, mut checked) = (Vec::new(), 0);
    for line in symbols.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let [_, value, _, "NOTYPE", _, _, section, _] = words[..] {
            decoys.extend((section == debug).then(|| u64::from_str_radix(value, 16).expect("hexadecimal")));
        }
    }
    for n in 0..files.len() {
        let name = format!("f{n}");
        let (start, size) = function(&program, &name);
        let addresses: Vec<u64> = (start..start + size).collect();
        for symbol in look_up(&program, &addresses) {
            assert_eq!((symbol.name.as_str(), symbol.start), (name.as_str(), start), "{:#x}", symbol.address);
        }
        checked += decoys.iter().filter(|decoy| (start..start + size).contains(decoy)).count();
    }
    assert!(
        checked > 5,
        "symbols of .debug_info that read like addresses in these functions: {checked} of {decoys:x?}"
    );
    std::fs::remove_dir_all(dir).expect("cleaned");
}

/// Labels inside functions, functions in functions, functions without a size, one place with several names. The oracle
/// is the assembler's own list of symbols, read as the gABI defines them.
#[test]
fn a_function_that_covers_an_address_comes_before_labels() {
    let dir = folder("labels");
    let source = "
        .text
        .globl  whole, _alias, outer, bare, sized_label, other
        .type   whole, @function
        .type   _alias, @function
whole:
_alias: .skip 16, 0x90
inside: .skip 16, 0x90
        .size   whole, . - whole
        .size   _alias, . - _alias
        .skip   16, 0x90
        .type   outer, @function
outer:  .skip 16, 0x90
        .type   inner, @function
inner:  .skip 16, 0x90
        .size   inner, . - inner
        .skip   16, 0x90
        .size   outer, . - outer
bare:   .skip 16, 0x90
sized_label: .skip 16, 0x90
        .size   sized_label, . - sized_label
        .skip   16, 0x90
        .type   data, @object
data:   .skip 16, 0x90
        .size   data, . - data
last:   .skip 16, 0x90
        .section elsewhere, \"ax\", @progbits
        .skip   16, 0x90
        .type   other, @function
other:  .skip 16, 0x90
        .set    far_away, 0x5
        .data
        .skip   4096
value:  .long 1
";
    std::fs::write(dir.join("a.s"), source).expect("source");
    let mut cc = Command::new("cc");
    let options = ["-shared", "-nostdlib", "-Wl,--build-id", "-o", "a.so", "a.s"];
    assert!(cc.args(options).current_dir(&dir).status().expect("cc").success());
    let object = dir.join("a.so");
    let table = output(Command::new("nm").arg(&object));
    let address = |name: &str| {
        let row = table.lines().find(|row| row.ends_with(&format!(" {name}"))).expect("in the table");
        u64::from_str_radix(row.split(' ').next().expect("its address"), 16).expect("hexadecimal")
    };
    for (place, offset, name) in [
        ("whole", 0, "whole"),
        ("whole", 15, "whole"),
        ("inside", 0, "whole"),
        ("inside", 15, "whole"),
        ("inside", 16, ""),
        ("outer", 0, "outer"),
        ("inner", 0, "inner"),
        ("inner", 15, "inner"),
        ("inner", 16, "outer"),
        ("bare", 0, "bare"),
        ("bare", 15, "bare"),
        ("sized_label", 15, "sized_label"),
        ("sized_label", 16, ""),
        ("data", 8, ""),
        ("last", 15, "last"),
        ("other", 8, "other"),
        ("other", -8, ""),
        ("value", 0, ""),
    ] {
        let at = address(place).wrapping_add_signed(offset);
        let named = uunwind_symbolize::table::names(&object, &[at]).expect("a table").remove(0);
        let expected = (!name.is_empty()).then(|| (address(name), name.to_owned()));
        assert_eq!(named, expected, "{place} + {offset}");
    }
    std::fs::remove_dir_all(dir).expect("cleaned");
}
