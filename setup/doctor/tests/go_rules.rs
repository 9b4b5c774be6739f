//! Rows as Go writes them, of code as Go's assembler makes it: used where the code does what they say.

use object::{Object, ObjectSymbol};
use std::collections::HashMap;
use std::process::Command;
use uunwind_core::rule::{Rule, SAME, UNKNOWN};
use uunwind_doctor::doctor::diagnose;
use uunwind_doctor::Binary;
use uunwind_elf::Image;
use uunwind_tables::{Table, TableAnswer};
use uunwind_tables_build::of_image;

const SOURCE: &str = include_str!("../../../tests/targets/go/rows.s");

#[test]
fn rows_that_the_code_does_not_follow_are_not_used() {
    let folder = std::env::temp_dir().join(format!("uu-go-rules-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a temporary folder");
    let (source, program) = (folder.join("go.s"), folder.join("go"));
    std::fs::write(&source, SOURCE).expect("a source");
    let mut gcc = Command::new("gcc");
    gcc.args(["-nostdlib", "-static", "-no-pie", "-Wl,-e,0,--build-id=sha1", "-o"]).arg(&program).arg(&source);
    let done = gcc.output().expect("gcc runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));

    let data = std::fs::read(&program).expect("the file");
    let file = object::File::parse(&*data).expect("an ELF file");
    let defined = file.symbols().filter(ObjectSymbol::is_definition);
    let symbols: HashMap<&str, u64> = defined.filter_map(|s| Some((s.name().ok()?, s.address()))).collect();
    let bytes = of_image(&Image::open(&program).expect("an ELF file"), 1).expect("a table");
    let table = Table::new(&bytes).expect("a table");
    let at = |name: &str, offset: u64| match table.find(symbols[name] + offset) {
        TableAnswer::Short(rule) => rule.pack().unpack().ok(),
        TableAnswer::Long(rule) => rule.unpack().ok(),
        TableAnswer::Ask | TableAnswer::Nothing => None,
    };
    // Go preserves no register but the frame pointer, and its rows do not say where: that is read from the code.
    // Without a frame it is the caller's.
    let rule = |depth: i32, rbp: i16| {
        let mut rule = Rule::simple(7, depth);
        rule.slots[..6].fill(UNKNOWN);
        rule.slots[1] = rbp;
        Some(rule)
    };
    // Pushed just below the return address; slots count in words from the CFA.
    const PUSHED: i16 = -2;
    for (name, offset, depth, rbp) in [
        ("plain", 0, 8, SAME),
        ("plain", 3, 8, SAME),
        ("plain", 4, 32, UNKNOWN),
        ("plain", 12, 32, UNKNOWN),
        ("plain", 13, 8, SAME),
        ("panics", 1, 16, PUSHED),
        ("panics", 7, 8, SAME),
    ] {
        assert_eq!(at(name, offset), rule(depth, rbp), "{name}+{offset}");
    }
    for (name, offset) in [("switches", 0), ("switches", 7), ("reserves", 0), ("reserves", 5)] {
        assert_eq!(at(name, offset), None, "{name}+{offset}");
    }
    for (name, offset) in [("runtime.goexit.abi0", 1), ("runtime.rt0_go.abi0", 0), ("runtime.rt0_go.abi0", 13)] {
        assert_eq!(at(name, offset), Some(Rule::end()), "{name}+{offset}");
    }
    let found = diagnose(&Binary::open(&program).expect("a file")).expect("for x86-64");
    assert_eq!((found.untrue, found.debug_frame.map(|source| source.functions)), (2, Some(6)), "switches, reserves");
    std::fs::remove_dir_all(&folder).expect("removable");
}
