//! The functions at a call in optimised code, as V8 itself determines them for `Error().stack`: by the frames that
//! deoptimisation would leave there (<https://github.com/v8/v8/blob/13.6.233/src/execution/frames.cc>,
//! `OptimizedJSFrame::Summarize`). Maglev's table of source positions is no source: calls in a loop that was peeled
//! have the position of the loop's end, and deferred code has that of the last instruction before it.
//!
//! A frame translation is a list of operations: a first one with the number of frames, then the frames from the
//! outermost on, each with its values. Those that equal the operations of an earlier translation are left out
//! (<https://github.com/v8/v8/blob/13.6.233/src/deoptimizer/frame-translation-builder.cc>).

use crate::bytes::Bytes;
use crate::facts::{Facts, OPCODE_BEGIN, OPCODE_FRAME, OPCODE_FUNCTION, OPCODE_OPERANDS};
use crate::heap::{self, Heap, Object};
use crate::inlined::DEEPEST;
use crate::position;

/// Limit of operations that are passed, and of the bytes of all translations of some code.
const OPERATIONS: u32 = 16 << 10;
const BYTES: u32 = 1 << 20;
/// `DeoptimizationData::kFrameTranslationIndex`
const TRANSLATIONS: u32 = 0;
/// Words of an entry, and which one is where its translation begins.
const ENTRY: u32 = 3;
const START: u32 = 1;

/// A function that executes bytecode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Function {
    /// The offset in its bytecode; -1: its beginning.
    offset: i32,
    /// The index of its `SharedFunctionInfo` among the literals.
    literal: u32,
    /// The index of its bytecode among the protected literals.
    bytecode: u32,
}

/// The functions at a call: the one that the code is of, and those that are inlined there.
pub struct Functions {
    list: [Function; DEEPEST as usize],
    /// Their number, at least 1.
    pub count: u32,
    literals: Object,
    bytecodes: Object,
}

impl Functions {
    /// Those at the call with this state. `None`: they cannot be read.
    #[inline(never)]
    pub fn read(heap: &Heap<'_, '_>, code: Object, state: u32) -> Option<Functions> {
        let facts = heap.facts;
        let data = heap.of_kind(heap.field(code, facts.code_deoptimization)?, facts.type_array)?;
        let (length, _) = heap.array(data)?;
        let element = |index: u32| {
            let offset = facts.array_data.checked_add(index.checked_mul(8)?)?;
            heap.field(data, offset).filter(|_| index < length)
        };
        let entry = state.checked_mul(ENTRY)?.checked_add(facts.deopt_entries)?;
        let start = u32::try_from(heap::integer(element(entry.checked_add(START)?)?)?).ok()?;
        let (length, bytes) = heap.array(heap.of_kind(element(TRANSLATIONS)?, facts.type_bytes)?)?;
        let literals = heap.object(element(facts.deopt_literals)?)?;
        let bytecodes = heap.object(element(facts.deopt_bytecodes)?)?;
        let none = Function { offset: 0, literal: 0, bytecode: 0 };
        let mut functions = Functions { list: [none; DEEPEST as usize], count: 0, literals, bytecodes };
        let left = length.checked_sub(start).filter(|left| *left > 0 && length <= BYTES)?;
        let own = Bytes::new(heap, bytes.wrapping_add(start.into()), left);
        let before = |distance: u32| {
            let at = start.checked_sub(distance)?;
            Some(Bytes::new(heap, bytes.wrapping_add(at.into()), distance))
        };
        Operations { facts, own, left: OPERATIONS }.frames(before, &mut functions)?;
        (functions.count > 0).then_some(functions)
    }

    /// The function at a depth, from the innermost one on: its `SharedFunctionInfo`, and the position in its source.
    /// `None`: it cannot be read.
    #[inline(never)]
    pub fn at(&self, heap: &Heap<'_, '_>, depth: u32) -> Option<(u64, Option<u32>)> {
        let index = self.count.checked_sub(depth)?.checked_sub(1)?;
        let function = self.list.get(index as usize)?;
        let literal = |array: Object, index: u32| {
            let (count, first) = heap.array(array)?;
            // A literal may be a weak reference.
            heap.guest.word(first.wrapping_add(8 * u64::from(index))).filter(|_| index < count).map(heap::strong)
        };
        let shared = literal(self.literals, function.literal)?;
        let bytecode = literal(self.bytecodes, function.bytecode);
        let bytecode = bytecode.and_then(|bytecode| heap.of_kind(bytecode, heap.facts.type_bytecode));
        let offset = u32::try_from(function.offset).ok();
        let position =
            bytecode.zip(offset).and_then(|(bytecode, offset)| position::of_bytecode(heap, bytecode, offset));
        Some((shared, position))
    }

    fn push(&mut self, function: Function) -> Option<()> {
        *self.list.get_mut(self.count as usize)? = function;
        self.count = self.count.wrapping_add(1);
        Some(())
    }
}

/// The operations of one translation.
struct Operations<'f, 'h, 'g, 'v> {
    facts: &'f Facts,
    own: Bytes<'h, 'g, 'v>,
    /// Operations that may still be passed.
    left: u32,
}

impl<'h, 'g, 'v> Operations<'_, 'h, 'g, 'v> {
    /// Collects the functions. `before`: the bytes from so many before the translation on.
    fn frames(mut self, before: impl Fn(u32) -> Option<Bytes<'h, 'g, 'v>>, functions: &mut Functions) -> Option<()> {
        let first = self.own.next()?;
        if self.kind(first)? != OPCODE_BEGIN | 3 {
            return None;
        }
        let distance = self.own.number()?;
        let frames = u32::try_from(signed(self.own.number()?)).ok()?;
        self.own.number()?;
        let mut earlier = if distance == 0 { None } else { Some(before(distance)?) };
        // Operations since the earlier translation was looked at: its first one does not count as equal.
        let mut since = 1;
        let mut seen = 0u32;
        let count = u8::try_from(self.facts.opcode_count).ok()?;
        while seen < frames {
            self.spend()?;
            let opcode = self.own.next()?;
            let equal = match opcode.checked_sub(count) {
                Some(equal) => u32::from(equal),
                None if opcode.checked_add(1) == Some(count) => self.own.number()?,
                None => {
                    since += 1;
                    let kind = self.kind(opcode)?;
                    seen = seen.wrapping_add(operation(&mut self.own, kind, Some(functions))?);
                    continue;
                }
            };
            let earlier = earlier.as_mut()?;
            for number in 0..equal.checked_add(since)? {
                if seen >= frames {
                    break;
                }
                self.spend()?;
                let kind = self.kind(earlier.next()?)?;
                let own = (number >= since).then_some(&mut *functions);
                seen = seen.wrapping_add(operation(earlier, kind, own)?);
            }
            since = 0;
        }
        Some(())
    }

    /// What an opcode is. `None`: there is no such one.
    fn kind(&self, opcode: u8) -> Option<u8> {
        self.facts.opcodes.get(usize::from(opcode)).copied().filter(|_| u16::from(opcode) < self.facts.opcode_count)
    }

    fn spend(&mut self) -> Option<()> {
        self.left = self.left.checked_sub(1)?;
        Some(())
    }
}

/// Passes the operands of an operation, which is part of the translation if there are functions to add its own to.
/// Returns the number of the translation's frames that it is: 0 or 1.
fn operation(bytes: &mut Bytes<'_, '_, '_>, kind: u8, functions: Option<&mut Functions>) -> Option<u32> {
    let mut operands = [0; 3];
    for at in 0..kind & OPCODE_OPERANDS {
        let operand = bytes.number()?;
        if let Some(place) = operands.get_mut(usize::from(at)) {
            *place = operand;
        }
    }
    let Some(functions) = functions.filter(|_| kind & OPCODE_FRAME != 0) else { return Some(0) };
    if kind & OPCODE_FUNCTION != 0 {
        let [offset, literal, bytecode] = operands.map(signed);
        functions.push(Function { offset, literal: literal as u32, bytecode: bytecode as u32 })?;
    }
    Some(1)
}

/// A signed operand: its sign is its lowest bit.
fn signed(operand: u32) -> i32 {
    let value = (operand >> 1) as i32;
    if operand & 1 == 0 {
        value
    } else {
        value.wrapping_neg()
    }
}
