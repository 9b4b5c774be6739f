//! The sampler's functions that a walk calls, inside the handler: they record objects, look up facts and record names.

use crate::plugins;
use crate::process::{self, Process};
use crate::signals;
use core::ffi::c_void;
use core::sync::atomic::{AtomicU64, Ordering};
use uunwind_core::library::Client;
use uunwind_core::objects::Object;
use uunwind_core::plugin::{Description, Text, TABLE_LIMIT, TEXT_LIMIT};
use uunwind_ring::layout::{ThreadBlock, PLUGIN_OFF, RING_OFFSET};
use uunwind_ring::names::Content;
use uunwind_ring::record::{padded, NameRecord, ObjectRecord, RecordHeader, RecordType};
use uunwind_ring::writer::RingWriter;

/// The function table that each walk gets.
pub static CLIENT: Client =
    Client { object_seen, facts_count, facts, table, code_rule, find_name, describe, foreign_code, plugin_failed };

/// The context argument of the table's functions.
pub struct Context {
    /// The state of the recorded process.
    pub process: &'static Process,
    /// The calling thread's block.
    pub block: *mut ThreadBlock,
    /// Time of the sample (CLOCK_MONOTONIC, ns), at which the objects that it meets are loaded.
    pub time: u64,
}

/// A placeholder: the ring's writer fills in the header at commit.
pub const HEADER: RecordHeader = RecordHeader { size: 0, kind: 0, mark: 0 };

/// The writing end of a thread's ring.
///
/// # Safety
/// `block` must be the calling thread's own, and the caller the only writer now (inside the handler, or before the
/// timer is armed).
pub unsafe fn ring(block: *mut ThreadBlock) -> RingWriter<'static> {
    // SAFETY: blocks stay mapped for ever; the ring lies at RING_OFFSET.
    unsafe { RingWriter::new(&*block, block.cast::<u8>().add(RING_OFFSET)) }
}

/// Called before a walk runs code of a plugin or a window's stepper. Our own part of a walk is bounded, foreign code
/// may loop forever, so from here on the timer's signal is unblocked and ticks as the watchdog.
unsafe extern "C" fn foreign_code(_context: *mut c_void) {
    signals::unblock(signals::bit(signals::sampling()));
}

unsafe extern "C" fn plugin_failed(_context: *mut c_void, plugin: u32, reason: u32, off: bool) {
    let Some(block) = process::block() else { return };
    let places = (block.plugin_failures.get(plugin as usize), block.plugin_reasons.get(plugin as usize));
    let (Some(failures), Some(last)) = places else { return };
    failures.fetch_add(1, Ordering::Relaxed);
    let was_off = last.load(Ordering::Relaxed) & PLUGIN_OFF;
    last.store(reason | was_off | if off { PLUGIN_OFF } else { 0 }, Ordering::Relaxed);
}

unsafe extern "C" fn object_seen(context: *mut c_void, object: *const Object) -> bool {
    const PATH_LIMIT: usize = 1024;
    // SAFETY: the handler's context; the walk's object.
    let (context, object) = unsafe { (&*context.cast::<Context>(), &*object) };
    // SAFETY: inside the handler of this thread.
    let ring = unsafe { ring(context.block) };
    // Read each time: an object that was closed and opened again has the same link map, but another string. SAFETY:
    // `l_name` is the second word of a link map (https://man7.org/linux/man-pages/man3/dlinfo.3.html), which lives as
    // long as the object.
    let name = unsafe { (object.link_map as *const *const u8).add(1).read() };
    // The string belongs to the loader and lives as long as the object. The object cannot be unloaded while this stack
    // runs its code.
    let name_bytes = if name.is_null() {
        0
    } else {
        // SAFETY: a NUL-terminated string; at most PATH_LIMIT bytes are read.
        (0..PATH_LIMIT).find(|i| unsafe { name.add(*i).read() } == 0).unwrap_or(PATH_LIMIT)
    };
    let path = if name_bytes == 0 {
        context.process.exe.as_bytes()
    } else {
        // SAFETY: these bytes were just read.
        unsafe { core::slice::from_raw_parts(name, name_bytes) }
    };
    let build_id = object.build_id.as_bytes();
    let size = core::mem::size_of::<ObjectRecord>() + padded(build_id.len()) + padded(path.len());
    // No place in the ring: the object is reported again with a later sample.
    let Some(mut record) = ring.reserve(RecordType::Object, size) else {
        // SAFETY: the block stays mapped.
        unsafe { (*context.block).lost_other.fetch_add(1, Ordering::Relaxed) };
        return false;
    };
    record.fixed(ObjectRecord {
        header: HEADER,
        time: context.time,
        bias: object.bias,
        start: object.start,
        end: object.end,
        build_id_bytes: build_id.len() as u32,
        path_bytes: path.len() as u32,
        facts_key: object.facts_key,
    });
    record.bytes(build_id);
    record.bytes(path);
    record.commit();
    true
}

unsafe extern "C" fn facts_count(context: *mut c_void) -> u32 {
    // SAFETY: the handler's context.
    let published = unsafe { (*context.cast::<Context>()).process.facts.count() };
    // One more, so that 0 means "never looked up". Facts that came before their plugin was open are asked for again.
    published.wrapping_add(1 + u32::from(plugins::are_open()))
}

unsafe extern "C" fn facts(context: *mut c_void, key: u64, bytes: *mut *const u8, len: *mut usize) -> i32 {
    // SAFETY: the handler's context.
    let context = unsafe { &*context.cast::<Context>() };
    let Some(found) = context.process.facts.find(key) else { return -1 };
    if found.bytes.is_empty() {
        return 0;
    }
    // SAFETY: the caller passes valid places for the results.
    unsafe {
        bytes.write(found.bytes.as_ptr());
        len.write(found.bytes.len());
    }
    plugins::index_of(&found.plugin).map_or(-1, |index| index as i32)
}

unsafe extern "C" fn table(context: *mut c_void, key: u64, bytes: *mut *const u8, len: *mut usize) -> bool {
    // SAFETY: the handler's context.
    let context = unsafe { &*context.cast::<Context>() };
    let Some(table) = context.process.tables.find(key) else { return false };
    // SAFETY: the caller passes valid places for the results.
    unsafe {
        bytes.write(table.as_ptr());
        len.write(table.len());
    }
    true
}

unsafe extern "C" fn code_rule(
    context: *mut c_void,
    lookup: u64,
    same: unsafe extern "C" fn(*mut c_void, u64, *const AtomicU64, usize) -> bool,
    reader: *mut c_void,
    rule: *mut [u64; 3],
) -> bool {
    // SAFETY: the handler's context.
    let context = unsafe { &*context.cast::<Context>() };
    // SAFETY: the walk's function, with its reader.
    let same = |address, copy, len| unsafe { same(reader, address, copy, len) };
    let Some(found) = context.process.code_rules.find(lookup, same) else { return false };
    // SAFETY: the caller passes a valid place for the result.
    unsafe { rule.write(found) };
    true
}

unsafe extern "C" fn find_name(_context: *mut c_void, code: u64, fingerprint: u64) -> u32 {
    process::names().map_or(0, |names| names.find(code, fingerprint))
}

/// Copies a code object's description into the ring, and publishes its name id for all threads.
unsafe extern "C" fn describe(
    context: *mut c_void,
    plugin: u32,
    description: *const Description,
    read: unsafe extern "C" fn(*mut c_void, u64, *mut u8, usize) -> bool,
    reader: *mut c_void,
) -> u32 {
    // SAFETY: the handler's context, the walk's description.
    let (context, description) = unsafe { (&*context.cast::<Context>(), &*description) };
    let (Some(names), Some(block)) = (process::names(), process::block()) else { return 0 };
    let cut = |text: &Text, limit: u32| Text { len: text.len.min(limit), ..*text };
    let name = cut(&description.name, TEXT_LIMIT);
    let file = cut(&description.file, TEXT_LIMIT);
    let mut table = description.table;
    if table.len > TABLE_LIMIT {
        table.len = 0;
    }
    let size =
        core::mem::size_of::<NameRecord>() + [name, file, table].iter().map(|t| padded(t.len as usize)).sum::<usize>();
    // SAFETY: inside the handler of this thread.
    let Some(mut record) = (unsafe { ring(context.block) }).reserve(RecordType::Name, size) else {
        // SAFETY: the block stays mapped.
        unsafe { (*context.block).lost_other.fetch_add(1, Ordering::Relaxed) };
        block.names_lost.fetch_add(1, Ordering::Relaxed);
        return 0;
    };
    // Built twice, because keeping it would use more of the handler's stack.
    let fixed = |id| NameRecord {
        header: HEADER,
        id,
        plugin,
        code: description.code,
        fingerprint: description.fingerprint,
        first_line: description.first_line,
        table_kind: description.table_kind,
        name_bytes: name.len,
        file_bytes: file.len,
        table_bytes: table.len,
        name_width: name.width as u8,
        name_utf8: name.is_utf8().into(),
        file_width: file.width as u8,
        file_utf8: file.is_utf8().into(),
    };
    record.fixed(fixed(0));
    let mut content = Content::new();
    for number in [plugin, description.first_line, description.table_kind] {
        content.add(u64::from(number));
    }
    for text in [&name, &file, &table] {
        let len = text.len as usize;
        let room = record.room(len);
        // SAFETY: `room` has `len` bytes inside the record.
        if room.is_null() || !unsafe { read(reader, text.address, room, len) } {
            block.names_lost.fetch_add(1, Ordering::Relaxed);
            return 0;
        }
        content.add(u64::from(text.len) | u64::from(text.width as u8) << 32 | u64::from(text.utf8 as u8) << 40);
        // SAFETY: `read` has just filled these `len` bytes of the record.
        content.add_bytes(unsafe { core::slice::from_raw_parts(room, len) });
    }
    // A code object with the same description may have an id already: the program loaded the same code more than once.
    let content = content.key();
    let mut id = names.find(content.0, content.1);
    if id == 0 {
        id = block.next_name.fetch_add(1, Ordering::Relaxed);
        record.fixed(fixed(id));
        record.commit();
        names.put(content.0, content.1, id);
    }
    names.put(description.code, description.fingerprint, id);
    id
}
