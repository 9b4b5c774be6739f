//! What `ci/package` makes, installed where there is nothing else: a folder that has a C library, a Python and no PATH.

use object::read::elf::FileHeader;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use uunwind_tests::{compile, paths, plugins, process, skips, uu};

/// The packages, made once, of the tree under test.
fn packages() -> &'static Path {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    MADE.get_or_init(|| {
        let scratch = paths::scratch("packages");
        let mut make = Command::new(paths::root().join("ci/package"));
        make.arg("--tree").arg(paths::tree()).arg("--output").arg(scratch.join("out"));
        process::run(&mut make, &scratch, uu::LIMIT * 3).expect_code(0);
        scratch.join("out")
    })
}

/// The one package whose name ends so; none where its tool is not here.
fn package(end: &str) -> Option<PathBuf> {
    let all = std::fs::read_dir(packages()).expect("the folder of packages");
    let found: Vec<_> =
        all.map(|e| e.expect("an entry").path()).filter(|p| p.display().to_string().ends_with(end)).collect();
    assert!(found.len() <= 1, "{found:?}");
    found.into_iter().next()
}

/// Runs a tool of the system.
#[track_caller]
fn tool(name: &str, arguments: &[&str], scratch: &Path) -> String {
    process::run(Command::new(name).args(arguments), scratch, uu::LIMIT).expect_code(0).stdout
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// The extracted tarball.
fn extracted() -> &'static Path {
    static TREE: OnceLock<PathBuf> = OnceLock::new();
    TREE.get_or_init(|| {
        let scratch = paths::scratch("tarball");
        let tarball = package(".tar.xz").expect("a tarball");
        tool("tar", &["-xf", text(&tarball), "-C", text(&scratch), "--strip-components=1"], &scratch);
        scratch
    })
}

/// All files below a folder, relative to it.
fn files(folder: &Path) -> BTreeSet<String> {
    let listed = tool(
        "find",
        &[text(folder), "(", "-type", "f", "-o", "-type", "l", ")", "-printf", "%P\n"],
        &paths::scratch("find"),
    );
    listed.lines().map(str::to_owned).collect()
}

#[test]
fn packages_are_small_and_whole() {
    // Limits, not sizes: a tenth above what they were, with 0.6 MB for TLS. Unstripped, the tarball has more than three
    // times as much.
    for (end, limit) in [(".tar.xz", 5_400_000), (".whl", 9_290_000), (".deb", 5_400_000), (".rpm", 5_260_000)] {
        let Some(path) = package(end) else {
            skips::skipped(&format!("the size of the {end}"), "dpkg-deb or rpmbuild is not here");
            continue;
        };
        let size = path.metadata().expect("a package").len();
        assert!(size < limit, "{}: {size} bytes, limit {limit}", path.display());
    }
    let have = files(extracted());
    for wanted in [
        "bin/uu",
        "lib/libuunwind.so",
        "lib/libuunwind.so.0",
        "lib/libuunwind.a",
        "lib/uu/libuunwind-preload.so",
        "lib/uu/libuunwind-alloc.so",
        "lib/uu/libuunwind-lock.so",
        "lib/uu/libuunwind-inject.so",
        "lib/uu/libuunwind-crash.so",
        "lib/uu/libuunwind-compat.so",
        "lib/uu/libuunwind-setup.so",
        "lib/pkgconfig/uunwind.pc",
        "lib/cmake/uunwind/uunwindConfig.cmake",
        "include/uu.h",
        "include/uu_stack.h",
        "include/uu_crash.h",
        "include/uu_code.h",
        "include/uu_record.h",
        "include/uu_optional.h",
        "include/uu_plugin.h",
        "share/man/man1/uu.1.gz",
        "share/man/man1/uu-record.1.gz",
        "share/man/man1/uu-sframe-make.1.gz",
        "share/bash-completion/completions/uu",
        "share/zsh/site-functions/_uu",
        "share/fish/vendor_completions.d/uu.fish",
        "lib/uu/libuunwind-for-lua.so",
        "share/lua/5.1/uunwind.lua",
        "share/lua/5.5/uunwind.lua",
        "share/doc/uunwind/copyright",
        "share/doc/uunwind/LICENSE-MIT",
        "share/doc/uunwind/LICENSE-APACHE",
        "share/doc/uunwind/THIRD-PARTY.txt.gz",
        "share/doc/uunwind/uunwind.cdx.json",
    ] {
        assert!(have.contains(wanted), "the tarball has no {wanted}: {have:?}");
    }
    for plugin in plugins::objects() {
        assert!(have.contains(&plugin), "the tarball has no {plugin}: {have:?}");
    }
    // Whatever the tree has is installed.
    let tree = files(&paths::tree());
    assert!(tree.is_subset(&have), "left out: {:?}", tree.difference(&have).collect::<Vec<_>>());
}

/// The files of the project that a document links to, as it names them.
fn links(document: &str) -> Vec<&str> {
    let ends = document.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
    ends.filter(|link| !link.is_empty() && !link.contains("://")).collect()
}

#[test]
fn every_package_has_what_its_readme_links_to() {
    let readme = extracted().join("share/doc/uunwind/README.md");
    let page = std::fs::read_to_string(&readme).expect("the tarball's README.md");
    let links = links(&page);
    assert!(links.contains(&"docs/limits.md") && links.contains(&"LICENSE-MIT"), "{links:?}");
    for link in &links {
        assert!(readme.with_file_name(link).exists(), "the tarball has no {link}");
    }
    let wheel = package(".whl").expect("a wheel");
    let listed = tool("python3", &["-m", "zipfile", "-l", text(&wheel)], &paths::scratch("wheel-list"));
    // Licences have a place of their own in a wheel; a link to a folder is to what it has.
    for link in links.iter().filter(|link| !link.starts_with("LICENSE")) {
        assert!(listed.contains(&format!("share/doc/uunwind/{link}")), "the wheel has no {link}");
    }
}

/// What is compiled in is under licences that are shipped, for each crate.
#[test]
fn licences_of_all_crates_are_inside() {
    let third = extracted().join("share/doc/uunwind/THIRD-PARTY.txt.gz");
    let third = tool("gzip", &["-dc", text(&third)], &paths::scratch("licences"));
    for package in ["clap ", "gimli ", "inferno ", "libc ", "iced-x86 ", "ring ", "rustls "] {
        assert!(third.lines().any(|line| line.starts_with(package)), "{package}");
    }
    for words in ["COMMON DEVELOPMENT AND DISTRIBUTION LICENSE", "Apache License", "Permission is hereby granted"] {
        assert!(third.contains(words), "{words}");
    }
    assert!(!third.contains("uunwind-tests"), "what only tests need is not shipped");
    let list = std::fs::read_to_string(extracted().join("share/doc/uunwind/uunwind.cdx.json")).expect("the list");
    let list: serde_json::Value = serde_json::from_str(&list).expect("JSON");
    let components = list["components"].as_array().expect("components");
    for component in components {
        let line = format!(
            "{} {}: ",
            component["name"].as_str().expect("a name"),
            component["version"].as_str().expect("one")
        );
        assert!(third.lines().any(|of| of.starts_with(&line)), "{line}");
        assert_eq!(component["hashes"][0]["content"].as_str().map(str::len), Some(64), "{line}");
    }
    let named = third.lines().take_while(|line| !line.starts_with("----")).filter(|line| line.contains(", http"));
    assert_eq!(components.len(), named.count(), "each crate once");
}

#[test]
fn checksums_are_those_of_the_packages() {
    let said =
        tool("sh", &["-c", &format!("cd {} && sha256sum -c SHA256SUMS", text(packages()))], &paths::scratch("sums"));
    assert!(said.lines().count() >= 2 && said.lines().all(|line| line.ends_with(": OK")), "{said}");
}

/// The oldest glibc that README.md names.
fn stated() -> (u32, u32) {
    let readme = std::fs::read_to_string(paths::root().join("README.md")).expect("README.md");
    let version = readme.split("glibc ").find_map(|rest| rest.split(" or later").next().and_then(version));
    version.expect("README.md says which glibc is needed")
}

/// `2.35` in numbers.
fn version(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.split('.').map(|part| part.parse().ok());
    Some((parts.next()??, parts.next()??))
}

/// The versions of glibc's symbols that an object names, as `readelf -V` lists them in the section of needed versions.
fn needed(path: &Path) -> BTreeSet<(u32, u32)> {
    let shown = tool("readelf", &["-VW", text(path)], &paths::scratch("readelf"));
    let words = shown.split_whitespace().filter_map(|word| word.strip_prefix("GLIBC_"));
    words.filter_map(version).collect()
}

#[test]
fn no_object_needs_a_newer_glibc_than_is_stated() {
    let limit = stated();
    let mut objects = 0;
    let mut newest = (0, 0);
    for name in files(extracted()) {
        let path = extracted().join(&name);
        let data = std::fs::read(&path).expect("a file of the package");
        if path.is_symlink() || object::elf::FileHeader64::<object::Endianness>::parse(&*data).is_err() {
            continue;
        }
        objects += 1;
        let versions = needed(&path);
        newest = versions.iter().copied().chain([newest]).max().expect("one");
        assert!(versions.iter().all(|v| *v <= limit), "{name} needs {versions:?}, and README.md says {limit:?}");
        let shown = tool("readelf", &["-SW", text(&path)], &paths::scratch("readelf"));
        assert!(!shown.contains(".debug_info"), "{name} has debug information");
    }
    assert!(objects >= 7, "{objects} objects");
    // The reading itself: memcpy is of 2.14.
    assert!(newest >= (2, 14), "{newest:?}");
    let tag = format!("manylinux_{}_{}_x86_64.whl", limit.0, limit.1);
    assert!(package(&tag).is_some(), "no wheel is called {tag}");
}

/// A root folder with glibc, /usr/bin/python3 and its library, a program to record, and no other programs.
struct Bare {
    root: PathBuf,
    scratch: PathBuf,
}

const PROGRAM: &str = "import time
def inner():
    return sum(i * i for i in range(1000))
def outer():
    end = time.process_time() + 0.4
    while time.process_time() < end:
        inner()
outer()
print('done')
";

impl Bare {
    /// None, and skipped by name, where it cannot be made.
    fn make(name: &str) -> Option<Bare> {
        let what = format!("{name}, installed in a bare root");
        let scratch = paths::scratch("bare");
        let root = scratch.join("root");
        let ask = "import sys; print('%d.%d' % sys.version_info[:2], sys.executable)";
        let Ok(said) = Command::new("/usr/bin/python3").args(["-c", ask]).output() else {
            skips::skipped(&what, "no /usr/bin/python3");
            return None;
        };
        let said = String::from_utf8(said.stdout).expect("text");
        let version = said.split(' ').next().expect("a version").to_owned();
        let enter = ["--user", "--map-root-user", "--mount", "--pid", "--fork", "true"];
        if !Command::new("unshare").args(enter).output().is_ok_and(|done| done.status.success()) {
            skips::skipped(&what, "no user namespace can be made");
            return None;
        }
        for folder in ["proc", "tmp", "dev", "usr/bin", "usr/lib"] {
            std::fs::create_dir_all(root.join(folder)).expect("scratch");
        }
        std::fs::write(root.join("dev/null"), "").expect("scratch");
        std::fs::write(root.join("tmp/program.py"), PROGRAM).expect("scratch");
        // Libraries at the paths at which the loader looks for them.
        let python = format!("/usr/bin/python{version}");
        let mut copied = BTreeSet::new();
        for of in [&*python, text(&paths::uu())] {
            for word in tool("ldd", &[of], &scratch).split_whitespace().filter(|word| word.starts_with('/')) {
                if copied.insert(word.to_owned()) {
                    let to = root.join(&word[1..]);
                    std::fs::create_dir_all(to.parent().expect("a folder")).expect("scratch");
                    tool("cp", &["-L", word, text(&to)], &scratch);
                }
            }
        }
        tool("cp", &[&python, text(&root.join("usr/bin/python3"))], &scratch);
        let library = format!("/usr/lib/python{version}");
        let to = root.join(&library[1..]);
        std::fs::create_dir_all(&to).expect("scratch");
        let copy = format!(
            "cp -r {library}/*.py {library}/encodings {library}/collections {library}/importlib {}",
            to.display()
        );
        tool("sh", &["-c", &copy], &scratch);
        Some(Bare { root, scratch })
    }

    /// Runs a program of the root, without any environment.
    #[track_caller]
    fn run(&self, words: &[&str]) -> process::Outcome {
        let proc = format!("--mount-proc={}", self.root.join("proc").display());
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "--pid", "--fork", &proc, "chroot"]);
        command.arg(&self.root).args(words);
        let chroot = std::env::var_os("PATH").expect("a PATH, where unshare finds chroot");
        command.env_clear().env("PATH", chroot).env("LC_ALL", "C");
        process::run(&mut command, &self.scratch, uu::LIMIT)
    }

    /// The checks of an installation below `prefix`, with libraries in `lib` there: a recording, a report, a program
    /// linked with the library.
    #[track_caller]
    fn check(&self, prefix: &str, lib: &str) {
        let uu = format!("{prefix}/bin/uu");
        assert!(self.run(&[&uu, "--version"]).expect_code(0).stdout.starts_with("uu 0."));
        let record = [&*uu, "record", "-r", "250", "-o", "/tmp/a.uu", "--", "/usr/bin/python3", "/tmp/program.py"];
        let said = self.run(&record).expect_code(0);
        assert!(said.stdout == "done\n" && said.stderr.contains("(100.0 %), 0 failed"), "{}", said.text());
        let folded = self.run(&[&uu, "report", "-f", "folded", "/tmp/a.uu"]).expect_code(0);
        let line =
            folded.stdout.lines().find(|line| line.contains("outer (/tmp/program.py") && line.contains("inner (/tmp/"));
        assert!(line.is_some(), "{}", folded.text());
        // Compiled outside, against what was installed, by what its own pkg-config file says.
        let at = self.root.join(prefix.trim_start_matches('/'));
        if !Command::new("pkg-config").arg("--version").output().is_ok_and(|done| done.status.success()) {
            return skips::skipped("a program linked with the installed library", "pkg-config is not here");
        }
        let mut ask = Command::new("pkg-config");
        ask.args(["--cflags", "--libs", "uunwind"]).env("PKG_CONFIG_PATH", at.join(lib).join("pkgconfig"));
        let flags = process::run(&mut ask, &self.scratch, uu::LIMIT).expect_code(0).stdout;
        let rpath = format!("-Wl,-rpath,{prefix}/{lib}");
        let options: Vec<&str> = flags.split_whitespace().chain(["-ldl", "-rdynamic", &rpath]).collect();
        compile::gcc(&self.root.join("tmp"), "linked", &["native/static.c"], &options);
        let said = self.run(&["/tmp/linked"]).expect_code(0);
        assert!(said.stdout.starts_with("frames 1, stop 1, begins main\nsetup done\n"), "{}", said.text());
    }
}

#[test]
fn the_tarball_works_where_it_was_extracted() {
    let Some(bare) = Bare::make("the tarball") else { return };
    let place = bare.root.join("opt/some where");
    std::fs::create_dir_all(bare.root.join("opt")).expect("scratch");
    tool("cp", &["-a", text(extracted()), text(&place)], &bare.scratch);
    // A space in the path is no trouble for uu; pkg-config's output would have to be quoted.
    assert!(bare.run(&["/opt/some where/bin/uu", "--version"]).expect_code(0).stdout.starts_with("uu 0."));
    std::fs::rename(&place, bare.root.join("opt/uu")).expect("a move");
    bare.check("/opt/uu", "lib");
}

#[test]
fn the_debian_package_works_in_a_bare_root() {
    let Some(deb) = package(".deb") else {
        return skips::skipped("the Debian package in a bare root", "dpkg-deb is not here");
    };
    let Some(bare) = Bare::make("the Debian package") else { return };
    let control = tool("dpkg-deb", &["-f", text(&deb)], &bare.scratch);
    let (major, minor) = stated();
    assert!(control.contains(&format!("Depends: libc6 (>= {major}.{minor}), libgcc-s1")), "{control}");
    tool("dpkg-deb", &["-x", text(&deb), text(&bare.root)], &bare.scratch);
    bare.check("/usr", "lib");
    // Debian's uudeview, libuu0 and libuu-dev can be installed beside it: their files in Debian 12.
    let have = files(&bare.root);
    for theirs in [
        "usr/lib/libuu.so.0",
        "usr/lib/libuu.so",
        "usr/lib/libuu.a",
        "usr/include/uudeview.h",
        "usr/bin/uudeview",
        "usr/bin/uuenview",
        "usr/share/doc/libuu0",
    ] {
        assert!(!have.iter().any(|path| path.starts_with(theirs)), "{theirs} is uudeview's");
    }
    // And a program that asks for their library by name does not get ours.
    let named = tool("readelf", &["-dW", text(&bare.root.join("usr/lib/libuunwind.so.0"))], &bare.scratch);
    assert!(named.contains("[libuunwind.so.0]"), "{named}");
}

#[test]
fn the_rpm_works_in_a_bare_root() {
    let Some(rpm) = package(".rpm") else {
        return skips::skipped("the RPM package in a bare root", "rpmbuild is not here");
    };
    let Some(bare) = Bare::make("the RPM package") else { return };
    // What it needs is in glibc and libgcc, and no newer glibc than is stated.
    let (major, minor) = stated();
    let needs = tool("rpm", &["-qpR", text(&rpm)], &bare.scratch);
    assert!(needs.lines().any(|need| need == format!("glibc >= {major}.{minor}")), "{needs}");
    let known = ["glibc ", "ld-linux-x86-64.so.", "libc.so.6", "libdl.", "libgcc_s.", "libm.", "libpthread.", "librt."];
    let own = ["rpmlib(", "rtld(GNU_HASH)", "libuunwind.so.0"];
    let strange = needs.lines().find(|need| !known.iter().chain(&own).any(|known| need.starts_with(known)));
    assert_eq!(strange, None, "{needs}");
    let provides = tool("rpm", &["-qp", "--provides", text(&rpm)], &bare.scratch);
    assert!(provides.contains("libuunwind.so.0()(64bit)") && !provides.contains("preload"), "{provides}");
    let unpack = format!("rpm2archive -n - <{} | tar -x -C {}", text(&rpm), text(&bare.root));
    tool("sh", &["-c", &unpack], &bare.scratch);
    bare.check("/usr", "lib64");
}

/// The crates are all that they need of each other: one that depends on the library for Rust, and in its tests on the
/// command, is resolved with them alone. The library is compiled.
#[test]
fn the_crates_are_whole() {
    let scratch = paths::scratch("crates");
    let mut patches = String::new();
    for entry in std::fs::read_dir(packages().join("crates")).expect("the crates") {
        let path = entry.expect("an entry").path();
        tool("tar", &["-xf", text(&path), "-C", text(&scratch)], &scratch);
        let folder = path.file_stem().expect("a name").to_str().expect("UTF-8");
        let name = folder.rsplit_once('-').expect("a version").0;
        patches += &format!("{name} = {{ path = \"{folder}\" }}\n");
    }
    let manifest = format!(
        "[package]\nname = \"user\"\nversion = \"0.0.0\"\nedition = \"2021\"\n[workspace]\n[lib]\npath = \"user.rs\"\n\
         [dependencies]\nuunwind = \"0.1\"\n[dev-dependencies]\nuunwind-cli = \"0.1\"\n[patch.crates-io]\n{patches}"
    );
    std::fs::write(scratch.join("Cargo.toml"), manifest).expect("scratch");
    std::fs::write(scratch.join("user.rs"), "pub use uunwind::Frame;\n").expect("scratch");
    std::fs::copy(paths::root().join("Cargo.lock"), scratch.join("Cargo.lock")).expect("scratch");
    let mut check = Command::new(env!("CARGO"));
    check.args(["check", "--offline", "--quiet"]).current_dir(&scratch).env("CARGO_TARGET_DIR", scratch.join("target"));
    process::run(&mut check, &scratch, uu::LIMIT * 3).expect_code(0);
    let lock = std::fs::read_to_string(scratch.join("Cargo.lock")).expect("the lock");
    let resolved = patches.lines().filter_map(|line| line.split(' ').next());
    let missing: Vec<_> = resolved.filter(|name| !lock.contains(&format!("name = \"{name}\"\n"))).collect();
    assert!(patches.lines().count() >= 30 && missing.is_empty(), "nothing needs {missing:?}");
}

/// Packed twice, the files are the same.
#[test]
fn packages_are_reproducible() {
    if !skips::campaign("packages that are made twice") {
        return;
    }
    let scratch = paths::scratch("packages-again");
    let mut make = Command::new(paths::root().join("ci/package"));
    make.arg("--tree").arg(paths::tree()).arg("--output").arg(scratch.join("out"));
    process::run(&mut make, &scratch, uu::LIMIT * 3).expect_code(0);
    let sums = |folder: &Path| std::fs::read_to_string(folder.join("SHA256SUMS")).expect("the checksums");
    assert_eq!(sums(&scratch.join("out")), sums(packages()));
}

#[test]
fn the_wheel_gives_a_command_and_a_module() {
    let wheel = package(".whl").expect("a wheel");
    let scratch = paths::scratch("wheel");
    let place = scratch.join("venv");
    if !Command::new("/usr/bin/python3")
        .args(["-c", "import ensurepip, venv"])
        .output()
        .is_ok_and(|o| o.status.success())
    {
        return skips::skipped("the wheel, installed by pip", "/usr/bin/python3 has no venv");
    }
    tool("/usr/bin/python3", &["-m", "venv", text(&place)], &scratch);
    let python = place.join("bin/python");
    let pip = ["-m", "pip", "-q", "--disable-pip-version-check", "install", "--no-index", text(&wheel)];
    tool(text(&python), &pip, &scratch);
    std::fs::write(scratch.join("program.py"), PROGRAM).expect("scratch");
    let run = |words: &[&str]| {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).env_clear().env("HOME", &scratch).current_dir(&scratch);
        process::run(&mut command, &scratch, uu::LIMIT)
    };
    let uu = place.join("bin/uu");
    for (number, start) in [&[text(&uu)][..], &[text(&python), "-m", "uunwind"]].into_iter().enumerate() {
        assert!(run(&[start, &["--version"]].concat()).expect_code(0).stdout.starts_with("uu 0."));
        let to = format!("{number}.uu");
        let record = ["record", "-r", "250", "-o", &to, "--", text(&python), "program.py"];
        let said = run(&[start, &record].concat()).expect_code(0);
        assert!(said.stdout == "done\n" && said.stderr.contains("(100.0 %), 0 failed"), "{}", said.text());
        let folded = run(&[start, &["report", "-f", "folded", &to]].concat()).expect_code(0).stdout;
        assert!(folded.contains("outer (") && folded.contains("inner ("), "{folded}");
    }
    // The standard library had a module of that name until 3.12.
    let other = run(&[text(&python), "-c", "import importlib.util as u; s = u.find_spec('uu'); print(s and s.origin)"]);
    assert!(!other.stdout.contains(text(&place)), "{}", other.text());
    // Headers and library are usable, without symbolic links.
    let ask = run(&[text(&python), "-c", "import uunwind; print(uunwind.TREE)"]);
    let tree = Path::new(ask.stdout.trim());
    let (include, lib) = (format!("-I{}", tree.join("include").display()), format!("-L{}", tree.join("lib").display()));
    let rpath = format!("-Wl,-rpath,{}", tree.join("lib").display());
    let program = compile::gcc(
        &scratch,
        "linked",
        &["native/static.c"],
        &[&include, &lib, "-luunwind", &rpath, "-ldl", "-rdynamic"],
    );
    assert!(run(&[text(&program)]).expect_code(0).stdout.starts_with("frames 1, stop 1, begins main\nsetup done\n"));
    // Nothing of it is left, man pages included.
    tool(text(&python), &["-m", "pip", "-q", "--disable-pip-version-check", "uninstall", "-y", "uunwind"], &scratch);
    let left: Vec<_> =
        files(&place).into_iter().filter(|path| path.contains("uunwind") || path.contains("man1/uu")).collect();
    assert_eq!(left, Vec::<String>::new());
}
