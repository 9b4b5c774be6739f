//! Functions that the compiler has put into the code of others. A call in optimised code has a position in the source,
//! and in which of the inlined functions that is; an inlined function has the position of its own call
//! (<https://github.com/v8/v8/blob/11.3.244/src/codegen/source-position.h>, `SourcePosition::InliningStack`). Code between
//! calls has no positions.

use crate::compiled;
use crate::function;
use crate::heap::{self, Heap, Object};
use crate::position;

/// Limit of functions inside each other.
pub const DEEPEST: u32 = 32;
/// Bytes of an `InliningPosition`: a source position, and the number of a function among the literals.
const POSITION_BYTES: u64 = 16;

/// A function at a return address in optimised code.
pub enum Inlined {
    /// One that is inlined: its `SharedFunctionInfo`, and the position in its source.
    Inner { shared: u64, position: Option<u32> },
    /// The one that the code is of: the position in its source.
    Outer { position: Option<u32> },
}

/// The function at this depth, from the innermost one on, of those at a distance from the first instruction. `None`: it
/// cannot be read.
#[inline(never)]
pub fn at(heap: &Heap<'_, '_>, code: Object, offset: u32, depth: u32) -> Option<Inlined> {
    let facts = heap.facts;
    let table = heap.of_kind(heap.field(code, facts.code_positions)?, facts.type_bytes)?;
    let mut raw = position::find(heap, table, offset)?;
    for left in (0..=depth).rev() {
        let position = position::script_offset(raw);
        let Some(id) = position::inlining(raw) else {
            return (left == 0).then_some(Inlined::Outer { position });
        };
        let (shared, call) = inlined_function(heap, code, id)?;
        if left == 0 {
            return Some(Inlined::Inner { shared, position });
        }
        raw = call;
    }
    None
}

/// The function with this number among those that are inlined in some code, and the position of its call.
fn inlined_function(heap: &Heap<'_, '_>, code: Object, id: u32) -> Option<(u64, u64)> {
    let facts = heap.facts;
    let data = heap.of_kind(heap.field(code, facts.code_deoptimization)?, facts.type_array)?;
    let element = |index: u32| heap.field(data, facts.array_data.checked_add(index.checked_mul(8)?)?);
    let (bytes, positions) = heap.array(heap.of_kind(element(facts.deopt_positions)?, facts.type_inlining)?)?;
    let at = u64::from(id).checked_mul(POSITION_BYTES)?;
    if at.checked_add(POSITION_BYTES)? > u64::from(bytes) {
        return None;
    }
    let mut words = [0; 2];
    if !heap.guest.run(positions.wrapping_add(at), &mut words) {
        return None;
    }
    let [call, number] = words;
    let number = number as u32;
    let (count, literals) = heap.array(heap.object(element(facts.deopt_literals)?)?)?;
    if number >= count {
        return None;
    }
    // A literal may be a weak reference.
    let shared = heap.guest.word(literals.wrapping_add(8 * u64::from(number)))?;
    Some((heap::strong(shared), call))
}

/// The code that a return address is in.
pub fn code_around(heap: &Heap<'_, '_>, function: Object, address: u64) -> Option<Object> {
    let own = function::code(heap, function).filter(|code| compiled::covers(heap, *code, address));
    own.or_else(|| compiled::search(heap, address))
}
