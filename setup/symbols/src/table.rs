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
    let mut sorted = addresses.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let found = Table::read(&elf, &sorted).names();
    let named = |address: &u64| found.get(sorted.binary_search(address).ok()?)?.map(|(at, name)| (at, name.to_owned()));
    Ok(addresses.iter().map(named).collect())
}

/// One of several names for the same code, as a sort key. The smallest is preferred: fewest leading underscores, then
/// global before weak before local, then the shortest.
type Name<'a> = (usize, u8, usize, &'a str);

/// A symbol that covers code: its beginning, its end (file addresses), its name. The greatest is preferred.
type Sized<'a> = (u64, u64, Reverse<Name<'a>>);

/// What lies before an address: at the first address of several that it is for.
#[derive(Clone, Default)]
struct Before<'a> {
    /// The end of a function with a size that is nearest before the address, or at it.
    ended: Option<u64>,
    /// The label that is nearest before it, or at it, with the end of its reach if no other symbol ended it.
    label: Option<Sized<'a>>,
}

/// The symbols of a file that name code, as far as they say something of some addresses: those of a library are many,
/// those of a stack are few, so that only names are read that one of them may have.
struct Table<'a> {
    /// File addresses in ascending order, each once.
    addresses: &'a [u64],
    /// Functions with a size that cover one of them.
    functions: Vec<Sized<'a>>,
    /// One for each address.
    before: Vec<Before<'a>>,
}

impl<'a> Table<'a> {
    fn read<'data: 'a>(elf: &'a impl Object<'data>, addresses: &'a [u64]) -> Table<'a> {
        let executable = |flags| matches!(flags, SectionFlags::Elf { sh_flags } if sh_flags & u64::from(object::elf::SHF_EXECINSTR) != 0);
        let code: HashMap<SectionIndex, Range<u64>> = elf
            .sections()
            .filter(|section| executable(section.flags()))
            .map(|s| (s.index(), s.address()..s.address().saturating_add(s.size())))
            .collect();
        let mut table = Table { addresses, functions: Vec::new(), before: vec![Before::default(); addresses.len()] };
        // The dynamic table is sparse: a label in it does not name all the code up to the next one.
        let symbols = elf.symbols().map(|s| (s, true)).chain(elf.dynamic_symbols().map(|s| (s, false)));
        for (symbol, reaches) in symbols {
            let (start, size, kind) = (symbol.address(), symbol.size(), symbol.kind());
            if !matches!(kind, SymbolKind::Text | SymbolKind::Unknown) {
                continue;
            }
            let Some(section) = symbol.section_index().and_then(|index| code.get(&index)) else { continue };
            if !section.contains(&start) {
                continue;
            }
            let end = match (size, reaches) {
                (0, true) => section.end,
                (0, false) => start.saturating_add(1),
                _ => start.saturating_add(size),
            };
            let name = || {
                let name = symbol.name().ok().filter(|name| !name.is_empty() && !is_mark(name))?;
                let underscores = name.bytes().take_while(|byte| *byte == b'_').count();
                let binding = if symbol.is_weak() { 1 } else { 2 * u8::from(symbol.is_local()) };
                Some(Reverse((underscores, binding, name.len(), name)))
            };
            if kind == SymbolKind::Text && size > 0 {
                table.function(start, end, &name);
            } else {
                table.label(start, end, &name);
            }
        }
        table
    }

    /// Index of the first address that is not below this one.
    fn from(&self, address: u64) -> usize {
        self.addresses.partition_point(|other| *other < address)
    }

    /// A function with a size. One without a name names nothing, and ends no label.
    fn function(&mut self, start: u64, end: u64, name: &impl Fn() -> Option<Reverse<Name<'a>>>) {
        let (first, after) = (self.from(start), self.from(end));
        let covers = first < after;
        let before = self.before.get_mut(after).filter(|before| before.ended.is_none_or(|other| other < end));
        if !covers && before.is_none() {
            return;
        }
        let Some(name) = name() else { return };
        if let Some(before) = before {
            before.ended = Some(end);
        }
        if covers {
            self.functions.push((start, end, name));
        }
    }

    fn label(&mut self, start: u64, end: u64, name: &impl Fn() -> Option<Reverse<Name<'a>>>) {
        let first = self.from(start);
        let Some(before) = self.before.get_mut(first) else { return };
        if before.label.is_some_and(|other| (other.0, other.1) > (start, end)) {
            return;
        }
        before.label = before.label.max(name().map(|name| (start, end, name)));
    }

    /// For each address, the symbol that names it.
    fn names(mut self) -> Vec<Option<(u64, &'a str)>> {
        self.functions.sort_unstable();
        // Functions that may cover the current or a later address: the innermost on top, of these the longest.
        let (mut next, mut open) = (self.functions.iter().peekable(), BinaryHeap::new());
        let (mut ended, mut label) = (None, None);
        let name = |(address, before): (&u64, &Before<'a>)| {
            while let Some(function) = next.next_if(|function| function.0 <= *address) {
                open.push(*function);
            }
            ended = ended.max(before.ended);
            label = label.max(before.label);
            while let Some((start, end, Reverse(name))) = open.peek() {
                if end > address {
                    return Some((*start, name.3));
                }
                open.pop();
            }
            let (start, end, Reverse(name)) = label?;
            (*address < end && ended.is_none_or(|ended| ended <= start)).then_some((start, name.3))
        };
        self.addresses.iter().zip(&self.before).map(name).collect()
    }
}

/// Whether a symbol marks where instructions or data begin, and names nothing: `$x`, `$d`, and those with more after a
/// dot ([ELF for the Arm 64-bit Architecture](https://github.com/ARM-software/abi-aa/blob/main/aaelf64/aaelf64.rst),
/// mapping symbols).
fn is_mark(name: &str) -> bool {
    name.strip_prefix("$x").or(name.strip_prefix("$d")).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the module says it, for one address after the other and with all symbols.
    fn one_by_one(elf: &object::File<'_>, addresses: &[u64]) -> Vec<Named> {
        let is_code = |index| {
            let section = elf.section_by_index(index).expect("a section");
            let SectionFlags::Elf { sh_flags } = section.flags() else { return None };
            let range = section.address()..section.address() + section.size();
            (sh_flags & u64::from(object::elf::SHF_EXECINSTR) != 0).then_some(range)
        };
        let (mut functions, mut labels) = (Vec::new(), Vec::new());
        let symbols = elf.symbols().map(|s| (s, true)).chain(elf.dynamic_symbols().map(|s| (s, false)));
        for (symbol, reaches) in symbols {
            let Some(section) = symbol.section_index().and_then(is_code) else { continue };
            let (start, size, name) = (symbol.address(), symbol.size(), symbol.name().unwrap_or_default());
            if name.is_empty() || !section.contains(&start) {
                continue;
            }
            let underscores = name.len() - name.trim_start_matches('_').len();
            let binding = if symbol.is_weak() { 1 } else { 2 * u8::from(symbol.is_local()) };
            let name = (underscores, binding, name.len(), name.to_owned());
            match symbol.kind() {
                SymbolKind::Text if size > 0 => functions.push((start, start + size, name)),
                SymbolKind::Text | SymbolKind::Unknown if size > 0 => labels.push((start, start + size, name)),
                SymbolKind::Text | SymbolKind::Unknown => {
                    labels.push((start, if reaches { section.end } else { start + 1 }, name));
                }
                _ => {}
            }
        }
        let named = |address: &u64| {
            let covers = functions.iter().filter(|f| f.0 <= *address && *address < f.1);
            let best = covers.max_by_key(|f| (f.0, f.1, Reverse(&f.2)));
            if let Some((start, _, name)) = best {
                return Some((*start, name.3.clone()));
            }
            let label = labels.iter().filter(|l| l.0 <= *address).max_by_key(|l| (l.0, l.1, Reverse(&l.2)))?;
            let ended = functions.iter().map(|f| f.1).filter(|end| end <= address).max();
            (*address < label.1 && ended.is_none_or(|end| end <= label.0)).then(|| (label.0, label.2 .3.clone()))
        };
        addresses.iter().map(named).collect()
    }

    #[test]
    fn marks_of_instructions_and_data_name_nothing() {
        let folder = std::env::temp_dir().join(format!("uu-marks-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).expect("a folder");
        let text = ".text\n\"$x\": nop\n.globl _start\n_start: nop\n\"$d.17\": nop\n\"$xyz\": nop\n";
        std::fs::write(folder.join("x.s"), text).expect("room");
        crate::tests::run(&folder, "gcc -nostdlib -static -o x x.s");
        let bytes = std::fs::read(folder.join("x")).expect("a file");
        let elf = object::File::parse(&*bytes).expect("ELF");
        let start = elf.section_by_name(".text").expect("code").address();
        let named = in_image(&bytes[..], &[start, start + 1, start + 2, start + 3]).expect("names");
        let names: Vec<_> = named.iter().map(|named| named.as_ref().map(|(_, name)| name.as_str())).collect();
        assert_eq!(names, [None, Some("_start"), Some("_start"), Some("$xyz")]);
        std::fs::remove_dir_all(&folder).expect("the folder");
    }

    #[test]
    fn addresses_are_named_as_all_symbols_say() {
        let folder = std::env::temp_dir().join(format!("uu-table-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).expect("a folder");
        // Functions within functions, several names of one place, labels before, in and after functions, gaps.
        let text = r#"
            .macro function name, size
                .type \name, @function
                .size \name, \size
            .endm
            .text
            .globl _start, outer, other_outer, __inner, inner_of_it
            _start: label_at_start: nop
            outer: other_outer: nop
            __inner: inner_of_it: nop; nop
            label_in_inner: nop
            after_inner: nop
            longer: nop; nop
            after_all: nop; nop
            _first: first: .weak first; nop; nop
            empty: .type empty, @function; nop; nop
            whole: nop; nop; nop; nop
            untyped: .size untyped, 2; nop; nop; nop
            last: nop
            function outer, 5
            function other_outer, 7
            function __inner, 3
            function inner_of_it, 3
            function longer, 4
            function whole, 3
        "#;
        std::fs::write(folder.join("x.s"), text).expect("room");
        crate::tests::run(&folder, "gcc -nostdlib -static -o x x.s && gcc -nostdlib -shared -o x.so x.s");
        crate::tests::run(&folder, "strip -o stripped.so x.so");
        for name in ["x", "x.so", "stripped.so", "/proc/self/exe"] {
            let bytes = std::fs::read(folder.join(name)).expect("a file");
            let elf = object::File::parse(&*bytes).expect("ELF");
            let text = elf.section_by_name(".text").expect("code");
            let (start, end) = (text.address(), text.address() + text.size());
            let step = (text.size() / 40).max(1);
            let around =
                elf.symbols().take(40).flat_map(|s| [s.address().wrapping_sub(1), s.address(), s.address() + 1]);
            let mut addresses: Vec<u64> =
                (start.saturating_sub(2)..end + 2).step_by(step as usize).chain(around).collect();
            let half = addresses.len() / 2;
            addresses.rotate_left(half);
            let expected = one_by_one(&elf, &addresses);
            assert_eq!(in_image(&bytes[..], &addresses), Ok(expected.clone()), "{name}");
            assert!(expected.iter().any(Option::is_some) && expected.iter().any(Option::is_none), "{name}");
            // What other addresses are asked for together changes nothing.
            for (address, named) in addresses.iter().zip(expected).step_by(7) {
                assert_eq!(in_image(&bytes[..], &[*address]), Ok(vec![named]), "{name} {address:#x}");
            }
        }
        std::fs::remove_dir_all(&folder).expect("the folder");
    }
}
