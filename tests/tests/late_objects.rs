//! Objects that are loaded while a program is recorded: their rule tables come to the program at once, and are looked
//! for in the recorder's memory by the program itself.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;
use uunwind_elf::{key_of, Image};
use uunwind_ring::{facts, tables};
use uunwind_tests::{compile, paths, uu};

/// Records the program until it finds the table of the object that it loads. What it prints.
#[track_caller]
fn found(scratch: &Path, object: &Path, named: &OsStr, more: &[&str]) -> String {
    let libraries = |command: &mut Command| {
        command.current_dir(scratch).env("LD_LIBRARY_PATH", scratch);
    };
    let program = compile::gcc(scratch, "late_object", &["native/late_object.c"], &[]);
    let key = key_of(&Image::open(object).expect("an object")).0.to_string();
    let (offset, entries) = (facts::FACTS_BYTES.to_string(), tables::ENTRIES.to_string());
    let mut words = vec![program.as_os_str(), named, key.as_ref(), offset.as_ref(), entries.as_ref()];
    words.extend(more.iter().map(OsStr::new));
    let recorded = uu::record(scratch, &[], libraries, &words).expect_code(0);
    recorded.outcome.stdout.trim().to_owned()
}

/// No sample can have brought it: the program runs nothing of the object.
#[test]
fn the_table_of_an_object_comes_with_its_dlopen() {
    let scratch = paths::scratch("late_objects");
    let object = compile::shared(&scratch, "late.so", &["native/late_object_lib.c"]);
    // Not cached, cached, and by a path that depends on where the program is.
    for named in [object.as_os_str(), object.as_os_str(), "./late.so".as_ref()] {
        let said = found(&scratch, &object, named, &[]);
        assert!(said.parse::<u64>().is_ok(), "{said:?}");
    }
}

/// A name without a slash is searched for by the loader: a sample reports the object.
#[test]
fn an_object_that_the_loader_searches_comes_with_a_sample() {
    let scratch = paths::scratch("late_objects_searched");
    let object = compile::shared(&scratch, "late.so", &["native/late_object_lib.c"]);
    let said = found(&scratch, &object, "late.so".as_ref(), &["works"]);
    assert!(said.parse::<u64>().is_ok(), "{said:?}");
}
