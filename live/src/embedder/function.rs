//! Where the function lies whose first address is given.

use crate::env::sources;
use crate::state::OBJECTS;
use crate::tables;
use uunwind_core::memory::Reader;
use uunwind_core::objects::{Lookup, Memo, Source};
use uunwind_core::span::Span;

/// The end (exclusive) of the function that begins at a process address, by the unwind information or the rule table of
/// its object. `None`: no object covers the address, or no function begins there. Async-signal-safe.
pub fn end(start: u64, reader: &mut Reader<'_>) -> Option<u64> {
    let made;
    let object = match OBJECTS.find(start, &mut Memo::default(), reader) {
        Lookup::Object(loaded) => loaded.object,
        Lookup::Nothing => return None,
        Lookup::Full => {
            made = OBJECTS.make(start, reader)?;
            &made
        }
    };
    let by_table = || {
        let Span { start, end } =
            tables::of(object, Source::Process, None)?.function(start.wrapping_sub(object.bias))?;
        Some(Span::new(start.wrapping_add(object.bias), end.wrapping_add(object.bias)))
    };
    let function = uunwind_sources::function(&sources(object), start, reader).or_else(by_table)?;
    (function.start == start && !function.is_empty()).then_some(function.end)
}
