//! Objects of the runtime: strings, arrays, and the table of ids. Layouts:
//! <https://github.com/ruby/ruby/blob/v3_1_2/include/ruby/internal/core/rstring.h>, `rarray.h` beside it,
//! <https://github.com/ruby/ruby/blob/v3_1_2/symbol.c>.

use crate::facts::{Facts, STRINGS_BY_WORD};
use uunwind_core::plugin::guest::Guest;
use uunwind_core::plugin::Text;

/// `RUBY_T_MASK` and some types (`enum ruby_value_type`).
const TYPE: u64 = 0x1f;
pub const CLASS: u64 = 0x02;
pub const MODULE: u64 = 0x03;
const STRING: u64 = 0x05;
const ARRAY: u64 = 0x07;
const IMEMO: u64 = 0x1a;
/// `FL_USHIFT`: the first bit of flags that mean something else in each type.
const USER: u32 = 12;
/// Kinds of internal objects (`enum imemo_type`).
pub const SVAR: u64 = 2;
pub const METHOD_ENTRY: u64 = 6;
pub const ISEQ: u64 = 7;

/// `nil`.
pub const NIL: u64 = 8;

/// An object that is not a number, symbol or the like: its address.
pub fn is_object(value: u64) -> bool {
    value > NIL && value.is_multiple_of(8)
}

/// The flags of an object. `None`: it is none, or unreadable.
pub fn flags(guest: &Guest<'_>, object: u64) -> Option<u64> {
    is_object(object).then(|| guest.word(object))?
}

/// The type in an object's flags.
pub fn kind(flags: u64) -> u64 {
    flags & TYPE
}

/// Is it an internal object of this kind?
pub fn is_internal(guest: &Guest<'_>, object: u64, kind: u64) -> bool {
    const KINDS: u64 = 0xf;
    flags(guest, object).is_some_and(|flags| flags & (TYPE | KINDS << USER) == IMEMO | kind << USER)
}

/// The bytes of a string.
pub fn string(guest: &Guest<'_>, facts: &Facts, object: u64) -> Option<Text> {
    const NO_EMBED: u64 = 1 << (USER + 1);
    let flags = flags(guest, object).filter(|flags| kind(*flags) == STRING)?;
    let by_word = facts.strings == STRINGS_BY_WORD;
    let (len, address) = match flags & NO_EMBED != 0 {
        true => (guest.word(object.wrapping_add(16))?, guest.word(object.wrapping_add(24))?),
        false if by_word => (guest.word(object.wrapping_add(16))?, object.wrapping_add(24)),
        false => (flags >> (USER + 2) & 0x1f, object.wrapping_add(16)),
    };
    Some(Text { address, len: u32::try_from(len).ok()?, width: 1, utf8: 1 })
}

/// An element of an array. `None`: there is none, or it cannot be read.
pub fn element(guest: &Guest<'_>, array: u64, index: u64) -> Option<u64> {
    const EMBED: u64 = 1 << (USER + 1);
    /// Limit of the elements in the object itself.
    const EMBEDDED: u64 = 0x7f;
    let flags = flags(guest, array).filter(|flags| kind(*flags) == ARRAY)?;
    let (len, address) = match flags & EMBED != 0 {
        true => (flags >> (USER + 3) & EMBEDDED, array.wrapping_add(16)),
        false => (guest.word(array.wrapping_add(16))?, guest.word(array.wrapping_add(32))?),
    };
    (index < len).then(|| guest.word(address.wrapping_add(index * 8)))?
}

/// The text of an id (`rb_id2str`).
pub fn id(guest: &Guest<'_>, facts: &Facts, id: u64) -> Option<Text> {
    /// `ID_ENTRY_UNIT`, `ID_ENTRY_SIZE`, `ID_SCOPE_SHIFT`.
    const UNIT: u64 = 512;
    const ENTRY: u64 = 2;
    const SCOPE: u32 = 4;
    if facts.symbols == 0 {
        return None;
    }
    let serial = if id > u64::from(facts.last_operator) { id >> SCOPE } else { id };
    let symbols = guest.view().bias.wrapping_add(facts.symbols);
    let last = guest.half(symbols)?;
    if serial == 0 || serial > u64::from(last) {
        return None;
    }
    let list = guest.word(symbols.wrapping_add(u64::from(facts.symbols_ids)))?;
    let part = element(guest, list, serial / UNIT)?;
    string(guest, facts, element(guest, part, serial % UNIT * ENTRY)?)
}
