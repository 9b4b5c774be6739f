//! A window as C code describes it.

use super::window::{Function, Kind, Window, DESCENDING, GROWING};
use crate::errno::{Errno, EINVAL, ENOTSUP};
use crate::plugin::{CRule, Visit};
use core::ffi::c_void;

/// Type of [`CWindow::rule`]. 1: `*rule` was filled; 0: there is none. Any other value is invalid.
pub type GiveRule = unsafe extern "C" fn(user: *mut c_void, pc: u64, rule: *mut CRule) -> u32;
/// Type of [`CWindow::name`]: writes the name of the function at `pc` to `buffer` and returns its length in bytes; 0:
/// there is none. `*start` becomes its first address.
pub type GiveName =
    unsafe extern "C" fn(user: *mut c_void, pc: u64, buffer: *mut u8, room: usize, start: *mut u64) -> usize;

/// `struct uu_window`; `uu.h` documents the fields.
#[repr(C)]
#[allow(missing_docs, reason = "documented in uu.h, whose copy this is")]
pub struct CWindow {
    pub size: u32,
    pub kind: u32,
    pub text: *const c_void,
    pub text_len: usize,
    pub user: *mut c_void,
    pub flags: u32,
    pub reserved0: u32,
    pub unwind: *const c_void,
    pub unwind_len: usize,
    pub functions: *const Function,
    pub functions_room: usize,
    pub published: *const u64,
    pub rule: Option<GiveRule>,
    pub step: Option<Visit>,
    pub name: Option<GiveName>,
    pub reserved: [u64; 3],
}

impl CWindow {
    /// The window, if its description is valid.
    pub fn to_window(&self) -> Result<Window, Errno> {
        let kind = Kind::from_number(self.kind).ok_or(ENOTSUP)?;
        let start = self.text as u64;
        let end = start.checked_add(self.text_len as u64).ok_or(EINVAL)?;
        let unwind = matches!(kind, Kind::EhFrame | Kind::SFrame);
        let (functions, growing) = (!self.functions.is_null(), self.flags & GROWING != 0);
        // Each kind has the fields that it needs, and no others.
        let sound = self.reserved0 == 0
            && self.reserved == [0; 3]
            && self.flags & !(GROWING | DESCENDING) == 0
            && unwind != self.unwind.is_null()
            && unwind == (self.unwind_len != 0)
            && (self.unwind as u64).checked_add(self.unwind_len as u64).is_some()
            && (kind == Kind::Rule) == self.rule.is_some()
            && (kind == Kind::Stepper) == self.step.is_some()
            && functions == (self.functions_room != 0)
            && self.functions_room <= u32::MAX as usize
            && growing != self.published.is_null()
            && (functions || self.flags == 0);
        if !sound {
            return Err(EINVAL);
        }
        let callback = self.rule.map(|f| f as usize as u64).or(self.step.map(|f| f as usize as u64));
        Ok(Window {
            start,
            end,
            generation: 0,
            kind,
            flags: self.flags,
            unwind: self.unwind as u64,
            unwind_len: self.unwind_len as u64,
            user: self.user as u64,
            callback: callback.unwrap_or(0),
            functions: self.functions as u64,
            capacity: self.functions_room as u64,
            published: self.published as u64,
            name: self.name.map_or(0, |f| f as usize as u64),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    unsafe extern "C" fn rule(_: *mut c_void, _: u64, _: *mut CRule) -> u32 {
        0
    }

    fn plain() -> CWindow {
        // SAFETY: all-zero is a description without any of its parts.
        let zero: CWindow = unsafe { core::mem::zeroed() };
        CWindow { size: 128, kind: 1, text: 0x1000 as *const c_void, text_len: 0x100, ..zero }
    }

    #[test]
    fn invalid_descriptions_are_refused() {
        let some = 0x2000 as *const c_void;
        assert!(plain().to_window().is_ok());
        assert!(CWindow { kind: 3, unwind: some, unwind_len: 8, ..plain() }.to_window().is_ok());
        assert!(CWindow { kind: 5, rule: Some(rule), ..plain() }.to_window().is_ok());
        assert!(CWindow { kind: 7, ..plain() }.to_window().is_ok());
        let table = CWindow { functions: some.cast(), functions_room: 4, ..plain() };
        assert!(CWindow { flags: 3, published: some.cast(), ..table }.to_window().is_ok());
        assert_eq!(CWindow { kind: 8, ..plain() }.to_window(), Err(ENOTSUP));
        let refused = [
            CWindow { kind: 3, ..plain() },
            CWindow { kind: 3, unwind: some, ..plain() },
            CWindow { unwind: some, unwind_len: 8, ..plain() },
            CWindow { kind: 5, ..plain() },
            CWindow { kind: 7, unwind: some, unwind_len: 8, ..plain() },
            CWindow { kind: 7, rule: Some(rule), ..plain() },
            CWindow { rule: Some(rule), ..plain() },
            CWindow { kind: 6, rule: Some(rule), ..plain() },
            CWindow { text_len: usize::MAX, ..plain() },
            CWindow { flags: 4, ..plain() },
            CWindow { flags: 1, ..plain() },
            CWindow { flags: 2, ..plain() },
            CWindow { flags: 1, functions: some.cast(), functions_room: 4, ..plain() },
            CWindow { published: some.cast(), functions: some.cast(), functions_room: 4, ..plain() },
            CWindow { functions: some.cast(), ..plain() },
            CWindow { functions: some.cast(), functions_room: 1 << 32, ..plain() },
            CWindow { reserved0: 1, ..plain() },
            CWindow { reserved: [0, 0, 1], ..plain() },
        ];
        for (number, window) in refused.into_iter().enumerate() {
            assert_eq!(window.to_window(), Err(EINVAL), "{number}");
        }
    }
}
