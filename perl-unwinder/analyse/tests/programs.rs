//! The Perls of this machine: the program, and the library for programs that embed it.

use std::path::{Path, PathBuf};
use uunwind_elf::Image;
use uunwind_perl_analyse::signal::facts;
use uunwind_perl_analyse::{analyse, Facts};

fn objects() -> Vec<PathBuf> {
    let libraries = std::fs::read_dir("/usr/lib/x86_64-linux-gnu").into_iter().flatten().flatten();
    let libraries = libraries.map(|entry| entry.path()).filter(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("libperl.so.5.36.") && path.symlink_metadata().is_ok_and(|about| about.is_file())
    });
    let program = Path::new("/usr/bin/perl5.36.0");
    libraries.chain(program.exists().then(|| program.to_owned())).collect()
}

#[test]
fn each_object_is_served() {
    let found = objects();
    if found.is_empty() {
        uunwind_skips::skipped("facts of Perl's objects", "this machine has no Perl 5.36");
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
        // eval_sv, docatch, invoke_defer_block and regmatch, two of comparators, two that compute constants.
        let of = |class| facts.sites.iter().filter(|site| site.class == class).count();
        let classes = [
            (facts::MAIN, 2),
            (facts::SUB, 3),
            (facts::EVAL, 3),
            (facts::NESTED, 1),
            (facts::DEFER, 1),
            (facts::SORT, 2),
            (facts::REGEX, 1),
        ];
        for (class, count) in classes {
            assert_eq!(of(class), count, "{}: class {class}: {facts:#x?}", path.display());
        }
        // From pp_entersub (thrice) and pp_goto.
        assert_eq!(facts.xsubs.iter().filter(|place| place.after != 0).count(), 4, "{facts:#x?}");
        let entersub = symbol("Perl_pp_entersub");
        assert!(facts.xsubs[0].after > entersub && facts.xsubs[0].after < entersub + 0x1000, "{facts:#x?}");
        assert!(facts.pushing.iter().filter(|range| range.end > range.start).count() >= 16, "{facts:#x?}");
    }
}
