//! The libraries of this machine's Rubies, and of those that `ci/interpreters` has fetched.

use std::path::{Path, PathBuf};
use uunwind_elf::Image;
use uunwind_ruby_analyse::{analyse, Facts};

fn list(folder: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

fn libraries() -> Vec<PathBuf> {
    let fetched = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/interpreters");
    let mut folders: Vec<PathBuf> = list(&fetched).iter().map(|suite| suite.join("usr/lib/x86_64-linux-gnu")).collect();
    folders.push("/usr/lib/x86_64-linux-gnu".into());
    let is_ruby = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let is_file = path.symlink_metadata().is_ok_and(|about| about.is_file());
        name.starts_with("libruby-") && name.contains(".so.") && is_file
    };
    folders.iter().flat_map(|folder| list(folder)).filter(is_ruby).collect()
}

#[test]
fn each_library_is_served() {
    let found = libraries();
    if found.is_empty() {
        uunwind_skips::skipped("facts of Ruby's libraries", "this machine has none");
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
        // The loop is long, and `vm_exec` is not; each leaves a frame before it has begun.
        assert!(
            facts.core.end - facts.core.start > 8 << 10 && facts.exec.end - facts.exec.start < 8 << 10,
            "{facts:#x?}"
        );
        assert!(facts.core_entry > 0 && facts.core_frame > 64 && facts.core_register == 15, "{facts:#x?}");
        assert!(facts.exec_entry > 0 && facts.leaving[0].start > facts.exec.start, "{facts:#x?}");
        assert!(facts.pushing[0].start != 0, "{facts:#x?}");
        if let Some(exec) = image.symbol("rb_vm_exec") {
            assert_eq!(exec.address, facts.exec.start);
        }
        if std::env::var_os("UU_SHOW").is_some() {
            println!("{}: {facts:#x?}", path.display());
        }
    }
}
