//! Names of native functions: what an object exports, from its dynamic symbols in memory. A function without such a
//! symbol has none here; debuggers and symbol servers find it by build-id and address.
//!
//! dladdr(3) takes the loader's lock, so the tables are read here, through the reader: they may be damaged, or gone.

use uunwind_core::exports::Tables;
use uunwind_core::memory::Reader;
use uunwind_core::objects::{Lookup, Memo};
use uunwind_live::state::OBJECTS;

/// Longest name that is shown, in bytes.
pub const NAME: usize = 256;
/// Symbols of an object that are looked at.
const SYMBOLS: u64 = 1 << 17;
/// Entries of a dynamic section that are looked at.
const ENTRIES: u64 = 256;

/// Finds names, for as many symbols as its budget allows.
#[derive(Debug)]
pub struct Names {
    left: u64,
}

/// A name, and how far the address is from the function's beginning.
#[derive(Debug)]
pub struct Name {
    /// UTF-8 in most objects; a NUL follows.
    pub bytes: [u8; NAME],
    /// Distance in bytes.
    pub offset: u64,
}

impl Names {
    /// A budget that a report uses in less than a second.
    #[allow(clippy::new_without_default, reason = "one of two budgets")]
    pub fn new() -> Names {
        Names::with_budget(40_000_000)
    }

    /// At most this number of symbols is looked at.
    pub fn with_budget(symbols: u64) -> Names {
        Names { left: symbols }
    }

    /// The exported function that covers this process address. Async-signal-safe.
    pub fn find(&mut self, address: u64, reader: &mut Reader<'_>) -> Option<Name> {
        let Lookup::Object(loaded) = OBJECTS.find(address, &mut Memo::default(), reader) else { return None };
        let (bias, map) = (loaded.object.bias, loaded.object.link_map);
        // `l_ld` is the third word of a link map (link.h).
        let dynamic = reader.word(map.wrapping_add(16)).filter(|at| *at != 0)?;
        self.find_in(dynamic, bias, address, reader)
    }

    /// The exported function that covers this process address, of the object with this dynamic section (process
    /// address) and load bias. Async-signal-safe.
    pub fn find_in(&mut self, dynamic: u64, bias: u64, address: u64, reader: &mut Reader<'_>) -> Option<Name> {
        let symbols = Symbols::read(dynamic, bias, reader)?;
        let (symbol, offset) = self.covering(&symbols, address.wrapping_sub(bias), reader)?;
        let mut name = Name { bytes: [0; NAME], offset };
        let text = symbols.strings.wrapping_add(u64::from(symbol));
        for (index, place) in name.bytes.iter_mut().enumerate().take(NAME - 1) {
            match reader.u8(text.wrapping_add(index as u64))? {
                0 => break,
                byte => *place = byte,
            }
        }
        (name.bytes.first() != Some(&0)).then_some(name)
    }

    /// The function's offset in the table of strings, and the distance from its beginning.
    fn covering(&mut self, symbols: &Symbols, address: u64, reader: &mut Reader<'_>) -> Option<(u32, u64)> {
        for index in 0..symbols.count {
            self.left = self.left.checked_sub(1)?;
            let at = symbols.first.wrapping_add(index * SYMBOL);
            let value = reader.word(at.wrapping_add(8))?;
            let distance = address.wrapping_sub(value);
            if value == 0 || distance >= reader.word(at.wrapping_add(16))? {
                continue;
            }
            let head = reader.word(at)?;
            // st_info's lower half is the type, st_shndx is 0 for what is defined elsewhere (elf(5)).
            const STT_FUNC: u64 = 2;
            const STT_GNU_IFUNC: u64 = 10;
            if matches!(head >> 32 & 15, STT_FUNC | STT_GNU_IFUNC) && head >> 48 != 0 {
                return Some((head as u32, distance));
            }
        }
        None
    }
}

/// Bytes of a symbol (`Elf64_Sym`).
const SYMBOL: u64 = 24;

/// Where an object's dynamic symbols are, in process addresses.
struct Symbols {
    first: u64,
    strings: u64,
    count: u64,
}

impl Symbols {
    fn read(dynamic: u64, bias: u64, reader: &mut Reader<'_>) -> Option<Symbols> {
        let Tables { symbols: first, strings, .. } = Tables::read(dynamic, bias, ENTRIES, reader)?;
        // Linkers place the strings after the symbols; glibc's dladdr relies on it, too.
        let count = strings.checked_sub(first)? / SYMBOL;
        (first != 0 && count <= SYMBOLS).then_some(Symbols { first, strings, count })
    }
}
