//! What names a code object: read in the foreign process, copied by the host, decoded by the report.

/// A text in the foreign process: the host copies it, the report decodes it. `repr(C)`: the same as `struct uu_text`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Text {
    /// Address of the first byte.
    pub address: u64,
    /// Length in bytes; the host copies at most [`TEXT_LIMIT`].
    pub len: u32,
    /// Bytes per character: 1 (ASCII or Latin-1 unless `utf8`), 2 (UCS-2) or 4 (UCS-4).
    pub width: u16,
    /// 1: the bytes are UTF-8.
    pub utf8: u16,
}

/// At most so many bytes of a name or file name are copied; the rest is cut.
pub const TEXT_LIMIT: u32 = 1024;
/// At most so many bytes of a line table are copied; a longer one is left out, and lines show as the first line.
pub const TABLE_LIMIT: u32 = 48 * 1024;

/// What names a code object. `repr(C)`: the same as `struct uu_description`.
#[repr(C)]
pub struct Description {
    /// Address of the code object.
    pub code: u64,
    /// Fingerprint of the words that name it, as given to `find_name`.
    pub fingerprint: u64,
    /// Function name, qualified if the runtime has it.
    pub name: Text,
    /// Source file.
    pub file: Text,
    /// Line table.
    pub table: Text,
    /// First line of the code object.
    pub first_line: u32,
    /// How the report decodes `table`; one of the `TABLE_*` numbers.
    pub table_kind: u32,
}

/// There is no line table; the position is the line.
pub const TABLE_NONE: u32 = 0;
/// CPython 3.11 and later: location table (Objects/locations.md in CPython's source).
pub const TABLE_PYTHON_311: u32 = 1;
