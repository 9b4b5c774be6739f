//! The environment that the program gets, and that it is the one that the preloaded object reads.

mod support;

use support::{outcome, Installation};
use uunwind_ring::{ENV_OBJECTS, ENV_SESSION, FLAG_EXPLICIT, FLAG_NO_CHILDREN, FLAG_NO_REPLAY};

/// Value of a variable in the program's environment.
fn value(uu: &mut std::process::Command, name: &str) -> String {
    let output = uu.args(["--", "sh", "-c", "env"]).output().expect("uu runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().find_map(|l| l.strip_prefix(&format!("{name}=")));
    line.unwrap_or_else(|| panic!("{name} is not in {text}, {:?}", outcome(&output))).to_owned()
}

#[test]
fn rate_and_flags_reach_the_program() {
    let uu = Installation::new("session");
    let session = |options: &[&str]| {
        let value = value(&mut uu.uu(&[&["record"], options].concat()), ENV_SESSION);
        value.split(':').map(|n| n.parse().expect("a number")).collect::<Vec<u32>>()
    };
    assert_eq!(session(&[])[3..], [99, 0]);
    assert_eq!(session(&["-r", "50", "--explicit"])[3..], [50, FLAG_EXPLICIT]);
    assert_eq!(session(&["--rate=7", "--no-children", "--explicit"])[3..], [7, FLAG_EXPLICIT | FLAG_NO_CHILDREN]);
    assert_eq!(session(&["--no-replay"])[3..], [99, FLAG_NO_REPLAY]);
}

#[test]
fn preloaded_objects_come_before_the_user_s_own() {
    let uu = Installation::new("preload");
    let own = uu.build("own.so", "int nothing;", &["-shared", "-fPIC"]);
    let preload = value(uu.uu(&["record"]).env("LD_PRELOAD", &own), "LD_PRELOAD");
    let installed = |file: &str| uu.folder.join(file).canonicalize().expect("installed");
    let (first, second) = (installed("lib/uu/libuunwind-preload.so"), installed("lib/libuunwind.so.0"));
    assert_eq!(preload, format!("{}:{}:{}", first.display(), second.display(), own.display()));
}

#[test]
fn an_installation_in_an_odd_place_is_linked_from_a_safe_one() {
    let outer = Installation::new("odd");
    let odd = outer.folder.join("a place: odd");
    std::fs::create_dir(&odd).expect("folder");
    for part in ["bin", "lib"] {
        std::fs::rename(outer.folder.join(part), odd.join(part)).expect("moved");
    }
    let uu = || {
        let mut command = std::process::Command::new(odd.join("bin/uu"));
        command.arg("record").current_dir(&outer.folder).env("XDG_RUNTIME_DIR", &outer.folder).env_remove("LD_PRELOAD");
        command
    };
    let preload = value(&mut uu(), "LD_PRELOAD");
    assert!(preload.starts_with(outer.folder.to_str().expect("text")), "{preload}");
    let (preload, library) = preload.split_once(':').expect("two objects");
    assert!(preload.ends_with("/libuunwind-preload.so") && !preload.contains([' ', ':']), "{preload}");
    assert!(library.ends_with("/libuunwind.so.0") && !library.contains([' ', ':']), "{library}");
    let objects = value(&mut uu(), ENV_OBJECTS);
    assert!(objects.ends_with("/libuunwind.so.0") && !objects.contains([' ', ':']), "{objects}");
    assert!(!std::path::Path::new(preload).exists(), "the link goes away with uu");
    // The dynamic loader complains when it cannot use the path.
    let output = uu().args(["--", "true"]).output().expect("uu runs");
    assert!(!outcome(&output).1.contains("cannot be preloaded"), "{}", outcome(&output).1);
}

#[test]
fn an_old_c_library_is_refused() {
    let uu = Installation::new("glibc");
    let libc = uu.build("libc.so.6", "int old;", &["-shared", "-fPIC", "-nostdlib", "-Wl,-soname,libc.so.6"]);
    let rpath = format!("-Wl,-rpath,{}", uu.folder.display());
    uu.build("program", "int main() { return 0; }", &[&rpath]);
    let (code, text) = outcome(&uu.run(&["record", "./program"]));
    assert_eq!(code, 125, "{text}");
    assert!(text.contains("glibc before 2.28") && text.contains(&libc.display().to_string()), "{text}");
}
