//! A running Lua function: its Proto, the current instruction in it, and the frame that is emitted for it.

use super::facts::{role, Facts};
use super::lines;
use super::name::{self, Path};
use super::state::{Info, Running, State};
use super::text;
use crate::hash::mixed;
use crate::source::{Source, Style, ID_SIZE};
use uunwind_core::memory::{ANSWER, KEY};
use uunwind_core::plugin::guest::Guest;
use uunwind_core::plugin::{Description, Text, TABLE_NONE};

/// Size of an instruction in bytes.
const INSTRUCTION: u64 = 4;
/// Limit of a Proto's instructions: more than the compiler makes.
const CODE_LIMIT: u64 = 1 << 27;

/// The caller of a function.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    /// A Lua function: the addresses of its closure and of its next instruction.
    Lua(u64, u64),
    /// A C function, or none.
    C,
    /// The caller's CallInfo is not complete.
    Unknown,
}

/// How a function was called, as far as its name depends on it.
pub struct Called {
    by: By,
    /// The function was tail called, so its caller is gone.
    tail: bool,
    hooked: bool,
    finalizer: bool,
}

impl Called {
    /// How the function of `info` was called. `caller`: the CallInfo before it; `None`, if that is not complete.
    #[inline(always)]
    pub fn new(guest: &Guest<'_>, facts: &Facts, state: &State, info: &Info, caller: Option<&Info>) -> Called {
        let flag = |mask: u32| caller.is_some_and(|c| c.status & mask != 0);
        let by = match caller {
            Some(c) => match c.running {
                Running::Lua(closure) => By::Lua(closure, c.pc(guest, facts, state)),
                Running::C => By::C,
            },
            None => By::Unknown,
        };
        let tail = Called::in_tail(facts, info);
        // In all versions these bits are in the caller's CallInfo.
        Called { by, tail, hooked: flag(facts.info.hooked), finalizer: flag(facts.info.finalizer) }
    }

    /// A call by a Lua function's instruction, not by a hook and not of a finalizer. `closure` and `pc` are the
    /// caller's closure and next instruction.
    #[inline(always)]
    pub fn by_lua(facts: &Facts, info: &Info, closure: u64, pc: u64) -> Called {
        Called { by: By::Lua(closure, pc), tail: Called::in_tail(facts, info), hooked: false, finalizer: false }
    }

    #[inline(always)]
    fn in_tail(facts: &Facts, info: &Info) -> bool {
        let marks = if facts.minor == 1 { u32::MAX } else { facts.info.tail };
        info.status & marks != 0
    }

    /// Is the caller a Lua function whose current instruction is a call? Then both run in one activation (5.1). `None`:
    /// the caller's CallInfo is not complete.
    pub fn by_call_instruction(&self, guest: &Guest<'_>, facts: &Facts) -> Option<bool> {
        let mut caller = Proto::default();
        let found = self.find(guest, facts, &mut caller);
        self.is_at_call(guest, facts, found.then_some(&caller))
    }

    /// As [`Called::by_call_instruction`], with the Proto that [`Called::find`] has found.
    fn is_at_call(&self, guest: &Guest<'_>, facts: &Facts, caller: Option<&Proto>) -> Option<bool> {
        match caller {
            Some(caller) => Some(facts.role(caller.current(guest)?) == role::CALL),
            None => (self.by == By::C).then_some(false),
        }
    }

    /// Finds the caller's Proto and current instruction, if it is a Lua function. Written to `proto`, as by
    /// [`Function::find`].
    fn find(&self, guest: &Guest<'_>, facts: &Facts, proto: &mut Proto) -> bool {
        match self.by {
            By::Lua(closure, pc) => Function { guest, facts, closure, pc }.find(proto),
            _ => false,
        }
    }

    /// All fields in two words. `None`: the pc is no possible address.
    #[inline(always)]
    fn key(&self) -> Option<[u64; 2]> {
        const FLAGS: u32 = 48;
        let (kind, closure, pc) = match self.by {
            By::Lua(closure, pc) => (0, closure, pc),
            By::C => (1, 0, 0),
            By::Unknown => (2, 0, 0),
        };
        let flags = kind << 3 | u64::from(self.tail) << 2 | u64::from(self.hooked) << 1 | u64::from(self.finalizer);
        (pc >> FLAGS == 0).then_some([closure, pc | flags << FLAGS])
    }
}

/// The semantic frame of a function, ready to be emitted.
pub struct Semantic {
    /// Its name id; 0: the name could not be stored.
    name: u32,
    /// The line that executes; 0: not available.
    line: u32,
    /// 5.1: [`Called::by_call_instruction`]; `None` in later versions.
    pub by_call: Option<bool>,
}

impl Semantic {
    const NO_CALL: u32 = 1;
    const CALL: u32 = 2;

    /// The frame in a cached answer.
    #[inline(always)]
    pub fn of_answer([name, line]: [u64; ANSWER]) -> Semantic {
        let by_call = match (name >> 32) as u32 {
            Semantic::NO_CALL => Some(false),
            Semantic::CALL => Some(true),
            _ => None,
        };
        Semantic { name: name as u32, line: line as u32, by_call }
    }

    fn answer(&self) -> [u64; ANSWER] {
        let by_call = self.by_call.map_or(0, |call| if call { Semantic::CALL } else { Semantic::NO_CALL });
        [u64::from(self.name) | u64::from(by_call) << 32, self.line.into()]
    }

    /// Name id and line, as [`Guest::emit_all`] takes them.
    #[inline(always)]
    pub fn words(&self) -> [u64; 2] {
        [self.name.into(), self.line.into()]
    }

    /// Emits the frame. False: the walk's stack is full.
    pub fn emit(&self, guest: &Guest<'_>) -> bool {
        guest.emit(self.name, self.line.into())
    }
}

/// A Lua function that runs in a CallInfo, and its place in its code.
pub struct Function<'v> {
    /// The host.
    pub guest: &'v Guest<'v>,
    /// The interpreter's facts.
    pub facts: &'v Facts,
    /// Process address of its `LClosure`.
    pub closure: u64,
    /// Process address of its next instruction.
    pub pc: u64,
}

/// The fields of a Proto that are used here, and the current instruction.
#[derive(Clone, Copy, Default)]
pub struct Proto {
    /// Its process address.
    pub address: u64,
    /// `code`: the address of the first instruction.
    pub code: u64,
    /// `sizecode`: the number of instructions.
    pub code_len: u32,
    /// Index of the current instruction.
    pub index: u32,
    /// `source`: the address of a string.
    pub source: u64,
    /// `linedefined`.
    pub first_line: u32,
    /// `lineinfo`: the address of the line table.
    pub lines: u64,
    /// `sizelineinfo`: the number of its entries.
    pub lines_len: u32,
    /// `abslineinfo`: the address of its `{ pc, line }` pairs. Not used before 5.4.
    pub bases: u64,
    /// `sizeabslineinfo`: the number of these; 0 before 5.4.
    pub bases_len: u32,
}

impl Proto {
    /// The current instruction.
    pub fn current(&self, guest: &Guest<'_>) -> Option<u32> {
        self.instruction(guest, self.index)
    }

    /// The instruction with this index. `None`: there is none, or it is unreadable.
    pub fn instruction(&self, guest: &Guest<'_>, index: u32) -> Option<u32> {
        if index >= self.code_len {
            return None;
        }
        guest.half(self.code.wrapping_add(u64::from(index) * INSTRUCTION))
    }

    /// The word at this offset in the Proto.
    pub fn word(&self, guest: &Guest<'_>, offset: u32) -> Option<u64> {
        guest.word(self.address.wrapping_add(u64::from(offset)))
    }

    /// The 32 bits at this offset in the Proto.
    pub fn half(&self, guest: &Guest<'_>, offset: u32) -> Option<u32> {
        guest.half(self.address.wrapping_add(u64::from(offset)))
    }
}

impl Function<'_> {
    /// Finds its Proto and the current instruction. False: there is none, or the pc is not in its code. Written to
    /// `proto`, since a Proto is too large to be returned and copied.
    pub fn find(&self, proto: &mut Proto) -> bool {
        self.find_in(proto).is_some()
    }

    fn find_in(&self, proto: &mut Proto) -> Option<()> {
        let (guest, layout) = (self.guest, &self.facts.proto);
        let address = guest.word(self.closure.wrapping_add(u64::from(layout.closure)))?;
        if address == 0 || !address.is_multiple_of(8) {
            return None;
        }
        // Fields of 32 bits are taken from the aligned words that hold them. In all versions two of them share a word.
        let (lengths, line) = (layout.code_len & !7, layout.first_line & !7);
        let has_bases = layout.bases != 0;
        let bases = if has_bases { layout.bases } else { layout.lines };
        let mut words = [0; 6];
        guest.words(address, [layout.code, layout.source, layout.lines, lengths, line, bases], &mut words)?;
        let [code, source, lines, lengths_word, line_word, bases] = words;
        let of = |word: u64, offset: u32| (word >> ((offset & 7) * 8)) as u32;
        *proto = Proto {
            address,
            code,
            code_len: of(lengths_word, layout.code_len),
            index: 0,
            source,
            first_line: of(line_word, layout.first_line),
            lines,
            lines_len: 0,
            bases,
            bases_len: 0,
        };
        proto.lines_len = match layout.lines_len {
            offset if offset & !7 == lengths => of(lengths_word, offset),
            offset => proto.half(guest, offset)?,
        };
        if has_bases {
            proto.bases_len = match layout.bases_len {
                offset if offset & !7 == line => of(line_word, offset),
                offset => proto.half(guest, offset)?,
            };
        }
        let done = self.pc.wrapping_sub(proto.code);
        let length = u64::from(proto.code_len).wrapping_mul(INSTRUCTION);
        if !done.is_multiple_of(INSTRUCTION) || done > length || u64::from(proto.code_len) > CODE_LIMIT || length == 0 {
            return None;
        }
        // The pc is that of the next instruction, except before the first one has begun.
        proto.index = u32::try_from((done / INSTRUCTION).saturating_sub(1)).ok()?;
        Some(())
    }

    /// Does the pc lie in the code of the closure's Proto?
    pub fn holds_pc(&self) -> bool {
        self.find(&mut Proto::default())
    }

    /// The function's semantic frame. `None`: there is no function, or the pc is not in its code.
    #[inline(always)]
    pub fn semantic(&self, called: &Called) -> Option<Semantic> {
        self.recall(called).or_else(|| self.look_up(called))
    }

    // Not inlined, so that the key takes no stack while `look_up` runs.
    #[inline(never)]
    fn recall(&self, called: &Called) -> Option<Semantic> {
        Some(Semantic::of_answer(self.guest.recall(&self.key(called)?)?))
    }

    #[inline(never)]
    fn remember(&self, called: &Called, semantic: &Semantic) {
        if let Some(key) = self.key(called).filter(|_| semantic.name != 0) {
            self.guest.remember(&key, &semantic.answer());
        }
    }

    /// The key that its answer is cached under.
    #[inline(always)]
    pub fn key(&self, called: &Called) -> Option<[u64; KEY]> {
        let [caller, place] = called.key()?;
        Some([self.closure, self.pc, caller, place, core::ptr::from_ref(self.facts) as u64])
    }

    /// The semantic frame, from the process's memory. Describes the function if it was not called in this way before.
    #[cold]
    #[inline(never)]
    fn look_up(&self, called: &Called) -> Option<Semantic> {
        let mut path = Path::new();
        let named = self.named(called, &mut path)?;
        // The answer is cached with the words that are read from here on. The search for the name reads too many, so it
        // is replayed.
        path.replay();
        let is_missing = self.key(called).is_some_and(|key| self.guest.recall(&key).is_none());
        let is_same = self.named(called, &mut path)?.fingerprint == named.fingerprint;
        let line = self.line();
        let by_call = if self.facts.has_no_mark() { called.by_call_instruction(self.guest, self.facts) } else { None };
        let name = self.guest.find_name(named.code, named.fingerprint);
        if name == 0 {
            // It is cached when it is looked up again: to describe it reads the texts, which would be charged to the
            // answer.
            return Some(Semantic { name: self.describe(&named), line, by_call });
        }
        let semantic = Semantic { name, line, by_call };
        if is_missing && is_same {
            self.remember(called, &semantic);
        }
        Some(semantic)
    }

    /// What identifies the function: its contents, since its address may be reused for another one. `path`: the search
    /// for the name in the caller's code.
    #[inline(never)]
    fn named(&self, called: &Called, path: &mut Path) -> Option<Named> {
        let (guest, facts) = (self.guest, self.facts);
        let (mut proto, mut caller) = (Proto::default(), Proto::default());
        if !self.find(&mut proto) {
            return None;
        }
        let caller = if called.find(guest, facts, &mut caller) { Some(&caller) } else { None };
        let name = match self.origin(called, caller) {
            Origin::Unknown => text::EMPTY,
            Origin::Event(event) => text::own(event),
            Origin::Caller(caller, instruction) => name::of_callee(guest, facts, caller, instruction, path),
        };
        let name = if proto.first_line == 0 && name.len == 0 { text::own(text::MAIN) } else { name };
        let file = text::of_string(guest, facts, proto.source).and_then(|string| Source::of(guest, string));
        let contents = file.and_then(|file| file.sum(guest)).unwrap_or(0);
        let called_as = guest.sum(&name).unwrap_or(0);
        let fingerprint = [contents, u64::from(proto.first_line), called_as].into_iter().fold(SEED, mixed);
        Some(Named { code: proto.address, first_line: proto.first_line, name, file, fingerprint })
    }

    /// The line that executes; 0: not available.
    #[inline(never)]
    fn line(&self) -> u32 {
        let mut proto = Proto::default();
        let line = if self.find(&mut proto) { lines::line(self.guest, self.facts, &proto) } else { None };
        line.unwrap_or(0)
    }

    /// Describes the function to the host. Not inlined, since it needs much stack and is seldom called.
    #[cold]
    #[inline(never)]
    fn describe(&self, named: &Named) -> u32 {
        let mut room = [0; ID_SIZE];
        let style = if self.facts.minor == 1 { Style::Lua51 } else { Style::Lua };
        let file = named.file.and_then(|file| file.shown(self.guest, style, &mut room));
        self.guest.describe(&Description {
            code: named.code,
            fingerprint: named.fingerprint,
            name: named.name,
            file: file.unwrap_or(text::EMPTY),
            table: text::EMPTY,
            first_line: named.first_line,
            table_kind: TABLE_NONE,
        })
    }

    /// Where the function's name comes from.
    fn origin<'c>(&self, called: &Called, caller: Option<&'c Proto>) -> Origin<'c> {
        if called.finalizer {
            return Origin::Event(text::FINALIZER);
        }
        if called.hooked {
            return Origin::Event(text::HOOK);
        }
        let Some(caller) = caller.filter(|_| !called.tail) else { return Origin::Unknown };
        match caller.current(self.guest) {
            Some(instruction) => Origin::Caller(caller, instruction),
            None => Origin::Unknown,
        }
    }
}

/// What is emitted of a function, except for the line that executes.
struct Named {
    /// Process address of its Proto.
    code: u64,
    first_line: u32,
    name: Text,
    /// `None`: it is unreadable.
    file: Option<Source>,
    /// A hash of the name, the file and the first line, of their contents and not of their addresses.
    fingerprint: u64,
}

/// Where a function's name comes from.
enum Origin<'c> {
    /// It has none.
    Unknown,
    /// The reason for which the runtime calls it.
    Event(&'static [u8]),
    /// The caller's instruction that calls it.
    Caller(&'c Proto, u32),
}

const SEED: u64 = 0x243f_6a88_85a3_08d3;
