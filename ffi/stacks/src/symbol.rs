//! The shape of `uu_symbolize`'s answers, which the set-up object makes and the C interface hands out.

use crate::describe::FrameInfo;
use core::ffi::{c_char, c_int};
use uunwind_core::library::Library;

/// `struct uu_symbol` of `uu.h`: one function of a frame. Texts are UTF-8, never null, and end with a NUL.
#[repr(C)]
#[derive(Debug)]
pub struct Symbol {
    /// The next one; null after the last.
    pub next: *const Symbol,
    /// Demangled name; empty if not available.
    pub function: *const c_char,
    /// Source file; empty if not available.
    pub file: *const c_char,
    /// Native frames: path of the object; else empty.
    pub object: *const c_char,
    /// Semantic frames: name of the plugin; else empty.
    pub language: *const c_char,
    /// For people: why names or lines are missing; else empty.
    pub problem: *const c_char,
    /// Process address of the machine instruction or return address; 0: semantic frame.
    pub address: u64,
    /// Process address of the function's first instruction; 0: not available.
    pub start: u64,
    /// Line; 0: not available.
    pub line: u32,
    /// Index in the request's words of the frame's first word.
    pub frame: u32,
    /// Kind of the frame (`uunwind_core::frame::KIND_*`).
    pub kind: u32,
    /// A sum of [`INLINED`] and [`CUT`].
    pub flags: u32,
}

/// [`Symbol::flags`]: inlined into the function that the next symbol names.
pub const INLINED: u32 = 1;
/// [`Symbol::flags`]: a text was cut, as [`crate::describe::CUT`] says.
pub const CUT: u32 = 2;

/// `uu_describe`.
pub type Describe = unsafe extern "C" fn(*const u64, *mut FrameInfo) -> c_int;
/// [`SYMBOLIZE`]: checks the table's build, describes and looks up `words` frame words, and sets `*symbols`.
pub type Symbolize = unsafe extern "C" fn(
    *const Library,
    Describe,
    frames: *const u64,
    words: usize,
    symbols: *mut *const Symbol,
) -> c_int;
/// [`FREE`]: gives a list back.
pub type Free = unsafe extern "C" fn(*const Symbol);

/// Name of the set-up object's function of type [`Symbolize`].
pub const SYMBOLIZE: &core::ffi::CStr = c"uu_setup_symbolize";
/// Name of the set-up object's function of type [`Free`].
pub const FREE: &core::ffi::CStr = c"uu_setup_symbols_free";
