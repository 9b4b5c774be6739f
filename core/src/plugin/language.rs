//! What a plugin says of its language outside of handlers: to reports, which have neither the plugin nor the program.

use core::ffi::c_char;

/// What reports must know of the plugin's language: constant data. Null pointers: nothing. `repr(C)`: the same as
/// `struct uu_language`.
#[repr(C)]
pub struct Language {
    /// `size_of::<Language>()` at the time the plugin was built; fields after it count as null.
    pub size: u32,
    /// Always zero.
    pub reserved: u32,
    /// Short name, NUL-terminated, which begins the language's lines in the format `samples`. Null: the plugin's name.
    pub label: *const c_char,
    /// Native functions that only pass a call on: whole names, or beginnings of names with a `*` after them;
    /// `OBJECT!FUNCTION`: functions of bindings to native code. The list ends with a null pointer.
    pub glue: *const *const c_char,
    /// Source files of the language whose functions find and load other code. Ends as `glue`.
    pub loaders: *const *const c_char,
    /// Functions in these files that run the code that was loaded; `OBJECT!FUNCTION`: functions by which bindings call
    /// native code. Ends as `glue`.
    pub starters: *const *const c_char,
}

// SAFETY: constant data, as the type says.
unsafe impl Sync for Language {}

/// Limit of the entries of each list that are read.
pub const LIST_LIMIT: usize = 1024;

/// A position in a code object, whose line is wanted. `repr(C)`: the same as `struct uu_position`.
#[repr(C)]
pub struct Position {
    /// `size_of::<Position>()` at the time the host was built.
    pub size: u32,
    /// As in the code object's `Description`; never `TABLE_NONE`.
    pub table_kind: u32,
    /// As in the code object's `Description`.
    pub first_line: u32,
    /// Always zero.
    pub reserved: u32,
    /// A copy of the line table, of `table_len` bytes, which may be any bytes.
    pub table: *const u8,
    /// Bytes of the table; 0: it could not be copied.
    pub table_len: usize,
    /// The position, as it was emitted.
    pub position: u64,
}

/// Type of `Plugin::line`: the line of a position; 0: the table does not say.
pub type Line = unsafe extern "C" fn(position: *const Position) -> u32;
