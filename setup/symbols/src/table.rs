//! Names of code from an ELF file's symbol tables
//! ([System V gABI, "Symbol Table"](https://gabi.xinuos.com/elf/05-symtab.html)). Any bytes may be passed.
//!
//! Only a symbol whose section is executable names code: others have values that may look like addresses of code, such
//! as offsets in `.debug_info`, which link-time optimization leaves as symbols without a type. Of the symbols that
//! could name an address, the innermost function with a size that covers it comes first. A symbol without a size (a
//! label) reaches to the next symbol, to the end of a function or to the end of its section, whichever is nearest.

use object::{Object, ObjectSection, ObjectSymbol, ReadRef, SectionFlags, SectionIndex, SymbolKind};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::ops::Range;
use std::path::Path;
use uunwind_elf::blocks::Blocks;

/// What names an address: file address of the beginning, and the name as the file has it.
pub type Named = Option<(u64, String)>;

/// For each file address, the symbol that names it.
pub fn names(path: &Path, addresses: &[u64]) -> Result<Vec<Named>, String> {
    let file = uunwind_elf::files::open(path).map_err(|e| e.to_string())?;
    in_image(&Blocks::new(file), addresses)
}

/// As [`names`], in an ELF image.
pub fn in_image<'data, R: ReadRef<'data>>(image: R, addresses: &[u64]) -> Result<Vec<Named>, String> {
    let elf = object::File::parse(image).map_err(|e| e.to_string())?;
    let mut table = Table::read(&elf);
    let mut order: Vec<usize> = (0..addresses.len()).collect();
    order.sort_unstable_by_key(|index| addresses.get(*index));
    let mut found = vec![None; addresses.len()];
    for index in order {
        if let (Some(address), Some(place)) = (addresses.get(index), found.get_mut(index)) {
            *place = table.find(*address).map(|(start, name)| (start, name.to_owned()));
        }
    }
    Ok(found)
}

/// One of several names for the same code, as a sort key. The smallest is preferred: fewest leading underscores, then
/// global before weak before local, then the shortest.
type Name<'a> = (usize, u8, usize, &'a str);

/// A symbol that covers code: its beginning, its end (file addresses), its name.
type Sized<'a> = (u64, u64, Name<'a>);

/// The symbols of a file that name code, searched in ascending order of addresses.
struct Table<'a> {
    /// Functions with a size, sorted; the first `begun` begin at or before the last address.
    functions: Vec<Sized<'a>>,
    begun: usize,
    /// Functions that may cover the current or a later address: the innermost on top, of these the longest.
    open: BinaryHeap<(u64, u64, Reverse<Name<'a>>)>,
    /// Ends of functions, sorted.
    ends: Vec<u64>,
    /// Labels, sorted, each with the end of its reach if no other symbol ended it.
    labels: Vec<Sized<'a>>,
}

impl<'a> Table<'a> {
    fn read<'data: 'a>(elf: &'a impl Object<'data>) -> Table<'a> {
        let executable = |flags| matches!(flags, SectionFlags::Elf { sh_flags } if sh_flags & u64::from(object::elf::SHF_EXECINSTR) != 0);
        let code: HashMap<SectionIndex, Range<u64>> = elf
            .sections()
            .filter(|section| executable(section.flags()))
            .map(|s| (s.index(), s.address()..s.address().saturating_add(s.size())))
            .collect();
        let (mut functions, mut labels) = (Vec::new(), Vec::new());
        // The dynamic table is sparse: a label in it does not name all the code up to the next one.
        let symbols = elf.symbols().map(|s| (s, true)).chain(elf.dynamic_symbols().map(|s| (s, false)));
        for (symbol, reaches) in symbols {
            let (start, size) = (symbol.address(), symbol.size());
            let Some(section) = symbol.section_index().and_then(|index| code.get(&index)) else { continue };
            let Ok(name) = symbol.name() else { continue };
            if name.is_empty() || !section.contains(&start) {
                continue;
            }
            let underscores = name.bytes().take_while(|byte| *byte == b'_').count();
            let binding = if symbol.is_weak() { 1 } else { 2 * u8::from(symbol.is_local()) };
            let name = (underscores, binding, name.len(), name);
            let end = match (size, reaches) {
                (0, true) => section.end,
                (0, false) => start.saturating_add(1),
                _ => start.saturating_add(size),
            };
            match symbol.kind() {
                SymbolKind::Text if size > 0 => functions.push((start, end, name)),
                SymbolKind::Text | SymbolKind::Unknown => labels.push((start, end, name)),
                _ => {}
            }
        }
        functions.sort_unstable();
        // The preferred name of several labels at one place comes last, where the search ends.
        labels.sort_unstable_by(|a, b| (a.0, a.1).cmp(&(b.0, b.1)).then(b.2.cmp(&a.2)));
        let mut ends: Vec<u64> = functions.iter().map(|(_, end, _)| *end).collect();
        ends.sort_unstable();
        Table { functions, begun: 0, open: BinaryHeap::new(), ends, labels }
    }

    /// The symbol that names an address. Addresses must come in ascending order.
    fn find(&mut self, address: u64) -> Option<(u64, &'a str)> {
        while let Some((start, end, name)) = self.functions.get(self.begun).filter(|f| f.0 <= address) {
            self.open.push((*start, *end, Reverse(*name)));
            self.begun += 1;
        }
        while let Some((start, end, Reverse(name))) = self.open.peek() {
            if *end > address {
                return Some((*start, name.3));
            }
            self.open.pop();
        }
        let before = self.labels.partition_point(|label| label.0 <= address).checked_sub(1)?;
        let (start, end, name) = *self.labels.get(before)?;
        let ended = self.ends.partition_point(|end| *end <= address).checked_sub(1).and_then(|i| self.ends.get(i));
        (address < end && ended.is_none_or(|ended| *ended <= start)).then_some((start, name.3))
    }
}
