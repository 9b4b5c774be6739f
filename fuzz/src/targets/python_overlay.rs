//! The Python plugin, called by the walk, over any memory and any facts.
//!
//! | bytes | |
//! |---|---|
//! | `size_of::<Facts>()` | the facts |
//! | 8 x 5 | thread pointer, offset of its pthread-specific values, load bias, pc, sp |
//! | 1, 1, 2 | native frames (at most 16), regions (at most 64), words of the frame buffer |
//! | 24 each | native frame: 4 bytes size, 4 bytes flags (bit 0: claimed), start and end of its function |
//! | 10 each | region of zeroes: address, 2 bytes number of pages |
//! | rest | patches of the regions: 8 bytes address, 1 byte length, the bytes |
//!
//! It is also asked how the thread stands to the GIL, at that pc.
//!
//! The plugin learns distances for as long as the process lives, so an outcome may depend on earlier inputs.

use crate::input::Input;
use std::mem::size_of;
use std::sync::Mutex;
use uunwind_built_in::python::signal::facts::Facts;
use uunwind_core::cursor::Cursor;
use uunwind_core::frame::{frames, Frame};
use uunwind_core::memory::{Reader, Region};
use uunwind_core::plugin::{
    Description, Text, View, ABI, LOCK_WAITING, READING_HOST, SCRATCH_BYTES, TABLE_LIMIT, TEXT_LIMIT,
};
use uunwind_core::regs::{Regs, RSP};
use uunwind_core::rule::{Packed, Rule};
use uunwind_core::span::Span;
use uunwind_core::walk::{walk, Claim, Claimed, Env, Look, Names, Replay, Setting, SCRATCH};

const PAGE: usize = 4096;
const PAGES_LIMIT: usize = 64;
/// Limit of code objects that can be described; then the host has no room, as happens in a real process.
const NAMES: usize = 8;
/// Contents of scratch memory before the walk.
const UNTOUCHED: u8 = 0xa5;
/// Index of the plugin.
const INDEX: u8 = 1;

/// The facts have one address for all inputs: it identifies the interpreter, and the plugin keeps four of them.
/// Aligned as in the session.
#[repr(align(16))]
struct Given([u8; size_of::<Facts>()]);

static FACTS: Mutex<Given> = Mutex::new(Given([0; size_of::<Facts>()]));

#[repr(align(16))]
struct Scratch([u8; SCRATCH]);

struct Native {
    size: i32,
    claimed: bool,
    function: Span,
}

struct Process {
    claim: Claim,
    natives: Vec<Native>,
    /// Number of frames requested; the last one is the current frame.
    asked: usize,
    names: Vec<(u64, u64)>,
}

impl Process {
    fn current(&self) -> Option<&Native> {
        self.natives.get(self.asked.checked_sub(1)?)
    }
}

impl Env for Process {
    fn rule(&mut self, _: &Cursor, _: &mut Reader<'_>) -> Packed {
        self.asked += 1;
        self.current().map_or(Rule::end(), |native| Rule::simple(RSP, native.size)).pack()
    }

    fn look(&mut self, cursor: &Cursor, reader: &mut Reader<'_>) -> Look {
        let rule = self.rule(cursor, reader);
        let claimed = self.current().is_some_and(|native| native.claimed);
        Look { claim: if claimed { Claimed::By(self.claim) } else { Claimed::No }, ..Look::at(rule) }
    }

    fn function(&mut self, _: &Claim, _: &Cursor, _: &mut Reader<'_>) -> Span {
        self.current().map_or(Span::EMPTY, |native| native.function)
    }
}

impl Names for Process {
    fn wants_awaiting(&self) -> bool {
        true
    }

    fn find_name(&mut self, _: u8, code: u64, fingerprint: u64) -> u32 {
        self.names.iter().position(|name| *name == (code, fingerprint)).map_or(0, |index| index as u32 + 1)
    }

    fn describe(&mut self, _: u8, description: &Description, reader: &mut Reader<'_>) -> u32 {
        let mut copy = |text: &Text, limit: u32| reader.read(text.address, &mut vec![0; text.len.min(limit) as usize]);
        let _ = copy(&description.name, TEXT_LIMIT) && copy(&description.file, TEXT_LIMIT);
        let _ = copy(&description.table, TABLE_LIMIT);
        if self.names.len() >= NAMES {
            return 0;
        }
        self.names.push((description.code, description.fingerprint));
        self.names.len() as u32
    }
}

impl Replay for Process {}

pub fn run(data: &[u8]) -> bool {
    let mut input = Input::new(data);
    // A panic of an earlier input leaves only bytes in it.
    let mut facts = FACTS.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let facts = &mut facts.0;
    facts.fill(0);
    let given = input.bytes(facts.len());
    facts[..given.len()].copy_from_slice(given);
    let [thread_pointer, tsd_offset, bias, pc, sp] = std::array::from_fn(|_| input.u64());
    let (natives, regions, capacity) = (input.u8().min(16), input.u8().min(64), usize::from(input.u16()));
    let native = |_| Native {
        size: input.u32() as i32,
        claimed: input.u32() & 1 != 0,
        function: Span::new(input.u64(), input.u64()),
    };
    let natives: Vec<Native> = (0..natives).map(native).collect();
    let memory = memory(&mut input, regions);
    let regions: Vec<_> = memory.iter().map(|(address, bytes)| Region { address: *address, bytes }).collect();
    let mut reader = Reader::recorded(&regions);

    // SAFETY: the entry of a plugin that is linked in, which returns a static table for this ABI.
    let plugin = unsafe { uunwind_built_in::python::signal::uu_plugin(ABI).as_ref() }.expect("a table for this ABI");
    let (overlay, facts_len) = (plugin.overlay, facts.len());
    let claim = Claim { overlay, index: INDEX, facts: facts.as_ptr(), facts_len, bias, ..Claim::NOTHING };
    let mut process = Process { claim, natives, asked: 0, names: Vec::new() };
    let mut scratch = Box::new(Scratch([UNTOUCHED; SCRATCH]));
    let scratch_at = scratch.0.as_mut_ptr();
    let (exchange, progress, last_walk) = (std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut());
    let setting = Setting {
        thread_pointer,
        tsd_offset,
        ucontext: std::ptr::null(),
        scratch: scratch_at,
        exchange,
        progress,
        last_walk,
        keep_outermost: false,
        by_frame_pointer: false,
    };
    let mut view = View {
        exact: 1,
        pc,
        sp,
        known: 0xffff,
        facts: facts.as_ptr(),
        facts_len,
        bias,
        thread_pointer,
        tsd_offset,
        host: &READING_HOST,
        walk: std::ptr::from_mut(&mut reader).cast(),
        ..View::new()
    };
    // SAFETY: a complete view, whose pointers outlive the call.
    let lock = plugin.lock.map(|lock| unsafe { lock(&mut view) });
    assert!(lock.is_some_and(|lock| lock <= LOCK_WAITING));
    let mut words = vec![0; capacity];
    let registers = std::array::from_fn(|r| if r == usize::from(RSP) { sp } else { 0 });
    let cursor = Cursor { regs: Regs::full(pc, registers), exact: true };
    // SAFETY: the scratch memory has SCRATCH bytes; the facts outlive the walk.
    let outcome = unsafe { walk(cursor, &mut process, &mut reader, &mut words, &setting) };
    let mut parts = scratch.0.chunks(SCRATCH_BYTES).enumerate().filter(|(part, _)| *part != usize::from(INDEX));
    let untouched = parts.all(|(_, bytes)| bytes == [UNTOUCHED; SCRATCH_BYTES]);
    assert!(untouched, "scratch memory of another plugin was written");
    assert!(outcome.words <= capacity);
    let mut emitted = frames(&words[..outcome.words]);
    emitted.any(|frame| matches!(frame, Frame::Semantic { .. }))
}

/// The regions, with their patches.
fn memory(input: &mut Input<'_>, regions: u8) -> Vec<(u64, Vec<u8>)> {
    let mut left = PAGES_LIMIT;
    let mut memory: Vec<(u64, Vec<u8>)> = (0..regions)
        .map(|_| {
            let (address, pages) = (input.u64(), usize::from(input.u16()).min(left));
            left -= pages;
            (address, vec![0; pages * PAGE])
        })
        .collect();
    while !input.is_empty() {
        let (address, len) = (input.u64(), usize::from(input.u8()));
        let bytes = input.bytes(len);
        let place = memory.iter_mut().find_map(|(start, region)| {
            let at = usize::try_from(address.checked_sub(*start)?).ok()?;
            region.get_mut(at..at.checked_add(bytes.len())?)
        });
        if let Some(place) = place {
            place.copy_from_slice(bytes);
        }
    }
    memory
}
