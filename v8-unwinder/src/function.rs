//! A function: what names it, and where its source is. See `SharedFunctionInfo`, `ScopeInfo` and `Script` in
//! <https://github.com/v8/v8/tree/11.3.244/src/objects>.
//!
//! All of these move when the heap is collected. So a function is identified by numbers that do not: its script's, and
//! its first character's. What the plugin has described stays valid.

use crate::heap::{self, Heap, Object};
use crate::ranges;
use crate::text::{self, Joined};
use uunwind_core::plugin::{Description, Text, TABLE_LIMIT, TEXT_LIMIT};

/// The function's source, of one byte a character, as the line table.
pub const TABLE_LATIN1: u32 = 1;
/// Likewise, of two bytes.
pub const TABLE_UTF16: u32 = 2;
/// Limit of local variables in contexts.
const LOCALS: u64 = 1 << 16;
/// `kScopeInfoMaxInlinedLocalNamesSize`: the names of more local variables are elsewhere.
const INLINED_NAMES: u64 = 75;
/// Bytes that are read at once, and limit of those that are searched for ends of lines.
const CHUNK: usize = 128;
const SEARCHED: u64 = 4 << 20;

/// What is emitted of a function.
#[derive(Clone, Copy)]
pub struct Known {
    /// The name id; 0: the name could not be stored.
    pub name: u32,
    /// The first character of its source.
    pub start: u32,
}

/// The function that a `JSFunction` is. `None`: this is none.
pub fn known(heap: &Heap<'_, '_>, tagged: u64) -> Option<Known> {
    let function = heap.object(tagged)?;
    let [first, last] = heap.facts.functions;
    if function.kind < first || function.kind > last {
        return None;
    }
    of_shared(heap, heap.field(function, heap.facts.function_shared)?)
}

/// The code that a function is called by. `None`: it cannot be read.
pub fn code(heap: &Heap<'_, '_>, function: Object) -> Option<Object> {
    let facts = heap.facts;
    let code = if facts.isolate_dispatch == 0 {
        heap.field(function, facts.function_code)?
    } else {
        let entry = ranges::dispatch_entry(heap, heap.half(function, facts.function_code)?)?;
        // Its object, without the tag, and 16 bits for the number of parameters.
        entry >> 16 | 1
    };
    heap.of_kind(code, facts.type_code)
}

/// The function that a `SharedFunctionInfo` describes. `None`: this is none.
pub fn of_shared(heap: &Heap<'_, '_>, tagged: u64) -> Option<Known> {
    let view = heap.guest.view();
    let key = [tagged, 1, 0, view.facts as u64, view.bias];
    if let Some([name, start]) = heap.guest.recall(&key) {
        return Some(Known { name: name as u32, start: start as u32 });
    }
    let parts = Parts::read(heap, tagged)?;
    let (code, fingerprint) = parts.identity(heap)?;
    let found = heap.guest.find_name(code, fingerprint);
    if found == 0 {
        // It is cached when it is looked up again: to describe it reads its source, which would be charged to the
        // answer.
        return Some(Known { name: parts.describe(heap, code, fingerprint), start: parts.start });
    }
    heap.guest.remember(&key, &[found.into(), parts.start.into()]);
    Some(Known { name: found, start: parts.start })
}

/// What is known of a function.
struct Parts {
    /// Its name: a string; 0: it has none.
    name: u64,
    script: Option<Object>,
    /// Its source, from the first to before the last character.
    start: u32,
    end: u32,
}

impl Parts {
    #[inline(never)]
    fn read(heap: &Heap<'_, '_>, tagged: u64) -> Option<Parts> {
        let facts = heap.facts;
        let shared = heap.of_kind(tagged, facts.type_shared)?;
        let script = heap.of_kind(heap.field(shared, facts.shared_script)?, facts.type_script);
        let named = heap.field(shared, facts.shared_name)?;
        let scope = heap.of_kind(named, facts.type_scope_info);
        match scope {
            Some(scope) => Parts::in_scope(heap, scope, script),
            // It is not compiled.
            None => Some(Parts { name: if named & 1 != 0 { named } else { 0 }, script, start: 0, end: 0 }),
        }
    }

    /// By the fields of a `ScopeInfo`, of which its flags say which are there.
    fn in_scope(heap: &Heap<'_, '_>, scope: Object, script: Option<Object>) -> Option<Parts> {
        const TYPE: u32 = 15;
        let facts = heap.facts;
        let flags = heap.half(scope, facts.scope_flags)?;
        let locals = u64::try_from(heap::integer(heap.field(scope, facts.scope_locals)?)?).ok()?;
        if locals > LOCALS {
            return None;
        }
        let bits = |first: u32, mask: u32| flags.checked_shr(first).unwrap_or(0) & mask;
        let names = if locals < INLINED_NAMES { locals } else { 1 };
        let mut at = scope.address.wrapping_add(facts.scope_first.into()).wrapping_add(8 * (names + locals));
        if flags & TYPE == u32::from(facts.scope_module) {
            at = at.wrapping_add(8);
        }
        if bits(facts.scope_class_bit, 1) != 0 {
            at = at.wrapping_add(8);
        }
        let word = |at: u64| heap.guest.word(at);
        let mut name = 0;
        if bits(facts.scope_function_bit, 3) != 0 {
            name = word(at)?;
            at = at.wrapping_add(16);
        }
        let mut inferred = 0;
        if bits(facts.scope_inferred_bit, 1) != 0 {
            inferred = word(at)?;
            at = at.wrapping_add(8);
        }
        if facts.scope_positions != 0 {
            at = scope.address.wrapping_add(facts.scope_positions.into());
        }
        let (start, end) = (heap::integer(word(at)?)?, heap::integer(word(at.wrapping_add(8))?)?);
        let is_name = |tagged: u64| {
            tagged & 1 != 0 && heap.object(tagged).is_some_and(|o| o.kind < facts.type_nonstring && !is_empty(heap, o))
        };
        let name = [name, inferred].into_iter().find(|name| is_name(*name)).unwrap_or(0);
        let (start, end) = (u32::try_from(start).ok()?, u32::try_from(end).ok()?);
        (start <= end).then_some(Parts { name, script, start, end })
    }

    /// A number that does not move with the function, and a hash of what names it.
    #[inline(never)]
    fn identity(&self, heap: &Heap<'_, '_>) -> Option<(u64, u64)> {
        let script = self.script.and_then(|script| heap.field(script, heap.facts.script_id));
        let id = script.and_then(heap::integer).unwrap_or(0) as u32;
        let mut sum = text::mixed(u64::from(self.end), u64::from(self.start));
        if self.name != 0 {
            sum = text::hash(heap, self.name, sum)?;
        }
        let file = self.script.and_then(|script| heap.field(script, heap.facts.script_name));
        if let Some(sum_with_file) = file.and_then(|file| text::hash(heap, file, sum)) {
            sum = sum_with_file;
        }
        Some((u64::from(id) << 32 | u64::from(self.start), sum))
    }

    /// Describes it to the host. Not inlined, since it needs much stack and is seldom called.
    #[cold]
    #[inline(never)]
    fn describe(&self, heap: &Heap<'_, '_>, code: u64, fingerprint: u64) -> u32 {
        let mut joined = Joined::new();
        let name = if self.name == 0 { None } else { joined.whole(heap, self.name) };
        let script = |field: u32| self.script.and_then(|script| text::flat(heap, heap.field(script, field)?));
        let file = script(heap.facts.script_name).unwrap_or(text::own(b"<anonymous>"));
        let source = script(heap.facts.script_source);
        let table = source.and_then(|source| self.source(&source)).unwrap_or(text::EMPTY);
        heap.guest.describe(&Description {
            code,
            fingerprint,
            name: name.unwrap_or(text::own(b"(anonymous)")),
            file,
            table,
            first_line: source.and_then(|source| self.first_line(heap, &source)).unwrap_or(0),
            table_kind: if table.width == 2 { TABLE_UTF16 } else { TABLE_LATIN1 },
        })
    }

    /// The line in which it begins, in its file.
    fn first_line(&self, heap: &Heap<'_, '_>, source: &Text) -> Option<u32> {
        let before = heap::integer(heap.field(self.script?, heap.facts.script_line)?)?;
        line(heap, source, self.start)?.checked_add_signed(before)
    }

    /// The function's own part of its script's source. `None`: it is not in there, or too long to be copied.
    fn source(&self, script: &Text) -> Option<Text> {
        let width = u32::from(script.width);
        let (start, end) = (self.start.checked_mul(width)?, self.end.checked_mul(width)?);
        let len = end.checked_sub(start).filter(|len| end <= script.len && *len <= TABLE_LIMIT)?;
        Some(Text { address: script.address.wrapping_add(start.into()), len, ..*script })
    }
}

fn is_empty(heap: &Heap<'_, '_>, string: Object) -> bool {
    heap.half(string, heap.facts.string_length) == Some(0)
}

/// The line of a script, from 1, in which a character is. `None`: it is too far from the start.
#[inline(never)]
fn line(heap: &Heap<'_, '_>, source: &Text, position: u32) -> Option<u32> {
    let end = u64::from(position).checked_mul(source.width.into())?;
    if end > u64::from(source.len) || end > SEARCHED {
        return None;
    }
    let mut lines = Lines::new(source.width);
    let mut chunk = [0; CHUNK];
    let mut at = 0u64;
    while at < end {
        let size = (end - at).min(CHUNK as u64);
        let bytes = chunk.get_mut(..size as usize)?;
        if !heap.guest.bytes(source.address.wrapping_add(at), bytes) {
            return None;
        }
        lines.feed(bytes);
        at = at.wrapping_add(size);
    }
    Some(lines.count.saturating_add(1))
}

/// Counts the ends of lines in text, as `String::CalculateLineEnds` does.
pub struct Lines {
    width: usize,
    after_return: bool,
    /// Ends of lines so far.
    pub count: u32,
}

impl Lines {
    /// None yet. `width`: bytes of a character, 1 or 2.
    pub fn new(width: u16) -> Lines {
        Lines { width: if width == 2 { 2 } else { 1 }, after_return: false, count: 0 }
    }

    /// Counts those in whole characters.
    pub fn feed(&mut self, bytes: &[u8]) {
        for character in bytes.chunks_exact(self.width) {
            let code = match *character {
                [low, high] => u16::from_le_bytes([low, high]),
                [low] => u16::from(low),
                _ => 0,
            };
            let ends = match code {
                0x0a => !self.after_return,
                0x0d | 0x2028 | 0x2029 => true,
                _ => false,
            };
            self.after_return = code == 0x0d;
            self.count = self.count.saturating_add(u32::from(ends));
        }
    }
}

const _: () = assert!(TEXT_LIMIT as usize > text::ROOM);
