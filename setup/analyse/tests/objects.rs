//! Objects: keys, facts, errors, and files that are damaged.

mod workshop;

use std::fs;
use std::path::Path;
use std::process::Command;
use uunwind_analyse::needed_closure;
use uunwind_built_in::HALVES;
use uunwind_elf::{key_of, AnalyseError, Image};
use uunwind_language::Finding;
use uunwind_python_analyse::Facts;
use uunwind_random::Random;
use workshop::{Workshop, FAKE_PYTHON};

/// What is found in an object.
#[derive(Debug)]
struct Analysis {
    build_id: Option<Vec<u8>>,
    facts_key: u64,
    /// The name of the plugin that claims it, and its facts.
    facts: Option<(String, Vec<u8>)>,
    /// Why it is not served.
    refusals: Vec<String>,
}

fn analyse(path: &Path) -> Result<Analysis, AnalyseError> {
    let image = Image::open(path)?;
    let (facts_key, build_id) = key_of(&image);
    let (mut facts, mut refusals) = (None, Vec::new());
    for half in HALVES {
        match half.analyse(&image) {
            Finding::Unclaimed => {}
            Finding::Facts(found) => {
                assert!(facts.is_none(), "two plugins claim {}", path.display());
                facts = Some((half.language().plugin, found));
            }
            Finding::Refused(why) => refusals.push(why),
        }
    }
    Ok(Analysis { build_id, facts_key, facts, refusals })
}

const SHARED: &[&str] = &["-shared", "-fPIC"];

fn facts(path: &Path) -> Option<Facts> {
    let found = analyse(path).unwrap().facts?;
    assert_eq!(found.0, "python");
    Some(*Facts::read(&found.1).expect("facts that the signal half takes"))
}

#[test]
fn the_key_is_of_the_build_id_and_the_contents_or_else_of_the_headers() {
    let shop = Workshop::new("key");
    let id = [0xde, 0xad, 0xbe, 0xef, 1, 2, 3, 4];
    let with = shop.compile("with.so", "int a;", &["-shared", "-fPIC", "-Wl,--build-id=0xdeadbeef01020304"]);
    let analysis = analyse(&with).unwrap();
    assert_eq!(analysis.build_id.as_deref(), Some(id.as_slice()));
    let contents = Image::open(&with).unwrap().unwind_key().to_le_bytes();
    assert_eq!(analysis.facts_key, uunwind_core::object_key::key(&[&id[..], &contents].concat()));
    assert_eq!((analysis.facts, analysis.refusals.len()), (None, 0));

    let without = shop.compile("without.so", "int a;", &["-shared", "-fPIC", "-Wl,--build-id=none"]);
    let analysis = analyse(&without).unwrap();
    let bytes = fs::read(&without).unwrap();
    let headers = 64 + 56 * usize::from(u16::from_le_bytes([bytes[56], bytes[57]]));
    assert_eq!(bytes[32], 64, "the linker puts the program headers after the ELF header");
    assert_eq!(analysis.build_id, None);
    assert_eq!(analysis.facts_key, uunwind_core::object_key::key(&bytes[..headers]));
}

/// Interpreters with other structures, and one of them stripped, all under the build-id that the linker was given.
#[test]
fn an_interpreter_does_not_get_the_facts_of_another_one_with_its_build_id() {
    let shop = Workshop::new("same-build-id");
    let id = "-Wl,--build-id=0x00112233445566778899aabbccddeeff00112233";
    let longer =
        format!("int one_more_function(int n) {{ return n + 1; }}\nint more_data[64] = {{ 1 }};\n{FAKE_PYTHON}");
    let one = shop.compile("one.so", FAKE_PYTHON, &[SHARED, &[id]].concat());
    let other = shop.compile("other.so", &longer, &[SHARED, &[id]].concat());
    let stripped = shop.compile("stripped.so", FAKE_PYTHON, &[SHARED, &[id, "-s"]].concat());
    let all = [one, other, stripped].map(|path| analyse(&path).unwrap());
    let [one, other, stripped] = &all;
    assert!(one.build_id == other.build_id && one.build_id == stripped.build_id && one.build_id.is_some());
    assert!(one.facts.is_some() && one.facts != other.facts, "they lie elsewhere");
    assert!(one.facts_key != other.facts_key && one.facts_key != stripped.facts_key);
}

#[test]
fn symbols_are_found_by_either_hash_table_and_in_stripped_files() {
    let shop = Workshop::new("hash");
    for style in ["gnu", "sysv", "both"] {
        let path = shop.compile(
            "libpython.so",
            FAKE_PYTHON,
            &[SHARED, &[&format!("-Wl,--hash-style={style}"), "-s"]].concat(),
        );
        let facts = facts(&path).unwrap_or_else(|| panic!("{style}: {:?}", analyse(&path)));
        assert_eq!(facts.python, 0x030b_07f0);
        let nm = Command::new("nm").arg("-D").arg(&path).output().expect("nm");
        let nm = String::from_utf8(nm.stdout).unwrap();
        for (name, address) in
            [("_PyRuntime", facts.runtime), ("PyCode_Type", facts.code_type), ("_PyEval_EvalFrameDefault", facts.eval)]
        {
            let line = nm.lines().find(|line| line.ends_with(&format!(" {name}"))).unwrap();
            assert_eq!(u64::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap(), address, "{name}");
        }
    }
}

#[test]
fn a_python_that_is_not_served_is_named() {
    let shop = Workshop::new("refused");
    let path = shop.compile("libpython.so", &FAKE_PYTHON.replace("0x030b07f0", "0x031000a1"), SHARED);
    let analysis = analyse(&path).unwrap();
    assert_eq!(analysis.facts, None);
    let note = &analysis.refusals[0];
    assert!(note.starts_with("no Python frames: this is CPython 3.16.0a1;"), "{note}");
}

/// The interpreter that `python3` starts, by its own word.
#[test]
fn the_installed_python_is_what_it_says() {
    let script = "import sys, sysconfig; var = sysconfig.get_config_var; \
        print(sys.executable, sys.hexversion, bool(var('Py_DEBUG') or var('Py_GIL_DISABLED')))";
    let output = Command::new("python3").args(["-c", script]).output().expect("python3");
    let line = String::from_utf8(output.stdout).unwrap();
    let [executable, version, special] = line.split_whitespace().collect::<Vec<_>>()[..] else {
        panic!("{line}");
    };
    let version: u32 = version.parse().unwrap();
    let served = (0x030b..=0x030d).contains(&(version >> 16)) && version & 0xf0 == 0xf0 && special == "False";
    let objects: Vec<_> =
        needed_closure(Path::new(executable), None).iter().map(|path| analyse(path).unwrap()).collect();
    let found: Vec<_> = objects.iter().filter_map(|a| a.facts.as_ref()).collect();
    if served {
        assert_eq!(found.len(), 1, "one object holds the interpreter");
        assert_eq!(Facts::read(&found[0].1).unwrap().python, version);
    } else {
        assert!(found.is_empty());
        assert_eq!(objects.iter().map(|a| a.refusals.len()).sum::<usize>(), 1, "{objects:?}");
    }
}

#[test]
fn errors_name_the_file_and_what_was_found() {
    let shop = Workshop::new("errors");
    let good = fs::read(shop.compile("good.so", "int a;", SHARED)).unwrap();
    let patched = |name: &str, at: usize, bytes: &[u8]| {
        let mut copy = good.clone();
        copy[at..at + bytes.len()].copy_from_slice(bytes);
        shop.file(name, &copy, 0o644)
    };
    for (path, says) in [
        (shop.path("absent"), "cannot be read: No such file"),
        (shop.folder.clone(), "cannot be read: it is a directory, not a regular file"),
        ("/dev/null".into(), "cannot be read: it is a character device, not a regular file"),
        (shop.file("text", b"hello", 0o644), "not an ELF file (it begins with \"hell\")"),
        (shop.file("empty", b"", 0o644), "not an ELF file (it begins with \"\")"),
        (shop.file("short", b"\x7fELF\x02\x01", 0o644), "its ELF header would end at byte 64, the file ends at 6"),
        (patched("m32", 4, &[1]), "a 32-bit machine (x86-64); only 64-bit x86-64 is served"),
        (patched("arm", 18, &[183, 0]), "AArch64"),
        (patched("odd", 18, &[9, 200]), "machine number 51209"),
        (patched("big", 5, &[2]), "a big-endian machine"),
        (patched("class", 4, &[7]), "no known machine"),
        (patched("core", 16, &[4, 0]), "(ELF type 4)"),
        (patched("headers", 32, &[0xff; 8]), "program header table would end at byte 18446744073709551615"),
        (patched("entry", 54, &[8]), "program header"),
    ] {
        let error = analyse(&path).unwrap_err().to_string();
        assert!(error.starts_with(&path.display().to_string()) && error.contains(says), "{error}");
    }
    let error = analyse(&shop.path("absent")).unwrap_err();
    assert!(matches!(error, AnalyseError::Unreadable { .. }) && std::error::Error::source(&error).is_some());
}

#[test]
fn a_file_cut_at_any_length_gives_an_error_or_less() {
    let shop = Workshop::new("cut");
    let whole = fs::read(shop.compile("libpython.so", FAKE_PYTHON, &["-shared", "-fPIC", "-s"])).unwrap();
    let path = shop.path("cut.so");
    let (mut errors, mut facts) = (0, 0);
    for len in (0..whole.len()).step_by(13).chain(0..200).chain([whole.len()]) {
        fs::write(&path, &whole[..len]).unwrap();
        match analyse(&path) {
            Err(_) => errors += 1,
            Ok(analysis) => facts += usize::from(analysis.facts.is_some()),
        }
        needed_closure(&path, None);
    }
    assert!(errors > 200 && facts >= 1, "{errors} {facts}");
}

#[test]
fn a_file_with_wrong_bytes_never_stops_the_analysis() {
    let shop = Workshop::new("flip");
    let good = fs::read(shop.compile("libpython.so", FAKE_PYTHON, &["-shared", "-fPIC", "-s"])).unwrap();
    let path = shop.path("flip.so");
    let mut numbers = Random::new(0x1234_5678_9abc_def1);
    let mut random = |below: usize| numbers.index(below);
    // Headers, notes, hash, symbols, strings and the dynamic section are what is read: the bytes that are not zero.
    let used: Vec<usize> = (0..good.len()).filter(|at| good[*at] != 0).collect();
    for round in 0..4000 {
        let mut bad = good.clone();
        for _ in 0..=random(4) {
            let at = if round % 2 == 0 { random(0x400) } else { used[random(used.len())] };
            bad[at] = [0, 0xff, 0x7f, 0x80, bad[at] ^ 1 << random(8)][random(5)];
        }
        fs::write(&path, &bad).unwrap();
        let _ = analyse(&path);
        needed_closure(&path, None);
    }
}
