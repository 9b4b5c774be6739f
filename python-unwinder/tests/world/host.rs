//! A host of the plugin over synthetic memory.

use super::python::{Version, BIAS, EVAL_END, THREAD_POINTER, TSD_OFFSET};
use super::Memory;
use std::ffi::c_void;
use std::hash::{Hash, Hasher};
use std::mem::size_of;
use uunwind_core::cache::last_walk::PointState;
use uunwind_core::frame::semantic_word;
use uunwind_core::memory::draft::Room;
use uunwind_core::memory::{near, Reader, ANSWER, KEY};
use uunwind_core::plugin::guest::Plain;
use uunwind_core::plugin::{
    Caller, Description, Host, Owner, Text, View, ABI, AWAITING, OVERLAY_INTERPRETER, OWNER_OBJECT, OWN_TEXT,
    SCRATCH_BYTES, STEP_DONE, STEP_MASK, TEXT_LIMIT, WANT_AWAITING,
};
use uunwind_core::regs::COUNT;

/// One native frame to be shown.
#[derive(Clone, Copy)]
pub struct Native {
    pub pc: u64,
    pub sp: u64,
    pub cfa: u64,
    pub exact: bool,
    pub function_start: u64,
    pub function_end: u64,
}

/// The stack pointer of [`process`].
pub const SP_AT: u64 = 0x7100_0000_0100;

/// A process with this code, and a stack with eight words: [`CLAIMED`], and each one 8 more than the last.
pub fn process(start: u64, code: &[u8]) -> Memory {
    let mut memory = Memory::default();
    memory.map(start & !0xfff, 0x1000);
    memory.map(SP_AT & !0xfff, 0x1000);
    memory.put(start, code);
    (0..8).for_each(|at| memory.put64(SP_AT + 8 * at, CLAIMED + 8 * at));
    memory
}

/// A code object as it was described.
pub struct Name {
    pub code: u64,
    pub fingerprint: u64,
    pub name: String,
    pub file: String,
    pub table: Vec<u8>,
    pub first_line: u32,
    pub table_kind: u32,
}

/// A walk, and everything that the plugin did to it.
pub struct Walk<'m> {
    memory: &'m Memory,
    pub names: Vec<Name>,
    /// Name id, plus `AWAITING`, and position.
    pub emitted: Vec<(u64, u64)>,
    pub awaiting: bool,
    pub room: usize,
    pub reads: usize,
    pub learned: usize,
    /// A reader of the same memory, by which the plugin reads, and which it may borrow; or null.
    pub reader: *mut Reader<'m>,
    /// The room for drafts that is lent with it.
    pub draft: Vec<[u64; 2]>,
    /// Frames that were emitted from there.
    pub drafted: usize,
}

/// The plugin's memory in one walk.
#[repr(align(16))]
pub struct Scratch(pub [u8; SCRATCH_BYTES]);

/// The plugin's answer to one native frame, and the frames that it emitted.
#[derive(PartialEq, Eq, Debug)]
pub struct Shown {
    pub answer: u32,
    /// Name and position, leaf first.
    pub frames: Vec<(String, u64)>,
}

impl<'m> Walk<'m> {
    pub fn new(memory: &'m Memory) -> Walk<'m> {
        let (names, emitted, reader, draft) = (Vec::new(), Vec::new(), std::ptr::null_mut(), vec![[0; 2]; 64]);
        Walk {
            memory,
            names,
            emitted,
            awaiting: false,
            room: usize::MAX,
            reads: 0,
            learned: 0,
            reader,
            draft,
            drafted: 0,
        }
    }

    /// Shows the native frames of one walk, leaf first, each with the interpreter that claims it.
    pub fn show(&mut self, natives: &[(Native, &'static Version)]) -> Vec<Shown> {
        let mut scratch = Scratch([0; SCRATCH_BYTES]);
        natives.iter().map(|(native, version)| self.show_one(native, version, &mut scratch)).collect()
    }

    /// Shows one native frame of a walk that has this scratch memory.
    pub fn show_one(&mut self, native: &Native, version: &'static Version, scratch: &mut Scratch) -> Shown {
        let plugin = uunwind_python::uu_plugin(ABI);
        // SAFETY: the entry returns a static table for this ABI.
        let overlay = unsafe { (*plugin).overlay }.expect("an overlay");
        let before = self.emitted.len();
        let facts = version.facts.as_bytes();
        let mut view = View {
            exact: u32::from(native.exact),
            pc: native.pc,
            sp: native.sp,
            cfa: native.cfa,
            function_start: native.function_start,
            function_end: native.function_end,
            facts: facts.as_ptr(),
            facts_len: facts.len(),
            bias: BIAS,
            scratch: scratch.0.as_mut_ptr(),
            thread_pointer: THREAD_POINTER,
            tsd_offset: TSD_OFFSET,
            host: &HOST,
            plugin: PLUGIN,
            flags: if self.awaiting { WANT_AWAITING } else { 0 },
            walk: std::ptr::from_mut(self).cast::<c_void>(),
            ..View::new()
        };
        // SAFETY: the view is complete and its pointers outlive the call.
        let answer = unsafe { overlay(&mut view) };
        let frames = self.emitted[before..].iter().map(|(id, at)| (self.name(*id), *at)).collect();
        Shown { answer, frames }
    }

    /// For how many frames there is room in a draft.
    fn room_of_draft(&self) -> usize {
        self.draft.len().min(self.room.saturating_sub(self.emitted.len()))
    }

    fn emit_draft(&mut self, count: usize) -> bool {
        assert!(count <= self.room_of_draft(), "more than there is room for");
        self.drafted += count;
        for [word, position] in &self.draft[..count] {
            let name = *word as u32;
            assert_eq!(*word, semantic_word(PLUGIN as u8, name), "the word of one of the plugin's frames");
            self.emitted.push((name.into(), *position));
        }
        true
    }

    /// The reader by which the plugin reads, if it is not this host itself.
    fn reader(&mut self) -> Option<&mut Reader<'m>> {
        // SAFETY: whoever has set it keeps it for the walk's time, and leaves it alone during a call.
        unsafe { self.reader.as_mut() }
    }

    pub fn name(&self, id: u64) -> String {
        let mark = if id & AWAITING == 0 { "" } else { "await " };
        mark.to_owned() + &self.plain_name(id as u32)
    }

    fn plain_name(&self, id: u32) -> String {
        id.checked_sub(1).map_or("?".into(), |index| self.names[index as usize].name.clone())
    }

    fn text(&self, text: &Text) -> String {
        if text.utf8 & OWN_TEXT != 0 {
            // SAFETY: the plugin's own constant.
            let own = unsafe { std::slice::from_raw_parts(text.address as *const u8, text.len as usize) };
            return String::from_utf8_lossy(own).into_owned();
        }
        let mut bytes = vec![0; text.len.min(TEXT_LIMIT) as usize];
        if !self.memory.get(text.address, &mut bytes) {
            return "unreadable".into();
        }
        let units = |width: usize| {
            bytes
                .chunks_exact(width)
                .map(|unit| unit.iter().rev().fold(0u32, |value, byte| value << 8 | u32::from(*byte)))
                .collect::<Vec<_>>()
        };
        units(text.width.into()).into_iter().map(|unit| char::from_u32(unit).unwrap_or('\u{fffd}')).collect()
    }
}

/// The frame of an activation of the loop: its CFA, its size, and whether it is the interrupted one.
pub fn loop_frame(cfa: u64, size: u64, exact: bool) -> Native {
    let (function_start, function_end) = (BIAS + super::python::EVAL, BIAS + EVAL_END);
    Native { pc: function_start + 0x2000, sp: cfa - size, cfa, exact, function_start, function_end }
}

/// The plugin's index.
pub const PLUGIN: u32 = 3;
/// Where code of an object lies that it claims.
pub const CLAIMED: u64 = 0x7200_0000_0000;

/// The host's functions.
pub fn table() -> *const Host {
    &HOST
}

/// Has the plugin step from this frame: its answer, and the caller.
pub fn step(memory: &Memory, pc: u64, sp: u64, exact: bool, registers: [u64; COUNT]) -> (u32, Caller) {
    let mut walk = Walk::new(memory);
    let mut caller = Caller { pc, registers, known: 0xffff, exact: 0 };
    let mut view = View {
        exact: u32::from(exact),
        pc,
        sp,
        registers,
        known: 0xffff,
        plugin: PLUGIN,
        host: &HOST,
        walk: std::ptr::from_mut(&mut walk).cast(),
        caller: &mut caller,
        ..View::new()
    };
    // SAFETY: the entry returns a static table for this ABI; the view is complete and its pointers outlive the call.
    let answer = unsafe { (*uunwind_python::uu_plugin(ABI)).step.expect("a stepper")(&mut view) };
    if answer & STEP_MASK == STEP_DONE {
        assert_eq!(caller.known, 0xf0c8, "rbx, rbp, rsp and r12 to r15 are the caller's, and no other register");
    }
    (answer & (STEP_MASK | OVERLAY_INTERPRETER), caller)
}

static HOST: Host = Host {
    size: size_of::<Host>() as u32,
    abi: ABI,
    read_word,
    read,
    find_name,
    describe,
    emit,
    learned,
    lookup,
    native_step,
    read_words,
    recall,
    remember,
    rest_is_known,
    emit_all,
    lend_reader,
    omit,
    hash,
};

fn walk<'a>(walk: *mut c_void) -> &'a mut Walk<'a> {
    // SAFETY: the views above carry the walk, which outlives each call and is used by one thread.
    unsafe { &mut *walk.cast::<Walk<'a>>() }
}

unsafe extern "C" fn read_word(ctx: *mut c_void, address: u64, out: *mut u64) -> bool {
    if let Some(reader) = walk(ctx).reader() {
        // SAFETY: the plugin passes a word of its own.
        return reader.word(address).map(|word| unsafe { out.write(word) }).is_some();
    }
    let mut bytes = [0; 8];
    walk(ctx).reads += 1;
    let ok = walk(ctx).memory.get(address, &mut bytes);
    if ok {
        // SAFETY: the plugin passes a word of its own.
        unsafe { out.write(u64::from_le_bytes(bytes)) };
    }
    ok
}

unsafe extern "C" fn read(ctx: *mut c_void, address: u64, out: *mut u8, len: usize) -> bool {
    walk(ctx).reads += 1;
    if let Some(reader) = walk(ctx).reader() {
        // SAFETY: the plugin passes `len` writable bytes.
        return unsafe { reader.read_raw(address, out, len) };
    }
    // SAFETY: the plugin passes `len` writable bytes.
    walk(ctx).memory.get(address, unsafe { std::slice::from_raw_parts_mut(out, len) })
}

unsafe extern "C" fn read_words(
    ctx: *mut c_void,
    address: u64,
    offsets: *const u32,
    count: usize,
    out: *mut u64,
) -> bool {
    // SAFETY: the plugin passes `count` offsets and a place for as many words.
    (0..count).all(|i| unsafe { read_word(ctx, address.wrapping_add(u64::from(*offsets.add(i))), out.add(i)) })
}

unsafe extern "C" fn recall(ctx: *mut c_void, key: *const [u64; KEY], answer: *mut [u64; ANSWER]) -> bool {
    // SAFETY: the plugin passes a key, and a place for an answer.
    walk(ctx).reader().and_then(|reader| reader.recall(PLUGIN as u8, unsafe { &*key })).is_some_and(|found| {
        // SAFETY: as above.
        unsafe { answer.write(found) };
        true
    })
}

unsafe extern "C" fn remember(ctx: *mut c_void, key: *const [u64; KEY], answer: *const [u64; ANSWER]) {
    if let Some(reader) = walk(ctx).reader() {
        // SAFETY: the plugin passes a key and an answer.
        unsafe { reader.remember(PLUGIN as u8, &*key, *answer) };
    }
}

unsafe extern "C" fn rest_is_known(_: *mut c_void, _: u64, _: *const PointState) -> bool {
    panic!("the Python plugin says nothing of the rest");
}

unsafe extern "C" fn find_name(ctx: *mut c_void, code: u64, fingerprint: u64) -> u32 {
    let found = walk(ctx).names.iter().position(|n| n.code == code && n.fingerprint == fingerprint);
    found.map_or(0, |index| index as u32 + 1)
}

unsafe extern "C" fn describe(ctx: *mut c_void, description: *const Description) -> u32 {
    // SAFETY: the plugin passes a complete description.
    let d = unsafe { &*description };
    let walk = walk(ctx);
    let mut table = vec![0; d.table.len.min(1 << 16) as usize];
    walk.memory.get(d.table.address, &mut table);
    let (name, file) = (walk.text(&d.name), walk.text(&d.file));
    let (code, fingerprint, first_line, table_kind) = (d.code, d.fingerprint, d.first_line, d.table_kind);
    walk.names.push(Name { code, fingerprint, name, file, table, first_line, table_kind });
    walk.names.len() as u32
}

unsafe extern "C" fn emit(ctx: *mut c_void, name: u32, position: u64) -> bool {
    let walk = walk(ctx);
    if walk.emitted.len() >= walk.room {
        return false;
    }
    walk.emitted.push((u64::from(name), position));
    true
}

unsafe extern "C" fn emit_all(ctx: *mut c_void, frames: *const [u64; 2], count: usize) -> bool {
    if walk(ctx).draft.as_ptr() == frames {
        return walk(ctx).emit_draft(count);
    }
    // SAFETY: the plugin passes `count` frames.
    let frames = unsafe { std::slice::from_raw_parts(frames, count) };
    frames.iter().all(|[name, position]| {
        // SAFETY: the plugin passes its walk.
        let room = unsafe { emit(ctx, *name as u32, *position) };
        if let Some(last) = walk(ctx).emitted.last_mut().filter(|_| room) {
            last.0 = *name;
        }
        room
    })
}

unsafe extern "C" fn omit(_: *mut c_void, _: u32) -> u32 {
    0
}

unsafe extern "C" fn lend_reader(ctx: *mut c_void, layout: u64) -> *mut c_void {
    assert_eq!(layout, near::LAYOUT);
    let walk = walk(ctx);
    let room = Room::new(walk.draft.as_mut_ptr().cast(), walk.room_of_draft());
    let lent = walk.reader;
    if let Some(reader) = walk.reader() {
        // SAFETY: the walk's own memory, which it leaves alone while the reader is borrowed.
        unsafe { reader.lend_room(room) };
    }
    lent.cast()
}

unsafe extern "C" fn hash(ctx: *mut c_void, address: u64, len: usize, out: *mut u64) -> bool {
    if let Some(reader) = walk(ctx).reader() {
        // SAFETY: the plugin passes a word of its own.
        return reader.hash(address, len).map(|hash| unsafe { out.write(hash) }).is_some();
    }
    let mut bytes = vec![0; len];
    walk(ctx).reads += 1;
    let ok = walk(ctx).memory.get(address, &mut bytes);
    if ok {
        let mut hasher = std::hash::DefaultHasher::new();
        bytes.hash(&mut hasher);
        // SAFETY: the plugin passes a word of its own.
        unsafe { out.write(hasher.finish()) };
    }
    ok
}

unsafe extern "C" fn learned(ctx: *mut c_void) {
    walk(ctx).learned += 1;
}

unsafe extern "C" fn lookup(_: *mut c_void, address: u64, out: *mut Owner) {
    let mut owner = Owner::NONE;
    if address.wrapping_add(1).wrapping_sub(CLAIMED) < 0x1000 {
        (owner.kind, owner.plugin) = (OWNER_OBJECT, PLUGIN);
    }
    // SAFETY: the plugin passes a place for an owner.
    unsafe { out.write(owner) };
}

unsafe extern "C" fn native_step(_: *mut c_void, _: *mut Caller) -> i32 {
    panic!("the Python plugin leaves steps to the core");
}
