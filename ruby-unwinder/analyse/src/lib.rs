//! Ruby unwinder plugin, analyse half: decides whether an ELF file holds a CRuby that the signal half can read, and
//! finds the facts that it needs. Works on stripped files.
//!
//! - `version`: which Ruby it is;
//! - `layout`: the structures, per version;
//! - `operands`: shapes of instructions' operands;
//! - `context`: where the thread's execution context is, from the code that reads it;
//! - `execute`: `vm_exec` and the interpreter's loop;
//! - `callers`: functions that call C functions, or pass calls on;
//! - `symbols`: the table of ids;
//! - `half`: what reports must know of Ruby.
#![forbid(unsafe_code)]

mod callers;
mod context;
mod execute;
mod half;
pub mod layout;
mod operands;
mod symbols;
mod version;

pub use half::Ruby;
use uunwind_elf::Elf;
use uunwind_language::Finding;
/// The half that runs in handlers.
pub use uunwind_ruby as signal;
pub use uunwind_ruby::facts::{Facts, Plain};
pub use uunwind_ruby::NAME;
pub use version::Version;

/// Analyses one ELF file.
pub fn analyse(elf: &dyn Elf) -> Finding {
    match facts(elf) {
        Ok(Some(facts)) => Finding::Facts(facts.as_bytes().to_vec()),
        Ok(None) => Finding::Unclaimed,
        Err(found) => {
            Finding::Refused(format!("no Ruby frames: {found}; served are CRuby {} on x86-64", layout::served()))
        }
    }
}

fn facts(elf: &dyn Elf) -> Result<Option<Facts>, String> {
    let Some(version) = version::of(elf) else { return Ok(None) };
    let layout = layout::of(version).ok_or_else(|| format!("this is CRuby {version}"))?;
    let wrong = |what: &str| format!("CRuby {version}, whose {what}");
    let place = context::find(elf).ok_or_else(|| wrong("code does not show where a thread's state is"))?;
    let loops = execute::find(elf, &layout).ok_or_else(|| wrong("interpreter loop was not recognised"))?;
    let mut facts = layout;
    facts.ruby = version.word();
    (facts.context, facts.context_module, facts.context_offset) = (place.kind, place.module, place.offset);
    // Without it C functions have no names, so their frames would be in doubt.
    facts.symbols = symbols::find(elf, &facts).ok_or_else(|| wrong("table of symbols was not found"))?;
    facts.exec = loops.exec;
    facts.core = loops.core;
    facts.exec_entry = loops.exec_entry;
    facts.core_entry = loops.core_entry;
    facts.core_frame = loops.core_frame;
    facts.core_register = loops.core_register;
    for (to, from) in facts.leaving.iter_mut().zip(&loops.leaving) {
        *to = *from;
    }
    let callers = callers::find(elf, &layout, loops.exec, loops.core);
    for (list, found) in [(&mut facts.pushing, callers.pushing), (&mut facts.passing, callers.passing)] {
        list.iter_mut().zip(found).for_each(|(to, from)| *to = from);
    }
    // The signal half must accept what is called facts here.
    Facts::read(facts.as_bytes()).map(|facts| Some(*facts)).ok_or_else(|| wrong("facts contradict each other"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use uunwind_elf::{Function, Loaded, Symbol};

    /// A file that exports what each Ruby does, and nothing else.
    struct Named(&'static str);

    impl Elf for Named {
        fn symbol(&self, name: &str) -> Option<Symbol> {
            let is_there = ["ruby_version", "ruby_api_version", "rb_profile_frames"].contains(&name);
            is_there.then_some(Symbol { address: 0x1000, size: 8 })
        }

        fn read(&self, address: u64, out: &mut [u8]) -> bool {
            let text = self.0.as_bytes().iter().chain([&0; 8]);
            out.iter_mut().zip(text).for_each(|(to, from)| *to = *from);
            address == 0x1000 && out.len() <= 16
        }

        fn loaded(&self) -> Vec<Loaded> {
            Vec::new()
        }

        fn functions(&self) -> Vec<Function> {
            Vec::new()
        }
    }

    fn refusal(version: &'static str) -> String {
        match analyse(&Named(version)) {
            Finding::Refused(why) => why,
            other => panic!("{version}: {other:?}"),
        }
    }

    #[test]
    fn another_version_or_build_is_refused_by_name() {
        let served = "; served are CRuby 3.1 and 3.3 on x86-64";
        for version in ["2.7.4", "3.2.0", "4.0.1"] {
            assert_eq!(refusal(version), format!("no Ruby frames: this is CRuby {version}{served}"));
        }
        let other = "whose code does not show where a thread's state is";
        assert_eq!(refusal("3.1.2"), format!("no Ruby frames: CRuby 3.1.2, {other}{served}"));
        assert_eq!(analyse(&Named("no version")), Finding::Unclaimed);
    }
}
