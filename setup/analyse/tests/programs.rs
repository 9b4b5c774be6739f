//! Programs: what a command runs, and what it needs.

mod workshop;

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{symlink, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use uunwind_analyse::{needed_closure, resolve_program, Problem, Resolved};
use workshop::Workshop;

fn resolve(program: &Path) -> Resolved {
    resolve_program(program.as_os_str(), None)
}

#[test]
fn the_closure_is_what_the_loader_maps() {
    for program in ["/bin/ls", "/usr/bin/env", "/bin/bash"] {
        let ldd = Command::new("ldd").arg(program).output().expect("ldd");
        let ldd = String::from_utf8(ldd.stdout).unwrap();
        let by_loader: BTreeSet<PathBuf> = ldd
            .split_whitespace()
            .filter(|word| word.starts_with('/'))
            .map(|path| Path::new(path).canonicalize().unwrap())
            .chain([Path::new(program).canonicalize().unwrap()])
            .collect();
        assert!(by_loader.len() > 2, "{ldd}");
        let found = needed_closure(Path::new(program), None);
        assert_eq!(found[0], Path::new(program));
        let found: BTreeSet<PathBuf> = found.iter().map(|path| path.canonicalize().unwrap()).collect();
        assert_eq!(found, by_loader);
    }
}

#[test]
fn the_closure_follows_paths_and_circles() {
    let shop = Workshop::new("closure");
    // c needs a, which needs b, which needs c; each is reached in another way.
    let stub = shop.library("libc1.so", &[], &[]);
    let b = shop.library("deep/er/libb1.so", &[&stub], &[]);
    let a = shop.library("deep/liba1.so", &[&b], &["-Wl,--enable-new-dtags,-rpath,$ORIGIN/er"]);
    let c = shop.library("libc1.so", &[&a], &[]);
    let main = shop.program("main", &[&a], &["-Wl,--disable-new-dtags,-rpath,${ORIGIN}/deep"]);
    let found = needed_closure(&main, Some(shop.folder.as_os_str()));
    let found: Vec<_> = found.iter().map(|path| path.canonicalize().unwrap()).collect();
    assert_eq!(found, [main.clone(), a.clone(), b.clone(), c]);
    // Without LD_LIBRARY_PATH the last one cannot be found, and is left out.
    assert_eq!(needed_closure(&main, None).len(), 3);
    // An RPATH holds for what its object needs, deeper too; a RUNPATH for its own object alone.
    let a = shop.library("deep/liba1.so", &[&b], &[]);
    let old = shop.program("old", &[&a], &["-Wl,--disable-new-dtags,-rpath,$ORIGIN/deep:$ORIGIN/deep/er"]);
    let new = shop.program("new", &[&a], &["-Wl,--enable-new-dtags,-rpath,$ORIGIN/deep:$ORIGIN/deep/er"]);
    assert_eq!(needed_closure(&old, None).len(), 3);
    assert_eq!(needed_closure(&new, None).len(), 2);
    // What is no ELF file needs nothing.
    assert_eq!(needed_closure(Path::new("/etc/passwd"), None), [PathBuf::from("/etc/passwd")]);
}

#[test]
fn commands_are_found_as_execvp_does() {
    let shop = Workshop::new("path");
    let program = shop.program("bin/tool", &[], &[]);
    shop.file("first/tool", b"not executable", 0o644);
    fs::create_dir_all(shop.path("second/tool")).unwrap();
    let path = ["first", "second", "bin"].map(|dir| shop.path(dir));
    let path = std::env::join_paths(path).unwrap();
    let found = resolve_program(OsStr::new("tool"), Some(&path));
    assert_eq!((found.elf, found.file), (Some(program.clone()), Some(program.clone())));
    let only_first = shop.path("first");
    let found = resolve_program(OsStr::new("tool"), Some(only_first.as_os_str()));
    assert!(matches!(found.problem, Some(Problem::NotExecutable(file)) if file == only_first.join("tool")));
    for absent in ["no-such-command", "", "/no/such/file"] {
        let found = resolve_program(OsStr::new(absent), Some(&path));
        assert!(matches!(found.problem, Some(Problem::NotFound)) && found.elf.is_none(), "{absent}");
    }
    assert!(matches!(resolve(&shop.folder).problem, Some(Problem::IsDirectory(_))));
    symlink("tool", shop.path("bin/link")).unwrap();
    let found = resolve(&shop.path("bin/link"));
    assert_eq!((found.file, found.elf), (Some(shop.path("bin/link")), Some(program)));
}

#[test]
fn scripts_lead_to_their_interpreters() {
    let shop = Workshop::new("scripts");
    let program = shop.program("bin/interp", &[], &[]);
    let path = shop.path("bin");
    let script = |name: &str, line: &str| shop.file(name, format!("{line}\necho\n").as_bytes(), 0o755);
    let direct = script("direct", &format!("#! {} -x", program.display()));
    let by_env = script("by-env", "#!/usr/bin/env interp");
    let second = script("second", &format!("#!{}", direct.display()));
    for (start, scripts) in [(&direct, vec![&direct]), (&by_env, vec![&by_env]), (&second, vec![&second, &direct])] {
        let found = resolve_program(start.as_os_str(), Some(path.as_os_str()));
        assert_eq!(found.elf.as_ref(), Some(&program), "{found:?}");
        assert_eq!(found.scripts.iter().collect::<Vec<_>>(), scripts);
        assert_eq!(found.file.as_ref(), Some(start));
    }
    let plain = resolve(&script("plain", "echo no first line"));
    assert_eq!(plain.elf, Some(Path::new("/bin/sh").canonicalize().unwrap()));
    let lost = script("lost", "#!/no/such/interpreter");
    match resolve(&lost).problem {
        Some(Problem::NoInterpreter { script, interpreter }) => {
            assert_eq!((script, interpreter), (lost, "/no/such/interpreter".into()));
        }
        other => panic!("{other:?}"),
    }
    let circle = shop.path("circle");
    script("circle", &format!("#!{}", circle.display()));
    assert!(matches!(resolve(&circle).problem, Some(Problem::TooManyScripts(_))));
}

#[test]
fn what_stands_in_the_way_of_preloading_is_told() {
    let shop = Workshop::new("traits");
    let plain = resolve(&shop.program("plain", &[], &[])).traits;
    assert!(plain.interpreter.is_some_and(|i| i.ends_with("ld-linux-x86-64.so.2")));
    assert!(!plain.musl && !plain.go && plain.address_sanitizer.is_none());
    assert_eq!((plain.set_uid, plain.set_gid), (None, None));

    let fixed = resolve(&shop.program("static", &[], &["-static"]));
    assert_eq!((fixed.traits.interpreter, fixed.problem.is_none()), (None, true));

    let musl = resolve(&shop.program("musl", &[], &["-Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1"])).traits;
    assert!(musl.musl && musl.interpreter == Some("/lib/ld-musl-x86_64.so.1".into()));

    let runtime = shop.library("libasan.so.8", &[], &[]);
    let between = shop.library("libbetween.so", &[&runtime], &["-Wl,-rpath,$ORIGIN"]);
    let asan = resolve(&shop.program("asan", &[&between], &["-Wl,-rpath,$ORIGIN"])).traits;
    assert_eq!(asan.address_sanitizer.unwrap().canonicalize().unwrap(), runtime);

    let section = r#"__attribute__((section(".go.buildinfo"))) int info = 1; void _start(void) { for (;;) {} }"#;
    assert!(resolve(&shop.compile("go", section, &[])).traits.go);

    let special = shop.program("special", &[], &[]);
    let owner = fs::metadata(&special).map(|m| std::os::unix::fs::MetadataExt::uid(&m)).unwrap();
    fs::set_permissions(&special, fs::Permissions::from_mode(0o6755)).unwrap();
    let special = resolve(&special).traits;
    assert_eq!(special.set_uid, Some(owner));
    assert!(special.set_gid.is_some());

    let mut foreign = fs::read(shop.path("plain")).unwrap();
    foreign[18] = 183;
    let foreign = resolve(&shop.file("foreign", &foreign, 0o755));
    match foreign.problem {
        Some(Problem::Unusable(error)) => assert!(error.to_string().contains("AArch64"), "{error}"),
        other => panic!("{other:?}"),
    }
}
