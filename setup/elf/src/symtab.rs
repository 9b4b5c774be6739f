//! The full symbol table (`.symtab`), which stripped files lack.

use super::image::Image;
use super::view::Symbol;
use object::elf::{self, SectionHeader64, Sym64};
use object::read::elf::{SectionHeader, Sym};
use object::LittleEndian;

/// A larger table, in bytes, is left alone.
const TABLE_LIMIT: u64 = 256 << 20;

impl Image {
    /// A symbol that the file defines: by its dynamic symbols, else by the full table.
    pub fn any_symbol(&self, name: &str) -> Option<Symbol> {
        self.symbol(name).or_else(|| self.full_symbol(name))
    }

    fn full_symbol(&self, name: &str) -> Option<Symbol> {
        let mut found = None;
        self.each_symbol(elf::SHT_SYMTAB, |text, place| {
            let is_it = text.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.first() == Some(&0));
            found = found.or(is_it.then_some(place));
            found.is_some()
        });
        found
    }

    /// Those of these names that the file defines, among its dynamic symbols or in its full table.
    pub fn defined_of<'n>(&self, names: &[&'n str]) -> Vec<&'n str> {
        let mut found = Vec::new();
        for kind in [elf::SHT_DYNSYM, elf::SHT_SYMTAB] {
            self.each_symbol(kind, |text, _| {
                let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
                let is_it = |name: &&&str| name.as_bytes() == &text[..end];
                found.extend(names.iter().find(is_it).filter(|name| !found.contains(*name)).copied());
                found.len() == names.len()
            });
        }
        found
    }

    /// Each symbol that the file defines and whose name begins so, in its full table and among its
    /// dynamic ones.
    pub fn symbols_with_prefix(&self, prefix: &str) -> Vec<Symbol> {
        let mut all = Vec::new();
        for kind in [elf::SHT_DYNSYM, elf::SHT_SYMTAB] {
            self.each_symbol(kind, |text, place| {
                if text.starts_with(prefix.as_bytes()) && !all.contains(&place) {
                    all.push(place);
                }
                false
            });
        }
        all
    }

    /// Hands out the symbols that the file defines in its table of this kind, until `done`: the name with what follows
    /// it, and the symbol.
    fn each_symbol(&self, kind: u32, mut done: impl FnMut(&[u8], Symbol) -> bool) {
        let Some(headers) = self.section_headers() else { return };
        let limited = |header: &SectionHeader64<_>| {
            let (offset, size) = (header.sh_offset(LittleEndian), header.sh_size(LittleEndian));
            (size <= TABLE_LIMIT).then_some((offset, size))
        };
        let Some(table) = headers.iter().find(|header| header.sh_type(LittleEndian) == kind) else { return };
        let symbols = limited(table).and_then(|(offset, size)| self.read_all::<Sym64<LittleEndian>>(offset, size));
        let strings = headers.get(table.sh_link(LittleEndian) as usize).and_then(limited);
        let strings = strings.and_then(|(offset, size)| self.read_file(offset, size));
        let (Some(symbols), Some(strings)) = (symbols, strings) else { return };
        for symbol in symbols.iter().filter(|symbol| !symbol.is_undefined(LittleEndian)) {
            let text = strings.get(symbol.st_name(LittleEndian) as usize..).unwrap_or_default();
            let symbol = Symbol { address: symbol.st_value(LittleEndian), size: symbol.st_size(LittleEndian) };
            if done(text, symbol) {
                return;
            }
        }
    }
}
