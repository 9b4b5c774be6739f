//! Usable and unusable plugins, built with the C compiler, as the loader finds them.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;
use uunwind_loader::{FoundPlugins, Trouble};

fn find(folder: &Path, listed: Option<&OsStr>) -> FoundPlugins {
    uunwind_loader::find(folder, listed, vec![env!("CARGO_BIN_EXE_uunwind-plugin-server").into()])
}

/// A fresh folder for one test.
fn folder(test: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("uu-loader-{test}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("temporary folder");
    folder
}

fn build(folder: &Path, file: &str, source: &str) -> PathBuf {
    let (c, object) = (folder.join(format!("{file}.c")), folder.join(file));
    std::fs::write(&c, source).expect("source");
    let status = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&object).arg(&c).status().expect("cc");
    assert!(status.success());
    object
}

/// The table of `uunwind_core::plugin::Plugin` in C, with these fields.
fn plugin(name: &str, abi: u32, size: &str) -> String {
    format!(
        "#include <stdint.h>
         struct plugin {{ uint32_t size, abi; char name[16]; uint32_t flags, scratch; }};
         static const struct plugin table = {{ {size}, {abi}, \"{name}\", 0, 0 }};
         const void *uu_plugin(uint32_t host) {{ return host >= 1 ? &table : 0; }}"
    )
}

#[test]
fn good_ones_are_opened_in_order_and_bad_ones_are_named() {
    let dir = folder("mixed");
    let own = dir.join("own");
    std::fs::create_dir(&own).expect("folder");
    build(&own, "libb.so", &plugin("second", 1, "sizeof table"));
    build(&own, "liba.so", &plugin("first", 1, "sizeof table"));
    std::fs::write(own.join("notes.txt"), "not a plugin, and not looked at").expect("file");
    let third = build(&dir, "libc1.so", &plugin("third", 1, "sizeof table"));
    let bad = [
        (build(&dir, "old.so", &plugin("old", 7, "sizeof table")), "was built for plugin interface 7"),
        (build(&dir, "small.so", &plugin("small", 1, "8")), "table of 8 bytes"),
        (build(&dir, "none.so", "int other;"), "exports no uu_plugin"),
        (build(&dir, "null.so", "const void *uu_plugin(unsigned a) { return 0; }"), "cannot serve"),
        (build(&dir, "nameless.so", &plugin("", 1, "sizeof table")), "no name"),
        (build(&dir, "again.so", &plugin("first", 1, "sizeof table")), "called \"first\""),
        (
            build(
                &dir,
                "crash.so",
                &format!(
                    "{}__attribute__((constructor)) static void f(void) {{ __builtin_trap(); }}",
                    plugin("c", 1, "sizeof table")
                ),
            ),
            "it crashed (signal 4)",
        ),
        (build(&dir, "exit.so", "#include <stdlib.h>\nvoid *uu_plugin(unsigned a) { exit(3); }"), "exit code 3"),
        (dir.join("text.so"), "cannot be loaded"),
        (dir.join("missing.so"), "cannot be read"),
    ];
    std::fs::write(dir.join("text.so"), "plain text").expect("file");
    let mut listed = OsString::from(&third);
    for (path, _) in &bad {
        listed.push(":");
        listed.push(path);
    }
    // The same file twice is no error.
    listed.push(":");
    listed.push(&third);
    let found = find(&own, Some(&listed));
    let names: Vec<&str> = found.plugins.iter().map(|p| p.name.as_str()).collect();
    assert_eq!(names, ["first", "second", "third"]);
    assert_eq!(found.troubles.len(), bad.len(), "{:?}", found.troubles);
    for (path, expected) in &bad {
        let same = |(p, _): &&(PathBuf, Trouble)| p.file_name() == path.file_name();
        let (_, trouble) = found.troubles.iter().find(same).unwrap_or_else(|| panic!("{} was taken", path.display()));
        assert!(trouble.to_string().contains(expected), "{}: {trouble}", path.display());
    }
    std::fs::remove_dir_all(dir).expect("cleaned");
}

#[test]
fn folders_can_be_listed_and_missing_ones_are_reported() {
    let dir = folder("folders");
    build(&dir, "p.so", &plugin("listed", 1, "sizeof table"));
    let empty = dir.join("empty");
    std::fs::create_dir(&empty).expect("folder");
    let listed = std::env::join_paths([&dir, &empty, &dir.join("gone")]).expect("no colon in these");
    let found = find(Path::new("/nonexistent/uu/plugins"), Some(&listed));
    assert_eq!(found.plugins.iter().map(|p| p.name.as_str()).collect::<Vec<_>>(), ["listed"]);
    assert!(matches!(found.troubles[0].1, Trouble::EmptyFolder));
    assert!(matches!(found.troubles[1].1, Trouble::Unreadable(_)));
    std::fs::remove_dir_all(dir).expect("cleaned");
}

#[test]
fn more_than_a_recording_holds() {
    let dir = folder("many");
    for number in 0..=uunwind_loader::MOST {
        build(&dir, &format!("p{number:02}.so"), &plugin(&format!("p{number}"), 1, "sizeof table"));
    }
    let found = find(&dir, None);
    assert_eq!(found.plugins.len(), uunwind_loader::MOST);
    let [(last, trouble)] = &found.troubles[..] else { panic!("{:?}", found.troubles) };
    assert!(last.ends_with("p30.so") && matches!(trouble, Trouble::TooMany));
    assert_eq!(trouble.to_string(), "is one too many: a process has at most 30 plugins, uu's own included");
    std::fs::remove_dir_all(dir).expect("cleaned");
}
