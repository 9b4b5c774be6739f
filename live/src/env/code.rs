//! Whether an address is one of code, for copies of stacks.

use super::Live;
use uunwind_core::memory::Reader;
use uunwind_core::span::Span;

/// Objects begin and end at multiples of this number of bytes.
const PAGE: u64 = 4096;

impl Live<'_> {
    /// The code that a process address lies in, or just after: a call can be the last instruction of its object. An
    /// executable part of a loaded object, which is reported to the recorder by that, or a window. `None`: neither
    /// covers the address.
    pub fn code_at(&mut self, address: u64, reader: &mut Reader<'_>) -> Option<Span> {
        let last = (address & (PAGE - 1) == 0).then(|| address.wrapping_sub(1));
        self.covering(address, reader).or_else(|| self.covering(last?, reader))
    }

    fn covering(&mut self, address: u64, reader: &mut Reader<'_>) -> Option<Span> {
        if address.wrapping_sub(self.current.start) < self.current.len || self.switch(address, reader) {
            let object = self.current.object()?;
            return match object.code.range_at(address) {
                Some(range) => Some(range),
                // Where its headers cannot be read, any of its addresses may be code.
                None => object.code.may_hold(address).then(|| object.text()),
            };
        }
        let window = self.windows.here()?.window();
        Some(Span::new(window.start, window.end))
    }
}
