//! Where the thread's isolate keeps code: the range in which V8 compiles functions, and the copy of the builtins that
//! lies there where the object itself is too far away for short calls
//! (<https://github.com/v8/v8/blob/11.3.244/src/heap/code-range.h>).

use crate::facts::Facts;
use crate::heap::Heap;
use uunwind_core::plugin::guest::Guest;

/// Limit of a code range, in bytes.
const LARGEST: u64 = 4 << 30;

uunwind_core::plain! {
    /// What one walk has found out. All-zero: nothing yet.
    pub struct Known {
        /// Process address of the facts that it belongs to; 0: of none.
        facts: u64,
        /// The code range: first address, and size in bytes.
        start: u64,
        size: u64,
        /// The copy of the builtins; 0: there is none.
        copy: u64,
    }
}

/// What an address is code of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// A builtin, at this distance from the start of all of them.
    Builtin(u32),
    /// A function that V8 has compiled.
    Compiled,
}

/// What the code at an address is. `None`: it is not V8's.
pub fn place(guest: &Guest<'_>, facts: &Facts, known: &mut Known, address: u64) -> Option<Place> {
    let view = guest.view();
    let in_blob = |start: u64| {
        let distance = address.wrapping_sub(start);
        (distance < u64::from(facts.blob_size)).then_some(Place::Builtin(distance as u32))
    };
    let own = in_blob(view.bias.wrapping_add(facts.blob));
    if own.is_some() || view.range_end != 0 {
        return own;
    }
    if known.facts != view.facts as u64 {
        *known = read(guest, facts).unwrap_or(Known { facts: 0, start: 0, size: 0, copy: 0 });
        known.facts = view.facts as u64;
    }
    let copied = if known.copy != 0 { in_blob(known.copy) } else { None };
    copied.or_else(|| (address.wrapping_sub(known.start) < known.size).then_some(Place::Compiled))
}

/// The thread's isolate.
fn isolate(guest: &Guest<'_>, facts: &Facts) -> Option<u64> {
    let pointer = Some(guest.view().thread_pointer).filter(|pointer| *pointer != 0)?;
    guest.word(pointer.wrapping_add(facts.isolate as u64)).filter(|isolate| *isolate != 0)
}

/// The second word of an entry of the table through which functions are called
/// (<https://github.com/v8/v8/blob/13.6.233/src/sandbox/js-dispatch-table.h>).
pub fn dispatch_entry(heap: &Heap<'_, '_>, handle: u32) -> Option<u64> {
    /// `kJSDispatchHandleShift`, and bytes of an entry.
    const SHIFT: u32 = 8;
    const ENTRY: u64 = 16;
    let isolate = isolate(heap.guest, heap.facts)?;
    let table =
        heap.guest.word(isolate.wrapping_add(heap.facts.isolate_dispatch.into())).filter(|table| *table != 0)?;
    heap.guest.word(table.wrapping_add(ENTRY * u64::from(handle >> SHIFT)).wrapping_add(8))
}

fn read(guest: &Guest<'_>, facts: &Facts) -> Option<Known> {
    let isolate = isolate(guest, facts)?;
    let range = guest.word(isolate.wrapping_add(facts.isolate_code_range.into())).filter(|range| *range != 0)?;
    let mut words = [0; 3];
    guest.words(range, [facts.range_region, facts.range_region.checked_add(8)?, facts.range_copy], &mut words)?;
    let [start, size, copy] = words;
    (size <= LARGEST).then_some(Known { facts: 0, start, size, copy })
}
