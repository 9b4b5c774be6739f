//! Lua frames: from the base of one to that of the frame below it (its caller's), up to the end of a group. A group is
//! the frames that one C frame of the VM hosts. The layout is that of
//! <https://github.com/LuaJIT/LuaJIT/blob/v2.1/src/lj_frame.h>:
//!
//! ```text
//!     base-32  base-24  base-16  base-8 | base
//!    [marker   pc    ] [function  link] | slots ...       (marker and pc in continuation frames only)
//! ```

use super::name::{Call, Called, Function};
use super::proto::{CodePosition, Proto};
use super::runs::Runs;
use super::state::{function, kind, Kind, Thread, FRAME_PC};
use super::top::Top;
use super::trace::Snapshot;
use super::{name, stretch, Vm};
use crate::points::{is_point, up_to_point};
use uunwind_core::memory::KEY;
use uunwind_core::plugin::OVERLAY_DESYNC;

/// Bits of a link that hold its kind (`FRAME_TYPEP`). The kinds below are LuaJIT's `FRAME_LUA`, `FRAME_C`,
/// `FRAME_CONT`, `FRAME_VARG` and `FRAME_CP`.
pub const LINK_KIND: u64 = 7;
pub const LUA: u64 = 0;
pub const C: u64 = 1;
const CONTINUATION: u64 = 2;
pub const VARARGS: u64 = 3;
const PROTECTED_C: u64 = 5;
/// The marker of a continuation that returns from an FFI callback (`LJ_CONT_FFI_CALLBACK`).
const CALLBACK: u64 = 1;

/// How the emission of a group ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GroupEnd {
    /// At its end; the next group's innermost frame has this base.
    Next(u64),
    /// At the bottom of the Lua stack.
    Bottom,
    /// At a frame whose words do not agree.
    Torn,
    /// The walk's stack is full.
    Full,
    /// The rest was taken from a cached walk.
    Cached,
}

/// The frames that were inlined into a trace: they are above the base that it runs with, and not on the Lua stack.
#[derive(Clone, Copy)]
pub struct Inlined {
    /// The trace's base.
    pub base: u64,
    /// The snapshot that describes them.
    pub snapshot: Snapshot,
}

/// A Lua frame.
#[derive(Clone, Copy)]
pub struct Frame {
    /// Its base: the process address of its first slot.
    pub base: u64,
    /// The current instruction of its function.
    pub place: CodePosition,
}

/// What was read of a frame.
#[derive(Clone, Copy)]
struct Read {
    runs: Runs,
    /// Address of the function object on the Lua stack; 0: none was read there.
    object: u64,
    /// The frame's link, if it was read with the object.
    link: Option<u64>,
}

/// The frames of one thread, as the current C frame shows them.
pub struct Frames<'a, 'v> {
    /// The VM whose frames these are.
    pub vm: &'a Vm<'v>,
    /// The Lua thread (coroutine) whose stack is walked.
    pub thread: &'a Thread,
    /// The inlined frames, in a trace.
    pub inlined: Option<Inlined>,
    /// Address of the C frame.
    pub cframe: u64,
    /// Address of the thread's next outer C frame; 0: there is none.
    pub previous: u64,
    /// The native frame is a trace's, which saves more registers.
    pub in_trace: bool,
}

impl Frames<'_, '_> {
    /// The place of the innermost function of the next group.
    fn outer(&self) -> CodePosition {
        let pc = if self.previous == 0 { None } else { self.vm.word(self.previous.wrapping_add(FRAME_PC)) };
        pc.map_or(CodePosition::Unknown, CodePosition::After)
    }

    /// A point ([`Guest::rest_is_known`]) before a frame: all that the rest of the group depends on. True:
    /// the rest was taken from a cached walk.
    #[inline(never)]
    fn rest_is_known(&self, frame: &Frame) -> bool {
        // Inlined frames follow from a snapshot, and not from these words.
        let inlined = self.inlined.as_ref().is_some_and(|inlined| frame.base > inlined.base);
        let (Some(place), false) = (frame.place.word(), inlined) else { return false };
        let Thread { address, global, stack, maxstack, .. } = *self.thread;
        let (vm, native) = (self.vm.identity(), self.in_trace.into());
        let rest = [vm, address, global, stack, maxstack, self.cframe, self.previous, native, frame.base, place];
        self.vm.guest.rest_is_known(frame.base, &rest)
    }

    /// For a base above the trace's: the distance between the two in bytes, and the snapshot.
    fn above(&self, base: u64) -> Option<(u64, &Snapshot)> {
        let inlined = self.inlined.as_ref().filter(|inlined| base > inlined.base)?;
        Some((base.wrapping_sub(inlined.base), &inlined.snapshot))
    }

    /// The link of the frame with this base.
    pub fn link(&self, base: u64) -> Option<u64> {
        match self.above(base) {
            Some((above, snapshot)) => snapshot.link(self.vm, above),
            None => self.vm.word(base.wrapping_sub(8)),
        }
    }

    /// The word `below` bytes below a base: one of the two that a continuation frame has more.
    fn slot(&self, base: u64, below: u64) -> Option<u64> {
        let address = base.wrapping_sub(below);
        match self.above(address.wrapping_add(8)).filter(|(above, _)| *above >= 8) {
            // The slots of frames are counted from two below the trace's base.
            Some((above, snapshot)) => snapshot.link(self.vm, above),
            None => self.vm.word(address),
        }
    }

    fn runs(&self, frame: &Frame) -> Option<Runs> {
        self.look(frame).map(|read| read.runs)
    }

    #[inline(never)]
    fn look(&self, frame: &Frame) -> Option<Read> {
        let (object, link) = match self.above(frame.base) {
            Some((above, snapshot)) => match snapshot.function(self.vm, above) {
                Some(object) => (object, None),
                // The trace itself has made or loaded the closure; or the trace ends with a call of a function of
                // another kind.
                None => {
                    let (CodePosition::At(pc) | CodePosition::After(pc)) = frame.place else { return None };
                    if self.is_no_bytecode(pc) {
                        return Some(Read { runs: Runs::Other, object: 0, link: None });
                    }
                    return snapshot.proto_of(self.vm, pc).map(|proto| Read {
                        runs: Runs::Lua(proto.code()),
                        object: 0,
                        link: None,
                    });
                }
            },
            None => {
                let mut words = [0; 2];
                self.vm.words(frame.base.wrapping_sub(16), [0, 8], &mut words)?;
                let [value, link] = words;
                match function(value) {
                    Some(object) => (object, Some(link)),
                    // The called value is no function; its `__call` metamethod will take its place.
                    None => return Some(Read { runs: Runs::Other, object: 0, link: Some(link) }),
                }
            }
        };
        Some(Read { runs: self.of_object(object)?, object: if link.is_some() { object } else { 0 }, link })
    }

    /// The kind of a function object.
    #[inline(always)]
    fn of_object(&self, object: u64) -> Option<Runs> {
        // Keys of names have a place in the fourth word, which is never `u64::MAX`.
        let key = [object, self.thread.global, 0, u64::MAX, self.vm.identity()];
        match self.vm.guest.recall(&key) {
            Some(answer) => Some(Runs::of_answer(object, answer)),
            None => self.look_at_object(object, &key),
        }
    }

    #[cold]
    #[inline(never)]
    fn look_at_object(&self, object: u64, key: &[u64; KEY]) -> Option<Runs> {
        let runs = match kind(self.vm, self.thread.global, object)? {
            Kind::Lua(proto) => Runs::Lua(Proto::read(self.vm, proto)?.code()),
            Kind::C => Runs::Other,
            Kind::Builtin(number) => Runs::Builtin(object, number),
        };
        self.vm.guest.remember(key, &runs.answer());
        Some(runs)
    }

    /// Is this the PC of a function that is no Lua function? The only instruction of such functions is in `GG_State`,
    /// after the dispatch table (<https://github.com/LuaJIT/LuaJIT/blob/v2.1/src/lj_dispatch.h>).
    pub fn is_no_bytecode(&self, pc: u64) -> bool {
        /// Size in bytes of the dispatch table and of these instructions.
        const TABLE: u64 = 4096;
        let table = self.thread.global.wrapping_add(u64::from(self.vm.facts.dispatch));
        pc.wrapping_sub(table) < TABLE
    }

    /// Is there a frame of a Lua function at `base`, in which `place` lies?
    pub fn is_lua_at(&self, base: u64, place: CodePosition) -> bool {
        self.runs(&Frame { base, place }).is_some_and(|runs| runs.is_lua_at(place))
    }

    /// Is there a frame of a Lua function at `base`?
    pub fn is_lua(&self, base: u64) -> bool {
        matches!(self.runs(&Frame { base, place: CodePosition::Unknown }), Some(Runs::Lua(_)))
    }

    /// Is there a frame of a Lua function with variable arguments at `base`, with its caller's link? Such a function
    /// runs above its arguments, in a copy of its frame; so in this frame it has not begun yet, or has ended.
    pub fn is_below_copy(&self, base: u64) -> bool {
        match self.runs(&Frame { base, place: CodePosition::Unknown }) {
            Some(Runs::Lua(code)) => code.takes_varargs(self.vm),
            _ => false,
        }
    }

    /// Is there a frame of a function of the VM itself at `base`?
    pub fn is_builtin(&self, base: u64) -> bool {
        matches!(self.runs(&Frame { base, place: CodePosition::Unknown }), Some(Runs::Builtin(..)))
            && self.is_frame(base)
    }

    /// Is there a frame of a function at `base`, with a valid link?
    pub fn is_frame(&self, base: u64) -> bool {
        let of_function = self.vm.word(base.wrapping_sub(16)).is_some_and(|value| function(value).is_some());
        of_function && !matches!(self.below(base), Below::Torn)
    }

    /// The thread's innermost frame once the frame at `base` has returned.
    pub fn returning(&self, base: u64) -> Top {
        let below = match self.below(base) {
            Below::Copy(copy) => self.below(copy.base),
            other => other,
        };
        match below {
            Below::Frame(frame) | Below::Copy(frame) => Top::at(frame),
            Below::Group(frame) => Top::between(frame.base),
            Below::Torn => Top::nothing(OVERLAY_DESYNC),
        }
    }

    /// The frame below the one with this base.
    fn below(&self, base: u64) -> Below {
        match self.link(base) {
            Some(link) => self.below_by(base, link, &mut None),
            None => Below::Torn,
        }
    }

    /// As [`Frames::below`], by the frame's link. Sets `caller` to what was read of the frame below.
    fn below_by(&self, base: u64, link: u64, caller: &mut Option<Read>) -> Below {
        *caller = None;
        let delta = link & !LINK_KIND;
        let kind = link & LINK_KIND;
        if kind & 3 == LUA {
            let Some(call) = self.vm.half(link.wrapping_sub(4)) else { return Below::Torn };
            return self.calling(
                base,
                Frame { base: base_below(base, call), place: CodePosition::After(link) },
                caller,
            );
        }
        let below = base.wrapping_sub(delta);
        match kind {
            C | PROTECTED_C => Below::Group(Frame { base: below, place: self.outer() }),
            CONTINUATION if self.slot(base, 32) == Some(CALLBACK) => {
                Below::Group(Frame { base: below, place: CodePosition::Unknown })
            }
            CONTINUATION => {
                let Some(pc) = self.slot(base, 24) else { return Below::Torn };
                self.checked(base, Frame { base: below, place: CodePosition::After(pc) })
            }
            VARARGS => match self.checked(base, Frame { base: below, place: CodePosition::Unknown }) {
                Below::Frame(frame) => Below::Copy(frame),
                other => other,
            },
            // A protected call: the frame below is that of the VM's `pcall` or `xpcall`.
            _ => self.checked(base, Frame { base: below, place: CodePosition::Unknown }),
        }
    }

    fn checked(&self, base: u64, frame: Frame) -> Below {
        if frame.base < base && self.thread.holds(frame.base) {
            Below::Frame(frame)
        } else {
            Below::Torn
        }
    }

    /// As [`Frames::checked`], for a Lua function whose current instruction is a call.
    fn calling(&self, base: u64, frame: Frame, caller: &mut Option<Read>) -> Below {
        let below = self.checked(base, frame);
        if matches!(below, Below::Torn) {
            return below;
        }
        *caller = self.look(&frame);
        match caller {
            Some(read) if read.runs.is_lua_at(frame.place) => below,
            _ => Below::Torn,
        }
    }

    /// Emits the frames of one group, from `frame` on; or only passes over them, if not `emit`. `step` counts frames,
    /// and says when the walk's limit is reached. `sure`: there was no doubt so far.
    pub fn group(&self, frame: Frame, emit: bool, sure: bool, step: &mut dyn FnMut(u64) -> bool) -> GroupEnd {
        let mut frame = frame;
        let mut copy = false;
        let mut emitted = 0u32;
        // What was read of the frame when it was its callee's caller, and what was read of its own caller.
        let (mut read, mut caller): (Option<Read>, Option<Read>) = (None, None);
        while step(1) {
            // The lowest frame holds the thread itself, not a function.
            if frame.base <= self.thread.stack.wrapping_add(16) {
                return GroupEnd::Bottom;
            }
            if sure && !copy && is_point(emitted) {
                // It was read before this point, so the rest must read it again.
                read = None;
                if self.rest_is_known(&frame) {
                    return GroupEnd::Cached;
                }
            }
            if emit && !copy && emitted > 0 && self.above(frame.base).is_none() {
                let passed = stretch::emit(self.vm, self.thread, &mut frame, up_to_point(emitted));
                if passed.full {
                    return GroupEnd::Full;
                }
                if passed.emitted > 0 {
                    emitted += passed.emitted as u32;
                    read = None;
                    if step(passed.emitted) {
                        continue;
                    }
                    break;
                }
            }
            let link = read.as_ref().and_then(|read| read.link).or_else(|| self.link(frame.base));
            let below = link.map_or(Below::Torn, |link| self.below_by(frame.base, link, &mut caller));
            if emit && !copy {
                if read.is_none() {
                    read = self.look(&frame);
                }
                let Some(read) = read.as_ref().filter(|read| read.runs.fits(frame.place)) else {
                    return GroupEnd::Torn;
                };
                if !self.emit(&frame, read, &below, caller.as_ref()) {
                    return GroupEnd::Full;
                }
                emitted += 1;
            }
            read = caller;
            (frame, copy) = match below {
                Below::Frame(next) => (next, false),
                // A second frame of the same function, without its own place: the upper one was emitted.
                Below::Copy(next) => (next, true),
                Below::Group(next) => return GroupEnd::Next(next.base),
                Below::Torn => return GroupEnd::Torn,
            };
        }
        GroupEnd::Torn
    }

    /// Emits a frame, if its function has no native frame. False: the walk's stack is full.
    #[inline(never)]
    fn emit(&self, frame: &Frame, read: &Read, below: &Below, caller: Option<&Read>) -> bool {
        let objects = Called { object: read.object, caller: caller.map_or(0, |caller| caller.object) };
        let function = match read.runs {
            Runs::Lua(code) => Function::Lua(code, frame.place),
            Runs::Builtin(object, number) => Function::Builtin(object, number),
            Runs::Other => return true,
        };
        name::emit(self.vm, self.thread, function, Call { objects, caller: self.caller(below, caller) })
    }

    /// The Lua function that called the frame above `below`. Not inlined, so that it takes no stack while a name is
    /// searched for.
    #[inline(never)]
    fn caller(&self, below: &Below, read: Option<&Read>) -> Option<name::Caller> {
        let below = match below {
            Below::Copy(copy) => self.below(copy.base),
            other => *other,
        };
        let (runs, place) = match (&below, read) {
            (Below::Frame(caller), Some(read)) => (read.runs, caller.place),
            // C code between the two, which a Lua function's instruction called: for a metamethod, or for an error's
            // message handler.
            (Below::Frame(caller) | Below::Group(caller), _) => (self.runs(caller)?, caller.place),
            _ => return None,
        };
        match runs {
            Runs::Lua(code) => Some((code, place)),
            _ => None,
        }
    }
}

/// The caller's base, by the function's own base and the calling instruction, whose operand A is the slot of the called
/// function.
#[inline(always)]
pub fn base_below(base: u64, call: u32) -> u64 {
    base.wrapping_sub(16).wrapping_sub(u64::from(call >> 8 & 0xff).wrapping_mul(8))
}

/// The frame below another one.
#[derive(Clone, Copy)]
enum Below {
    /// The caller's frame.
    Frame(Frame),
    /// A frame of the same function, below its variable arguments.
    Copy(Frame),
    /// None in this group; the next group's innermost frame.
    Group(Frame),
    /// The link is not valid.
    Torn,
}
