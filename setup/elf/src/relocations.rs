//! What relocations make of an object's words when it is loaded, as far as the object itself determines it: addresses
//! within it, and those of symbols that it defines.
//!
//! Source: <https://gitlab.com/x86-psABIs/x86-64-ABI>, "Relocation Types"; the same for AArch64 at
//! <https://github.com/ARM-software/abi-aa/blob/main/aaelf64/aaelf64.rst>.

use super::cpu::{RELATIVE, SYMBOLIC};
use super::image::Image;
use object::elf::{DT_JMPREL, DT_PLTRELSZ, DT_RELA, DT_RELASZ, DT_SYMTAB};
use std::collections::HashMap;

/// Limit of a table's bytes.
const TABLE: u64 = 64 << 20;
/// Bytes of an `Elf64_Rela` and of an `Elf64_Sym`.
const RELA: usize = 24;
const SYMBOL: u64 = 24;

/// Words of an object by their file addresses. The values are file addresses, too: what is in memory is as much higher
/// as the object.
#[derive(Clone, Default, Debug)]
pub struct Relocations {
    words: HashMap<u64, u64>,
}

impl Relocations {
    /// Reads them. A table that is not whole, or too large, has none.
    pub fn of(image: &Image) -> Relocations {
        let tables = [(DT_RELA, DT_RELASZ), (DT_JMPREL, DT_PLTRELSZ)];
        let words = tables.iter().filter_map(|(table, size)| read(image, *table, *size)).flatten().collect();
        Relocations { words }
    }

    /// The word at a file address. `None`: nothing is relocated there, or by another object's symbol.
    pub fn word(&self, address: u64) -> Option<u64> {
        self.words.get(&address).copied()
    }
}

impl FromIterator<(u64, u64)> for Relocations {
    fn from_iter<I: IntoIterator<Item = (u64, u64)>>(words: I) -> Relocations {
        Relocations { words: words.into_iter().collect() }
    }
}

fn read(image: &Image, table: i64, size: i64) -> Option<Vec<(u64, u64)>> {
    let (table, size) = (image.dynamic().value(table)?, image.dynamic().value(size)?);
    let mut bytes = vec![0; usize::try_from(size).ok().filter(|_| size <= TABLE)?];
    if !image.read_address(table, &mut bytes) {
        return None;
    }
    let symbols = image.dynamic().value(DT_SYMTAB);
    // The value of a symbol; zero: another object's.
    let symbol = |index: u64| {
        let mut value = [0; 8];
        let at = symbols?.checked_add(index.checked_mul(SYMBOL)?)?.checked_add(8)?;
        image.read_address(at, &mut value).then(|| u64::from_le_bytes(value)).filter(|value| *value != 0)
    };
    let entries = bytes.chunks_exact(RELA).filter_map(|entry| {
        let word = |at: usize| entry.get(at..)?.first_chunk().map(|word| u64::from_le_bytes(*word));
        let (place, kind, addend) = (word(0)?, word(8)?, word(16)?);
        let value = match kind as u32 {
            RELATIVE => addend,
            other if SYMBOLIC.contains(&other) => symbol(kind >> 32)?.wrapping_add(addend),
            _ => return None,
        };
        Some((place, value))
    });
    Some(entries.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// An object of which all lies where it is in the file, with a dynamic section at 0x100.
    fn object(dynamic: &[(i64, u64)], parts: &[(usize, &[u64])]) -> Image {
        let mut bytes = vec![0u8; 0x1000];
        bytes[..7].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1, 1]);
        let machine = super::super::cpu::MACHINE;
        for (at, value) in [(16, 3u16), (18, machine), (52, 64), (54, 56), (56, 2)] {
            bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
        }
        (bytes[20], bytes[32]) = (1, 64);
        let dynamic: Vec<u64> = dynamic.iter().flat_map(|(tag, value)| [*tag as u64, *value]).chain([0, 0]).collect();
        let mut put = |at: usize, words: &[u64]| {
            let words: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            bytes[at..at + words.len()].copy_from_slice(&words);
        };
        put(64, &[1 | 6 << 32, 0, 0, 0, 0x1000, 0x1000, 0x1000]);
        put(120, &[2 | 6 << 32, 0x100, 0x100, 0x100, dynamic.len() as u64 * 8, dynamic.len() as u64 * 8, 8]);
        put(0x100, &dynamic);
        parts.iter().for_each(|(at, words)| put(*at, words));
        Image::of_bytes(Path::new("made"), bytes).expect("an ELF file")
    }

    #[test]
    fn words_are_what_the_loader_makes_of_them() {
        let [absolute, data, jump] = SYMBOLIC.map(u64::from);
        let relative = u64::from(RELATIVE);
        let dynamic =
            [(DT_RELA, 0x200), (DT_RELASZ, 4 * 24), (DT_JMPREL, 0x300), (DT_PLTRELSZ, 2 * 24), (DT_SYMTAB, 0x400)];
        let parts: [(usize, &[u64]); 3] = [
            (
                0x200,
                &[
                    0x800,
                    relative,
                    0x123,
                    0x808,
                    absolute | 1 << 32,
                    5,
                    0x810,
                    data | 1 << 32,
                    0,
                    0x818,
                    data | 2 << 32,
                    0,
                ],
            ),
            (0x300, &[0x820, jump | 1 << 32, 0, 0x828, jump | 9999 << 32, 0]),
            // Nothing; a function at 0x500; another object's.
            (0x400, &[0, 0, 0, 1, 0x500, 8, 1, 0, 0]),
        ];
        let relocations = Relocations::of(&object(&dynamic, &parts));
        let expected = [(0x800, 0x123), (0x808, 0x505), (0x810, 0x500), (0x820, 0x500)];
        assert_eq!(relocations.words, HashMap::from(expected));
        assert_eq!(relocations.word(0x818), None, "another object's symbol");
        // A table that is cut short, or claims too much, has none; the other is read all the same.
        for bad in [(DT_RELASZ, 0xf00), (DT_RELASZ, u64::MAX), (DT_RELA, u64::MAX - 8)] {
            let dynamic = dynamic.map(|(tag, value)| if tag == bad.0 { bad } else { (tag, value) });
            let relocations = Relocations::of(&object(&dynamic, &parts));
            assert_eq!((relocations.word(0x800), relocations.word(0x820)), (None, Some(0x500)), "{bad:?}");
        }
    }
}
