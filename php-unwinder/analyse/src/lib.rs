//! PHP unwinder plugin, analyse half: decides whether an ELF file holds a PHP that the signal half can read, and finds
//! the facts that it needs. Works on stripped files.
//!
//! - `version`: which PHP it is;
//! - `layout`: the structures, per version;
//! - `verify`: whether the file's own code has that layout;
//! - `execute`: the interpreter's loop;
//! - `half`: what reports must know of PHP.
#![forbid(unsafe_code)]

mod execute;
mod half;
pub mod layout;
mod verify;
mod version;

pub use half::Php;
use uunwind_elf::Elf;
use uunwind_language::Finding;
/// The half that runs in handlers.
pub use uunwind_php as signal;
pub use uunwind_php::facts::{Facts, Plain};
pub use uunwind_php::NAME;
pub use version::Version;

/// Analyses one ELF file.
pub fn analyse(elf: &dyn Elf) -> Finding {
    match facts(elf) {
        Ok(Some(facts)) => Finding::Facts(facts.as_bytes().to_vec()),
        Ok(None) => Finding::Unclaimed,
        Err(found) => Finding::Refused(format!(
            "no PHP frames: {found}; served is PHP {} without threads on x86-64",
            layout::served()
        )),
    }
}

fn facts(elf: &dyn Elf) -> Result<Option<Facts>, String> {
    // Programs of another kind may have a function of that name.
    if elf.symbol("execute_ex").is_none() || elf.symbol("zend_vm_kind").is_none() {
        return Ok(None);
    }
    let version = version::of(elf).ok_or("this is a PHP whose version was not found")?;
    let layout = layout::of(version).ok_or_else(|| format!("this is PHP {version}"))?;
    let wrong = |what: &str| format!("this is PHP {version}, {what}");
    let globals = elf.symbol("executor_globals").ok_or_else(|| wrong("built with threads (ZTS)"))?;
    match execute::is_hybrid(elf) {
        Some(true) => {}
        Some(false) => return Err(wrong("whose interpreter keeps no frame in a register")),
        None => return Err(wrong("whose kind of interpreter was not found")),
    }
    let mut facts = layout;
    (facts.php, facts.globals) = (version.word(), globals.address);
    if let Some(function) = verify::differs(elf, &facts) {
        return Err(wrong(&format!("whose {function} does not read what it should")));
    }
    let found = execute::find(elf).ok_or_else(|| wrong("whose interpreter loop was not recognised"))?;
    let entry = found.entry;
    let from = |address: u64| address.checked_sub(found.exec.start).and_then(|bytes| u32::try_from(bytes).ok());
    let loaded = from(entry.frame_loaded).zip(from(entry.opline_loaded));
    (facts.exec_entry, facts.exec_loaded) = loaded.ok_or_else(|| wrong("whose interpreter loop is too long"))?;
    facts.exec_saved = entry.saved;
    (facts.frame_register, facts.opline_register) = (entry.registers.0.into(), entry.registers.1.into());
    facts.exec = found.exec;
    let lists =
        [(&mut facts.cold, found.cold), (&mut facts.leaving, found.leaving), (&mut facts.switching, found.switching)];
    for (list, found) in lists {
        list.iter_mut().zip(found).for_each(|(to, from)| *to = from);
    }
    // The signal half must accept what is called facts here.
    Facts::read(facts.as_bytes()).map(|facts| Some(*facts)).ok_or_else(|| wrong("whose facts contradict each other"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use uunwind_elf::{Function, Loaded, Span, Symbol};

    /// A file with a text and these symbols, and nothing else.
    struct Named(&'static str, &'static [&'static str]);

    impl Elf for Named {
        fn symbol(&self, name: &str) -> Option<Symbol> {
            self.1.contains(&name).then_some(Symbol { address: 0x9000, size: 8 })
        }

        fn read(&self, address: u64, out: &mut [u8]) -> bool {
            let at = address.wrapping_sub(0x1000) as usize;
            let Some(text) = self.0.as_bytes().get(at..).and_then(|text| text.get(..out.len())) else { return false };
            out.copy_from_slice(text);
            true
        }

        fn loaded(&self) -> Vec<Loaded> {
            vec![Loaded { span: Span::sized(0x1000, self.0.len() as u64), executable: false, writable: false }]
        }

        fn functions(&self) -> Vec<Function> {
            Vec::new()
        }
    }

    const PHP: &[&str] = &["execute_ex", "zend_vm_kind"];
    const SINGLE: &[&str] = &["execute_ex", "zend_vm_kind", "executor_globals"];

    fn refusal(text: &'static str, symbols: &'static [&'static str]) -> String {
        match analyse(&Named(text, symbols)) {
            Finding::Refused(why) => why,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn another_version_or_build_is_refused_by_name() {
        let served = "; served is PHP 7.4, 8.2 and 8.4 without threads on x86-64";
        for (text, version) in [
            ("..Zend Engine v3.3.0, Copyright", "7.3"),
            ("Zend Engine v4.5.1-dev, Copyright", "8.5.1"),
            ("Zend Engine v4.1.30, Copyright", "8.1.30"),
        ] {
            assert_eq!(refusal(text, SINGLE), format!("no PHP frames: this is PHP {version}{served}"));
        }
        let text = "Zend Engine v4.2.36, Copyright";
        let is = "no PHP frames: this is PHP 8.2.36, ";
        assert_eq!(refusal(text, PHP), format!("{is}built with threads (ZTS){served}"));
        assert_eq!(refusal(text, SINGLE), format!("{is}whose kind of interpreter was not found{served}"));
        let other = refusal("Zend Engine", SINGLE);
        assert_eq!(other, format!("no PHP frames: this is a PHP whose version was not found{served}"));
        assert_eq!(analyse(&Named(text, &["execute_ex"])), Finding::Unclaimed);
    }
}
