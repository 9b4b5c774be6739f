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
    let (offset, entries) = (facts::TABLES_OFFSET.to_string(), tables::ENTRIES.to_string());
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

/// A name without a slash is searched for by the loader, and by the recorder: no sample can have brought it.
#[test]
fn the_table_of_an_object_that_the_loader_searches_comes_with_its_dlopen() {
    let scratch = paths::scratch("late_objects_searched");
    let object = compile::shared(&scratch, "late.so", &["native/late_object_lib.c"]);
    let said = found(&scratch, &object, "late.so".as_ref(), &[]);
    assert!(said.parse::<u64>().is_ok(), "{said:?}");
}

/// A library opens an object by a name that only its own RUNPATH, or RPATH, leads to.
#[test]
fn the_table_of_an_object_in_a_folder_of_who_opens_it_comes_with_its_dlopen() {
    let scratch = paths::scratch("late_objects_runpath");
    for (tags, folder) in [("--enable-new-dtags", "new"), ("--disable-new-dtags", "old")] {
        std::fs::create_dir(scratch.join(folder)).expect("scratch");
        let lib = compile::shared(&scratch, &format!("{folder}/late.so"), &["native/late_object_lib.c"]);
        let options = ["-O0", "-shared", "-fPIC", "-DLIBRARY", &format!("-Wl,{tags},-rpath,$ORIGIN/{folder}")];
        let opener = compile::gcc(&scratch, &format!("lib{folder}.so"), &["native/late_object.c"], &options);
        let said = found(&scratch, &lib, "late.so".as_ref(), &[opener.to_str().expect("UTF-8")]);
        assert!(said.parse::<u64>().is_ok(), "{folder}: {said:?}");
    }
}

/// The program opens one object and runs nothing of it; the table that it waits for is that of another one, which the
/// first one needs.
#[test]
fn the_table_of_an_object_that_another_one_needs_comes_with_the_dlopen_of_that_one() {
    let scratch = paths::scratch("late_objects_needed");
    let needed = compile::shared(&scratch, "libneeded.so", &["native/late_object_lib.c"]);
    let options = ["-shared", "-fPIC", "-Wl,--no-as-needed", "-L.", "-lneeded", "-x", "c", "/dev/null"];
    let mut link = Command::new("gcc");
    link.args(["-o", "outer.so"]).args(options).current_dir(&scratch);
    assert!(link.status().expect("gcc").success());
    let outer = scratch.join("outer.so");
    let said = found(&scratch, &needed, outer.as_os_str(), &[]);
    assert!(said.parse::<u64>().is_ok(), "{said:?}");
}

/// Where the recorder's search finds nothing, as in folders that a program has given the loader since its start, a
/// sample reports the object.
#[test]
fn an_object_that_is_found_in_no_known_folder_comes_with_a_sample() {
    let scratch = paths::scratch("late_objects_sampled");
    let object = compile::shared(&scratch, "late.so", &["native/late_object_lib.c"]);
    // Longer than any path that is announced.
    let long = format!("{}/.{}/late.so", scratch.display(), "/.".repeat(450));
    let said = found(&scratch, &object, long.as_ref(), &["works"]);
    assert!(said.parse::<u64>().is_ok(), "{said:?}");
}
