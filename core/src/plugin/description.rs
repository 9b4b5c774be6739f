//! The names of a code object: read in the foreign process, copied by the host, decoded by the report.

/// A text in the foreign process: the host copies it, the report decodes it. `repr(C)`: the same as `struct uu_text`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Text {
    /// Process address of the first byte.
    pub address: u64,
    /// Length in bytes; the host copies at most [`TEXT_LIMIT`].
    pub len: u32,
    /// Bytes per character: 1 (ASCII or Latin-1 unless `utf8`), 2 (UCS-2) or 4 (UCS-4).
    pub width: u16,
    /// 1: the bytes are UTF-8, and `width` is 1; 0: see `width`. With [`OWN_TEXT`]: they are the plugin's, a constant
    /// or on its stack, and not the process's, which is another one where a walk looks from outside.
    pub utf8: u16,
}

/// A bit of [`Text::utf8`].
pub const OWN_TEXT: u16 = 2;
/// Limit of the bytes of a name or file name that are copied; the rest is cut.
pub const TEXT_LIMIT: u32 = 1024;
/// Limit of the bytes of a line table that are copied; a longer table is left out, and lines show as the first line.
pub const TABLE_LIMIT: u32 = 48 * 1024;

impl Text {
    /// Whether the bytes are UTF-8.
    pub fn is_utf8(&self) -> bool {
        self.utf8 & !OWN_TEXT != 0
    }

    /// Whether the bytes are the plugin's own ([`OWN_TEXT`]).
    pub fn is_own(&self) -> bool {
        self.utf8 & OWN_TEXT != 0
    }
}

/// The names and lines of a code object. `repr(C)`: the same as `struct uu_description`.
#[repr(C)]
pub struct Description {
    /// Process address of the code object.
    pub code: u64,
    /// Fingerprint of everything that names it, as given to `find_name`.
    pub fingerprint: u64,
    /// Function name, qualified if the runtime has it.
    pub name: Text,
    /// Path of the source file, as the runtime has it; empty if there is none.
    pub file: Text,
    /// Line table, in the runtime's format; empty if there is none. Its `width` is 1.
    pub table: Text,
    /// First line of the code object.
    pub first_line: u32,
    /// Format of `table`: [`TABLE_NONE`], or a number of the plugin's.
    pub table_kind: u32,
}

/// Value of `table_kind`: there is no line table; the position is the line. All other values belong to the plugin,
/// whose half outside of handlers decodes its tables when the recording ends.
pub const TABLE_NONE: u32 = 0;
