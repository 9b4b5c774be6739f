//! What is called padding between functions is what objdump disassembles as nothing but fill; and what is left to the
//! frame pointer is not.

use object::{Object, ObjectSymbol};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use uunwind_doctor::chosen::Choice;
use uunwind_doctor::doctor::diagnose;
use uunwind_doctor::Binary;

/// The instructions of a file as objdump has them: address, and whether it is of those that fill.
fn disassembled(path: &Path) -> BTreeMap<u64, bool> {
    let options = ["--disassemble", "--disassemble-zeroes", "--no-show-raw-insn", "--wide"];
    let done = Command::new("objdump").args(options).arg(path).output().expect("objdump (binutils)");
    let said = String::from_utf8_lossy(&done.stdout);
    let instruction = |line: &str| {
        let (address, text) = line.trim_start().split_once(":\t")?;
        let bare = text.trim_start_matches("data16 ").trim_start_matches("cs ");
        let fill = ["nop", "xchg   %ax,%ax", "int3", "add    %al,(%rax)", ".byte 0x0"];
        let fills = fill.iter().any(|fill| bare.starts_with(fill));
        Some((u64::from_str_radix(address, 16).ok()?, fills))
    };
    said.lines().filter_map(instruction).collect()
}

/// Where symbols with a name begin.
fn named(path: &Path) -> Vec<u64> {
    let data = std::fs::read(path).expect("the file");
    let file = object::File::parse(&*data).expect("an ELF file");
    file.symbols().chain(file.dynamic_symbols()).filter(|s| s.is_definition()).map(|s| s.address()).collect()
}

/// Compares what is said of a file; how many ranges of padding there are, and their bytes.
fn compare(path: &Path) -> (usize, u64) {
    let found = diagnose(&Binary::open(path).expect("a file")).expect("for x86-64");
    let instructions = disassembled(path);
    let named = named(path);
    let (mut ranges, mut bytes) = (0, 0);
    for (range, section) in &found.chosen {
        let at = || format!("{}: {:#x}..{:#x} in {section}", path.display(), range.start, range.end);
        let mut inside = instructions.range(range.start..range.end).map(|(_, fills)| *fills).peekable();
        assert!(inside.peek().is_some(), "{}: no instruction", at());
        match range.choice {
            Choice::Padding => {
                assert!(instructions.contains_key(&range.start), "{}: begins inside an instruction", at());
                assert!(inside.all(|fills| fills), "{}: not all of it fills", at());
                assert!(!named.iter().any(|name| (range.start..range.end).contains(name)), "{}: it has a name", at());
                ranges += 1;
                bytes += range.end - range.start;
            }
            Choice::FramePointer if !named.iter().any(|name| (range.start..range.end).contains(name)) => {
                assert!(inside.any(|fills| !fills), "{}: all of it fills", at());
            }
            _ => {}
        }
    }
    assert_eq!(found.padding, bytes, "{}", path.display());
    println!("{}: {ranges} ranges, {bytes} of {} bytes", path.display(), found.text);
    (ranges, bytes)
}

#[test]
fn padding_is_what_objdump_shows_as_fill() {
    let lib = Path::new("/usr/lib/x86_64-linux-gnu");
    let usual: [PathBuf; 6] = [
        lib.join("libc.so.6"),
        lib.join("libm.so.6"),
        lib.join("libstdc++.so.6"),
        "/lib64/ld-linux-x86-64.so.2".into(),
        "/usr/bin/bash".into(),
        "/usr/bin/env".into(),
    ];
    let mut compared = 0;
    for path in usual.iter().filter(|path| path.exists()) {
        let (ranges, _) = compare(path);
        assert!(ranges > 0, "{}: functions are aligned", path.display());
        compared += 1;
    }
    assert!(compared >= 3, "the C library, its loader and env are everywhere");
}

/// Functions at multiples of 64, one of them without unwind information: what lies between them follows from their
/// symbols.
#[test]
fn every_byte_between_functions_is_padding() {
    let folder = std::env::temp_dir().join(format!("uu-padding-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a temporary folder");
    let source = "
        .text
        .type f, @function
        .type g, @function
        .type h, @function
        .balign 64
        f: .cfi_startproc
           ret
           .cfi_endproc
        .size f, . - f
        .balign 64
        g: nop
           ret
        .size g, . - g
        .balign 64, 0xcc
        h: .cfi_startproc
           ret
           .cfi_endproc
        .size h, . - h
        .balign 64, 0
    ";
    std::fs::write(folder.join("f.s"), source).expect("a source");
    let object = folder.join("f.so");
    let mut gcc = Command::new("gcc");
    gcc.args(["-shared", "-nostdlib", "-Wl,--build-id=sha1", "-o"]).arg(&object).arg(folder.join("f.s"));
    assert!(gcc.status().expect("gcc runs").success());
    assert_eq!(compare(&object), (3, 63 + 62 + 63));
    // Without symbols the code says where g is, but for its first instruction, which may fill the space as well.
    let stripped = folder.join("stripped.so");
    let mut strip = Command::new("objcopy");
    strip.arg("--strip-all").args([&object, &stripped]);
    assert!(strip.status().expect("objcopy runs").success());
    assert_eq!(compare(&stripped), (3, 63 + 63 + 63));
    std::fs::remove_dir_all(&folder).expect("removable");
}
