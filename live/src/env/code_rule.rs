//! Rules that were made from machine code of JITs, and published by the recorder with copies of that code.

use super::Live;
use core::ffi::c_void;
use core::sync::atomic::{AtomicU64, Ordering};
use uunwind_core::call_site;
use uunwind_core::cursor::Cursor;
use uunwind_core::memory::Reader;
use uunwind_core::rule::Packed;

impl Live<'_> {
    /// The rule of a frame in code that a JIT has reported without unwind data, if that code is still the one that the
    /// rule was made from. It is not cached, and no walk that used it is replayed: other code may take the place of
    /// this one at any time.
    #[cold]
    #[inline(never)]
    pub(crate) fn rule_by_code(&mut self, cursor: &Cursor, reader: &mut Reader<'_>) -> Option<Packed> {
        let (client, context) = self.client?;
        let was = reader.pause(true);
        let mut words = [0; 3];
        let at = core::ptr::from_mut(reader).cast::<c_void>();
        // SAFETY: the client's function and context; `same_code` gets this reader, during the call only.
        let found =
            unsafe { (client.code_rule)(context, cursor.lookup_pc(), same_code, at, core::ptr::from_mut(&mut words)) };
        let is_called = found && (cursor.exact || call_site::precedes(cursor.regs.pc, reader));
        reader.pause(was);
        let rule = Packed::from_words(words).filter(|rule| is_called && !rule.is_failed())?;
        (self.met.unowned, self.met.by_code) = (true, true);
        Some(rule)
    }
}

/// Whether `len` bytes at a process address are those of a copy, which may change meanwhile.
unsafe extern "C" fn same_code(reader: *mut c_void, address: u64, copy: *const AtomicU64, len: usize) -> bool {
    // SAFETY: `rule_by_code` passes its reader.
    let reader = unsafe { &mut *reader.cast::<Reader<'_>>() };
    let word = |at: usize| {
        // SAFETY: the caller passes a copy of `len` bytes in whole words.
        unsafe { (*copy.add(at)).load(Ordering::Relaxed) }
    };
    for at in 0..len / 8 {
        if reader.word(address.wrapping_add(8 * at as u64)) != Some(word(at)) {
            return false;
        }
    }
    let whole = len & !7;
    // The last bytes, which need not be followed by others.
    (whole..len).all(|at| {
        let byte = word(at / 8) >> (8 * (at % 8)) & 0xff;
        reader.u8(address.wrapping_add(at as u64)).map(u64::from) == Some(byte)
    })
}
