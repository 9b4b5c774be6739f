//! Descriptions of code objects in messages: the texts that are the plugin's own travel with them.

use crate::wire::{put, Parts};
use uunwind_core::plugin::{Description, Text, TABLE_LIMIT, TEXT_LIMIT};

/// A text in a description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentText {
    /// Process address of the first byte, unless the bytes are the plugin's own.
    pub address: u64,
    /// [`Text::len`].
    pub len: u32,
    /// [`Text::width`].
    pub width: u16,
    /// [`Text::utf8`].
    pub utf8: u16,
    /// The bytes, where they are the plugin's own.
    pub own: Vec<u8>,
}

impl SentText {
    /// The text, of which at most `limit` bytes are sent; `whole`: all or none.
    ///
    /// # Safety
    /// Where the bytes are the plugin's own, they must be valid.
    unsafe fn of(text: &Text, limit: u32, whole: bool) -> SentText {
        let len = if whole && text.len > limit { 0 } else { text.len.min(limit) };
        let mut own = Vec::new();
        if text.is_own() && len > 0 {
            // SAFETY: passed on.
            own = unsafe { std::slice::from_raw_parts(text.address as *const u8, len as usize) }.to_vec();
        }
        SentText { address: text.address, len: text.len, width: text.width, utf8: text.utf8, own }
    }

    /// The text, whose bytes are this one's where they are the plugin's own.
    pub fn text(&self) -> Text {
        let text = Text { address: self.address, len: self.len, width: self.width, utf8: self.utf8 };
        match text.is_own() {
            true => Text { address: self.own.as_ptr() as u64, len: self.own.len() as u32, ..text },
            false => text,
        }
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.extend(self.address.to_le_bytes());
        out.extend(self.len.to_le_bytes());
        out.extend(self.width.to_le_bytes());
        out.extend(self.utf8.to_le_bytes());
        put(out, &self.own);
    }

    fn decode(parts: &mut Parts<'_>) -> Option<SentText> {
        Some(SentText {
            address: parts.u64()?,
            len: parts.u32()?,
            width: u16::from_le_bytes(parts.number()?),
            utf8: u16::from_le_bytes(parts.number()?),
            own: parts.bytes()?.to_vec(),
        })
    }
}

/// A description of a code object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentDescription {
    /// [`Description::code`].
    pub code: u64,
    /// [`Description::fingerprint`].
    pub fingerprint: u64,
    /// Name, file and line table.
    pub texts: [SentText; 3],
    /// [`Description::first_line`].
    pub first_line: u32,
    /// [`Description::table_kind`].
    pub table_kind: u32,
}

impl SentDescription {
    /// The description, as it is sent.
    ///
    /// # Safety
    /// The texts that are the plugin's own must be valid.
    pub unsafe fn of(given: &Description) -> SentDescription {
        let texts =
            [(&given.name, TEXT_LIMIT, false), (&given.file, TEXT_LIMIT, false), (&given.table, TABLE_LIMIT, true)];
        SentDescription {
            code: given.code,
            fingerprint: given.fingerprint,
            // SAFETY: passed on.
            texts: texts.map(|(text, limit, whole)| unsafe { SentText::of(text, limit, whole) }),
            first_line: given.first_line,
            table_kind: given.table_kind,
        }
    }

    /// The description, as long as this one lives.
    pub fn description(&self) -> Description {
        let [name, file, table] = &self.texts;
        Description {
            code: self.code,
            fingerprint: self.fingerprint,
            name: name.text(),
            file: file.text(),
            table: table.text(),
            first_line: self.first_line,
            table_kind: self.table_kind,
        }
    }

    pub(super) fn put(&self, out: &mut Vec<u8>) {
        out.extend([self.code, self.fingerprint].into_iter().flat_map(u64::to_le_bytes));
        self.texts.iter().for_each(|text| text.put(out));
        out.extend([self.first_line, self.table_kind].into_iter().flat_map(u32::to_le_bytes));
    }

    pub(super) fn decode(parts: &mut Parts<'_>) -> Option<SentDescription> {
        let (code, fingerprint) = (parts.u64()?, parts.u64()?);
        let texts = [SentText::decode(parts)?, SentText::decode(parts)?, SentText::decode(parts)?];
        Some(SentDescription { code, fingerprint, texts, first_line: parts.u32()?, table_kind: parts.u32()? })
    }
}
