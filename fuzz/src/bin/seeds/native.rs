//! ELF objects, their unwind tables, walks and scripts.

use crate::{output, scratch, seed, text};
use object::{Object, ObjectSection};
use std::fs;
use std::path::{Path, PathBuf};
use uunwind_built_in::HALVES;
use uunwind_elf::Image;
use uunwind_language::Finding;
use uunwind_symbolize::{debug_info, mini_debug};

/// Functions with frames of many shapes, of compilers and by hand.
const SHAPES: &str = r#"
    int sink(void *);
    int leaf(int n) { return n * 3; }
    int saves(int a, int b, int c) { int x[9]; x[0] = a; sink(x); sink(&b); sink(&c); return x[0] + a + b + c; }
    int varied(int n) { char x[n]; sink(x); return n; }
    int aligned(int n) { __attribute__((aligned(64))) int x[16]; x[n & 15] = n; sink(x); return x[0]; }
    __attribute__((cold)) int far(int n) { return n > 9 ? saves(n, n, n) : varied(n); }
    __asm__(".text\n.globl by_hand\n.type by_hand,@function\nby_hand:\n.cfi_startproc\n"
        "push %rbx\n.cfi_adjust_cfa_offset 8\n.cfi_rel_offset %rbx, 0\n.cfi_remember_state\n"
        "pop %rbx\n.cfi_adjust_cfa_offset -8\n.cfi_restore %rbx\nret\n.cfi_restore_state\n"
        "mov %rsp, %rbp\n.cfi_def_cfa_register %rbp\n.cfi_undefined %r12\n.cfi_same_value %r13\nnop\n"
        /* CFA = *(rsp + 16) + 8; r14 at an expression; r15 is a value. */
        ".cfi_escape 0x0f, 0x05, 0x77, 0x10, 0x06, 0x23, 0x08\n"
        ".cfi_escape 0x10, 0x0e, 0x02, 0x77, 0x20\n.cfi_escape 0x16, 0x0f, 0x02, 0x77, 0x28\nnop\n.cfi_endproc\n"
        ".size by_hand,.-by_hand\n"
        ".globl trampoline\n.type trampoline,@function\ntrampoline:\n.cfi_startproc simple\n.cfi_signal_frame\n"
        ".cfi_escape 0x0f, 0x04, 0x77, 0xa0, 0x01, 0x06\n.cfi_offset %rip, 168\nnop\n.cfi_endproc\n"
        ".globl outermost\noutermost:\n.cfi_startproc\n.cfi_undefined %rip\nnop\n.cfi_endproc\n");
"#;

/// The symbols of a CPython 3.11.
const PYTHON_3_11: &str = r#"
    const unsigned long Py_Version = 0x030b07f0;
    char _PyRuntime[1024] = {1};
    char PyCode_Type[64] = {1};
    int _PyEval_EvalFrameDefault(void) { return 1; }
    void *PyThread_tss_get(void *);
    void *PyGILState_GetThisThreadState(void) { return PyThread_tss_get(_PyRuntime + 592); }
"#;

/// The symbols of a CPython 3.13, with its table of offsets as `offsetof` gives it for 3.13.0.
const PYTHON_3_13: &str = r#"
    const unsigned long Py_Version = 0x030d00f0;
    unsigned long _PyRuntime[320] = {
        0x7970677562656478, 0x030d00f0, 0, 283320, 608, 632, 210000, 0, 7264, 7280, [19] = 304, 0, 8, [23] = 72, [24] = 152, [26] = 232, [28] = 80, 8, 0,
        56, [33] = 70, 208, 112, [37] = 128, 136, 68, [43] = 200, 16, 8, [64] = 40, 16, 32, 40, 32, 16, 40 };
    char PyCode_Type[64] = {1};
    int _PyEval_EvalFrameDefault(void) { return 1; }
    void *PyThread_tss_get(void *);
    void *PyGILState_GetThisThreadState(void) { return PyThread_tss_get((char *)_PyRuntime + 2160); }
"#;

const SMALL: &[&str] =
    &["-O1", "-nostdlib", "-s", "-Wl,-z,noseparate-code,-z,max-page-size=4096,-z,norelro", "-Wl,--build-id=sha1"];

fn compile(name: &str, source: &str, options: &[&str]) -> PathBuf {
    let (input, out) = (scratch().join(format!("{name}.c")), scratch().join(name));
    fs::write(&input, source).expect("a source file");
    let mut all = SMALL.to_vec();
    all.extend(options);
    all.extend(["-o", text(&out), text(&input)]);
    output("gcc", &all);
    out
}

/// A small copy of what Go makes: its unwind information, some of it contradicting the code (unusable, since there is
/// no `.eh_frame`), and its names.
fn assembled(name: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../tests/targets/go/{name}.s"));
    let out = scratch().join(name);
    let unstripped = SMALL.iter().filter(|option| **option != "-s");
    let mut all: Vec<&str> = unstripped.copied().chain(["-static", "-no-pie", "-Wl,-e,0"]).collect();
    all.extend(["-o", text(&out), text(&source)]);
    output("gcc", &all);
    out
}

/// A stripped program whose symbols are compressed in its section `.gnu_debugdata`.
fn mini_debug() -> PathBuf {
    let path = |name: &str| scratch().join(name);
    let (source, whole, mini) = (path("mini-debug.c"), path("mini-debug-whole"), path("mini-debug-symbols"));
    let (compressed, out) = (path("mini-debug.xz"), path("mini-debug"));
    fs::write(&source, PROGRAM).expect("a source file");
    let unstripped = SMALL.iter().filter(|option| **option != "-s").copied();
    output("gcc", &unstripped.chain(["-static", "-o", text(&whole), text(&source)]).collect::<Vec<_>>());
    output("objcopy", &["-S", "--keep-symbol=_start", text(&whole), text(&mini)]);
    fs::write(&compressed, output("xz", &["-9", "-c", text(&mini)])).expect("scratch");
    let section = format!(".gnu_debugdata={}", text(&compressed));
    output("objcopy", &["-S", "--add-section", &section, text(&whole), text(&out)]);
    out
}

/// Programs with an inlined function, in a split unit within the same file, in a package there, and compressed by zstd.
fn debug_forms() -> Vec<(&'static str, PathBuf)> {
    let path = |name: &str| scratch().join(name);
    let source = path("inlined.c");
    fs::write(&source, INLINED).expect("a source file");
    let built = |name: &str, options: &[&str]| {
        let out = path(name);
        let unstripped = SMALL.iter().filter(|option| **option != "-s").copied();
        let all = unstripped.chain(["-static", "-fno-asynchronous-unwind-tables"]).chain(options.iter().copied());
        // No path of this machine stays in it.
        let map = format!("-ffile-prefix-map={}=.", text(&scratch()));
        output("gcc", &all.chain([&*map, "-o", name, "inlined.c"]).collect::<Vec<_>>());
        out
    };
    let with_sections_of = |program: &Path, split: &Path, out: &str| {
        let (file, mut add) = (fs::read(split).expect("an object"), Vec::new());
        for section in object::File::parse(&*file).expect("an ELF file").sections() {
            let name = section.name().expect("text").to_owned();
            if name.ends_with(".dwo") || name.ends_with("_index") {
                let part = path(&name[1..]);
                fs::write(&part, section.data().expect("its bytes")).expect("scratch");
                add.extend(["--add-section".to_owned(), format!("{name}={}", text(&part))]);
            }
        }
        let (out, add) = (path(out), add.iter().map(|word| &**word));
        output("objcopy", &add.chain([text(program), text(&out)]).collect::<Vec<_>>());
        out
    };
    let (five, four) = (built("five", &["-g", "-gsplit-dwarf"]), built("four", &["-gdwarf-4", "-gsplit-dwarf"]));
    let package = path("four.dwp");
    output("dwp", &["-e", text(&four), "-o", text(&package)]);
    let zstd = built("debug-zstd", &["-g"]);
    output("objcopy", &["--compress-debug-sections=zstd", text(&zstd)]);
    vec![
        ("debug-split", with_sections_of(&five, &path("five-inlined.dwo"), "debug-split")),
        ("debug-package", with_sections_of(&four, &package, "debug-package")),
        ("debug-zstd", zstd),
    ]
}

/// Calls of an inlined function, at the very beginning.
const INLINED: &str = "volatile long turns;
static inline __attribute__((always_inline)) void inner(long n) { turns += n; turns *= n; }
void _start(void) { inner(turns); inner(turns); for (;;) {} }";

const LIBRARY: &[&str] = &["-shared", "-fPIC"];
const PROGRAM: &str = "void _start(void) { for (;;) {} }";

pub fn objects() {
    let made = [
        compile("library", SHAPES, LIBRARY),
        compile("library-sysv-hash", SHAPES, &[LIBRARY, &["-Wl,--hash-style=sysv"]].concat()),
        compile("no-build-id", PROGRAM, &["-static", "-Wl,--build-id=none"]),
        compile("python-3.11", PYTHON_3_11, LIBRARY),
        compile("python-3.13", PYTHON_3_13, LIBRARY),
        compile("python-3.11-sysv-hash", PYTHON_3_11, &[LIBRARY, &["-Wl,--hash-style=sysv"]].concat()),
    ];
    let mini = fs::read(mini_debug()).expect("an object");
    let text = object::File::parse(&*mini).expect("an ELF file").section_by_name(".text").expect("code").address();
    let addresses: Vec<u64> = (0..8).map(|n| text + n).collect();
    let found = mini_debug::in_image(&*mini, &addresses).expect("compressed symbols").expect("a section");
    assert_eq!(found[0], Some((text, "_start".to_owned())));
    let addresses = addresses.iter().flat_map(|address| (*address as u32).to_le_bytes());
    seed("symbolize_elf", "mini-debug", &addresses.chain(mini.iter().copied()).collect::<Vec<_>>());
    let go = fs::read(assembled("names")).expect("an object");
    let text = object::File::parse(&*go).expect("an ELF file").section_by_name(".text").expect("code").address();
    let addresses = (0..8u32).flat_map(|n| (text as u32 + n * 7).to_le_bytes());
    seed("symbolize_elf", "go-names", &addresses.chain(go.iter().copied()).collect::<Vec<_>>());
    for (name, path) in debug_forms() {
        let file = fs::read(path).expect("an object");
        let text = object::File::parse(&*file).expect("an ELF file").section_by_name(".text").expect("code").address();
        let addresses: Vec<u64> = (0..8).map(|n| text + n * 5).collect();
        let found = debug_info::in_image(&file, &addresses).expect("debug information");
        let inlined = found.symbols.iter().flatten().filter(|symbol| !symbol.inlined.is_empty()).count();
        assert!(inlined > 0 && found.remark.is_none(), "{name}: {found:?}");
        let addresses = addresses.iter().flat_map(|address| (*address as u32).to_le_bytes());
        seed("symbolize_elf", name, &addresses.chain(file.iter().copied()).collect::<Vec<_>>());
    }
    for path in &made {
        let bytes = fs::read(path).expect("an object");
        let name = path.file_name().expect("a name").to_str().expect("text");
        seed("elf_analyse", name, &bytes);
        let image = Image::open(path).expect("an object");
        let claimed = HALVES.iter().any(|half| matches!(half.analyse(&image), Finding::Facts(_)));
        assert_eq!(claimed, name.starts_with("python-"), "facts of {name}");
        if matches!(name, "library" | "no-build-id") {
            seed("unwind_elf", name, &[&[1], &*bytes].concat());
        }
        if name == "library" {
            seed("from_code", name, &[&[0, 0], &*bytes].concat());
        }
        if name.starts_with("python-3.11") {
            continue;
        }
        let file = object::File::parse(&*bytes).expect("an ELF file");
        let text = file.section_by_name(".text").expect("code");
        let addresses = (0..8u32).flat_map(|n| (text.address() as u32 + n * 23).to_le_bytes());
        seed("symbolize_elf", name, &addresses.chain(bytes.iter().copied()).collect::<Vec<_>>());
    }
    // push %rbp; mov %rsp,%rbp; push %rbx; sub $24,%rsp; and $-32,%rsp; call; cmp $3,%edi; ja; call *%rdi; mov
    // -8(%rbp),%rbx; leave; ret. With jmp *%rdi, of which nothing says where it leads, nothing is claimed.
    for (name, through) in [("frame", 0xd7), ("refused-jump", 0xe7)] {
        let code = [
            0x55, 0x48, 0x89, 0xe5, 0x53, 0x48, 0x83, 0xec, 24, 0x48, 0x83, 0xe4, 0xe0, 0xe8, 0xee, 0xff, 0xff, 0xff,
            0x83, 0xff, 3, 0x77, 2, 0xff, through, 0x48, 0x8b, 0x5d, 0xf8, 0xc9, 0xc3,
        ];
        seed("from_code", name, &[&[1, 0], &code[..]].concat());
    }
    seed("elf_analyse", "refused-script", b"#!/bin/sh\n");
    seed("unwind_elf", "refused-go-debug-frame", &[&[1], &*fs::read(assembled("rows")).expect("an object")].concat());
    let program = compile(
        "program",
        PROGRAM,
        &[
            "-pie",
            "-fPIE",
            "-Wl,--dynamic-linker=/lib64/ld-linux-x86-64.so.2,--no-as-needed",
            "-lm",
            "-Wl,-rpath,$ORIGIN/../lib:/opt/$LIB:${PLATFORM}",
        ],
    );
    for path in [&program, &made[2]] {
        let name = path.file_name().expect("a name").to_str().expect("text");
        seed("program", name, &fs::read(path).expect("an object"));
    }
}

pub fn scripts() {
    let scripts = [
        ("sh", "#!/bin/sh\nexit\n"),
        ("env", "#!/usr/bin/env sh\n"),
        ("env-split", "#! /usr/bin/env -S -i A=1 sh -e\n"),
        ("no-line", "exit\n"),
        ("refused-missing", "#!/nonexistent/interpreter -x\n"),
    ];
    scripts.iter().for_each(|(name, text)| seed("program", name, text.as_bytes()));
}

/// The object's unwind tables, with pcs of its functions.
fn tables(path: &Path) -> Vec<u8> {
    let bytes = fs::read(path).expect("an object");
    let file = object::File::parse(&*bytes).expect("an ELF file");
    let section = |name| file.section_by_name(name).unwrap_or_else(|| panic!("{}: no {name}", path.display()));
    let (hdr, frame, code) = (section(".eh_frame_hdr"), section(".eh_frame"), section(".text"));
    let start = hdr.address().min(frame.address()) & !7;
    let end = (hdr.address() + hdr.size()).max(frame.address() + frame.size());
    let mut seed = ((hdr.address() - start) as u32).to_le_bytes().to_vec();
    for n in 0..3u64 {
        let pc = code.address() + n * code.size() / 3;
        seed.extend((pc.wrapping_sub(start) as u32).to_le_bytes());
    }
    let mut image = vec![0; (end - start) as usize];
    for section in [&hdr, &frame] {
        let at = (section.address() - start) as usize;
        image[at..at + section.size() as usize].copy_from_slice(section.data().expect("bytes"));
    }
    seed.extend(image);
    seed
}

/// As above, from the files that the tests of AArch64 keep: `memory ADDRESS BYTES`, of `.eh_frame_hdr` and of
/// `.eh_frame`.
fn recorded_tables(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../tests/aarch64/tables/{name}.txt"));
    let file = fs::read_to_string(path).expect("tables");
    let hex = |text: &str| u64::from_str_radix(text, 16).expect("hex");
    let sections: Vec<(u64, Vec<u8>)> = file
        .lines()
        .filter_map(|line| line.strip_prefix("memory ")?.split_once(' '))
        .map(|(at, bytes)| (hex(at), (0..bytes.len()).step_by(2).map(|at| hex(&bytes[at..at + 2]) as u8).collect()))
        .collect();
    let [(hdr, _), (frame, bytes)] = &sections[..] else { panic!("{name}: not two sections") };
    let start = hdr & !7;
    let mut seed = ((hdr - start) as u32).to_le_bytes().to_vec();
    // Its code precedes its tables.
    seed.extend(
        [600u64, 900, 1200].iter().flat_map(|back| (hdr.wrapping_sub(*back).wrapping_sub(start) as u32).to_le_bytes()),
    );
    let mut image = vec![0; (frame - start) as usize + bytes.len()];
    for (address, bytes) in &sections {
        image[(address - start) as usize..][..bytes.len()].copy_from_slice(bytes);
    }
    seed.extend(image);
    seed
}

pub fn unwind_tables() {
    seed("eh_frame", "shapes", &tables(&compile("shapes", SHAPES, LIBRARY)));
    seed(
        "eh_frame",
        "frame-pointers",
        &tables(&compile("fp", SHAPES, &[LIBRARY, &["-fno-omit-frame-pointer"]].concat())),
    );
    for name in ["plain", "signed"] {
        seed("eh_frame", &format!("aarch64-{name}"), &recorded_tables(name));
    }
    // A real program of the system, with a PLT.
    seed("eh_frame", "true", &tables(Path::new("/usr/bin/true")));
}

/// Some of the sections in the reader's own tests, of all versions and machines.
pub fn sframe() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../plugins/native/sframe/tests/corpus");
    let wanted = [
        "v1/amd64/plt.lazy.exe",
        "v2/aarch64/frame.exe",
        "v2/amd64/alloca.exe",
        "v2/amd64/plt.ibt.exe",
        "v2/aarch64/pauth.exe",
        "v2e/amd64/start.exe",
        "v2e/s390x/regsave.exe",
        "v3/amd64/drap.exe",
        "v3/amd64/plt.lazy.exe",
        "v3/amd64/sigframe.exe",
        "v3/amd64/edge.exe",
        "v3/amd64/many.exe",
        "v3/aarch64be/pauth.exe",
        "v3/s390x/misc.exe",
        "quirk/amd64/concat_lld_mixed",
    ];
    let mut written = 0;
    for set in ["v1", "v2", "v2e", "v3", "quirk"] {
        let lines = fs::read_to_string(folder.join(format!("{set}.jsonl"))).expect("a set of sections");
        for line in lines.lines() {
            let field =
                |name: &str| line.split_once(&format!("\"{name}\":\"")).and_then(|(_, rest)| rest.split('"').next());
            let name = field("name").expect("a name");
            if !wanted.contains(&name) {
                continue;
            }
            let hex = field("bytes").expect("bytes");
            let address = field("address").and_then(|a| u64::from_str_radix(&a[2..], 16).ok()).expect("an address");
            let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex");
            let mut out = address.to_le_bytes().to_vec();
            [0u32, 0xfff, 0xffff_f000].iter().for_each(|pc| out.extend(pc.to_le_bytes()));
            out.extend((0..hex.len()).step_by(2).map(byte));
            seed("sframe", &name.replace('/', "-"), &out);
            written += 1;
        }
    }
    assert_eq!(written, wanted.len());
}

/// A table, and the sections that one is built of: 0 the table, 1 `.debug_frame`, 2 `.eh_frame`.
pub fn rule_tables() {
    let places = [1, 100, 250];
    let object = compile("shapes", SHAPES, LIBRARY);
    let image = uunwind_elf::Image::open(&object).expect("an object");
    let table = uunwind_tables_build::of_image(&image, 7).expect("a table");
    let of = |kind: u8, bytes: &[u8]| [&[kind], &places[..], bytes].concat();
    seed("rule_table", "shapes", &of(0, &table));
    // The builder takes code below 0x400000 only, where the section is read: shift functions there by linking so.
    let low = compile(
        "low",
        SHAPES,
        &[
            "-static",
            "-nostartfiles",
            "-Wl,-Ttext=0x10000,--section-start=.eh_frame=0x400000,--unresolved-symbols=ignore-all",
        ],
    );
    let bytes = fs::read(&low).expect("an object");
    let file = object::File::parse(&*bytes).expect("an ELF file");
    let section = file.section_by_name(".eh_frame").expect("unwind tables");
    assert_eq!(section.address(), 0x40_0000);
    seed("rule_table", "eh-frame", &of(2, section.data().expect("bytes")));
    let options = ["-static", "-g", "-fno-asynchronous-unwind-tables", "-Wl,-Ttext=0x10000"];
    let (input, out) = (scratch().join("debug.c"), scratch().join("debug"));
    fs::write(&input, SHAPES.replace(".cfi_startproc", ".cfi_sections .debug_frame\\n.cfi_startproc")).expect("a file");
    let mut all = vec!["-O1", "-nostdlib", "-Wl,--unresolved-symbols=ignore-all"];
    all.extend(options);
    all.extend(["-o", text(&out), text(&input)]);
    output("gcc", &all);
    let bytes = fs::read(&out).expect("an object");
    let file = object::File::parse(&*bytes).expect("an ELF file");
    let section = file.section_by_name(".debug_frame").expect("debugging information");
    seed("rule_table", "debug-frame", &of(1, section.data().expect("bytes")));
}

/// The synthetic chains of the walk's own tests: plain frames, a frame-pointer chain, a signal frame.
pub fn walks() {
    const STACK: u64 = 0x7000_0000;
    type Rule = (i32, u8, u8, u8, u8, [i16; 7], i16);
    const SAME: i16 = i16::MAX;
    const PLAIN: [i16; 7] = [SAME, SAME, SAME, SAME, SAME, SAME, -1];
    let walk = |name: &str, rules: [Rule; 4], pc: u64, stack: &[u64]| {
        let mut out = vec![1, 0, 64, 0];
        let registers = (0..16).map(|r| if r == 6 { STACK + 16 } else { STACK });
        std::iter::once(pc).chain(registers).for_each(|word| out.extend(word.to_le_bytes()));
        // Rules are selected by the low three bits of the looked-up address, which is odd for return addresses.
        for (offset, register, kind, from_fp, flags, slots, addend) in rules.iter().chain(&rules) {
            out.extend(offset.to_le_bytes());
            out.extend([*register, *kind, *from_fp, *flags]);
            slots.iter().chain([addend]).for_each(|slot| out.extend(slot.to_le_bytes()));
        }
        stack.iter().for_each(|word| out.extend(word.to_le_bytes()));
        seed("walk", name, &out);
    };
    let simple = |offset| (offset, 7, 0, 0, 0, PLAIN, 0);
    let end = (8, 7, 3, 0, 0, PLAIN, 0);
    walk("chain", [simple(16), simple(32), simple(8), end], 0x1000, &[1, 0x2002, 2, 3, 4, 0x3003, 0x4004, 9]);
    let mut saves = simple(24);
    saves.5[1] = -2;
    let pointer = (16, 6, 0, 0, 2, [i16::MIN, -2, i16::MIN, i16::MIN, i16::MIN, i16::MIN, -1], 0);
    let stack = [0, STACK + 32, 0x2002, 0, STACK + 48, 0x3002, 0, 0x4004, 0, 0];
    walk("frame-pointers", [saves, pointer, pointer, end], 0x1000, &stack);
    let mut stack = vec![0u64; 64];
    // The ucontext follows the return address and holds pc and sp of the interrupted frame.
    (stack[0], stack[60]) = (0x2002, 0x4004);
    let word = |register: u8| ((8 + uunwind_core::regs::ucontext_offset(register)) / 8) as usize;
    stack[word(16)] = 0x3000;
    stack[word(7)] = STACK + 8 * 60;
    let signal = (0, 7, 2, 0, 0, PLAIN, 0);
    walk("signal", [simple(8), signal, simple(8), end], 0x1000, &stack);
    walk(
        "realigned",
        [(8, 7, 1, 0, 0, PLAIN, 8), simple(16), end, end],
        0x1000,
        &[0, STACK + 24, 0, 0x2002, 5, 0x3003],
    );
}
