//! Every form in which compilers, linkers and objcopy keep debug information: split, compressed, separate, shared. The
//! oracle is addr2line over the same code with plain debug information: binutils' for gcc, LLVM's for clang.

use std::path::{Path, PathBuf};
use std::process::Command;
use uunwind_symbolize::question::Question;
use uunwind_symbolize::{answer, Elf};

/// A program of two files. Inlined functions have lines of their own, in calls and in what contains them.
const SOURCES: [(&str, &str); 2] = [
    (
        "a.c",
        "
#include \"shared.h\"
extern double other(double, struct shared *);
extern double elsewhere(double);
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
__attribute__((noinline)) double outermost(double x, struct shared *s) {
    return middle(x) * middle(x + 2) + elsewhere(s->a);
}
int main(int argc, char **argv) {
    struct shared s = {argc, argc + 1, {argc, argc}};
    return outermost(argc, &s) > other(argc, &s) ? s.b : 0;
}
",
    ),
    (
        "b.c",
        "
#include \"shared.h\"
double elsewhere(double x) {
    return x > 7 ? x * 1.25 : x * x;
}
static inline __attribute__((always_inline)) double twice(double x, struct shared *s) {
    s->a += x;
    return x * s->b;
}
__attribute__((noinline)) double other(double x, struct shared *s) {
    double y = twice(x, s);
    return y + twice(y, s);
}
",
    ),
];
const HEADER: &str = "struct shared { double a, b; struct { int c, d; } inner; };\n";
/// Functions whose every address is looked up.
const FUNCTIONS: [&str; 3] = ["outermost", "main", "other"];

/// A form: what it is called, the compiler, its options, and a line of the shell that runs afterwards. The line may
/// leave `a` without what it needs.
struct Form {
    name: &'static str,
    compiler: &'static str,
    options: &'static str,
    then: &'static str,
}

const fn gcc(name: &'static str, options: &'static str, then: &'static str) -> Form {
    Form { name, compiler: "gcc", options, then }
}

const fn clang(name: &'static str, options: &'static str, then: &'static str) -> Form {
    Form { name, compiler: "clang", options, then }
}

/// Moves the debug information into another file, which is found by its link.
const SEPARATE: &str = "objcopy --only-keep-debug a a.debug; strip a; objcopy --add-gnu-debuglink=a.debug a";

/// Packs split units by LLVM's tool. Of GCC's version 5 it does not end on many (up to LLVM 19), and binutils' dwp does
/// not read that version.
const PACK: &str = "timeout 20 LLVM-DWP -e a -o a.dwp || exit 77; rm ./*.dwo";

/// The same of GCC's version 4, by binutils' tool.
const PACK_4: &str = "command -v dwp >/dev/null || exit 77; dwp -e a -o a.dwp; rm ./*.dwo";
const PACK_ZSTD: &str = "command -v dwp >/dev/null || exit 77; dwp -e a -o a.dwp; rm ./*.dwo; \
                         objcopy --compress-debug-sections=zstd a.dwp";

/// Link-time optimization, which inlines functions of one unit into another one.
const LTO: &str = "-flto -fuse-ld=lld";
const LTO_SPLIT: &str = "-flto -fuse-ld=lld -gsplit-dwarf -Wl,--plugin-opt=dwo_dir=dwo";

/// Moves what two programs share into a third file.
const SHARE: &str = "command -v dwz >/dev/null || exit 77; cp a b; dwz -m common.dwz a b; \
                     readelf -SW a | grep -q altlink";
const SHARE_ZSTD: &str = "command -v dwz >/dev/null || exit 77; cp a b; dwz -m common.dwz a b; \
                          for f in a common.dwz; do objcopy --compress-debug-sections=zstd $f; done";

const FORMS: &[Form] = &[
    gcc("version 5", "", ""),
    gcc("version 4", "-gdwarf-4", ""),
    gcc("DWARF64", "-gdwarf64", ""),
    gcc("type units, version 4", "-gdwarf-4 -fdebug-types-section", ""),
    gcc("type units, version 5", "-fdebug-types-section", ""),
    gcc("zlib", "", "objcopy --compress-debug-sections=zlib a"),
    gcc("zlib-gnu", "", "objcopy --compress-debug-sections=zlib-gnu a"),
    gcc("zstd", "", "objcopy --compress-debug-sections=zstd a"),
    gcc("separate", "", SEPARATE),
    gcc(
        "separate, zstd",
        "",
        "objcopy --only-keep-debug --compress-debug-sections=zstd a a.debug; strip a; \
         objcopy --add-gnu-debuglink=a.debug a",
    ),
    gcc("dwz", "", SHARE),
    gcc("dwz, zstd", "", SHARE_ZSTD),
    gcc("split, version 5", "-gsplit-dwarf", "ls ./*.dwo >/dev/null"),
    gcc("split, version 4", "-gdwarf-4 -gsplit-dwarf", "ls ./*.dwo >/dev/null"),
    gcc("split, type units, version 4", "-gdwarf-4 -gsplit-dwarf -fdebug-types-section", ""),
    gcc("split, type units, version 5", "-gsplit-dwarf -fdebug-types-section", ""),
    gcc(
        "split, zstd",
        "-gsplit-dwarf",
        "for f in a ./*.dwo; do objcopy --compress-debug-sections=zstd $f; done; \
         readelf -SW a-a.dwo | grep 'debug_info.dwo.* C\\|debug_info.dwo.*EC'",
    ),
    gcc("split, separate", "-gsplit-dwarf", SEPARATE),
    gcc("packed by dwp, version 4", "-gdwarf-4 -gsplit-dwarf", PACK_4),
    gcc("packed, zstd", "-gdwarf-4 -gsplit-dwarf", PACK_ZSTD),
    gcc("packed by llvm-dwp, version 5", "-gsplit-dwarf", PACK),
    clang("clang, split, version 5", "-gsplit-dwarf", ""),
    clang("clang, split, version 4", "-gdwarf-4 -gsplit-dwarf", ""),
    clang("clang, split, type units", "-gsplit-dwarf -fdebug-types-section", ""),
    clang("clang, in object files", "-gsplit-dwarf=single -c", "CLANG -o a a.o b.o; ! ls ./*.dwo 2>/dev/null"),
    clang("clang, packed by llvm-dwp, version 5", "-gsplit-dwarf", PACK),
    clang("clang, packed by llvm-dwp, version 4", "-gdwarf-4 -gsplit-dwarf", PACK),
    clang("clang, packed, type units", "-gsplit-dwarf -fdebug-types-section", PACK),
    clang(".debug_names", "-glldb -gpubnames", ""),
    clang("clang, link-time optimization", LTO, ""),
    clang("clang, split, link-time optimization", LTO_SPLIT, "ls dwo/*.dwo"),
];

/// A tool under its own name, or Debian's with a version.
fn tool(name: &str) -> Option<String> {
    let versions = (11..25).rev().map(|version| format!("{name}-{version}"));
    [name.to_owned()].into_iter().chain(versions).find(|name| {
        let run = Command::new(name).arg("--version").output();
        run.is_ok_and(|output| output.status.success())
    })
}

fn folder(test: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("uu-forms-{test}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("temporary folder");
    for (name, source) in SOURCES.iter().chain(&[("shared.h", HEADER)]) {
        std::fs::write(folder.join(name), source).expect("source");
    }
    folder
}

fn output(command: &mut Command) -> String {
    let output = command.output().expect("a tool");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// Runs a line of the shell in a folder; its exit code.
fn run(folder: &Path, line: &str) -> i32 {
    let done = Command::new("sh").args(["-ec", line]).current_dir(folder).output().expect("sh");
    let code = done.status.code().expect("an exit code");
    assert!(matches!(code, 0 | 77), "{line}: {}", String::from_utf8_lossy(&done.stderr));
    code
}

/// Beginning and size of a function, from nm.
fn function(nm: &str, name: &str) -> (u64, u64) {
    let row = nm.lines().find(|row| row.ends_with(&format!(" {name}"))).expect("in the table");
    let mut words = row.split_whitespace().map(|w| u64::from_str_radix(w, 16).expect("hexadecimal"));
    (words.next().expect("address"), words.next().expect("size"))
}

/// A function at an address, innermost first: name, file, line.
type Place = (String, String, u32);

/// What addr2line says of each address, or llvm's.
fn truth(tool: &str, program: &Path, addresses: &[u64]) -> Vec<Vec<Place>> {
    let mut command = Command::new(tool);
    command.args(["-a", "-f", "-i", "-e"]).arg(program).args(addresses.iter().map(|address| format!("{address:#x}")));
    let mut all: Vec<Vec<Place>> = Vec::new();
    let out = output(&mut command);
    let mut lines = out.lines();
    while let Some(line) = lines.next() {
        if line.starts_with("0x") {
            all.push(Vec::new());
            continue;
        }
        let place = lines.next().expect("a place").split(" (discriminator").next().expect("a part");
        let (file, number) = place.rsplit_once(':').expect("a line");
        let last = all.last_mut().expect("an address before it");
        last.push((line.to_owned(), file.to_owned(), number.parse().unwrap_or(0)));
    }
    assert_eq!(all.len(), addresses.len());
    all
}

fn question(program: &Path, addresses: &[u64]) -> Question {
    let elf = Elf::read(program).expect("ELF");
    Question {
        object: 0,
        facts_key: uunwind_core::object_key::key(&elf.headers),
        build_id: elf.build_id,
        files: vec![program.to_owned()],
        folders: Vec::new(),
        addresses: addresses.to_vec(),
    }
}

/// What uu says, and its remark.
fn ours(question: &Question) -> (Vec<Vec<Place>>, String) {
    let symbols = answer(question);
    let places = symbols.entries.into_iter().map(|symbol| {
        let mut all: Vec<Place> = symbol.inlined.into_iter().map(|i| (i.name, i.file, i.line)).collect();
        all.push((symbol.name, symbol.file, symbol.line));
        all
    });
    let remark = symbols.unusable.into_iter().map(|(_, why)| why).collect();
    (places.collect(), remark)
}

/// Builds a form and its plain twin, `plain`, and lists the addresses of its functions with what addr2line says of the
/// twin. `None`: a tool is missing.
fn build(form: &Form, folder: &Path) -> Option<(Vec<u64>, Vec<Vec<Place>>)> {
    let missing =
        |tool: &str| uunwind_skips::skipped(&format!("debug information: {}", form.name), &format!("no {tool}"));
    let mut then = form.then.to_owned();
    let compiler = tool(form.compiler).or_else(|| {
        missing(form.compiler);
        None
    })?;
    if then.contains("LLVM-DWP") {
        let Some(dwp) = tool("llvm-dwp") else {
            missing("llvm-dwp");
            return None;
        };
        then = then.replace("LLVM-DWP", &dwp);
    }
    then = then.replace("CLANG", &compiler);
    let mut common = if form.compiler == "gcc" { "-O2 -fno-ipa-icf" } else { "-O2" }.to_owned();
    if form.options.contains(LTO) {
        if tool("ld.lld").is_none() {
            missing("ld.lld");
            return None;
        }
        common = format!("{common} {LTO}");
    }
    // The version of line tables and frames is the same, and so is the code.
    run(folder, &format!("{compiler} {common} -g -o plain a.c b.c"));
    let out = if form.options.contains(" -c") { "" } else { "-o a" };
    run(folder, &format!("{compiler} {common} -g {} {out} a.c b.c", form.options));
    if !out.is_empty() {
        run(folder, "cp a whole");
    }
    if run(folder, &then) == 77 {
        missing("tool for it");
        return None;
    }
    if out.is_empty() {
        run(folder, "cp a whole");
    }
    let nm = |name: &str| output(Command::new("nm").arg("-S").arg(folder.join(name)));
    let (plain, own) = (nm("plain"), nm("whole"));
    let (mut there, mut here) = (Vec::new(), Vec::new());
    for name in FUNCTIONS {
        let (start, size) = function(&plain, name);
        let (begin, same) = function(&own, name);
        assert_eq!(size, same, "{name}: the same code");
        there.extend(start..start + size);
        here.extend(begin..begin + size);
    }
    // binutils 2.40 loses some of clang's inlined functions.
    let oracle = if form.compiler == "clang" { tool("llvm-addr2line") } else { Some("addr2line".to_owned()) };
    let Some(oracle) = oracle else {
        missing("llvm-addr2line");
        return None;
    };
    Some((here, truth(&oracle, &folder.join("plain"), &there)))
}

#[test]
fn every_form_has_the_lines_and_inlined_functions_of_addr2line() {
    let mut served = 0;
    for (number, form) in FORMS.iter().enumerate() {
        let folder = folder(&format!("whole-{number}"));
        let Some((addresses, expected)) = build(form, &folder) else { continue };
        let (found, remark) = ours(&question(&folder.join("a"), &addresses));
        assert_eq!(remark, "", "{}", form.name);
        for ((found, expected), address) in found.iter().zip(&expected).zip(&addresses) {
            assert_eq!(found, expected, "{}: {address:#x}", form.name);
        }
        let inlined = found.iter().filter(|places| places.len() > 1).count();
        assert!(inlined > 30, "{}: the compiler inlined: {inlined}", form.name);
        served += 1;
        std::fs::remove_dir_all(folder).expect("cleaned");
    }
    assert!(served >= 12, "forms that gcc and objcopy make: {served}");
}

/// Where nothing but the skeleton is there, no line is one of an inlined function.
#[test]
fn what_is_missing_is_said_and_costs_no_more_than_lines() {
    let forms = [
        (gcc("missing", "-gsplit-dwarf", "rm ./*.dwo"), "no such file"),
        (gcc("missing, version 4", "-gdwarf-4 -gsplit-dwarf", "rm ./*.dwo"), "no such file"),
        (
            gcc(
                "another build's",
                "-gsplit-dwarf",
                "gcc -O1 -g -gsplit-dwarf -o a-a.dwo -o other a.c b.c; \
                 mv other-a.dwo a-a.dwo; mv other-b.dwo a-b.dwo",
            ),
            "of another build",
        ),
        (gcc("no file of this kind", "-gsplit-dwarf", "cp a.c a-a.dwo; cp a.c a-b.dwo"), "a-a.dwo: "),
        (gcc("FIFOs", "-gsplit-dwarf", "rm ./*.dwo; mkfifo a-a.dwo a-b.dwo a.dwp"), "no such file"),
        (gcc("devices", "-gsplit-dwarf", "for f in ./*.dwo; do ln -sf /dev/zero $f; done"), "no such file"),
        (gcc("without content", "-gsplit-dwarf", "for f in ./*.dwo; do ln -sf /proc/self/maps $f; done"), "empty"),
        (gcc("cut", "-gsplit-dwarf", "for f in ./*.dwo; do truncate -s 200 $f; done"), "a-a.dwo: "),
        (
            gcc(
                "a package of another build",
                "-gdwarf-4 -gsplit-dwarf",
                "command -v dwp >/dev/null || exit 77; \
                 gcc -O1 -gdwarf-4 -gsplit-dwarf -o other a.c b.c; dwp -e other -o a.dwp; rm ./*.dwo",
            ),
            "of another build",
        ),
        (clang("clang, missing", "-gsplit-dwarf", "rm ./*.dwo"), "no such file"),
    ];
    for (number, (form, why)) in forms.iter().enumerate() {
        let folder = folder(&format!("missing-{number}"));
        let Some((addresses, expected)) = build(form, &folder) else { continue };
        let (found, remark) = ours(&question(&folder.join("a"), &addresses));
        assert!(remark.contains("of 2 source files") && remark.contains(why), "{}: {remark}", form.name);
        for (found, expected) in found.iter().zip(&expected) {
            let (name, ..) = expected.last().expect("a function");
            assert_eq!(found[..], [(name.clone(), String::new(), 0)], "{}", form.name);
        }
        std::fs::remove_dir_all(folder).expect("cleaned");
    }
}

/// Clang can leave functions with inlined ones in the skeleton: these are whole without the rest.
#[test]
fn a_skeleton_with_inlined_functions_is_used() {
    let form = clang("clang, inlined functions in the skeleton", "-gsplit-dwarf -fsplit-dwarf-inlining", "rm ./*.dwo");
    let folder = folder("skeleton");
    let Some((addresses, expected)) = build(&form, &folder) else { return };
    let (found, _) = ours(&question(&folder.join("a"), &addresses));
    let (mut whole, mut bare) = (0, 0);
    for (found, expected) in found.iter().zip(&expected) {
        if expected.len() > 1 || found[0].2 != 0 {
            assert_eq!(found, expected);
            whole += 1;
        } else {
            assert_eq!((found.len(), &found[0].0), (1, &expected[0].0));
            bare += 1;
        }
    }
    assert!(whole > 30 && bare > 0, "{whole} {bare}");
    std::fs::remove_dir_all(folder).expect("cleaned");
}

/// The program, its split units and its package need not lie where they were made.
#[test]
fn files_are_found_in_each_of_their_places() {
    let places = [
        ("beside it", "mkdir there; mv a a-a.dwo a-b.dwo there", "there/a", None),
        ("in a folder, by name", "mkdir d; mv a-a.dwo a-b.dwo d", "a", Some("d")),
        ("in a folder, by path", "mkdir -p d/$PWD; mv a-a.dwo a-b.dwo d/$PWD", "a", Some("d")),
        ("through a link", "mkdir there bin; mv a a-a.dwo a-b.dwo there; ln -s ../there/a bin/b", "bin/b", None),
    ];
    let packages = [
        ("a package through a link", "mkdir there; mv a a.dwp there; ln -s there/a b", "b", None),
        ("a package in a folder", "mkdir d; mv a.dwp d", "a", Some("d")),
        (
            "a package beside the debug file",
            "mkdir -p .debug; objcopy --only-keep-debug a .debug/a.debug; strip a; \
          objcopy --add-gnu-debuglink=.debug/a.debug a; mv a.dwp .debug/a.debug.dwp",
            "a",
            None,
        ),
    ];
    let split = gcc("places", "-gsplit-dwarf", "");
    let packed = gcc(
        "places of packages",
        "-gdwarf-4 -gsplit-dwarf",
        "command -v dwp >/dev/null || exit 77; \
                      dwp -e a -o a.dwp; rm ./*.dwo",
    );
    let all = places.iter().map(|place| (&split, place)).chain(packages.iter().map(|place| (&packed, place)));
    for (number, (form, (name, line, program, debug))) in all.enumerate() {
        let folder = folder(&format!("places-{number}"));
        let Some((addresses, expected)) = build(form, &folder) else { continue };
        run(&folder, line);
        let mut question = question(&folder.join(program), &addresses);
        question.folders.extend(debug.map(|debug| folder.join(debug)));
        let (found, remark) = ours(&question);
        assert_eq!((&*remark, found), ("", expected), "{name}");
        std::fs::remove_dir_all(folder).expect("cleaned");
    }
}

/// Rust's own forms: as a linker leaves it, split, and packed by rustc. Addr2line over the first is the oracle.
#[test]
fn rusts_split_forms_have_the_lines_of_the_whole_one() {
    const SOURCE: &str = "
#[inline(always)]
fn twice(x: u64) -> u64 {
    x.wrapping_mul(3).rotate_left(7) ^ std::hint::black_box(x)
}
#[inline(never)]
#[no_mangle]
fn other(x: u64) -> u64 {
    let y = twice(x);
    (0..y & 7).map(twice).sum::<u64>() + y
}
fn main() {
    println!(\"{}\", other(std::env::args().count() as u64));
}
";
    let built = |split: &str| {
        let folder = folder(&format!("rust-{split}"));
        std::fs::write(folder.join("p.rs"), SOURCE).expect("source");
        // The source under one name, and the program and its files each in a folder of its own.
        run(
            &folder,
            &format!("rustc -O -g -C split-debuginfo={split} --remap-path-prefix=$PWD=/source --out-dir out p.rs"),
        );
        let nm = output(Command::new("nm").arg("-S").arg(folder.join("out/p")));
        let (start, size) = function(&nm, "other");
        (folder, (start..start + size).collect::<Vec<u64>>())
    };
    let (folder, addresses) = built("off");
    let mut truth = truth("addr2line", &folder.join("out/p"), &addresses);
    truth.iter_mut().flatten().for_each(|place| place.0 = uunwind_symbolize::demangle(&place.0));
    assert!(truth.iter().any(|places| places.len() > 1), "{truth:?}");
    for split in ["off", "unpacked", "packed"] {
        let (folder, own) = built(split);
        assert_eq!(own.len(), addresses.len(), "the same code");
        let (found, remark) = ours(&question(&folder.join("out/p"), &own));
        assert_eq!(remark, "", "{split}");
        for (found, truth) in found.iter().zip(&truth) {
            assert_eq!(found, truth, "{split}");
        }
        let has = |suffix: &str| {
            let files = std::fs::read_dir(folder.join("out")).expect("its folder");
            files.flatten().any(|file| file.file_name().to_string_lossy().ends_with(suffix))
        };
        assert_eq!((has(".dwo"), has(".dwp")), (split == "unpacked", split == "packed"), "{split}");
        std::fs::remove_dir_all(folder).expect("cleaned");
    }
}

/// A crafted file: functions inlined into each other a hundred thousand times, which no stack has room for.
#[test]
fn deep_nesting_costs_lines_and_nothing_else() {
    for (levels, whole) in [(100u32, true), (100_000, false)] {
        let folder = folder(&format!("deep-{levels}"));
        let source = format!(
            "
        .text
        .globl  _start
        .type   _start, @function
_start: .skip   16, 0x90
end:    .size   _start, . - _start
        .section .debug_abbrev, \"\", @progbits
        .uleb128 1, 0x11
        .byte   1
        .uleb128 0x11, 0x01, 0x12, 0x01, 0, 0
        .uleb128 2, 0x2e
        .byte   1
        .uleb128 0x03, 0x08, 0x11, 0x01, 0x12, 0x01, 0, 0
        .uleb128 3, 0x1d
        .byte   1
        .uleb128 0x03, 0x08, 0x11, 0x01, 0x12, 0x01, 0, 0
        .byte   0
        .section .debug_info, \"\", @progbits
        .long   last - first
first:  .short  4
        .long   .debug_abbrev
        .byte   8
        .uleb128 1
        .quad   _start, end
        .uleb128 2
        .asciz  \"_start\"
        .quad   _start, end
        .rept   {levels}
        .uleb128 3
        .asciz  \"inner\"
        .quad   _start, end
        .endr
        .skip   {levels} + 2, 0
last:
"
        );
        std::fs::write(folder.join("deep.s"), source).expect("source");
        run(&folder, "gcc -nostdlib -static -Wl,--build-id -o deep deep.s");
        let nm = output(Command::new("nm").arg("-S").arg(folder.join("deep")));
        let (start, _) = function(&nm, "_start");
        let (found, remark) = ours(&question(&folder.join("deep"), &[start + 3]));
        let (name, ..) = found[0].last().expect("a function");
        assert_eq!(name, "_start");
        if whole {
            assert_eq!((found[0].len(), &*remark), (levels as usize + 1, ""));
        } else {
            assert!(found[0].len() == 1 && remark.contains("levels of inlined functions"), "{remark}");
        }
        std::fs::remove_dir_all(folder).expect("cleaned");
    }
}
