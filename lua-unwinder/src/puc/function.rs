//! A running Lua function: its Proto, and where in it execution stands.

use super::facts::{role, Facts};
use super::lines;
use super::name;
use super::state::{Info, Running, State};
use super::text;
use crate::walk::Walk;
use uunwind_core::memory::{ANSWER, KEY};
use uunwind_core::plugin::{Description, TABLE_NONE};

/// Bytes of an instruction.
const INSTRUCTION: u64 = 4;
/// More instructions than any Proto has.
const CODE_LIMIT: u64 = 1 << 27;

/// Who called a function.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    /// A Lua function: its closure, and the address of its next instruction.
    Lua(u64, u64),
    /// A C function, or nobody.
    C,
    /// That cannot be told now.
    Unknown,
}

/// How a function was called, as far as that gives it a name.
pub struct Called {
    by: By,
    /// The function was tail called, so its caller is gone.
    tail: bool,
    hooked: bool,
    finalizer: bool,
}

impl Called {
    /// From the CallInfos of a function and of its caller.
    #[inline(always)]
    pub fn new(walk: &Walk<'_>, facts: &Facts, state: &State, info: &Info, caller: Option<&Info>) -> Called {
        let flag = |mask: u32| caller.is_some_and(|c| c.status & mask != 0);
        let by = match caller {
            Some(c) => match c.running {
                Running::Lua(closure) => By::Lua(closure, c.pc(walk, facts, state)),
                Running::C => By::C,
            },
            None => By::Unknown,
        };
        let tail = Called::in_tail(facts, info);
        // From 5.4 on the marks stand in the caller's CallInfo; in 5.3 and before too (`ci->previous`).
        Called { by, tail, hooked: flag(facts.info.hooked), finalizer: flag(facts.info.finalizer) }
    }

    /// By a Lua function that is neither in a hook nor calls a finalizer: its closure, and its next instruction.
    #[inline(always)]
    pub fn by_lua(facts: &Facts, info: &Info, closure: u64, pc: u64) -> Called {
        Called { by: By::Lua(closure, pc), tail: Called::in_tail(facts, info), hooked: false, finalizer: false }
    }

    #[inline(always)]
    fn in_tail(facts: &Facts, info: &Info) -> bool {
        let marks = if facts.minor == 1 { u32::MAX } else { facts.info.tail };
        info.status & marks != 0
    }

    /// Is the caller a Lua function that stands at a call instruction? Then both run in one activation (5.1). `None`: what the
    /// caller is cannot be told now.
    pub fn by_call_instruction(&self, walk: &Walk<'_>, facts: &Facts) -> Option<bool> {
        let mut caller = Proto::default();
        let found = self.find(walk, facts, &mut caller);
        self.is_at_call(walk, facts, found.then_some(&caller))
    }

    /// The same, with what [`Called::find`] has found.
    fn is_at_call(&self, walk: &Walk<'_>, facts: &Facts, caller: Option<&Proto>) -> Option<bool> {
        match caller {
            Some(caller) => Some(facts.role(caller.current(walk)?) == role::CALL),
            None => (self.by == By::C).then_some(false),
        }
    }

    /// The caller's Proto, and where in it execution stands, if it is a Lua function. Into a place of the caller's, as [`Function::find`].
    fn find(&self, walk: &Walk<'_>, facts: &Facts, proto: &mut Proto) -> bool {
        match self.by {
            By::Lua(closure, pc) => Function { walk, facts, closure, pc }.find(proto),
            _ => false,
        }
    }

    /// All of it in two words. `None`: there is no such address.
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

/// What is told of a function.
pub struct Told {
    /// Its name's id; 0: none could be given now.
    name: u32,
    /// 0: not known.
    line: u32,
    /// See [`Called::by_call_instruction`]; in 5.1 only.
    pub by_call: Option<bool>,
}

impl Told {
    const NO_CALL: u32 = 1;
    const CALL: u32 = 2;

    /// What was remembered.
    #[inline(always)]
    pub fn of_answer([name, line]: [u64; ANSWER]) -> Told {
        let by_call = match (name >> 32) as u32 {
            Told::NO_CALL => Some(false),
            Told::CALL => Some(true),
            _ => None,
        };
        Told { name: name as u32, line: line as u32, by_call }
    }

    fn answer(&self) -> [u64; ANSWER] {
        let by_call = self.by_call.map_or(0, |call| if call { Told::CALL } else { Told::NO_CALL });
        [u64::from(self.name) | u64::from(by_call) << 32, self.line.into()]
    }

    /// The frame: its name and its position.
    #[inline(always)]
    pub fn frame(&self) -> [u64; 2] {
        [self.name.into(), self.line.into()]
    }

    /// Emits the frame. False: the stack is full.
    pub fn emit(&self, walk: &Walk<'_>) -> bool {
        walk.emit(self.name, self.line.into())
    }
}

/// The function that runs in a CallInfo.
pub struct Function<'v> {
    /// The host.
    pub walk: &'v Walk<'v>,
    /// The interpreter's facts.
    pub facts: &'v Facts,
    /// `LClosure`.
    pub closure: u64,
    /// Address of the next bytecode instruction.
    pub pc: u64,
}

/// A Proto, as far as it is needed, and a place in its code.
#[derive(Clone, Copy, Default)]
pub struct Proto {
    /// Its address.
    pub address: u64,
    /// First instruction.
    pub code: u64,
    /// Number of instructions.
    pub code_len: u32,
    /// Index of the instruction in hand.
    pub index: u32,
    /// `source`.
    pub source: u64,
    /// `linedefined`.
    pub first_line: u32,
    /// `lineinfo` and its length.
    pub lines: u64,
    /// See `lines`.
    pub lines_len: u32,
    /// `abslineinfo` and its length, 0 before 5.4.
    pub bases: u64,
    /// See `bases`.
    pub bases_len: u32,
}

impl Proto {
    /// The instruction in hand.
    pub fn current(&self, walk: &Walk<'_>) -> Option<u32> {
        self.instruction(walk, self.index)
    }

    /// An instruction.
    pub fn instruction(&self, walk: &Walk<'_>, index: u32) -> Option<u32> {
        if index >= self.code_len {
            return None;
        }
        walk.half(self.code.wrapping_add(u64::from(index) * INSTRUCTION))
    }

    /// A word of the Proto.
    pub fn word(&self, walk: &Walk<'_>, offset: u32) -> Option<u64> {
        walk.word(self.address.wrapping_add(u64::from(offset)))
    }

    /// 32 bits of the Proto.
    pub fn half(&self, walk: &Walk<'_>, offset: u32) -> Option<u32> {
        walk.half(self.address.wrapping_add(u64::from(offset)))
    }
}

impl Function<'_> {
    /// Finds its Proto. False: there is none, or the pc is not in it. Into a place of the caller's: a Proto is too large to be copied
    /// about.
    pub fn find(&self, proto: &mut Proto) -> bool {
        self.find_in(proto).is_some()
    }

    fn find_in(&self, proto: &mut Proto) -> Option<()> {
        let (walk, layout) = (self.walk, &self.facts.proto);
        let address = walk.word(self.closure.wrapping_add(u64::from(layout.closure)))?;
        if address == 0 || !address.is_multiple_of(8) {
            return None;
        }
        // The numbers of 32 bits, in the words that hold them. Two of them share one in all versions.
        let (lengths, line) = (layout.code_len & !7, layout.first_line & !7);
        let has_bases = layout.bases != 0;
        let bases = if has_bases { layout.bases } else { layout.lines };
        let mut words = [0; 6];
        walk.words(address, [layout.code, layout.source, layout.lines, lengths, line, bases], &mut words)?;
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
            offset => proto.half(walk, offset)?,
        };
        if has_bases {
            proto.bases_len = match layout.bases_len {
                offset if offset & !7 == line => of(line_word, offset),
                offset => proto.half(walk, offset)?,
            };
        }
        let ahead = self.pc.wrapping_sub(proto.code);
        let length = u64::from(proto.code_len).wrapping_mul(INSTRUCTION);
        if !ahead.is_multiple_of(INSTRUCTION) || ahead > length || u64::from(proto.code_len) > CODE_LIMIT || length == 0
        {
            return None;
        }
        // The pc is already past the instruction; at the very first it is not.
        proto.index = u32::try_from((ahead / INSTRUCTION).saturating_sub(1)).ok()?;
        Some(())
    }

    /// Does the pc lie in the function's code?
    pub fn holds_pc(&self) -> bool {
        self.find(&mut Proto::default())
    }

    /// What is told of the function. `None`: no function is there, or the pc is not in it.
    #[inline(always)]
    pub fn told(&self, called: &Called) -> Option<Told> {
        self.recall(called).or_else(|| self.look_up(called))
    }

    // Not inlined: the key then takes no stack beneath what looks the function up.
    #[inline(never)]
    fn recall(&self, called: &Called) -> Option<Told> {
        Some(Told::of_answer(self.walk.recall(&self.key(called)?)?))
    }

    #[inline(never)]
    fn remember(&self, called: &Called, told: &Told) {
        if let Some(key) = self.key(called).filter(|_| told.name != 0) {
            self.walk.remember(&key, &told.answer());
        }
    }

    /// What its answer is remembered by.
    #[inline(always)]
    pub fn key(&self, called: &Called) -> Option<[u64; KEY]> {
        let [caller, place] = called.key()?;
        Some([self.closure, self.pc, caller, place, core::ptr::from_ref(self.facts) as u64])
    }

    /// The same, by what the process says; describes the function if it was never seen to be called like this.
    #[cold]
    #[inline(never)]
    fn look_up(&self, called: &Called) -> Option<Told> {
        let (walk, facts) = (self.walk, self.facts);
        let (mut proto, mut caller) = (Proto::default(), Proto::default());
        if !self.find(&mut proto) {
            return None;
        }
        let caller = if called.find(walk, facts, &mut caller) { Some(&caller) } else { None };
        let origin = self.origin(called, caller);
        let contents = text::contents(walk, facts, proto.source);
        let origin_identity = origin.identity(|caller| match caller.source == proto.source {
            true => contents,
            false => text::contents(walk, facts, caller.source),
        });
        let fingerprint = fingerprint([contents, u64::from(proto.first_line), proto.code, origin_identity]);
        let mut name = walk.find_name(proto.address, fingerprint);
        if name == 0 {
            name = self.describe(&proto, &origin, fingerprint);
        }
        let line = lines::line(walk, facts, &proto).unwrap_or(0);
        let by_call = if facts.has_no_mark() { called.is_at_call(walk, facts, caller) } else { None };
        let told = Told { name, line, by_call };
        self.remember(called, &told);
        Some(told)
    }

    /// Apart, since it needs much stack and is seldom called.
    #[cold]
    #[inline(never)]
    fn describe(&self, proto: &Proto, origin: &Origin<'_>, fingerprint: u64) -> u32 {
        let name = match origin {
            Origin::Main | Origin::Unknown => text::EMPTY,
            Origin::Event(event) => text::of_event(event),
            Origin::Caller(caller, instruction) => name::of_callee(self.walk, self.facts, caller, *instruction),
        };
        let name = if proto.first_line == 0 && name.len == 0 { text::own(text::MAIN) } else { name };
        self.walk.describe(&Description {
            code: proto.address,
            fingerprint,
            name,
            file: text::of_source(self.walk, self.facts, proto.source),
            table: text::EMPTY,
            first_line: proto.first_line,
            table_kind: TABLE_NONE,
        })
    }

    /// What names the function.
    fn origin<'c>(&self, called: &Called, caller: Option<&'c Proto>) -> Origin<'c> {
        if called.finalizer {
            return Origin::Event(text::FINALIZER);
        }
        if called.hooked {
            return Origin::Event(text::HOOK);
        }
        let Some(caller) = caller.filter(|_| !called.tail) else { return Origin::Unknown };
        match caller.current(self.walk) {
            Some(instruction) => Origin::Caller(caller, instruction),
            None => Origin::Unknown,
        }
    }
}

/// What names a function.
enum Origin<'c> {
    /// It is a chunk.
    #[allow(dead_code, reason = "told by its first line")]
    Main,
    /// Nothing does.
    Unknown,
    /// The runtime calls it, for a reason that has a name.
    Event(&'static [u8]),
    /// The instruction that calls it.
    Caller(&'c Proto, u32),
}

impl Origin<'_> {
    /// A number that differs where the name may. `contents`: gives those of a Proto's source.
    fn identity(&self, contents: impl FnOnce(&Proto) -> u64) -> u64 {
        match self {
            Origin::Main | Origin::Unknown => 0,
            Origin::Event(event) => event.as_ptr() as u64,
            Origin::Caller(proto, instruction) => {
                let place = u64::from(proto.index) << 32 | u64::from(*instruction);
                fingerprint([proto.address, proto.code, place, contents(proto)])
            }
        }
    }
}

/// Mixes the words that name a function. One that died and whose address was used again differs in them: in the contents of its
/// source, if all that it consists of lies where the other one's lay.
fn fingerprint(words: [u64; 4]) -> u64 {
    let mut h: u64 = 0x243f_6a88_85a3_08d3;
    for word in words {
        h = (h ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        h ^= h >> 29;
    }
    h
}
