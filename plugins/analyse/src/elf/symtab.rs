//! The full symbol table (`.symtab`), which stripped files lack.

use super::bytes::{u16_at, u32_at, u64_at};
use super::image::Image;
use object::elf;

/// `sizeof(Elf64_Shdr)` and `sizeof(Elf64_Sym)`.
const SECTION: usize = 64;
const SYMBOL: usize = 24;
/// A larger table, in bytes, is left alone.
const TABLE_LIMIT: u64 = 256 << 20;

impl Image {
    /// Address and size of a symbol that the file defines: by its dynamic symbols, else by the full table.
    pub fn any_symbol(&self, name: &str) -> Option<(u64, u64)> {
        self.symbol(name).or_else(|| self.full_symbol(name))
    }

    fn full_symbol(&self, name: &str) -> Option<(u64, u64)> {
        let (start, count, entry, _) = self.section_table();
        if usize::from(entry) != SECTION {
            return None;
        }
        let headers = self.read_file(start, u64::from(count) * SECTION as u64)?;
        let header = |index: usize| headers.chunks_exact(SECTION).nth(index);
        let part = |header: &[u8]| {
            let (offset, len) = (u64_at(header, 24), u64_at(header, 32));
            if len <= TABLE_LIMIT {
                self.read_file(offset, len)
            } else {
                None
            }
        };
        let table = headers.chunks_exact(SECTION).find(|h| u32_at(h, 4) == elf::SHT_SYMTAB)?;
        let (symbols, strings) = (part(table)?, part(header(u32_at(table, 40) as usize)?)?);
        let found = symbols.chunks_exact(SYMBOL).find(|symbol| {
            let text = strings.get(u32_at(symbol, 0) as usize..).unwrap_or_default();
            let is_it = text.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.first() == Some(&0));
            is_it && u16_at(symbol, 6) != elf::SHN_UNDEF
        })?;
        Some((u64_at(found, 8), u64_at(found, 16)))
    }
}
