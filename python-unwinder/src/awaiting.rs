//! The coroutines that await the asyncio task that runs: frames that are on no stack. A task is run by the event loop,
//! so what waits for its result is found in memory only: a task knows the tasks and futures that await it, and a
//! suspended coroutine has its frame inside, and on that frame's stack what it awaits.
//!
//! All is read anew in each walk, by links that CPython keeps for external tools from 3.14 on
//! (`_Py_AsyncioModuleDebugOffsets` in
//! <https://github.com/python/cpython/blob/v3.14.0/Modules/_asynciomodule.c>; `_PyGen_yf` in
//! <https://github.com/python/cpython/blob/v3.14.0/Objects/genobject.c>). No memory proves that they belong together, so
//! each step is checked by types, and the first one by the stack: the task's coroutine must be the outermost frame of
//! the activation that is being shown. Where the links lead on and frames cannot be shown, a remark says so.

use crate::code::{self, Emitted};
use crate::cursor::Cursor;
use crate::facts::Facts;
use crate::frame::{PyFrame, OWNER_GENERATOR};
use crate::text;
use uunwind_core::plugin::guest::Guest;
use uunwind_core::plugin::{Description, Text, AWAITING, OWN_TEXT, TABLE_NONE};

/// [`AsyncFacts::kind`]: the runtime keeps no links, or none whose place is known.
pub const ASYNC_NOT_DESCRIBED: u32 = 0;
/// [`AsyncFacts::kind`]: a task knows what awaits it (from 3.14 on).
pub const ASYNC_AWAITED_BY: u32 = 1;

uunwind_core::plain! {
    /// Where asyncio's tasks are, and what awaits them. Offsets are in bytes.
    #[derive(PartialEq, Eq, Debug)]
    pub struct AsyncFacts {
        /// One of the `ASYNC_*` numbers.
        pub kind: u32,
        /// `_PyThreadStateImpl.asyncio_running_task`.
        pub running_task: u32,
        /// `FutureObj.fut_awaited_by`: null, a task, a future, or a set of these.
        pub awaited_by: u32,
        /// `FutureObj.fut_awaited_by_is_set` (a byte).
        pub awaited_by_is_set: u32,
        /// `FutureObj.fut_is_task` (a byte).
        pub is_task: u32,
        /// `TaskObj.task_coro`.
        pub coroutine: u32,
        /// `PyGenObject.gi_iframe`, the frame inside a generator, coroutine or asynchronous generator.
        pub frame: u32,
        /// `PyGenObject.gi_frame_state` (a byte).
        pub state: u32,
        /// Its value in one that is suspended and awaits nothing that has a frame.
        pub suspended: u32,
        /// Its values in one that awaits an object: the first and the last.
        pub delegating: u32,
        /// The last of them.
        pub delegating_last: u32,
        /// `_PyInterpreterFrame.stackpointer`.
        pub stack: u32,
        /// Distance from there down to the awaited object.
        pub awaited: u32,
        /// `PySetObject.used`.
        pub set_used: u32,
        /// `PySetObject.mask`.
        pub set_mask: u32,
        /// `PySetObject.table`, whose entries are an object and its hash.
        pub set_table: u32,
    }
}

impl AsyncFacts {
    /// Nothing is known.
    pub const NOT_DESCRIBED: AsyncFacts = AsyncFacts {
        kind: ASYNC_NOT_DESCRIBED,
        running_task: 0,
        awaited_by: 0,
        awaited_by_is_set: 0,
        is_task: 0,
        coroutine: 0,
        frame: 0,
        state: 0,
        suspended: 0,
        delegating: 0,
        delegating_last: 0,
        stack: 0,
        awaited: 0,
        set_used: 0,
        set_mask: 0,
        set_table: 0,
    };
}

/// Limit of tasks and futures that one walk follows.
const TASKS: u32 = 256;
/// Limit of coroutines of one task that await each other.
const COROUTINES: u32 = 1024;
/// Links lead from the outer coroutine to the inner one, and frames are emitted in the opposite order, with little
/// stack. So the chain is cut into parts of `PART`, these into chunks of `CHUNK`: of each, its first coroutine is kept.
const PART: usize = 64;
const CHUNK: usize = 8;
const PARTS: usize = COROUTINES as usize / PART;
const CHUNKS: usize = PART / CHUNK;
/// Limit of a set's entries that are looked at.
const ENTRIES: u64 = 64;
/// `PyAsyncGenASend.ags_gen`, right after the object's header.
const SENDING: u32 = 16;

/// What awaits a task or future.
enum Awaiter {
    Nobody,
    One(u64),
    Several,
    /// The links lead to memory that holds none.
    Torn,
}

/// A suspended coroutine, generator or asynchronous generator.
struct Suspended {
    /// Its frame.
    frame: u64,
    /// What it awaits; 0: nothing that could have a frame.
    awaits: u64,
}

/// Emits what awaits the running task, if the activation that ends with this shim runs that task. False: the walk's
/// buffer is full. Not inlined: it needs much stack, and few walks come here.
#[inline(never)]
pub fn emit(guest: &Guest<'_>, facts: &Facts, cursor: &Cursor) -> bool {
    if facts.asyncio.kind != ASYNC_AWAITED_BY || !guest.wants_awaiting() {
        return true;
    }
    let Some(mut task) = running(guest, facts, cursor) else { return true };
    let awaits = |task| match awaiter(guest, facts, task) {
        Awaiter::One(awaiter) => Some(awaiter),
        _ => None,
    };
    // The running task is the first.
    let different = circle(task, awaits).map_or(TASKS, |different| different.saturating_sub(1).min(TASKS));
    for _ in 0..different {
        task = match awaiter(guest, facts, task) {
            Awaiter::Nobody => return true,
            Awaiter::One(awaiter) => awaiter,
            Awaiter::Several => return remark(guest, "(several tasks)"),
            Awaiter::Torn => return remark(guest, "(unreadable)"),
        };
        match guest.byte(field(task, facts.asyncio.is_task)) {
            Some(0) => {}
            Some(1) if !coroutines(guest, facts, task) => return false,
            Some(1) => {}
            _ => return remark(guest, "(unreadable)"),
        }
    }
    remark(guest, if different < TASKS { "(tasks that await each other)" } else { "(further tasks)" })
}

/// The number of different elements of a list that leads in a circle. `None`: it ends, or is too long to be measured.
fn circle(first: u64, next: impl Fn(u64) -> Option<u64>) -> Option<u32> {
    // Brent's algorithm: a mark that is moved each time the number of steps since then has doubled is met again.
    let (mut mark, mut at, mut since, mut until) = (first, first, 0, 1);
    for _ in 0..3 * TASKS {
        (at, since) = (next(at)?, since + 1);
        if at == mark {
            // Another element that is ahead by the circle's length is met where the circle begins.
            let (mut ahead, mut at, mut before) = (first, first, 0);
            for _ in 0..since {
                ahead = next(ahead)?;
            }
            while ahead != at && before < TASKS {
                (ahead, at, before) = (next(ahead)?, next(at)?, before + 1);
            }
            return Some(before + since);
        }
        if since == until {
            (mark, since, until) = (at, 0, until * 2);
        }
    }
    None
}

fn field(structure: u64, offset: u32) -> u64 {
    structure.wrapping_add(u64::from(offset))
}

/// The task that this activation runs: its coroutine's frame is the one before the shim.
fn running(guest: &Guest<'_>, facts: &Facts, cursor: &Cursor) -> Option<u64> {
    let task = guest.word(field(cursor.tstate, facts.asyncio.running_task)).filter(|task| is_object(*task))?;
    let coroutine = guest.word(field(task, facts.asyncio.coroutine)).filter(|coroutine| is_object(*coroutine))?;
    let frame = PyFrame::read(guest, facts, field(coroutine, facts.asyncio.frame))?;
    let kind = guest.word(field(coroutine, facts.object_type()))?;
    let is_outermost = frame.previous == cursor.boundary && frame.owner == OWNER_GENERATOR;
    (is_outermost && has_frame(guest, facts, kind)).then_some(task)
}

fn is_object(address: u64) -> bool {
    address != 0 && address.is_multiple_of(8)
}

/// Do objects of this type have a frame inside?
fn has_frame(guest: &Guest<'_>, facts: &Facts, kind: u64) -> bool {
    let types = [facts.coroutine_type, facts.generator_type, facts.async_generator_type];
    types.iter().any(|known| *known != 0 && kind == guest.view().bias.wrapping_add(*known))
}

#[inline(never)]
fn awaiter(guest: &Guest<'_>, facts: &Facts, future: u64) -> Awaiter {
    let (Some(awaiter), Some(is_set)) = (
        guest.word(field(future, facts.asyncio.awaited_by)),
        guest.byte(field(future, facts.asyncio.awaited_by_is_set)),
    ) else {
        return Awaiter::Torn;
    };
    match (awaiter, is_set) {
        (0, _) => Awaiter::Nobody,
        (awaiter, _) if !is_object(awaiter) => Awaiter::Torn,
        (awaiter, 0) => Awaiter::One(awaiter),
        (set, 1) => of_set(guest, facts, set),
        _ => Awaiter::Torn,
    }
}

/// The only element of a set.
fn of_set(guest: &Guest<'_>, facts: &Facts, set: u64) -> Awaiter {
    /// The hash of an entry that was removed.
    const REMOVED: u64 = u64::MAX;
    let mut words = [0; 3];
    let offsets = [facts.asyncio.set_used, facts.asyncio.set_mask, facts.asyncio.set_table];
    if guest.words(set, offsets, &mut words).is_none() {
        return Awaiter::Torn;
    }
    let [used, mask, table] = words;
    match used {
        0 => return Awaiter::Nobody,
        1 => {}
        _ => return Awaiter::Several,
    }
    for at in 0..=mask.min(ENTRIES - 1) {
        let mut entry = [0; 2];
        if guest.words(table.wrapping_add(at * 16), [0, 8], &mut entry).is_none() {
            return Awaiter::Torn;
        }
        match entry {
            [0, _] | [_, REMOVED] => {}
            [awaiter, _] if is_object(awaiter) => return Awaiter::One(awaiter),
            _ => return Awaiter::Torn,
        }
    }
    Awaiter::Torn
}

/// Emits the coroutines of a task that waits: the one that awaits another task first. False: the buffer is full.
#[inline(never)]
fn coroutines(guest: &Guest<'_>, facts: &Facts, task: u64) -> bool {
    let Some(first) = guest.word(field(task, facts.asyncio.coroutine)) else { return remark(guest, "(unreadable)") };
    let (mut parts, mut count, mut at) = ([0; PARTS], 0, first);
    while let Some(coroutine) = suspended(guest, facts, at) {
        if count == COROUTINES as usize {
            // A coroutine that runs cannot be awaited, so a circle is none of coroutines.
            let is_circle = circle(first, |at| Some(suspended(guest, facts, at)?.awaits)).is_some();
            if is_circle {
                return remark(guest, "(unreadable)");
            }
            if !remark(guest, "(further coroutines)") {
                return false;
            }
            break;
        }
        if let Some(part) = parts.get_mut(count / PART).filter(|_| count.is_multiple_of(PART)) {
            *part = at;
        }
        (at, count) = (coroutine.awaits, count + 1);
    }
    if count == 0 {
        // Not suspended, or not one of Python's own kinds.
        return remark(guest, "(a coroutine without a Python frame)");
    }
    let parts = parts.iter().enumerate().take(count.div_ceil(PART)).rev();
    parts.into_iter().all(|(nth, part)| part_reversed(guest, facts, *part, PART.min(count - nth * PART)))
}

/// Emits at most [`PART`] coroutines, from `first` inwards, the innermost first. False: the buffer is full.
#[inline(never)]
fn part_reversed(guest: &Guest<'_>, facts: &Facts, first: u64, count: usize) -> bool {
    let (mut chunks, mut kept, mut at) = ([0; CHUNKS], 0, first);
    while let Some(coroutine) = suspended(guest, facts, at).filter(|_| kept < count) {
        if let Some(chunk) = chunks.get_mut(kept / CHUNK).filter(|_| kept.is_multiple_of(CHUNK)) {
            *chunk = at;
        }
        (at, kept) = (coroutine.awaits, kept + 1);
    }
    let chunks = chunks.iter().enumerate().take(kept.div_ceil(CHUNK)).rev();
    chunks.into_iter().all(|(nth, chunk)| reversed(guest, facts, *chunk, CHUNK.min(kept - nth * CHUNK)))
}

/// Emits at most [`CHUNK`] coroutines, from `first` inwards, the innermost first. False: the buffer is full.
#[inline(never)]
fn reversed(guest: &Guest<'_>, facts: &Facts, first: u64, count: usize) -> bool {
    let (mut frames, mut kept, mut at) = ([0; CHUNK], 0, first);
    for place in frames.iter_mut().take(count) {
        let Some(coroutine) = suspended(guest, facts, at) else { break };
        (*place, kept, at) = (coroutine.frame, kept + 1, coroutine.awaits);
    }
    frames.iter().take(kept).rev().all(|frame| show(guest, facts, *frame))
}

fn show(guest: &Guest<'_>, facts: &Facts, frame: u64) -> bool {
    let emitted = PyFrame::read(guest, facts, frame).map(|frame| code::emit(guest, facts, &frame, AWAITING));
    match emitted {
        Some(Emitted::Done | Emitted::Hidden) => true,
        Some(Emitted::Full) => false,
        Some(Emitted::Invalid) | None => remark(guest, "(unreadable)"),
    }
}

/// The object as one that is suspended. `None`: it is of another type, runs, has not begun, or has ended.
#[inline(never)]
fn suspended(guest: &Guest<'_>, facts: &Facts, object: u64) -> Option<Suspended> {
    if !is_object(object) {
        return None;
    }
    let asyncio = &facts.asyncio;
    let (mut object, mut kind) = (object, guest.word(field(object, facts.object_type()))?);
    if facts.sending_type != 0 && kind == guest.view().bias.wrapping_add(facts.sending_type) {
        // What `async for` awaits: a request to an asynchronous generator.
        object = guest.word(field(object, SENDING)).filter(|generator| is_object(*generator))?;
        kind = guest.word(field(object, facts.object_type()))?;
    }
    if !has_frame(guest, facts, kind) {
        return None;
    }
    let state = u32::from(guest.byte(field(object, asyncio.state))?);
    let frame = field(object, asyncio.frame);
    if (asyncio.delegating..=asyncio.delegating_last).contains(&state) {
        let top = guest.word(field(frame, asyncio.stack))?;
        let awaited = guest.word(top.wrapping_sub(u64::from(asyncio.awaited)))?;
        return Some(Suspended { frame, awaits: awaited & !u64::from(facts.frame_tags) });
    }
    (state == asyncio.suspended).then_some(Suspended { frame, awaits: 0 })
}

/// Emits a remark in the place of frames. False: the buffer is full.
#[cold]
fn remark(guest: &Guest<'_>, words: &'static str) -> bool {
    let name = Text { address: words.as_ptr() as u64, len: words.len() as u32, width: 1, utf8: OWN_TEXT };
    let (code, fingerprint) = (name.address, guest.sum(&name).unwrap_or(0));
    let mut id = guest.find_name(code, fingerprint);
    if id == 0 {
        let (file, table) = (text::EMPTY, text::EMPTY);
        id = guest.describe(&Description {
            code,
            fingerprint,
            name,
            file,
            table,
            first_line: 0,
            table_kind: TABLE_NONE,
        });
    }
    guest.emit_all(&[[u64::from(id) | AWAITING, 0]])
}
