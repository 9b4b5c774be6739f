//! `uu_setup()`: a program without a recorder gets rule tables.

use std::path::{Path, PathBuf};
use std::process::Command;
use uunwind_tests::{compile, paths, process, skips, uu};

fn run(name: &str, options: &[&str]) -> String {
    let scratch = paths::scratch(&format!("setup-{name}"));
    let library = paths::tree().join("lib");
    std::os::unix::fs::symlink(library.join("libuunwind.so.0"), scratch.join("libuunwind.so")).expect("scratch");
    let own = [
        format!("-I{}", paths::tree().join("include").display()),
        format!("-L{}", scratch.display()),
        "-luunwind".to_owned(),
        format!("-Wl,-rpath,{}", library.display()),
    ];
    let all: Vec<&str> = own.iter().map(|o| &**o).chain(options.iter().copied()).collect();
    let program = compile::gcc(&scratch, name, &["native/setup.c"], &all);
    let cache = scratch.join("cache");
    let mut out = String::new();
    // The first run builds tables, the second one finds them on the disk.
    for _ in 0..2 {
        let mut command = Command::new(&program);
        command.env("XDG_CACHE_HOME", &cache);
        out = process::run(&mut command, &scratch, uu::LIMIT).expect_code(0).stdout;
    }
    // One folder, of this revision of tables.
    let folder = std::fs::read_dir(cache.join("uu/tables")).expect("the cache").next().expect("a folder").expect("it");
    let kept = std::fs::read_dir(folder.path()).expect("the tables").count();
    assert!(kept >= 2, "{kept} tables in the cache");
    out
}

const WHOLE: &str = "errno 77\nmade tables\nagain the same\nafter 1\n";

#[test]
fn code_without_an_index_is_walked() {
    assert_eq!(run("no-index", &["-Wl,--no-eh-frame-hdr"]), format!("before 0\n{WHOLE}"));
}

#[test]
fn code_with_debug_frame_only_is_walked() {
    let out = run("debug-frame", &["-fno-asynchronous-unwind-tables", "-fno-unwind-tables"]);
    assert_eq!(out, format!("before 0\n{WHOLE}"));
}

#[test]
fn ordinary_code_is_walked_before_and_after() {
    assert_eq!(run("ordinary", &[]), format!("before 1\n{WHOLE}"));
}

#[test]
fn an_interpreter_that_is_opened_later_is_found_by_itself() {
    const LUA: &str = "liblua5.4.so.0";
    // SAFETY: a library whose constructors do nothing.
    if unsafe { libc::dlopen(c"liblua5.4.so.0".as_ptr(), libc::RTLD_LAZY) }.is_null() {
        return skips::skipped("an interpreter opened after uu_setup_with()", "liblua5.4.so.0 is not here");
    }
    let scratch = paths::scratch("by-itself");
    let program = compile::with_library(&scratch, "by_itself", &[]);
    let mut command = Command::new(&program);
    command.arg(LUA).env("XDG_CACHE_HOME", scratch.join("cache"));
    assert_eq!(process::run(&mut command, &scratch, uu::LIMIT).expect_code(0).stdout, "ok\n");
}

/// Another thread of the parent may have held the loader's lock, which nobody releases in the child.
#[test]
fn children_of_forks_do_not_wait_for_the_loader() {
    let scratch = paths::scratch("setup-forked");
    let program = compile::with_library(&scratch, "setup_forked", &["-pthread"]);
    let mut command = Command::new(&program);
    command.env("XDG_CACHE_HOME", scratch.join("cache"));
    assert_eq!(process::run(&mut command, &scratch, uu::LIMIT).expect_code(0).stdout, "ok\n");
}

#[test]
fn a_second_call_opens_nothing_unless_something_was_loaded() {
    let scratch = paths::scratch("setup-again");
    let program = compile::with_library(&scratch, "setup_again", &["-ldl"]);
    let other = compile::shared(&scratch, "other.so", &["native/truncated_lib.c"]);
    let says = |arguments: &[&std::path::Path]| {
        let mut command = Command::new(&program);
        command.args(arguments).env("XDG_CACHE_HOME", scratch.join("cache"));
        process::run(&mut command, &scratch, uu::LIMIT).expect_code(0).stdout
    };
    assert_eq!(says(&[]), "loaded 0, the same tables 1, asked for more 0\n");
    assert_eq!(says(&[&other]), "loaded 1, the same tables 1, asked for more 1\n");
}

#[test]
fn a_second_process_reads_no_object() {
    let scratch = paths::scratch("setup-opens");
    let program = compile::with_library(&scratch, "setup_opens", &["-rdynamic"]);
    let says = || {
        let mut command = Command::new(&program);
        command.env("XDG_CACHE_HOME", scratch.join("cache"));
        let said = process::run(&mut command, &scratch, uu::LIMIT).expect_code(0).stdout;
        let (stack, opened) = said.trim_end().rsplit_once('\n').expect("two lines");
        (stack.to_owned(), opened.parse::<usize>().expect("a number"))
    };
    let (first, second) = (says(), says());
    assert!(first.0.ends_with("walk 0, stop 1, doubt 0") && first.1 >= 3, "{first:?}");
    assert_eq!(second, (first.0, 0));
    // A file that was written again, as at the same place, is read again, and no other one.
    let bytes = std::fs::read(&program).expect("the program");
    std::fs::write(&program, bytes).expect("scratch");
    assert_eq!(says(), (second.0, 1));
}

/// What the program says of itself, with this folder for caches.
#[track_caller]
fn says(program: &Path, scratch: &Path, cache: &Path, root: &str) -> String {
    let mut command = Command::new(program);
    command.arg(root).env("XDG_CACHE_HOME", cache).env("HOME", scratch.join("home"));
    process::run(&mut command, scratch, uu::LIMIT).expect_code(0).stdout
}

const PREPARED: &str = "setup 1, walk 0, stop 1, frames 1\n";

#[test]
fn without_files_the_program_lives() {
    // SAFETY: a call without preconditions.
    if unsafe { libc::geteuid() } != 0 {
        return skips::skipped("uu_setup() in an empty root directory", "needs root");
    }
    let scratch = paths::scratch("no-files");
    let program = compile::with_library(&scratch, "setup_bad", &[]);
    let empty = scratch.join("empty");
    std::fs::create_dir(&empty).expect("scratch");
    let said = says(&program, &scratch, &scratch.join("cache"), empty.to_str().expect("text"));
    assert_eq!(said, format!("setup {}, walk 0, stop 1, frames 1\n", -libc::ENOENT));
}

/// All files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

#[test]
fn a_cache_that_cannot_be_used_costs_time_only() {
    let scratch = paths::scratch("hostile-cache");
    let program = compile::with_library(&scratch, "setup_bad", &[]);
    let says = |cache: &Path| says(&program, &scratch, cache, "-");
    // A file, nothing, and what nobody can write to, in the folder's place.
    let file = scratch.join("file");
    std::fs::write(&file, "").expect("scratch");
    for cache in [&*file, Path::new("/proc/self"), Path::new("relative/../..")] {
        assert_eq!(says(cache), PREPARED, "{}", cache.display());
    }
    let cache = scratch.join("cache");
    assert_eq!(says(&cache), PREPARED);
    let entries = files(&cache);
    assert!(entries.iter().any(|entry| entry.starts_with(cache.join("uu/objects"))), "{entries:?}");
    assert!(entries.iter().any(|entry| entry.starts_with(cache.join("uu/tables"))), "{entries:?}");
    let replaced: [fn(&Path); 5] = [
        |entry| std::fs::write(entry, [0xa5; 100]).expect("garbage"),
        // Larger than any that is kept.
        |entry| std::fs::File::create(entry).and_then(|file| file.set_len(1 << 40)).expect("a sparse file"),
        |entry| std::os::unix::fs::symlink("/dev/zero", entry).expect("a link"),
        |entry| {
            let path = std::ffi::CString::new(entry.as_os_str().as_encoded_bytes()).expect("no NUL");
            // SAFETY: a NUL-terminated path.
            assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
        },
        |entry| std::fs::create_dir(entry).expect("a folder"),
    ];
    for (number, replace) in replaced.iter().enumerate() {
        for entry in &entries {
            let _ = std::fs::remove_file(entry);
            let _ = std::fs::remove_dir(entry);
            replace(entry);
        }
        assert_eq!(says(&cache), PREPARED, "way {number}");
    }
    // SAFETY: a call without preconditions.
    if unsafe { libc::geteuid() } != 0 {
        return skips::skipped("a cache that belongs to another user", "needs root");
    }
    // Another user's folder, and another user's link to one of our own.
    let (another, leads, own) = (scratch.join("another"), scratch.join("leads"), scratch.join("own"));
    for folder in [&another.join("uu"), &leads, &own] {
        std::fs::create_dir_all(folder).expect("scratch");
    }
    std::os::unix::fs::symlink(&own, leads.join("uu")).expect("scratch");
    for theirs in [another.join("uu"), leads.join("uu")] {
        std::os::unix::fs::lchown(theirs, Some(65534), Some(65534)).expect("root may");
    }
    for (cache, written) in [(&another, &another), (&leads, &own)] {
        assert_eq!(says(cache), PREPARED);
        assert_eq!(files(written), Vec::<PathBuf>::new(), "{}", cache.display());
    }
}
