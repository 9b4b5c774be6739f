//! The functions of ops (`Perl_pp_*`), which Perl has not exported since 5.38: the tables of their names, `PL_op_name`,
//! and of their addresses, `PL_ppaddr`, are (<https://github.com/Perl/perl5/blob/v5.40.0/opcode.h>).

use std::collections::BTreeMap;
use uunwind_elf::{Elf, Function, Loaded, Relocations, Symbol};

/// Limit of ops, and of a name's bytes.
const OPS: u64 = 1024;
const NAME: usize = 32;

/// A file whose functions of ops are symbols, too.
pub struct WithOps<'e> {
    elf: &'e dyn Elf,
    /// By names as `Perl_pp_entersub`.
    ops: BTreeMap<String, u64>,
}

impl<'e> WithOps<'e> {
    /// Reads the tables; a file that has none has no such functions.
    pub fn of(elf: &'e dyn Elf, words: &Relocations) -> WithOps<'e> {
        WithOps { elf, ops: ops(elf, words).unwrap_or_default() }
    }
}

fn ops(elf: &dyn Elf, words: &Relocations) -> Option<BTreeMap<String, u64>> {
    let (names, functions) = (elf.symbol("PL_op_name")?, elf.symbol("PL_ppaddr")?);
    let count = (names.size.min(functions.size) / 8).min(OPS);
    let op = |index: u64| {
        let word = |table: Symbol| words.word(table.address.checked_add(index * 8)?);
        Some((format!("Perl_pp_{}", text(elf, word(names)?)?), word(functions)?))
    };
    Some((0..count).filter_map(op).collect())
}

fn text(elf: &dyn Elf, address: u64) -> Option<String> {
    let mut text = Vec::new();
    while text.len() < NAME {
        let mut byte = [0];
        if !elf.read(address.checked_add(text.len() as u64)?, &mut byte) {
            return None;
        }
        match byte {
            [0] => return String::from_utf8(text).ok(),
            [other] => text.push(other),
        }
    }
    None
}

impl Elf for WithOps<'_> {
    fn symbol(&self, name: &str) -> Option<Symbol> {
        let op = || self.ops.get(name).map(|address| Symbol { address: *address, size: 0 });
        self.elf.symbol(name).or_else(op)
    }

    fn read(&self, address: u64, out: &mut [u8]) -> bool {
        self.elf.read(address, out)
    }

    fn loaded(&self) -> Vec<Loaded> {
        self.elf.loaded()
    }

    fn functions(&self) -> Vec<Function> {
        self.elf.functions()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tables of two ops, whose names lie at the end of the file.
    struct Tables;

    const NAMES: u64 = 0x1000;
    const FUNCTIONS: u64 = 0x2000;
    const TEXTS: &[u8] = b"null\0entersub\0pushmark";

    impl Elf for Tables {
        fn symbol(&self, name: &str) -> Option<Symbol> {
            let symbol = |address| Some(Symbol { address, size: 24 });
            match name {
                "PL_op_name" => symbol(NAMES),
                "PL_ppaddr" => symbol(FUNCTIONS),
                "Perl_pp_null" => symbol(0x99),
                _ => None,
            }
        }

        fn read(&self, address: u64, out: &mut [u8]) -> bool {
            let at = address as usize;
            let Some(bytes) = TEXTS.get(at..).and_then(|bytes| bytes.get(..out.len())) else { return false };
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

    #[test]
    fn ops_are_named_by_the_tables() {
        let words = [(NAMES, 0), (NAMES + 8, 5), (NAMES + 16, 14), (FUNCTIONS, 0x10), (FUNCTIONS + 8, 0x20)];
        let relocations = words.into_iter().chain([(FUNCTIONS + 16, 0x30)]).collect();
        let elf = WithOps::of(&Tables, &relocations);
        let address = |name: &str| elf.symbol(name).map(|symbol| symbol.address);
        assert_eq!(address("Perl_pp_entersub"), Some(0x20));
        assert_eq!(address("Perl_pp_null"), Some(0x99), "an exported one is believed");
        assert_eq!(address("Perl_pp_pushmark"), None, "its name does not end");
        assert_eq!(address("Perl_pp_leavesub"), None);
        assert_eq!(WithOps::of(&Tables, &Relocations::default()).ops.len(), 0);
    }
}
