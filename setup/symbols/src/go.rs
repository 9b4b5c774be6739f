//! Names of Go's functions, which stripped programs keep: `.gopclntab`, from which Go's runtime itself takes the names
//! in tracebacks (<https://github.com/golang/go/blob/go1.22.0/src/debug/gosym/pclntab.go>).
//!
//! Four versions of it are read (Go 1.2, 1.16, 1.18 and 1.20 introduced them): a header, a table of functions sorted by
//! address, and for each function a record that leads to its name. Inlined functions are not reported. Any bytes may be
//! passed.

use object::{Object, ObjectSection, ReadRef};
use std::path::Path;
use uunwind_elf::blocks::Blocks;

/// The section's name.
const SECTION: &str = ".gopclntab";
/// The section that contains it in position-independent programs that C's linker made.
const AROUND: &str = ".data.rel.ro";
/// Alignment of the table within that section, in bytes.
const ALIGNED: usize = 32;
/// Limit of places that look like its beginning and are tried.
const MOST_PLACES: usize = 16;
/// Limit of a name's length, in bytes. Names of generic functions contain their types.
const LONGEST_NAME: usize = 1 << 16;
/// Bytes of an address: only 64-bit programs are read.
const WORD: usize = 8;

/// For each file address: the beginning and the name of the function that covers it. Empty: this is no program of Go.
/// The error says what is wrong with the table.
pub fn names(path: &Path, addresses: &[u64]) -> Result<Vec<Option<(u64, String)>>, String> {
    let Ok(file) = uunwind_elf::files::open(path) else { return Ok(Vec::new()) };
    in_image(&Blocks::new(file), addresses)
}

/// As [`names`], in an ELF image.
pub fn in_image<'data, R: ReadRef<'data>>(image: R, addresses: &[u64]) -> Result<Vec<Option<(u64, String)>>, String> {
    let Ok(elf) = object::read::elf::ElfFile64::<object::Endianness, R>::parse(image) else { return Ok(Vec::new()) };
    // A position-independent program has the address of its text written into the table by a relocation.
    let relocated =
        |place: u64| elf.dynamic_relocations()?.find(|(at, _)| *at == place).map(|(_, found)| found.addend() as u64);
    let found = |name| elf.section_by_name(name).map(|section| (section.address(), section.data()));
    let table = if let Some((start, bytes)) = found(SECTION) {
        let bytes = bytes.map_err(|e| format!("{SECTION}: {e}"))?;
        Some(Table::parse(bytes, |at| relocated(start.wrapping_add(at)))?)
    } else if let Some((start, Ok(bytes))) = found(AROUND) {
        let places = (0..bytes.len()).step_by(ALIGNED).filter(|place| is_head(bytes.get(*place..).unwrap_or(&[])));
        places.take(MOST_PLACES).find_map(|place| {
            let from = start.wrapping_add(place as u64);
            let table = Table::parse(bytes.get(place..)?, |at| relocated(from.wrapping_add(at))).ok()?;
            // It is a table only if its first function has a name.
            let first = table.find(table.function(0)?.0);
            matches!(first, Ok(Some(_))).then_some(table)
        })
    } else {
        None
    };
    let Some(table) = table else { return Ok(Vec::new()) };
    addresses.iter().map(|address| table.find(*address)).collect()
}

/// Whether bytes begin like a table.
fn is_head(bytes: &[u8]) -> bool {
    matches!(u32_at(bytes, 0), Some(0xffff_fffb | 0xffff_fffa | 0xffff_fff0 | 0xffff_fff1))
        && matches!(bytes.get(4..8), Some([0, 0, 1, 8]))
}

/// Form of the entries in the table of functions.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Entries {
    /// Address and offset of the record, a word each.
    Words,
    /// Offset from the beginning of the text and offset of the record, half a word each.
    Halves,
}

/// The parts of a `.gopclntab`.
struct Table<'data> {
    entries: Entries,
    /// File address of the text if entries are offsets from it; else 0.
    text: u64,
    /// Number of functions.
    count: usize,
    /// The table of functions.
    functions: &'data [u8],
    /// Bytes that offsets of records count in: from the table of functions on, or the whole section.
    records: &'data [u8],
    /// Bytes that offsets of names count in.
    names: &'data [u8],
}

impl<'data> Table<'data> {
    /// `relocated`: the value that a relocation writes at this file address when the program is loaded.
    fn parse(bytes: &'data [u8], relocated: impl Fn(u64) -> Option<u64>) -> Result<Table<'data>, String> {
        let cut = |what: &str, at: u64| format!(".gopclntab: {what} at byte {at}, the section has {}", bytes.len());
        let magic = u32_at(bytes, 0).ok_or_else(|| cut("its head ends", WORD as u64))?;
        let (entries, fields) = match magic {
            0xffff_fffb => (Entries::Words, None),
            0xffff_fffa => (Entries::Words, Some((2, 6))),
            0xffff_fff0 | 0xffff_fff1 => (Entries::Halves, Some((3, 7))),
            other => return Err(format!(".gopclntab: begins with {other:#x}, which is of no known version of Go")),
        };
        match bytes.get(4..8) {
            Some([0, 0, 1 | 2 | 4, 8]) => {}
            found => return Err(format!(".gopclntab: {found:x?} at byte 4, which is no head of a 64-bit program's")),
        }
        let field = |n: usize| {
            let at = WORD + n * WORD;
            u64_at(bytes, at).ok_or_else(|| cut("its head ends", (at + WORD) as u64))
        };
        let from = |what: &str, at: u64| {
            let rest = usize::try_from(at).ok().and_then(|at| bytes.get(at..));
            rest.ok_or_else(|| cut(&format!("its {what} begin"), at))
        };
        let said = field(0)?;
        let (names, functions, records) = match fields {
            None => (bytes, from("functions", 2 * WORD as u64)?, bytes),
            Some((names, functions)) => {
                let functions = from("functions", field(functions)?)?;
                (from("names", field(names)?)?, functions, functions)
            }
        };
        let size = if entries == Entries::Words { 2 * WORD } else { WORD };
        // The entry after the last one holds the end of its code.
        let room = (functions.len().saturating_sub(size / 2) / size) as u64;
        if said > room {
            return Err(format!(".gopclntab: says that it lists {said} functions, and has room for {room}"));
        }
        let mut text = 0;
        if entries == Entries::Halves {
            // Zero if a relocation writes it at load time.
            text = match field(2)? {
                0 => relocated(3 * WORD as u64).ok_or(".gopclntab: nothing says where the text begins (byte 24)")?,
                text => text,
            };
        }
        Ok(Table { entries, text, count: said as usize, functions, records, names })
    }

    /// File address of function `n` (for the one after the last: the end of the code), and the offset of its record.
    fn function(&self, n: usize) -> Option<(u64, u64)> {
        match self.entries {
            Entries::Words => {
                let at = n.checked_mul(2 * WORD)?;
                Some((u64_at(self.functions, at)?, u64_at(self.functions, at + WORD).unwrap_or(0)))
            }
            Entries::Halves => {
                let at = n.checked_mul(WORD)?;
                let start = self.text.wrapping_add(u64::from(u32_at(self.functions, at)?));
                Some((start, u64::from(u32_at(self.functions, at + WORD / 2).unwrap_or(0))))
            }
        }
    }

    /// The beginning and the name of the function at a file address, if there is one.
    fn find(&self, address: u64) -> Result<Option<(u64, String)>, String> {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.function(middle).is_some_and(|(start, _)| start <= address) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let Some(n) = low.checked_sub(1) else { return Ok(None) };
        let (Some((start, record)), Some((end, _))) = (self.function(n), self.function(low)) else { return Ok(None) };
        if !(start..end).contains(&address) {
            return Ok(None);
        }
        let name = self.name(start, record);
        name.map(|name| Some((start, name))).ok_or_else(|| {
            format!(".gopclntab: the function at {start:#x} has its record at {record:#x}, which leads to no name")
        })
    }

    /// The name that a function's record leads to. A record repeats the function's address at its beginning.
    fn name(&self, start: u64, record: u64) -> Option<String> {
        let record = self.records.get(usize::try_from(record).ok()?..)?;
        let (again, place) = match self.entries {
            Entries::Words => (u64_at(record, 0)?, u32_at(record, WORD)?),
            Entries::Halves => (self.text.wrapping_add(u64::from(u32_at(record, 0)?)), u32_at(record, WORD / 2)?),
        };
        if again != start {
            return None;
        }
        let name = self.names.get(place as usize..)?;
        let name = name.get(..name.iter().take(LONGEST_NAME).position(|byte| *byte == 0)?)?;
        (!name.is_empty()).then(|| String::from_utf8_lossy(name).into_owned())
    }
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAGICS: [u32; 4] = [0xffff_fffb, 0xffff_fffa, 0xffff_fff0, 0xffff_fff1];
    const TEXT: u64 = 0x40_1000;

    fn words(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// Two functions, `main.f` of 32 bytes and `main.main` of 16, in each version's form.
    fn made(magic: u32) -> Vec<u8> {
        let head = [&magic.to_le_bytes()[..], &[0, 0, 1, 8]].concat();
        let names = b"main.f\0main.main\0".to_vec();
        let word_table = |records: u64| words(&[TEXT, records, TEXT + 32, records + 16, TEXT + 48]);
        let word_records = |names: u64| words(&[TEXT, names, TEXT + 32, names + 7]);
        match magic {
            0xffff_fffb => {
                // Header, count, table; records at 56, names at 88.
                [head, words(&[2]), word_table(56), word_records(88), names].concat()
            }
            0xffff_fffa => {
                // Eight words of header; names at 64, in 24 bytes; then functions.
                let fields = words(&[2, 0, 64, 0, 0, 0, 88]);
                let filled = [names, vec![0; 7]].concat();
                [head, fields, filled, word_table(40), word_records(0)].concat()
            }
            _ => {
                let halves = |halves: &[u32]| halves.iter().flat_map(|half| half.to_le_bytes()).collect::<Vec<u8>>();
                let fields = words(&[2, 0, TEXT, 72, 0, 0, 0, 96]);
                let filled = [names, vec![0; 7]].concat();
                [head, fields, filled, halves(&[0, 20, 32, 28, 48]), halves(&[0, 0, 32, 7])].concat()
            }
        }
    }

    #[test]
    fn functions_are_named_in_every_version() {
        for magic in MAGICS {
            let bytes = made(magic);
            let table = Table::parse(&bytes, |_| None).unwrap_or_else(|why| panic!("{magic:#x}: {why}"));
            let at =
                |offset: u64| table.find(TEXT.wrapping_add(offset)).unwrap_or_else(|why| panic!("{magic:#x}: {why}"));
            for (offset, start, name) in
                [(0, 0, "main.f"), (31, 0, "main.f"), (32, 32, "main.main"), (47, 32, "main.main")]
            {
                assert_eq!(at(offset), Some((TEXT + start, name.to_owned())), "{magic:#x}");
            }
            assert_eq!([at(48), at(u64::MAX)], [None, None], "{magic:#x}");
        }
    }

    #[test]
    fn damage_is_named() {
        for magic in MAGICS {
            let whole = made(magic);
            let why = |bytes: &[u8]| match Table::parse(bytes, |_| None) {
                Ok(table) => table.find(TEXT + 40).err().unwrap_or_default(),
                Err(why) => why,
            };
            let with = |at: usize, byte: u8| {
                let mut bytes = whole.clone();
                bytes[at] = byte;
                why(&bytes)
            };
            assert!(with(0, 7).contains("no known version"), "{magic:#x}");
            assert!(with(7, 4).contains("no head"), "{magic:#x}");
            assert!(with(8, 200).contains("lists 200 functions, and has room for"), "{magic:#x}");
            assert!(why(&whole[..12]).contains("its head ends at byte"), "{magic:#x}");
            // The name's terminator is cut off.
            let cut = whole.len() - 1;
            let named = why(&whole[..cut]);
            assert!(magic != 0xffff_fffb || named.contains("leads to no name"), "{magic:#x}: {named}");
        }
        // The beginning of the text is known from a relocation only.
        let mut bytes = made(0xffff_fff1);
        bytes[24..32].fill(0);
        assert!(Table::parse(&bytes, |_| None).is_err_and(|why| why.contains("where the text begins")));
        let table = Table::parse(&bytes, |at| (at == 24).then_some(TEXT)).expect("a table");
        assert_eq!(table.find(TEXT), Ok(Some((TEXT, "main.f".to_owned()))));
    }
}
