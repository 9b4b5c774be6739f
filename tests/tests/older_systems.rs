//! What is shipped, on systems with an older C library: in their root file systems, which `ci/systems roots` makes.
//! Their glibcs have no `_dl_find_object`, and libpthread and libdl beside libc.

use std::path::{Path, PathBuf};
use std::process::Command;
use uunwind_tests::process::Outcome;
use uunwind_tests::{compile, paths, process, skips, uu};

const PROGRAM: &str = "import sys, time
open('ready', 'w').close()
def inner():
    return sum(i * i for i in range(1000))
def outer():
    end = time.process_time() + float(sys.argv[1])
    while time.process_time() < end:
        inner()
outer()
print('done')
";

const LUA: &str = "local function inner()
  local sum = 0
  for i = 1, 1000 do sum = sum + i % 7 end
  return sum
end
local function outer()
  local stop = os.clock() + 0.4
  local sum = 0
  while os.clock() < stop do sum = sum + inner() end
  return sum
end
print(outer() and 'done')
";

/// Debian's names of the systems that `ci/systems` unpacks.
const SYSTEMS: &[&str] = &["bullseye"];

/// The root of a system, and a folder of this run in it.
struct System {
    name: String,
    root: PathBuf,
    scratch: PathBuf,
}

impl System {
    /// Those that are there; none, and skipped by name, where they cannot be entered.
    fn all(what: &str) -> Vec<System> {
        let enter = ["--user", "--map-root-user", "--mount", "--pid", "--fork", "true"];
        if !Command::new("unshare").args(enter).output().is_ok_and(|done| done.status.success()) {
            skips::skipped(&format!("{what}, on older systems"), "no user namespace can be made");
            return Vec::new();
        }
        let mut found = Vec::new();
        for name in SYSTEMS {
            let root = paths::target().join("systems").join(name);
            if root.join("lib").is_dir() {
                let scratch = paths::scratch("older");
                found.push(System { name: (*name).to_owned(), root, scratch });
            } else {
                skips::skipped(&format!("{what}, on {name}"), "its root is not here: ci/systems roots makes it");
            }
        }
        found
    }

    /// Runs a command of sh's there: the tree is at /opt/uu, the scratch folder at /tmp.
    fn run(&self, command: &str) -> Outcome {
        let at = |folder: &str| self.root.join(folder).display().to_string();
        let script =
            "mount --rbind /dev \"$1/dev\" && mount --bind \"$2\" \"$1/opt/uu\" && mount --bind \"$3\" \"$1/tmp\" \
                      && exec chroot \"$1\" /bin/sh -c \"cd /tmp; $4\"";
        let mut enter = Command::new("unshare");
        enter.args([
            "--user",
            "--map-root-user",
            "--mount",
            "--pid",
            "--fork",
            &format!("--mount-proc={}", at("proc")),
        ]);
        enter.args(["sh", "-c", script, "sh"]);
        enter.args([&self.root, &paths::tree(), &self.scratch]).arg(command);
        let path = std::env::var_os("PATH").expect("a PATH, where mount and chroot are found");
        enter.env_clear().env("PATH", path).env("LC_ALL", "C");
        process::run(&mut enter, &self.scratch, uu::LIMIT)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.scratch.join(name), text).expect("scratch");
    }

    /// `older`, compiled here for there, and the library that it opens.
    fn compile(&self) {
        let libraries = older_glibc();
        let search = format!("-L{}", libraries.display());
        let functions = libraries.join("functions.o").display().to_string();
        let options = [&*search, &*functions, "-pthread", "-ldl", "-rdynamic", "-Wl,--allow-shlib-undefined"];
        compile::gcc(&self.scratch, "older", &["native/older.c"], &options);
        let options = ["-shared", "-fPIC", "-nostdlib"];
        compile::gcc(&self.scratch, "libpassing.so", &["native/passing.c"], &options);
    }

    /// The lines of a recording in the format folded.
    #[track_caller]
    fn folded(&self, recording: &str, options: &str) -> Vec<String> {
        let said = self.run(&format!("/opt/uu/bin/uu report -f folded {options} {recording}")).expect_code(0);
        assert!(!said.stdout.is_empty(), "{}: {}", self.name, said.text());
        said.stdout.lines().map(str::to_owned).collect()
    }
}

/// What ci/build linked with.
fn older_glibc() -> PathBuf {
    let folder = paths::target().join("older-glibc");
    let made = std::fs::read_dir(&folder).expect("ci/build makes it").flatten().map(|entry| entry.path());
    let newest = made.max_by_key(|path| path.metadata().and_then(|data| data.modified()).ok());
    newest.expect("one version of it")
}

/// No stack failed, and hardly any is in doubt: a Python before 3.11 that is interrupted where it enters or leaves a
/// generator's frame gives rise to some, here as elsewhere.
#[track_caller]
fn complete(said: &Outcome) {
    let line = said.stderr.lines().find(|line| line.trim_start().starts_with("samples ")).expect("a summary");
    let numbers: Vec<u64> = line.split([' ', ':']).filter_map(|word| word.parse().ok()).collect();
    let [total, complete, ..] = numbers[..] else { panic!("{line}") };
    assert!(line.contains(" 0 failed") && total - complete <= 2 + total / 50, "{}", said.text());
}

/// The frames of these names follow one another, outermost first.
fn in_order(line: &str, names: &[&str]) -> bool {
    let mut from = 0;
    names.iter().all(|name| {
        let found = line[from..].find(name);
        from += found.map_or(0, |at| at + name.len());
        found.is_some()
    })
}

#[test]
fn python_is_recorded() {
    for system in System::all("Python") {
        system.write("program.py", PROGRAM);
        let said = system.run("/opt/uu/bin/uu record -r 250 -o a.uu -- python3.9 program.py 0.5").expect_code(0);
        assert!(said.stdout == "done\n", "{}", said.text());
        complete(&said);
        let lines = system.folded("a.uu", "");
        let inside: Vec<_> = lines.iter().filter(|line| line.contains("inner (")).collect();
        assert!(!inside.is_empty(), "{lines:#?}");
        for line in inside {
            assert!(in_order(line, &["<module> (/tmp/program.py", "outer (/tmp/program.py", "inner (/tmp/program.py"]));
        }
    }
}

#[test]
fn lua_is_recorded() {
    for system in System::all("Lua") {
        system.write("program.lua", LUA);
        // Debian 11's LuaJIT has references of 32 bits, which are not served.
        let said = system.run("/opt/uu/bin/uu record -r 250 -o a.uu -- lua5.3 program.lua").expect_code(0);
        assert!(said.stdout == "done\n", "{}", said.text());
        complete(&said);
        let lines = system.folded("a.uu", "");
        let whole = |line: &String| in_order(line, &["(program.lua", "outer (program.lua"]);
        assert!(lines.iter().any(whole), "{lines:#?}");
    }
}

#[test]
fn threads_and_objects_that_come_and_go_are_recorded() {
    for system in System::all("native code") {
        system.compile();
        let said = system.run("/opt/uu/bin/uu record -r 500 -o a.uu -- ./older work 1").expect_code(0);
        assert!(said.stdout == "done\n", "{}", said.text());
        // Samples in an object that has just come may not be described yet; none is wrong.
        assert!(said.stderr.contains(", 0 failed"), "{}", said.text());
        let lines = system.folded("a.uu", "");
        assert!(lines.iter().any(|line| in_order(line, &["thread;thread_work;turn"])), "{lines:#?}");
        assert!(lines.iter().any(|line| in_order(line, &["main;work", "passing;turn"])), "{lines:#?}");
        assert!(lines.iter().all(|line| !line.contains("passing") || line.contains("main;")), "{lines:#?}");
    }
}

/// backtrace(3) of the system is the oracle.
#[test]
fn captures_are_the_systems_own_stacks() {
    for system in System::all("uu_capture") {
        system.compile();
        let said = system.run("./older capture /opt/uu/lib/libuunwind.so.0").expect_code(0);
        assert!(said.stdout.ends_with("\n21 right\n"), "{}", said.text());
    }
}

#[test]
fn running_programs_are_looked_at() {
    for system in System::all("attach and dump") {
        system.write("program.py", PROGRAM);
        let command = "python3.9 program.py 600 & while [ ! -e ready ]; do sleep 0.1; done; \
                       /opt/uu/bin/uu record -p $! -d 2 -r 250 -o a.uu && /opt/uu/bin/uu dump -p $! >dump.txt; \
                       code=$?; kill $!; exit $code";
        let said = system.run(command).expect_code(0);
        let dump = std::fs::read_to_string(system.scratch.join("dump.txt")).expect("a dump");
        assert!(dump.contains("outer (") && dump.contains("<module>"), "{dump}");
        complete(&said);
        let lines = system.folded("a.uu", "");
        let inside: Vec<_> = lines.iter().filter(|line| line.contains("inner (")).collect();
        assert!(!inside.is_empty(), "{lines:#?}");
        for line in inside {
            assert!(in_order(line, &["<module> (", "outer (", "inner ("]), "{line}");
        }
    }
}

#[test]
fn crashes_are_reported() {
    for system in System::all("crash reports") {
        system.compile();
        let said = system.run("/opt/uu/bin/uu run --report-crashes -- ./older crash");
        assert_eq!(said.code(), 139, "{}", said.text());
        let places = ["third", "second", "first", "main"].map(|name| said.stderr.find(name));
        assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{}", said.text());
    }
}

/// Of the root itself: it is older than the function that newer systems have.
#[test]
fn the_systems_are_old() {
    for system in System::all("the roots") {
        let version = system.run("python3.9 -c 'import os; print(os.confstr(2))'").expect_code(0).stdout;
        let minor: u32 = version.trim().strip_prefix("glibc 2.").and_then(|text| text.parse().ok()).expect("a version");
        assert!((28..35).contains(&minor), "{}: {version}", system.name);
        assert!(Path::new(&system.root).join("lib/x86_64-linux-gnu/libpthread.so.0").exists());
    }
}
