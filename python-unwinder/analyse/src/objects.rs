//! Python's objects in the memory of a process that runs meanwhile: dictionaries, attributes of instances, texts and
//! numbers. Whatever is read may be torn or hostile: each read is bounded, each object's type is looked at, nothing
//! recurses, and a look as a whole has a budget.
//!
//! Layouts: <https://github.com/python/cpython/blob/v3.13.0/Include/internal/pycore_dict.h> and `pycore_object.h`
//! beside it; up to 3.10 <https://github.com/python/cpython/blob/v3.10.13/Objects/dict-common.h>. Those of a version
//! are in `versions`.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use uunwind_language::Memory;
use uunwind_python::facts::Facts;

/// How a version lays out its objects, as far as they lead to the names of threads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Objects {
    /// Where the dictionary of the loaded modules is.
    pub modules: Modules,
    /// Where attributes of instances are.
    pub instances: Instances,
}

/// Where `sys.modules` is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Modules {
    /// At this offset in the interpreter's state.
    At(u64),
    /// At the offset that this word of the process's `_Py_DebugOffsets` has.
    Word(u64),
}

/// Where the attributes of an instance are. `keys`: `PyHeapTypeObject.ht_cached_keys`, their names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Instances {
    /// In a dictionary at `tp_dictoffset` (up to 3.10).
    Dict,
    /// In an array before the instance, or in a dictionary (3.11).
    Values { keys: u64 },
    /// The same in one pointer, whose lowest bit says which (3.12).
    Tagged { keys: u64 },
    /// In the instance itself, or in a dictionary (from 3.13 on).
    Inline { keys: u64 },
}

/// Bytes that a look may read; each read counts as [`A_READ`] of them besides.
const BUDGET: u64 = 16 << 20;
const A_READ: u64 = 128;
/// Most entries of a dictionary that is read.
const ENTRIES: u64 = 1 << 14;
/// Longest text that is read, in characters.
const CHARACTERS: u64 = 1 << 10;

/// Fields of `PyTypeObject`, the same in all versions.
const TYPE_NAME: u64 = 24;
const TYPE_SIZE: u64 = 32;
const TYPE_FLAGS: u64 = 168;
const TYPE_DICT: u64 = 288;
/// Bits of `tp_flags`.
const MANAGED_DICT: u64 = 1 << 4;
const INLINE_VALUES: u64 = 1 << 2;

/// Reads objects, for the length of one look.
pub struct Reader<'m> {
    memory: &'m dyn Memory,
    facts: &'m Facts,
    objects: Objects,
    minor: u32,
    left: Cell<u64>,
    /// Address of a type -> the beginning of its name.
    types: RefCell<HashMap<u64, [u8; 8]>>,
    /// Names that instances of a type share -> where the wanted ones are.
    shared: RefCell<HashMap<u64, Option<[u64; 2]>>>,
}

/// The entries of a dictionary's table: where they begin, how long each is, and how many there are.
struct Keys {
    entries: u64,
    each: u64,
    count: u64,
}

impl Keys {
    /// Where an entry's key stands, in bytes from the first entry on; its value follows.
    fn key_at(&self, index: u64) -> usize {
        ((index + 1) * self.each - 16) as usize
    }
}

impl<'m> Reader<'m> {
    /// Reads this memory.
    pub fn new(memory: &'m dyn Memory, facts: &'m Facts, objects: Objects, minor: u32) -> Reader<'m> {
        let (types, shared) = (RefCell::default(), RefCell::default());
        Reader { memory, facts, objects, minor, left: Cell::new(BUDGET), types, shared }
    }

    fn bytes(&self, at: u64, len: u64) -> Option<Vec<u8>> {
        let Some(left) = self.left.get().checked_sub(len.saturating_add(A_READ)) else {
            self.memory.left_out();
            return None;
        };
        self.left.set(left);
        let mut bytes = vec![0; usize::try_from(len).ok()?];
        (at != 0 && self.memory.read(at, &mut bytes)).then_some(bytes)
    }

    /// The word at an address.
    pub fn word(&self, at: u64) -> Option<u64> {
        word_at(&self.bytes(at, 8)?, 0)
    }

    /// Whether the object's type has this name.
    pub fn is(&self, object: u64, name: &str) -> bool {
        self.type_of(object).is_some_and(|of| {
            let known = self.types.borrow().get(&of).copied();
            let found = known.or_else(|| {
                let text = self.word(of.wrapping_add(TYPE_NAME))?;
                let bytes: [u8; 8] = self.bytes(text, name.len() as u64 + 1).map(|bytes| {
                    let mut start = [0xff; 8];
                    start.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
                    start
                })?;
                // Only a whole name is kept: another one is read again.
                if bytes.contains(&0) {
                    self.types.borrow_mut().insert(of, bytes);
                }
                Some(bytes)
            });
            found.is_some_and(|found| found.split(|byte| *byte == 0).next() == Some(name.as_bytes()))
        })
    }

    fn type_of(&self, object: u64) -> Option<u64> {
        if object == 0 || !object.is_multiple_of(8) {
            return None;
        }
        self.word(object.wrapping_add(8))
    }

    /// The value of a dictionary under this key, which is ASCII.
    pub fn get(&self, dict: u64, key: &str) -> Option<u64> {
        self.find(dict, &mut |at, _| self.is_key(at, key))
    }

    /// The values of a dictionary, at most this number of them.
    pub fn values(&self, dict: u64, most: usize) -> Vec<u64> {
        let mut all = Vec::new();
        let is_more = self.find(dict, &mut |_, value| {
            let is_full = all.len() >= most;
            if !is_full {
                all.push(value);
            }
            is_full
        });
        if is_more.is_some() {
            self.memory.left_out();
        }
        all
    }

    /// The first value of a dictionary whose key and value are the wanted ones.
    fn find(&self, dict: u64, is_it: &mut dyn FnMut(u64, u64) -> bool) -> Option<u64> {
        if !self.is(dict, "dict") {
            return None;
        }
        let head = self.bytes(dict, 48)?;
        // A table that is being replaced may have any size; the number of entries is right.
        if word_at(&head, 16)? > ENTRIES {
            self.memory.left_out();
            return None;
        }
        let (keys, values) = (self.keys(word_at(&head, 32)?)?, word_at(&head, 40)?);
        let entries = self.bytes(keys.entries, keys.count * keys.each)?;
        let values = match values {
            0 => None,
            // From 3.13 on, a header stands before them.
            at => Some(self.bytes(at.wrapping_add(if self.minor < 13 { 0 } else { 8 }), keys.count * 8)?),
        };
        for index in 0..keys.count {
            let key_at = keys.key_at(index);
            let key = word_at(&entries, key_at)?;
            let value = match &values {
                Some(values) => word_at(values, index as usize * 8)?,
                None => word_at(&entries, key_at + 8)?,
            };
            if key != 0 && value != 0 && is_it(key, value) {
                return Some(value);
            }
        }
        None
    }

    fn keys(&self, at: u64) -> Option<Keys> {
        let head = self.bytes(at, 40)?;
        let (start, indices, each, count) = if self.minor < 11 {
            let size = word_at(&head, 8)?;
            let width = match size {
                0..=0xff => 1,
                0x100..=0xffff => 2,
                _ => 4,
            };
            (40, size.checked_mul(width)?, 24, word_at(&head, 32)?)
        } else {
            let (log2, kind) = (*head.get(9)?, *head.get(10)?);
            // Tables of any keys have hashes beside them.
            (32, 1u64.checked_shl(u32::from(log2))?, if kind == 0 { 24 } else { 16 }, word_at(&head, 24)?)
        };
        let entries = at.checked_add(start)?.checked_add(indices)?;
        (count <= ENTRIES).then_some(Keys { entries, each, count })
    }

    /// Whether the object is this ASCII text.
    fn is_key(&self, object: u64, key: &str) -> bool {
        let start = u64::from(self.facts.text_ascii);
        let read = || {
            let bytes = self.bytes(object, start + key.len() as u64)?;
            Some(word_at(&bytes, 16)? == key.len() as u64 && bytes.get(start as usize..)? == key.as_bytes())
        };
        object.is_multiple_of(8) && read().unwrap_or(false)
    }

    /// Two attributes of an instance.
    pub fn attributes(&self, object: u64, names: [&str; 2]) -> Option<[u64; 2]> {
        let of = self.type_of(object)?;
        let flags = self.word(of.wrapping_add(TYPE_FLAGS))?;
        let before = |words: u64| self.word(object.wrapping_sub(8 * words));
        let is_managed = flags & MANAGED_DICT != 0;
        let (dict, values, keys) = match self.objects.instances {
            Instances::Values { keys } if is_managed => (before(3)?, before(4)?, keys),
            Instances::Tagged { keys } if is_managed => match before(3)? {
                values if values & 1 != 0 => (0, values.wrapping_add(1), keys),
                dict => (dict, 0, keys),
            },
            Instances::Inline { keys } if is_managed => match before(3)? {
                0 if flags & INLINE_VALUES != 0 => (0, self.inline(object, of)?, keys),
                dict => (dict, 0, keys),
            },
            _ => {
                let offset = self.word(of.wrapping_add(TYPE_DICT)).filter(|offset| (1..1 << 16).contains(offset))?;
                (self.word(object.wrapping_add(offset))?, 0, 0)
            }
        };
        if values == 0 {
            let [first, second] = names;
            return Some([self.get(dict, first)?, self.get(dict, second)?]);
        }
        let places = self.shared(self.word(of.wrapping_add(keys))?, names)?;
        let [first, second] = places.map(|place| self.word(values.wrapping_add(8 * place)));
        Some([first?, second?])
    }

    /// Where an instance has its values in itself.
    fn inline(&self, object: u64, of: u64) -> Option<u64> {
        let size = self.word(of.wrapping_add(TYPE_SIZE)).filter(|size| *size < 1 << 16)?;
        let at = object.wrapping_add(size);
        let header = self.word(at)?.to_le_bytes();
        // `_dictvalues.valid`.
        (header[3] != 0).then_some(at.wrapping_add(8))
    }

    /// Where the values of these names are, among the values of all names that instances of a type share.
    fn shared(&self, at: u64, names: [&str; 2]) -> Option<[u64; 2]> {
        if let Some(known) = self.shared.borrow().get(&at) {
            return *known;
        }
        let find = || {
            let keys = self.keys(at)?;
            let entries = self.bytes(keys.entries, keys.count * keys.each)?;
            let place = |name: &str| {
                (0..keys.count).find(|index| {
                    let key = word_at(&entries, keys.key_at(*index));
                    key.is_some_and(|key| key != 0 && self.is_key(key, name))
                })
            };
            let [first, second] = names.map(place);
            Some([first?, second?])
        };
        let found = find();
        self.shared.borrow_mut().insert(at, found);
        found
    }

    /// The value of an `int` of one digit of 30 bits.
    pub fn number(&self, object: u64) -> Option<u32> {
        if !self.is(object, "int") {
            return None;
        }
        let bytes = self.bytes(object, 28)?;
        let is_one_digit = match word_at(&bytes, 16)? {
            size if self.minor < 12 => size == 1,
            // `lv_tag`: the number of digits above three bits: two of the sign, and one for immortal objects.
            tag => tag & !4 == 1 << 3,
        };
        let digit = u32::from_le_bytes(bytes.get(24..28)?.try_into().ok()?);
        (is_one_digit && digit < 1 << 30).then_some(digit)
    }

    /// The characters of a compact `str`, as far as they are kept.
    pub fn text(&self, object: u64) -> Option<String> {
        if !self.is(object, "str") {
            return None;
        }
        let head = self.bytes(object, u64::from(self.facts.text_ascii))?;
        let (length, state) = (word_at(&head, 16)?.min(CHARACTERS), word_at(&head, 32)?);
        let (width, is_compact, is_ascii) = (state >> 2 & 7, state & 1 << 5 != 0, state & 1 << 6 != 0);
        if !is_compact || !matches!(width, 1 | 2 | 4) {
            return None;
        }
        let start = if is_ascii { self.facts.text_ascii } else { self.facts.text_compact };
        let bytes = self.bytes(object.wrapping_add(u64::from(start)), length * width)?;
        let unit = |unit: &[u8]| unit.iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte));
        let units = bytes.chunks_exact(width as usize).map(unit);
        Some(units.map(|unit| char::from_u32(unit).unwrap_or(char::REPLACEMENT_CHARACTER)).collect())
    }
}

fn word_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}
