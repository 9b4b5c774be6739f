//! Perl unwinder plugin, analyse half: decides whether an ELF file holds a Perl that the signal half can read, and
//! finds the facts that it needs. Works on stripped files.
//!
//! - `version`: which Perl it is;
//! - `layout`: the structures, per version;
//! - `verify`: whether the file's own code has that layout;
//! - `places`: the run loop, its callers, and other places in the code;
//! - `ops`: functions that are in tables instead of symbols;
//! - `stubs`: what calls of exported functions lead to;
//! - `half`: what reports must know of Perl.
#![forbid(unsafe_code)]

mod half;
pub mod layout;
mod ops;
mod places;
mod stubs;
mod verify;
mod version;

pub use half::Perl;
use layout::Layout;
use ops::WithOps;
use stubs::Stubs;
use uunwind_elf::{Elf, Image, Relocations};
use uunwind_language::Finding;
/// The half that runs in handlers.
pub use uunwind_perl as signal;
pub use uunwind_perl::facts::{Facts, Plain};
pub use uunwind_perl::NAME;
pub use version::Version;

/// Analyses one ELF file.
pub fn analyse(image: &Image) -> Finding {
    finding(image, &Relocations::of(image))
}

fn finding(elf: &dyn Elf, words: &Relocations) -> Finding {
    match facts(elf, words) {
        Ok(Some(facts)) => Finding::Facts(facts.as_bytes().to_vec()),
        Ok(None) => Finding::Unclaimed,
        Err(found) => Finding::Refused(format!(
            "no Perl frames: {found}; served is Perl {} with threads on x86-64",
            layout::served()
        )),
    }
}

fn facts(elf: &dyn Elf, words: &Relocations) -> Result<Option<Facts>, String> {
    if elf.symbol("Perl_runops_standard").is_none() {
        return Ok(None);
    }
    let version = version::of(elf).ok_or("this is a Perl whose version was not found")?;
    let Layout { mut facts, runops } = layout::of(version).ok_or_else(|| format!("this is Perl {version}"))?;
    let wrong = |what: &str| format!("this is Perl {version}, {what}");
    if elf.symbol("PL_thr_key").is_none() {
        return Err(wrong("built without threads"));
    }
    let elf = &WithOps::of(elf, words);
    if let Some(function) = verify::differs(elf, &facts) {
        return Err(wrong(&format!("whose {function} does not read what it should")));
    }
    facts.perl = version.word();
    places::find(elf, &Stubs { words }, runops, &mut facts)
        .map_err(|what| wrong(&format!("whose {what} was not recognised")))?;
    // The signal half must accept what is called facts here.
    Facts::read(facts.as_bytes()).map(|facts| Some(*facts)).ok_or_else(|| wrong("whose facts contradict each other"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use uunwind_elf::{Function, Loaded, Symbol};

    /// A file with these numbers of its version and these symbols, and nothing else.
    struct Named([u8; 3], &'static [&'static str]);

    impl Elf for Named {
        fn symbol(&self, name: &str) -> Option<Symbol> {
            let at = self.1.iter().position(|symbol| *symbol == name)?;
            Some(Symbol { address: 0x1000 + at as u64, size: 1 })
        }

        fn read(&self, address: u64, out: &mut [u8]) -> bool {
            let at = address.wrapping_sub(0x1000) as usize;
            let Some(bytes) = self.0.get(at..).and_then(|bytes| bytes.get(..out.len())) else { return false };
            out.copy_from_slice(bytes);
            true
        }

        fn loaded(&self) -> Vec<Loaded> {
            Vec::new()
        }

        fn functions(&self) -> Vec<Function> {
            Vec::new()
        }
    }

    const PLAIN: &[&str] = &["PL_revision", "PL_version", "PL_subversion", "Perl_runops_standard"];
    const THREADS: &[&str] = &["PL_revision", "PL_version", "PL_subversion", "Perl_runops_standard", "PL_thr_key"];

    #[test]
    fn another_version_or_build_is_refused_by_name() {
        let served = "; served is Perl 5.32, 5.36, 5.40 and 5.42 with threads on x86-64";
        let refusal = |version, symbols| match finding(&Named(version, symbols), &Relocations::default()) {
            Finding::Refused(why) => why,
            other => panic!("{version:?}: {other:?}"),
        };
        for (version, text) in [([5, 38, 1], "5.38.1"), ([5, 34, 0], "5.34.0"), ([7, 36, 0], "7.36.0")] {
            assert_eq!(refusal(version, THREADS), format!("no Perl frames: this is Perl {text}{served}"));
        }
        let is = "no Perl frames: this is Perl 5.36.0, ";
        assert_eq!(refusal([5, 36, 0], PLAIN), format!("{is}built without threads{served}"));
        let other = "whose Perl_pp_leavesub does not read what it should";
        assert_eq!(refusal([5, 36, 0], THREADS), format!("{is}{other}{served}"));
        let unknown = refusal([5, 36, 0], &["Perl_runops_standard"]);
        assert_eq!(unknown, format!("no Perl frames: this is a Perl whose version was not found{served}"));
        assert_eq!(finding(&Named([5, 36, 0], &["PL_thr_key"]), &Relocations::default()), Finding::Unclaimed);
    }
}
