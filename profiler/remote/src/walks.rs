//! The walks of threads that stand still.

use crate::env::Remote;
use crate::language_names::LanguageNames;
use crate::memory::{Memory, Reads};
use crate::names::Names;
use crate::objects::Objects;
use crate::plugins::Plugins;
use crate::registered::{Losses, Registered};
use crate::registers::{regs, thread_pointer, tsd_offsets, Registers, ARGUMENTS};
use std::collections::HashMap;
use uunwind_core::cursor::Cursor;
use uunwind_core::frame::semantic_word;
use uunwind_core::regs::{Regs, COUNT, SP};
use uunwind_core::stop_reason::StopReason;
use uunwind_core::walk::{walk, Setting, DEEP_WORDS, SCRATCH};
use uunwind_live::runtime_locks::Sampled;
use uunwind_ring::record::{SAMPLE_DESYNC, SAMPLE_LOCK_SHIFT};

/// At most this many bytes of each stack are read with one system call.
const STACK_AHEAD: u64 = 16 * 1024;

/// What the walk of one thread found.
pub struct Walked {
    /// Its frame words, leaf first.
    pub words: Vec<u64>,
    /// Why the walk ended.
    pub stop: StopReason,
    /// Whether interpreter frames are missing or doubtful.
    desync: bool,
    /// How the thread stands to its runtime's lock, one of `LOCK_*`.
    lock: u32,
    /// All that the walk has read, if that was wanted.
    pub reads: Reads,
}

impl Walked {
    /// What a sample says of it: `SAMPLE_*`.
    pub fn flags(&self) -> u8 {
        let desync = if self.desync { SAMPLE_DESYNC } else { 0 };
        desync | ((self.lock & 3) as u8) << SAMPLE_LOCK_SHIFT
    }
}

/// The walks of one process.
pub struct Walks<'p> {
    env: Remote<'p>,
    memory: &'p Memory,
    room: Vec<u64>,
    scratch: Vec<u128>,
    keeps_reads: bool,
}

impl<'p> Walks<'p> {
    /// `names`: those of code objects that were met before.
    pub fn new(objects: &'p Objects, plugins: &'p Plugins, memory: &'p Memory, names: Names) -> Walks<'p> {
        let registered = Registered::new(objects.places());
        let env = Remote { objects, plugins, memory, registered, names, awaiting: false };
        Walks {
            env,
            memory,
            room: vec![0; DEEP_WORDS],
            scratch: vec![0; SCRATCH / size_of::<u128>()],
            keeps_reads: false,
        }
    }

    /// From now on, frames that await those of the stack are wanted, or not.
    pub fn want_awaiting(&mut self, wanted: bool) {
        self.env.awaiting = wanted;
    }

    /// The names of all code objects that were met so far.
    pub fn names(&self) -> &Names {
        &self.env.names
    }

    /// What could not be found out about code that is registered at run time.
    pub fn losses(&self) -> Losses {
        self.env.registered.losses()
    }

    /// The same, for people.
    pub fn notes(&self) -> Vec<String> {
        self.losses().notes()
    }

    /// What languages call the process's threads.
    pub fn thread_names(&self, looks: &mut LanguageNames) -> HashMap<u32, String> {
        looks.look(self.env.objects, self.env.plugins, self.memory)
    }

    /// The names of all code objects that were met.
    pub fn into_names(self) -> Names {
        self.env.names
    }

    /// Walks a thread that stands still.
    pub fn walk(&mut self, registers: &Registers) -> Walked {
        self.walk_from(regs(registers), thread_pointer(registers))
    }

    /// Walks a thread that is blocked, of whose registers only these are known: pc, stack pointer, and the first two
    /// arguments of the system call that it is in. Such a walk ends at a frame that needs another register that none of
    /// its callees has saved. `thread_pointer`: 0 if it is not known; then plugins find none of the thread's frames.
    pub fn walk_blocked(&mut self, pc: u64, sp: u64, arguments: Option<[u64; 2]>, thread_pointer: u64) -> Walked {
        let (mut values, mut known) = ([0; COUNT], 1 << SP);
        values[usize::from(SP)] = sp;
        for (register, value) in ARGUMENTS.into_iter().zip(arguments.into_iter().flatten()) {
            values[usize::from(register)] = value;
            known |= 1 << register;
        }
        self.walk_from(Regs::some(pc, values, known), thread_pointer)
    }

    /// Whether a walk depends on the thread pointer: plugins find a thread's frames by it.
    pub fn needs_thread_pointer(&self) -> bool {
        self.env.objects.objects.iter().any(|object| object.facts().is_some())
    }

    /// The words of a frame that says what a thread waits in: as a semantic frame of plugin 0, whose position is the
    /// call's number.
    pub fn call(&mut self, name: &str, number: i64) -> [u64; 2] {
        [semantic_word(0, self.env.names.call(name)), number as u64]
    }

    /// From now on, walks keep what they have read.
    pub fn keep_reads(&mut self) {
        self.keeps_reads = true;
    }

    fn walk_from(&mut self, regs: Regs, thread_pointer: u64) -> Walked {
        let cursor = Cursor { regs, exact: true };
        let sp = cursor.regs.sp();
        if let Some(end) = self.env.objects.end_of_mapping(sp) {
            self.memory.read_ahead(sp, end.min(sp.saturating_add(STACK_AHEAD)));
        }
        let mut reader = self.memory.reader();
        self.env.registered.begin_walk();
        self.env.plugins.begin_walk();
        if self.keeps_reads {
            self.memory.keep_reads();
        }
        let tsd_offset = tsd_offset(thread_pointer, self.memory);
        let setting = Setting {
            thread_pointer,
            tsd_offset,
            scratch: self.scratch.as_mut_ptr().cast(),
            keep_outermost: true,
            by_frame_pointer: false,
            ..Setting::EMPTY
        };
        // SAFETY: the scratch memory has that length and alignment; the other pointers are null.
        let outcome = unsafe { walk(cursor, &mut self.env, &mut reader, &mut self.room, &setting) };
        let reads = self.memory.take_reads();
        let words = self.room.get(..outcome.words).unwrap_or_default().to_vec();
        let sampled = Sampled::new(cursor, (thread_pointer, tsd_offset), &words, outcome.stop);
        let lock = self.env.lock(&sampled, &mut reader);
        Walked { words, stop: outcome.stop, desync: outcome.desync > 0, lock, reads }
    }
}

/// Where glibc keeps a thread's first block of specific values: `specific_1stblock` of struct pthread
/// (<https://sourceware.org/git/?p=glibc.git;a=blob;f=nptl/descr.h;hb=refs/tags/glibc-2.36>), to which the first
/// pointer of `specific`, the next field, points. 0: this is another C library's thread.
pub fn tsd_offset(thread_pointer: u64, memory: &Memory) -> u64 {
    /// Its size in bytes.
    const BLOCK: u64 = 32 * 16;
    let mut reader = memory.reader();
    let mut is_it = |offset: &u64| {
        let block = thread_pointer.wrapping_add(*offset);
        reader.word(block.wrapping_add(BLOCK)) == Some(block)
    };
    tsd_offsets().find(&mut is_it).unwrap_or(0)
}
