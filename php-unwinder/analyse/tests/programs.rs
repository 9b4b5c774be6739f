//! The PHPs of this machine, and those that `ci/interpreters` has fetched.

use std::path::PathBuf;
use uunwind_elf::Image;
use uunwind_php_analyse::{analyse, Facts};

fn programs() -> Vec<PathBuf> {
    let is_php = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let version = name.strip_prefix("php").or_else(|| name.strip_prefix("php-fpm")).unwrap_or("-");
        let is_version = version.chars().all(|c| c.is_ascii_digit() || c == '.') && !version.is_empty();
        is_version && path.symlink_metadata().is_ok_and(|about| about.is_file())
    };
    let me = std::env::current_exe().expect("the path of the test program");
    let fetched = me.ancestors().nth(3).expect("test programs lie three folders below the target folder");
    let suites = std::fs::read_dir(fetched.join("interpreters")).into_iter().flatten().flatten();
    let folders = suites.map(|suite| suite.path().join("usr/bin"));
    let folders = folders.chain(["/usr/bin", "/usr/sbin"].map(PathBuf::from));
    let entries = folders.flat_map(std::fs::read_dir);
    entries.flatten().flatten().map(|entry| entry.path()).filter(is_php).collect()
}

#[test]
fn each_program_is_served() {
    let found = programs();
    if found.is_empty() {
        uunwind_skips::skipped("facts of PHP's programs", "this machine has none");
    }
    for path in found {
        let image = Image::open(&path).unwrap_or_else(|why| panic!("{}: {why:?}", path.display()));
        let uunwind_language::Finding::Facts(facts) = analyse(&image) else {
            panic!("{}: {:?}", path.display(), analyse(&image));
        };
        let mut aligned = vec![0u64; facts.len().div_ceil(8)];
        aligned.iter_mut().zip(facts.chunks(8)).for_each(|(to, from)| {
            *to = from.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        });
        let bytes: Vec<u8> = aligned.iter().flat_map(|word| word.to_le_bytes()).collect();
        let facts = Facts::read(&bytes).expect("facts that the signal half accepts");
        let symbol = |name: &str| image.symbol(name).expect("an exported symbol").address;
        assert_eq!((facts.exec.start, facts.globals), (symbol("execute_ex"), symbol("executor_globals")));
        assert!(facts.exec.end - facts.exec.start > 16 << 10, "{facts:#x?}");
        assert!(facts.exec_entry > 0 && facts.exec_loaded > facts.exec_entry, "{facts:#x?}");
        assert_eq!((facts.frame_register, facts.opline_register), (14, 15));
        let switching: Vec<u64> = facts.switching.iter().map(|range| range.start).collect();
        assert!(switching.contains(&symbol("zend_init_func_execute_data")), "{facts:#x?}");
        assert!(facts.exec.contains(facts.leaving[0].start), "{facts:#x?}");
        if std::env::var_os("UU_SHOW").is_some() {
            println!("{}: {facts:#x?}", path.display());
        }
    }
}
