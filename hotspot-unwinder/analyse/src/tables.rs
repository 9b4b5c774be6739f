//! The tables that HotSpot exports for debuggers: `gHotSpotVMStructs`, `gHotSpotVMTypes` and the constants
//! (<https://github.com/openjdk/jdk17u/blob/master/src/hotspot/share/runtime/vmStructs.hpp>). Their entries hold
//! pointers, which are relocated when the object is loaded, and offsets, which its initialisation stores: see
//! [`crate::stores`].

use crate::stores;
use std::collections::HashMap;
use uunwind_elf::{Image, Relocations};

/// Limits: of one table's entries, of an entry's bytes, and of a name's bytes.
const ENTRIES: u64 = 8192;
const STRIDE: u64 = 256;
const NAME: usize = 200;

/// A field of a structure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Bytes from the start of the structure; `None`: nothing says where.
    pub offset: Option<u64>,
    /// File address of a static field; 0: it is none.
    pub address: u64,
    /// Its type, as text.
    pub kind: String,
}

/// All tables.
#[derive(Debug)]
pub struct Tables {
    fields: HashMap<(String, String), Field>,
    sizes: HashMap<String, u64>,
    constants: HashMap<String, i32>,
}

impl Tables {
    /// A field.
    pub fn field(&self, structure: &str, name: &str) -> Option<&Field> {
        self.fields.get(&(structure.to_owned(), name.to_owned()))
    }

    /// All fields that have an offset.
    pub fn offsets(&self) -> impl Iterator<Item = (&str, &str, u64)> {
        self.fields.iter().filter_map(|((structure, name), field)| Some((&**structure, &**name, field.offset?)))
    }

    /// The size of a structure, in bytes.
    pub fn size(&self, structure: &str) -> Option<u64> {
        self.sizes.get(structure).copied().filter(|size| *size != 0)
    }

    /// A constant.
    pub fn constant(&self, name: &str) -> Option<i32> {
        self.constants.get(name).copied()
    }
}

/// A file's words as they are once it is loaded.
pub struct Relocated<'i> {
    image: &'i Image,
    /// By file address: what relocations make of words, and what the object's initialisation stores.
    relative: Relocations,
    stored: HashMap<u64, u64>,
}

impl<'i> Relocated<'i> {
    /// Reads the file's relocations.
    pub fn new(image: &'i Image) -> Relocated<'i> {
        let relative = Relocations::of(image);
        let relocated = Relocated { image, relative, stored: HashMap::new() };
        let stored = stores::of(image, &relocated);
        Relocated { stored, ..relocated }
    }

    /// The word at a file address.
    pub fn word(&self, address: u64) -> Option<u64> {
        let set = self.stored.get(&address).copied().or_else(|| self.relative.word(address));
        if set.is_some() {
            return set;
        }
        let mut bytes = [0; 8];
        // Or zero: it is in memory, and not in the file.
        let is_zero = || {
            self.image.segments().iter().any(|segment| {
                let inside = address.checked_sub(segment.address);
                inside.is_some_and(|at| at >= segment.file_size && at.saturating_add(8) <= segment.memory_size)
            })
        };
        (self.image.read_address(address, &mut bytes) || is_zero()).then(|| u64::from_le_bytes(bytes))
    }

    /// Whether initialisation stores anything into these words.
    fn stores_into(&self, words: &std::ops::Range<u64>) -> bool {
        self.stored.keys().any(|address| words.contains(address))
    }

    /// The text at a file address.
    fn text(&self, address: u64) -> Option<String> {
        let mut text = Vec::new();
        while text.len() < NAME {
            let mut byte = [0];
            if !self.image.read_address(address.checked_add(text.len() as u64)?, &mut byte) {
                return None;
            }
            if byte == [0] {
                return String::from_utf8(text).ok();
            }
            text.push(byte[0]);
        }
        None
    }

    /// The word of a variable.
    fn variable(&self, name: &str) -> Option<u64> {
        self.word(self.image.symbol(name)?.address)
    }
}

/// One of the tables: its address, and where fields are in its entries.
struct Table {
    start: u64,
    stride: u64,
    fields: Vec<u64>,
}

impl Table {
    /// By the variables that describe it: `gHotSpotVM{name}s`, `gHotSpotVM{name}EntryArrayStride`, and
    /// `gHotSpotVM{name}Entry{field}Offset` for each field.
    fn new(relocated: &Relocated<'_>, variable: &str, name: &str, fields: &[&str]) -> Option<Table> {
        let stride = relocated.variable(&format!("gHotSpotVM{name}EntryArrayStride"))?;
        let offset = |field: &&str| {
            let offset = relocated.variable(&format!("gHotSpotVM{name}Entry{field}Offset"))?;
            (offset <= STRIDE - 8).then_some(offset)
        };
        let fields = fields.iter().map(offset).collect::<Option<Vec<u64>>>()?;
        let start = relocated.variable(variable)?;
        (stride != 0 && stride <= STRIDE).then_some(Table { start, stride, fields })
    }

    /// The addresses of an entry's fields; `None` after the last entry, whose first field is null.
    fn entry(&self, relocated: &Relocated<'_>, index: u64) -> Option<Vec<u64>> {
        let entry = self.start.checked_add(index.checked_mul(self.stride)?)?;
        let fields: Vec<u64> = self.fields.iter().map(|field| entry.wrapping_add(*field)).collect();
        let first = relocated.word(*fields.first()?)?;
        (index < ENTRIES && first != 0).then_some(fields)
    }

    fn entries(&self, relocated: &Relocated<'_>) -> Vec<Vec<u64>> {
        (0..).map_while(|index| self.entry(relocated, index)).collect()
    }

    /// The file addresses of its entries.
    fn span(&self, count: usize) -> std::ops::Range<u64> {
        self.start..self.start.saturating_add(self.stride.saturating_mul(count as u64))
    }
}

/// The tables of a file. `None`: it has none, so it is no HotSpot.
///
/// # Errors
/// They are there, and cannot be read.
pub fn of(image: &Image) -> Option<Result<Tables, String>> {
    image.symbol("gHotSpotVMStructs")?;
    Some(read(image).ok_or_else(|| "whose tables for debuggers (gHotSpotVMStructs) cannot be read".to_owned()))
}

fn read(image: &Image) -> Option<Tables> {
    let relocated = Relocated::new(image);
    let names = ["TypeName", "FieldName", "TypeString", "IsStatic", "Offset", "Address"];
    let structs = Table::new(&relocated, "gHotSpotVMStructs", "Struct", &names)?;
    let entries = structs.entries(&relocated);
    // Where initialisation fills the table in, what the file has in its place means nothing.
    let is_filled_in = relocated.stores_into(&structs.span(entries.len()));
    let mut fields = HashMap::new();
    for entry in &entries {
        let [structure, name, kind, is_static, offset, address] = entry.as_slice() else { continue };
        let text = |at: u64| relocated.word(at).filter(|text| *text != 0).and_then(|text| relocated.text(text));
        let (Some(structure), Some(name)) = (text(*structure), text(*name)) else { continue };
        let is_static = relocated.word(*is_static)? as u32 != 0;
        let address = if is_static { relocated.word(*address)? } else { 0 };
        let is_there = !is_static && (!is_filled_in || relocated.stored.contains_key(offset));
        let offset = if is_there { relocated.word(*offset) } else { None };
        fields.insert((structure, name), Field { offset, address, kind: text(*kind).unwrap_or_default() });
    }
    let types = Table::new(&relocated, "gHotSpotVMTypes", "Type", &["TypeName", "Size"])?;
    let sizes = types.entries(&relocated).into_iter().filter_map(|entry| {
        let [name, size] = entry.as_slice() else { return None };
        Some((relocated.text(relocated.word(*name)?)?, relocated.word(*size)?))
    });
    let numbers = Table::new(&relocated, "gHotSpotVMIntConstants", "IntConstant", &["Name", "Value"])?;
    let constants = numbers.entries(&relocated).into_iter().filter_map(|entry| {
        let [name, value] = entry.as_slice() else { return None };
        Some((relocated.text(relocated.word(*name)?)?, relocated.word(*value)? as i32))
    });
    Some(Tables { fields, sizes: sizes.collect(), constants: constants.collect() })
}
