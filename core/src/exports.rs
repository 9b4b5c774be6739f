//! What a loaded object exports, by guarded reads of its dynamic section; functions by its GNU hash table
//! (<https://sourceware.org/legacy-ml/binutils/2006-10/msg00377.html>). Async-signal-safe; any bytes may be there.

use crate::loaded::{loaded_address, DT_GNU_HASH, DT_NULL, DT_STRTAB, DT_SYMTAB};
use crate::memory::Reader;
use crate::span::Span;

/// At most this number of entries of the dynamic section are looked at.
const ENTRIES: u64 = 128;
/// At most this number of symbols of one bucket.
const BUCKET: u32 = 64;
/// Bytes of an `Elf64_Sym` (gABI, "Symbol Table").
const SYMBOL: u64 = 24;
const STT_FUNC: u8 = 2;

/// The tables of a loaded object by which its symbols are found, as process addresses; 0: its dynamic section names
/// none.
#[derive(Debug, Default)]
pub struct Tables {
    /// DT_STRTAB.
    pub strings: u64,
    /// DT_SYMTAB.
    pub symbols: u64,
    /// DT_GNU_HASH.
    pub hash: u64,
}

impl Tables {
    /// Those that the first `entries` entries name of the dynamic section at this process address. `None`: one of them
    /// cannot be read.
    pub fn read(dynamic: u64, bias: u64, entries: u64, reader: &mut Reader<'_>) -> Option<Tables> {
        let mut tables = Tables::default();
        for index in 0..entries {
            let at = dynamic.wrapping_add(16 * index);
            let (tag, value) = (reader.word(at)?, reader.word(at.wrapping_add(8))?);
            let address = loaded_address(value, bias);
            match tag {
                DT_NULL => break,
                DT_STRTAB => tables.strings = address,
                DT_SYMTAB => tables.symbols = address,
                DT_GNU_HASH => tables.hash = address,
                _ => {}
            }
        }
        Some(tables)
    }

    /// Those that the dynamic section at this process address names.
    pub(crate) fn of(dynamic: u64, bias: u64, reader: &mut Reader<'_>) -> Option<Tables> {
        Tables::read(dynamic, bias, ENTRIES, reader)
    }

    /// The function with this name that the object defines: process addresses, inside `image`. At most some 600 reads,
    /// and mostly fewer than a hundred.
    pub(crate) fn function(&self, bias: u64, image: Span, name: &[u8], reader: &mut Reader<'_>) -> Option<Span> {
        let tables = self;
        if tables.strings == 0 || tables.symbols == 0 || tables.hash == 0 {
            return None;
        }
        let mut word = |index: u64| reader.u32(tables.hash.wrapping_add(4 * index));
        let (buckets, first, filters, shift) = (word(0)?, word(1)?, word(2)?, word(3)?);
        let hash = name.iter().fold(5381_u32, |hash, byte| hash.wrapping_mul(33).wrapping_add(u32::from(*byte)));
        // A filter of one word refuses nearly all objects that do not have the symbol.
        let filter = u64::from((hash / 64).checked_rem(filters)?);
        let bits = 1_u64 << (hash % 64) | 1 << (hash.checked_shr(shift)? % 64);
        let found = reader.word(tables.hash.wrapping_add(16 + 8 * filter))?;
        if found & bits != bits {
            return None;
        }
        let buckets_at = 4 + 2 * u64::from(filters);
        let mut word = |index: u64| reader.u32(tables.hash.wrapping_add(4 * index));
        let start = word(buckets_at + u64::from(hash.checked_rem(buckets)?))?;
        for index in start..start.saturating_add(BUCKET) {
            let place = buckets_at + u64::from(buckets) + u64::from(index.checked_sub(first)?);
            let other = reader.u32(tables.hash.wrapping_add(4 * place))?;
            if other | 1 == hash | 1 {
                let span = if is_it(tables, index, name, reader) { span(tables, index, bias, reader) } else { None };
                if let Some(span) = span {
                    return image.covers(span).then_some(span);
                }
            }
            if other & 1 == 1 {
                break;
            }
        }
        None
    }
}

/// Whether the symbol with this index has this name.
fn is_it(tables: &Tables, index: u32, name: &[u8], reader: &mut Reader<'_>) -> bool {
    let Some(at) = reader.u32(tables.symbols.wrapping_add(SYMBOL * u64::from(index))) else { return false };
    let at = tables.strings.wrapping_add(u64::from(at));
    (0_u64..).zip(name.iter().chain(&[0])).all(|(offset, byte)| reader.u8(at.wrapping_add(offset)) == Some(*byte))
}

/// Where the function lies that the symbol with this index defines.
fn span(tables: &Tables, index: u32, bias: u64, reader: &mut Reader<'_>) -> Option<Span> {
    let at = tables.symbols.wrapping_add(SYMBOL * u64::from(index));
    let (kind, section) = (reader.u8(at.wrapping_add(4))?, reader.u16(at.wrapping_add(6))?);
    let (value, size) = (reader.word(at.wrapping_add(8))?, reader.word(at.wrapping_add(16))?);
    let start = value.wrapping_add(bias);
    (kind & 15 == STT_FUNC && section != 0 && size != 0).then(|| Span::sized(start, size))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loaded;
    use crate::memory::Region;
    use core::ffi::{c_int, c_void};

    extern "C" {
        fn dl_iterate_phdr(callback: loaded::Callback, data: *mut c_void) -> c_int;
    }

    /// The C library's `qsort`, by its own tables: as the loader finds it.
    #[test]
    fn the_functions_of_a_loaded_object_are_found() {
        let (mut found, mut expected) = (Vec::new(), Vec::new());
        let look = |object: &loaded::PhdrInfo| {
            // SAFETY: in the loader's callback, of objects that are never unloaded.
            let (dynamic, headers) = unsafe { (object.dynamic(), object.segments().collect::<Vec<_>>()) };
            let image = Span::new(headers.first()?.start, headers.last()?.end);
            let mut reader = Reader::probed();
            for name in [c"qsort", c"no_such_function_here", c"environ"] {
                let bytes = name.to_bytes();
                let tables = Tables::of(dynamic.address(), object.addr, &mut reader).expect("a dynamic section");
                found.push(tables.function(object.addr, image, bytes, &mut reader).map(|span| span.start));
                // A variable is no function.
                let symbol = dynamic.symbol(name).filter(|_| name != c"environ");
                expected.push(symbol.map(|symbol| symbol.address));
            }
            None::<()>
        };
        // SAFETY: dl_iterate_phdr itself, in normal context.
        unsafe { loaded::find(dl_iterate_phdr, look) };
        assert_eq!(found, expected);
        assert!(found.iter().any(Option::is_some), "qsort is somewhere");
    }

    /// The loader has added the bias, or not; a bias in the upper half is a negative one.
    #[test]
    fn addresses_have_the_bias_once() {
        let (bias, negative) = (0x7f00_0000_0000, 0_u64.wrapping_sub(0x1000_0000));
        for (value, bias, address) in [
            (0x1000, bias, bias + 0x1000),
            (bias + 0x1000, bias, bias + 0x1000),
            (0x40_1000, 0, 0x40_1000),
            (0x4000_1000, negative, 0x4000_1000),
            (0, bias, bias),
        ] {
            assert_eq!(loaded_address(value, bias), address, "{value:#x} {bias:#x}");
        }
    }

    #[test]
    fn damaged_tables_end_the_search() {
        let image = Span::new(0, u64::MAX);
        let words = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        let dynamic = words(&[DT_STRTAB, 0x2000, DT_SYMTAB, 0x2000, DT_GNU_HASH, 0x3000, DT_NULL, 0]);
        // No buckets, no filters; and chains without an end, of symbols that have no name here.
        for hash in [[0, 0], [1, 0], [1, 1 << 32], [1, 1], [1 << 32 | 1, u64::MAX]] {
            let hash = [words(&hash), vec![0xff; 4096]].concat();
            let regions = [Region { address: 0x1000, bytes: &dynamic }, Region { address: 0x3000, bytes: &hash }];
            let mut reader = Reader::recorded(&regions);
            let tables = Tables::of(0x1000, 0, &mut reader).expect("a dynamic section");
            assert_eq!(tables.function(0, image, b"f", &mut reader), None);
        }
        assert!(Tables::of(0x9000, 0, &mut Reader::recorded(&[])).is_none());
    }
}
