//! Which code of HotSpot an address is in. The code cache consists of a few heaps, in JDK 8 of one; each has a map with
//! a byte for every segment, which leads to the start of the block that the segment belongs to
//! (<https://github.com/openjdk/jdk17u/blob/master/src/hotspot/share/memory/heap.cpp>, `CodeHeap::find_block_for`). A
//! block holds a `CodeBlob`.

use crate::facts::{Facts, Place, ADDRESS, FROM_BLOB, FROM_CODE, FROM_IMMUTABLE, FROM_MUTABLE};
use uunwind_core::plugin::guest::Guest;

/// Limit of code heaps.
pub const HEAPS: usize = 4;
/// Limits: of a heap, of a blob and of the code cache in bytes, and of the segments that are looked at.
const LARGEST_HEAP: u64 = 4 << 30;
const LARGEST_BLOB: u64 = 64 << 20;
const HOPS: u32 = 1024;
/// `CodeHeap::free_sentinel`
const FREE: u8 = 0xff;
/// Limit of a frame, in words.
const LARGEST_FRAME: u64 = 1 << 16;

uunwind_core::plain! {
    /// One heap.
    pub struct Heap {
        /// Its first address, and its end.
        low: u64,
        high: u64,
        /// Its map.
        segments: u64,
        /// The size of a segment, as a power of two.
        shift: u64,
    }
}

uunwind_core::plain! {
    /// What one walk has found out. All-zero: nothing yet.
    pub struct Known {
        /// Process address of the facts that it belongs to; 0: of none.
        facts: u64,
        /// The code cache.
        low: u64,
        high: u64,
        /// The interpreter's code.
        interpreter: u64,
        interpreter_end: u64,
        heaps: [Heap; HEAPS],
    }
}

/// Facts and the walk, as one call uses them.
#[derive(Clone, Copy)]
pub struct Java<'g, 'v> {
    pub guest: &'g Guest<'v>,
    pub facts: &'g Facts,
}

/// What kind of code this is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The interpreter.
    Interpreter,
    /// A compiled method.
    Method,
    /// The wrapper of a native method.
    Native,
    /// Code that leads calls from the interpreter to compiled methods, and back.
    Adapter,
    /// Code that leads calls to methods that are found by the receiver.
    Dispatch,
    /// Code that replaces a frame of compiled code by frames of the interpreter.
    Replacement,
    /// Anything else.
    Stub,
}

/// Some code.
#[derive(Clone, Copy, Debug)]
pub struct Blob {
    /// Process address of its `CodeBlob`.
    pub address: u64,
    pub kind: Kind,
    /// Its instructions.
    pub code: u64,
    pub end: u64,
    /// Words of its frame, return address and saved frame pointer included; 0: it says nothing.
    pub frame_words: u64,
    /// Where the frame is complete. `None`: never, or not known.
    pub complete: Option<u64>,
}

impl Java<'_, '_> {
    /// 32 bits of a structure.
    pub fn half(&self, address: u64, offset: u32) -> Option<u32> {
        self.guest.half(address.wrapping_add(offset.into()))
    }

    /// A word of a structure.
    pub fn word(&self, address: u64, offset: u32) -> Option<u64> {
        self.guest.word(address.wrapping_add(offset.into()))
    }

    /// 16 bits of a structure.
    pub fn short(&self, address: u64, offset: u32) -> Option<u16> {
        let mut bytes = [0; 2];
        self.guest.bytes(address.wrapping_add(offset.into()), &mut bytes).then(|| u16::from_le_bytes(bytes))
    }

    /// A static field.
    pub fn fixed(&self, address: u64) -> Option<u64> {
        self.guest.word(self.guest.view().bias.wrapping_add(address))
    }

    /// Where something of a blob is.
    pub fn place(&self, blob: u64, code: u64, place: Place) -> Option<u64> {
        let number = |from: u64| Some(from.wrapping_add_signed((self.half(blob, place.at)? as i32).into()));
        match place.form {
            ADDRESS => self.word(blob, place.at),
            FROM_BLOB => number(blob),
            FROM_CODE => Some(code.wrapping_add(self.short(blob, place.at)?.into())),
            FROM_IMMUTABLE => number(self.word(blob, self.facts.blob_immutable)?),
            FROM_MUTABLE => {
                let skipped = self.half(blob, self.facts.blob_relocation_size)?;
                Some(self.word(blob, self.facts.blob_mutable)?.wrapping_add(skipped.into()))
            }
            _ => None,
        }
    }
}

/// The code cache of the facts that are shown, read once in a walk. `None`: it cannot be read.
pub fn cache<'k>(java: &Java<'_, '_>, known: &'k mut Known) -> Option<&'k Known> {
    if known.facts != java.guest.view().facts as u64 {
        known.forget();
        if read(java, known).is_none() {
            known.forget();
        }
        known.facts = java.guest.view().facts as u64;
    }
    (known.high != 0).then_some(known)
}

/// Fills in what is all zero, in place: it is large, and a handler's stack is short.
#[inline(never)]
fn read(java: &Java<'_, '_>, known: &mut Known) -> Option<()> {
    let facts = java.facts;
    if let Some(queue) = java.fixed(facts.interpreter).filter(|queue| *queue != 0) {
        known.interpreter = java.word(queue, facts.queue_buffer)?;
        known.interpreter_end = known.interpreter.wrapping_add(java.half(queue, facts.queue_limit)?.into());
    }
    let heaps = java.fixed(facts.cache_heaps)?;
    if facts.cache_low == 0 {
        let only = known.heaps.first_mut()?;
        read_heap(java, heaps, only)?;
        (known.low, known.high) = (only.low, only.high);
    } else {
        let count = (java.half(heaps, facts.array_len)? as usize).min(HEAPS);
        let data = java.word(heaps, facts.array_data)?;
        for (index, heap) in known.heaps.iter_mut().take(count).enumerate() {
            read_heap(java, java.guest.word(data.wrapping_add(8 * index as u64))?, heap)?;
        }
        (known.low, known.high) = (java.fixed(facts.cache_low)?, java.fixed(facts.cache_high)?);
    }
    (known.low < known.high && known.high.wrapping_sub(known.low) <= LARGEST_HEAP).then_some(())
}

/// Reads a `CodeHeap`.
fn read_heap(java: &Java<'_, '_>, address: u64, heap: &mut Heap) -> Option<()> {
    let facts = java.facts;
    let (memory, segments) = (facts.heap_memory, facts.heap_segments);
    heap.low = java.word(address, memory.wrapping_add(facts.space_low))?;
    heap.high = java.word(address, memory.wrapping_add(facts.space_high))?;
    heap.segments = java.word(address, segments.wrapping_add(facts.space_low))?;
    heap.shift = java.half(address, facts.heap_segment_shift)?.into();
    Some(())
}

impl Known {
    /// All-zero again.
    fn forget(&mut self) {
        (self.facts, self.low, self.high, self.interpreter, self.interpreter_end) = (0, 0, 0, 0, 0);
        for heap in &mut self.heaps {
            (heap.low, heap.high, heap.segments, heap.shift) = (0, 0, 0, 0);
        }
    }

    /// Whether an address is in the code cache.
    pub fn covers(&self, address: u64) -> bool {
        self.low <= address && address < self.high
    }

    fn heap(&self, address: u64) -> Option<&Heap> {
        self.heaps.iter().find(|heap| heap.low <= address && address < heap.high && heap.shift < 24)
    }
}

/// The code at an address. `None`: there is none, or it cannot be read.
#[inline(never)]
pub fn find(java: &Java<'_, '_>, known: &Known, address: u64) -> Option<Blob> {
    let facts = java.facts;
    let block = block_of(java, known.heap(address)?, address)?;
    let used = java.guest.byte(block.wrapping_add(facts.block_used.into()))?;
    if used == 0 {
        return None;
    }
    let blob = block.wrapping_add(facts.block_size.into());
    let code = java.place(blob, 0, facts.blob_code)?;
    let end = java.place(blob, code, facts.blob_end)?;
    let lies_there = blob < code && code <= address && address < end && end.wrapping_sub(blob) <= LARGEST_BLOB;
    if !lies_there {
        return None;
    }
    let frame_words = java.half(blob, facts.blob_frame_size)?;
    let complete = match facts.blob_frame_complete_bits {
        16 => i32::from(java.short(blob, facts.blob_frame_complete)? as i16),
        _ => java.half(blob, facts.blob_frame_complete)? as i32,
    };
    let in_interpreter = known.interpreter <= address && address < known.interpreter_end;
    Some(Blob {
        address: blob,
        kind: if in_interpreter { Kind::Interpreter } else { kind(java, blob)? },
        code,
        end,
        frame_words: if u64::from(frame_words) <= LARGEST_FRAME { frame_words.into() } else { 0 },
        complete: u64::try_from(complete).ok().map(|offset| code.wrapping_add(offset)).filter(|at| *at <= end),
    })
}

/// The start of the block that an address is in.
fn block_of(java: &Java<'_, '_>, heap: &Heap, address: u64) -> Option<u64> {
    let mut segment = address.wrapping_sub(heap.low) >> heap.shift;
    for _ in 0..HOPS {
        let distance = java.guest.byte(heap.segments.wrapping_add(segment))?;
        match distance {
            FREE => return None,
            0 => return Some(heap.low.wrapping_add(segment << heap.shift)),
            _ => segment = segment.checked_sub(distance.into())?,
        }
    }
    None
}

/// By the blob's name.
fn kind(java: &Java<'_, '_>, blob: u64) -> Option<Kind> {
    let name = java.word(blob, java.facts.blob_name)?;
    let mut text = [0; 16];
    // The shortest is "nmethod", and others may lie at the end of what can be read.
    if !java.guest.bytes(name, &mut text) && !java.guest.bytes(name, text.get_mut(..8)?) {
        return None;
    }
    Some(match &text {
        [b'n', b'm', b'e', b't', b'h', b'o', b'd', 0, ..] => Kind::Method,
        [b'n', b'a', b't', b'i', b'v', b'e', b' ', b'n', b'm', b'e', b't', b'h', b'o', b'd', 0, ..] => Kind::Native,
        [b'v', b't', b'a', b'b', b'l', b'e', b' ', ..] => Kind::Dispatch,
        [b'I', b'2', b'C', b'/', b'C', b'2', b'I', b' ', ..] => Kind::Adapter,
        b"DeoptimizationBl" | b"UncommonTrapBlob" => Kind::Replacement,
        _ => Kind::Stub,
    })
}
