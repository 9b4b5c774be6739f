//! `str` and `bytes` objects as ranges of memory: the host copies the bytes, the report decodes them.
//!
//! Layouts: <https://github.com/python/cpython/blob/v3.13.0/Include/cpython/unicodeobject.h>,
//! <https://github.com/python/cpython/blob/v3.13.0/Include/cpython/bytesobject.h>.

use crate::facts::Facts;
use uunwind_core::plugin::guest::Guest;
use uunwind_core::plugin::Text;

/// Byte offset of `PyASCIIObject.state` from the end of the object's header, where `.length` is.
const STATE: u64 = 16;
/// Bit fields of `PyASCIIObject.state`.
const KIND_SHIFT: u64 = 2;
const COMPACT: u64 = 1 << 5;
const ASCII: u64 = 1 << 6;
/// Byte offset of `PyBytesObject.ob_sval` from the end of the object's header, where `.ob_size` is.
const BYTES_DATA: u64 = 16;

/// The empty text: there is none, or it cannot be read.
pub const EMPTY: Text = Text { address: 0, len: 0, width: 1, utf8: 0 };

/// The characters of a compact `str`. Names in code objects are always compact; any other object gives [`EMPTY`].
pub fn of_str(guest: &Guest<'_>, facts: &Facts, object: u64) -> Text {
    read_str(guest, facts, object).unwrap_or(EMPTY)
}

fn read_str(guest: &Guest<'_>, facts: &Facts, object: u64) -> Option<Text> {
    if object == 0 || !object.is_multiple_of(8) {
        return None;
    }
    let fields = object.wrapping_add(u64::from(facts.object_header));
    let length = guest.word(fields)?;
    let state = guest.word(fields.wrapping_add(STATE))?;
    let width = (state >> KIND_SHIFT) & 7;
    if state & COMPACT == 0 || !matches!(width, 1 | 2 | 4) {
        return None;
    }
    let header = if state & ASCII != 0 { facts.text_ascii } else { facts.text_compact };
    let len = u32::try_from(length.checked_mul(width)?).ok()?;
    Some(Text { address: object.wrapping_add(u64::from(header)), len, width: width as u16, utf8: 0 })
}

/// The bytes of a `bytes` object, or [`EMPTY`].
pub fn of_bytes(guest: &Guest<'_>, facts: &Facts, object: u64) -> Text {
    if object == 0 || !object.is_multiple_of(8) {
        return EMPTY;
    }
    let fields = object.wrapping_add(u64::from(facts.object_header));
    match guest.word(fields).map(u32::try_from) {
        Some(Ok(len)) => Text { address: fields.wrapping_add(BYTES_DATA), len, width: 1, utf8: 0 },
        _ => EMPTY,
    }
}
