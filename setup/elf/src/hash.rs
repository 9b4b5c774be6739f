//! Looks up dynamic symbols by the file's own hash table, so that a few hundred bytes are read and not the whole table.

use super::image::Image;
use super::view::Symbol;
use object::read::elf::Sym;
use object::{elf, LittleEndian, U32};

/// Longest chain followed. Real ones have a few entries.
const CHAIN_LIMIT: u32 = 4096;

impl Image {
    /// A symbol that the file defines in its dynamic symbol table.
    pub fn symbol(&self, name: &str) -> Option<Symbol> {
        match self.dynamic().value(elf::DT_GNU_HASH) {
            Some(table) => self.by_gnu_hash(table, name.as_bytes()),
            None => self.by_sysv_hash(self.dynamic().value(elf::DT_HASH)?, name.as_bytes()),
        }
    }

    fn by_gnu_hash(&self, table: u64, name: &[u8]) -> Option<Symbol> {
        let hash = elf::gnu_hash(name);
        let header: elf::GnuHashHeader<LittleEndian> = self.read_at(table)?;
        let [buckets, first, bloom] =
            [header.bucket_count, header.symbol_base, header.bloom_count].map(|n| n.get(LittleEndian));
        let bucket_table = table.checked_add(size_of_val(&header) as u64)?.checked_add(u64::from(bloom) * 8)?;
        let chain_table = bucket_table.checked_add(u64::from(buckets) * 4)?;
        let mut index = self.word(bucket_table + u64::from(hash.checked_rem(buckets)?) * 4)?;
        for _ in 0..CHAIN_LIMIT {
            let entry = self.word(chain_table.checked_add(u64::from(index.checked_sub(first)?) * 4)?)?;
            if entry | 1 == hash | 1 {
                if let Some(found) = self.defined(index, name) {
                    return Some(found);
                }
            }
            if entry & 1 == 1 {
                return None;
            }
            index = index.checked_add(1)?;
        }
        None
    }

    fn by_sysv_hash(&self, table: u64, name: &[u8]) -> Option<Symbol> {
        let header: elf::HashHeader<LittleEndian> = self.read_at(table)?;
        let (buckets, chains) = (header.bucket_count.get(LittleEndian), header.chain_count.get(LittleEndian));
        let bucket_table = table.checked_add(size_of_val(&header) as u64)?;
        let chain_table = bucket_table.checked_add(u64::from(buckets) * 4)?;
        let mut index = self.word(bucket_table + u64::from(elf::hash(name).checked_rem(buckets)?) * 4)?;
        for _ in 0..CHAIN_LIMIT {
            if index == 0 || index >= chains {
                return None;
            }
            if let Some(found) = self.defined(index, name) {
                return Some(found);
            }
            index = self.word(chain_table.checked_add(u64::from(index) * 4)?)?;
        }
        None
    }

    /// The symbol at `index`, if it is defined and has this name.
    fn defined(&self, index: u32, name: &[u8]) -> Option<Symbol> {
        let symbols = self.dynamic().value(elf::DT_SYMTAB)?;
        let place = u64::from(index) * size_of::<elf::Sym64<LittleEndian>>() as u64;
        let symbol: elf::Sym64<LittleEndian> = self.read_at(symbols.checked_add(place)?)?;
        if symbol.is_undefined(LittleEndian) {
            return None;
        }
        let strings = self.dynamic().value(elf::DT_STRTAB)?;
        let mut found = vec![1; name.len() + 1];
        let named = self.read_address(strings.checked_add(u64::from(symbol.st_name(LittleEndian)))?, &mut found)
            && found.split_last() == Some((&0, name));
        named.then(|| Symbol { address: symbol.st_value(LittleEndian), size: symbol.st_size(LittleEndian) })
    }

    fn word(&self, address: u64) -> Option<u32> {
        self.read_at::<U32<LittleEndian>>(address).map(|word| word.get(LittleEndian))
    }
}
