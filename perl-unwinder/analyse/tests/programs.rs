//! The Perls of this machine: the program, and the library for programs that embed it.

use std::path::PathBuf;
use uunwind_elf::Image;
use uunwind_perl_analyse::signal::facts;
use uunwind_perl_analyse::{analyse, Facts};

/// The programs, of this machine and of the suites that `ci/interpreters` has fetched, and the libraries.
fn objects() -> Vec<PathBuf> {
    let me = std::env::current_exe().expect("the path of the test program");
    let target = me.ancestors().nth(3).expect("test programs lie three folders below the target folder");
    let list = |folder: PathBuf| std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let roots = list(target.join("interpreters")).chain([PathBuf::from("/")]);
    let is_perl = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let is_one =
            name == "perl" || name.strip_prefix("libperl.so.").is_some_and(|rest| rest.matches('.').count() == 2);
        is_one && path.symlink_metadata().is_ok_and(|about| about.is_file())
    };
    let folders = roots.flat_map(|root| ["usr/bin", "usr/lib/x86_64-linux-gnu"].map(|folder| root.join(folder)));
    folders.flat_map(list).filter(is_perl).collect()
}

#[test]
fn each_object_is_served() {
    let found = objects();
    if found.is_empty() {
        uunwind_skips::skipped("facts of Perl's objects", "this machine has no Perl");
    }
    for path in found {
        let image = Image::open(&path).unwrap_or_else(|why| panic!("{}: {why:?}", path.display()));
        let uunwind_language::Finding::Facts(bytes) = analyse(&image) else {
            panic!("{}: {:?}", path.display(), analyse(&image));
        };
        let mut aligned = vec![0u64; bytes.len().div_ceil(8)];
        aligned.iter_mut().zip(bytes.chunks(8)).for_each(|(to, from)| {
            *to = from.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        });
        let bytes: Vec<u8> = aligned.iter().flat_map(|word| word.to_le_bytes()).collect();
        let facts = Facts::read(&bytes).expect("facts that the signal half accepts");
        if std::env::var_os("UU_SHOW").is_some() {
            println!("{}: {facts:#x?}", path.display());
        }
        let symbol = |name: &str| image.symbol(name).expect("an exported symbol").address;
        assert_eq!(facts.runops.start, symbol("Perl_runops_standard"));
        assert!(facts.runops_entered < facts.runops_called && facts.runops.contains(facts.runops_called));
        assert_eq!(facts.interpreter_register, 3);
        // The places of Perl's source that call a run loop: two in perl_run, two in call_sv, one each in amagic_call,
        // eval_sv, docatch, invoke_defer_block and regmatch, two of comparators, two that compute constants. Perl 5.32
        // has no `defer`; eval_sv of 5.40 has two.
        let minor = facts.perl >> 8 & 0xff;
        let of = |class| facts.sites.iter().filter(|site| site.class == class).count();
        let classes = [
            (facts::MAIN, 2),
            (facts::SUB, 3),
            (facts::EVAL, if minor < 40 { 3 } else { 4 }),
            (facts::NESTED, 1),
            (facts::DEFER, usize::from(minor >= 36)),
            (facts::SORT, 2),
            (facts::REGEX, 1),
        ];
        for (class, count) in classes {
            assert_eq!(of(class), count, "{}: class {class}: {facts:#x?}", path.display());
        }
        // From pp_entersub, as often as the compiler has copied the call, and pp_goto.
        let calls = facts.xsubs.iter().filter(|place| place.after != 0).count();
        assert_eq!(calls, if minor == 32 { 3 } else { 4 }, "{facts:#x?}");
        // Not exported since 5.38.
        if let Some(entersub) = image.symbol("Perl_pp_entersub") {
            let range = entersub.address..entersub.address + 0x1000;
            assert!(range.contains(&facts.xsubs[0].after), "{facts:#x?}");
        }
        assert!(facts.pushing.iter().filter(|range| range.end > range.start).count() >= 16, "{facts:#x?}");
    }
}
