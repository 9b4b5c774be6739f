//! The list of symbols that a C program gets: its memory, and how it is given back.

use std::ffi::CString;
use uunwind_stacks::symbol::Symbol;

/// A symbol, before it is in a list. The fields are those of [`Symbol`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    pub function: CString,
    pub file: CString,
    pub object: CString,
    pub language: CString,
    pub problem: CString,
    pub address: u64,
    pub start: u64,
    pub line: u32,
    pub frame: u32,
    pub kind: u32,
    pub flags: u32,
}

/// A symbol of a list, with the texts that it points to. The first field is what the program sees.
#[repr(C)]
struct Owned {
    symbol: Symbol,
    texts: Entry,
}

/// A text, up to its first NUL.
pub fn text(bytes: &[u8]) -> CString {
    let len = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    CString::new(bytes.get(..len).unwrap_or_default()).unwrap_or_default()
}

/// The list's first symbol; null without one.
pub fn make(entries: Vec<Entry>) -> *const Symbol {
    let mut next: *const Symbol = std::ptr::null();
    for texts in entries.into_iter().rev() {
        let symbol = Symbol {
            next,
            function: texts.function.as_ptr(),
            file: texts.file.as_ptr(),
            object: texts.object.as_ptr(),
            language: texts.language.as_ptr(),
            problem: texts.problem.as_ptr(),
            address: texts.address,
            start: texts.start,
            line: texts.line,
            frame: texts.frame,
            kind: texts.kind,
            flags: texts.flags,
        };
        // A CString's bytes stay where they are when it moves.
        next = Box::into_raw(Box::new(Owned { symbol, texts })).cast();
    }
    next
}

/// Gives a list back.
///
/// # Safety
/// `first` must be null or a result of [`make`], given back once only.
pub unsafe fn free(mut first: *const Symbol) {
    while !first.is_null() {
        // SAFETY: made by `make` from a box of this type, whose first field it is.
        let owned = unsafe { Box::from_raw(first.cast_mut().cast::<Owned>()) };
        first = owned.symbol.next;
        drop(owned.texts);
    }
}
