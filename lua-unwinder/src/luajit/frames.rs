//! Lua frames: from the base of one to that of the frame below it, up to the end of a group. A group is what one C frame of the
//! VM hosts.
//!
//! ```text
//!     base-32  base-24  base-16  base-8 | base
//!    [marker   pc    ] [function  link] | slots ...       (marker and pc in continuation frames only)
//! ```

use super::name::Called;
use super::proto::{Place, Proto};
use super::runs::Runs;
use super::state::{function, kind, Kind, Thread, FRAME_PC};
use super::top::Top;
use super::trace::Snapshot;
use super::{name, stretch, Vm};
use crate::walk::{is_point, up_to_point};
use uunwind_core::memory::KEY;
use uunwind_core::plugin::OVERLAY_DESYNC;

/// Kinds of links, in their low bits.
pub const LINK_KIND: u64 = 7;
pub const LUA: u64 = 0;
pub const C: u64 = 1;
const CONTINUATION: u64 = 2;
pub const VARARGS: u64 = 3;
const PROTECTED_C: u64 = 5;
/// The marker of a continuation that returns from an FFI callback.
const CALLBACK: u64 = 1;

/// How a group's emission ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// At its end; the next group's innermost frame has this base.
    Next(u64),
    /// At the bottom of the Lua stack.
    Bottom,
    /// The frames make no sense.
    Torn,
    /// The stack of the walk is full.
    Full,
    /// All that is left is known.
    Known,
}

/// Inlined frames of a trace, which lie above the base that it runs with.
#[derive(Clone, Copy)]
pub struct Inlined {
    /// The trace's base.
    pub base: u64,
    /// What tells of them.
    pub snapshot: Snapshot,
}

/// The frame in hand.
#[derive(Clone, Copy)]
pub struct Frame {
    /// Its base.
    pub base: u64,
    /// Where its function stands.
    pub place: Place,
}

/// A frame that was looked at.
#[derive(Clone, Copy)]
struct Known {
    runs: Runs,
    /// The function object on the stack; 0: none was read there.
    object: u64,
    /// Its link, if that was read with it.
    link: Option<u64>,
}

/// Walks through the frames of one thread.
pub struct Frames<'a, 'v> {
    /// The VM.
    pub vm: &'a Vm<'v>,
    /// The thread.
    pub thread: &'a Thread,
    /// Inlined frames, in a trace.
    pub inlined: Option<Inlined>,
    /// The C frame whose frames these are, and the thread's C frame before it; 0 = none.
    pub cframe: u64,
    /// See `cframe`.
    pub previous: u64,
    /// The native frame is a trace's, with more registers saved.
    pub in_trace: bool,
}

impl Frames<'_, '_> {
    /// Where the function stands that is on top of the next group.
    fn outer(&self) -> Place {
        let pc = if self.previous == 0 { None } else { self.vm.word(self.previous.wrapping_add(FRAME_PC)) };
        pc.map_or(Place::Unknown, Place::Behind)
    }

    /// Says what the rest of the group depends on, from a frame on. True: it is known.
    #[inline(never)]
    fn rest_is_known(&self, frame: &Frame) -> bool {
        // Inlined frames are those of a trace, which tells of them otherwise.
        let inlined = self.inlined.as_ref().is_some_and(|inlined| frame.base > inlined.base);
        let (Some(place), false) = (frame.place.word(), inlined) else { return false };
        let Thread { address, global, stack, maxstack, .. } = *self.thread;
        let (vm, native) = (self.vm.identity(), self.in_trace.into());
        let rest = [vm, address, global, stack, maxstack, self.cframe, self.previous, native, frame.base, place];
        self.vm.walk.rest_is_known(frame.base, &rest)
    }

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

    /// A word of a frame's links below its own two.
    fn slot(&self, base: u64, below: u64) -> Option<u64> {
        let address = base.wrapping_sub(below);
        match self.above(address.wrapping_add(8)).filter(|(above, _)| *above >= 8) {
            // The slots of frames are counted from two below the trace's base.
            Some((above, snapshot)) => snapshot.link(self.vm, above),
            None => self.vm.word(address),
        }
    }

    fn runs(&self, frame: &Frame) -> Option<Runs> {
        self.look(frame).map(|known| known.runs)
    }

    #[inline(never)]
    fn look(&self, frame: &Frame) -> Option<Known> {
        let (object, link) = match self.above(frame.base) {
            Some((above, snapshot)) => match snapshot.function(self.vm, above) {
                Some(object) => (object, None),
                // A closure that was made or loaded by the trace itself; or a function of another kind, that the trace ends with a call of.
                None => {
                    let (Place::At(pc) | Place::Behind(pc)) = frame.place else { return None };
                    if self.is_no_bytecode(pc) {
                        return Some(Known { runs: Runs::Other, object: 0, link: None });
                    }
                    return snapshot.proto_of(self.vm, pc).map(|proto| Known {
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
                    // What calls something that is no function stands here for a moment.
                    None => return Some(Known { runs: Runs::Other, object: 0, link: Some(link) }),
                }
            }
        };
        Some(Known { runs: self.of_object(object)?, object: if link.is_some() { object } else { 0 }, link })
    }

    /// What a function object is.
    #[inline(always)]
    fn of_object(&self, object: u64) -> Option<Runs> {
        // No frame's name has such a key: it is asked for at a place.
        let key = [object, self.thread.global, 0, u64::MAX, self.vm.identity()];
        match self.vm.walk.recall(&key) {
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
        self.vm.walk.remember(key, &runs.answer());
        Some(runs)
    }

    /// Does the PC of a function that is about to be called say that it is none of Lua's? Their one instruction stands behind the table
    /// of the VM's instructions.
    pub fn is_no_bytecode(&self, pc: u64) -> bool {
        /// Bytes of the table and of what stands behind it.
        const TABLE: u64 = 4096;
        let table = self.thread.global.wrapping_add(u64::from(self.vm.facts.dispatch));
        pc.wrapping_sub(table) < TABLE
    }

    /// Is there a frame of a Lua function at `base`, in which `place` lies?
    pub fn is_lua_at(&self, base: u64, place: Place) -> bool {
        self.runs(&Frame { base, place }).is_some_and(|runs| runs.is_lua_at(place))
    }

    /// Is there a frame of a Lua function at `base`?
    pub fn is_lua(&self, base: u64) -> bool {
        matches!(self.runs(&Frame { base, place: Place::Unknown }), Some(Runs::Lua(_)))
    }

    /// Is there a frame at `base`, with its caller's link, of a Lua function with variable arguments? It runs above them, in a copy
    /// of its frame: this one is not begun, or left.
    pub fn is_below_copy(&self, base: u64) -> bool {
        match self.runs(&Frame { base, place: Place::Unknown }) {
            Some(Runs::Lua(code)) => code.takes_varargs(self.vm),
            _ => false,
        }
    }

    /// Is there a frame of a function of the VM's own at `base`?
    pub fn is_builtin(&self, base: u64) -> bool {
        matches!(self.runs(&Frame { base, place: Place::Unknown }), Some(Runs::Builtin(..))) && self.is_frame(base)
    }

    /// Is there a frame of a function at `base`, with a link that leads on?
    pub fn is_frame(&self, base: u64) -> bool {
        let of_function = self.vm.word(base.wrapping_sub(16)).is_some_and(|value| function(value).is_some());
        of_function && !matches!(self.below(base), Below::Torn)
    }

    /// The frame at `base` is about to be gone: what is then on top.
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

    /// The frame below that with this base.
    fn below(&self, base: u64) -> Below {
        match self.link(base) {
            Some(link) => self.below_by(base, link, &mut None),
            None => Below::Torn,
        }
    }

    /// As [`Frames::below`], with the frame's link. `caller`: what is learned of the frame below.
    fn below_by(&self, base: u64, link: u64, caller: &mut Option<Known>) -> Below {
        *caller = None;
        let delta = link & !LINK_KIND;
        let kind = link & LINK_KIND;
        if kind & 3 == LUA {
            let Some(call) = self.vm.half(link.wrapping_sub(4)) else { return Below::Torn };
            return self.calling(base, Frame { base: base_below(base, call), place: Place::Behind(link) }, caller);
        }
        let below = base.wrapping_sub(delta);
        match kind {
            C | PROTECTED_C => Below::Group(Frame { base: below, place: self.outer() }),
            CONTINUATION if self.slot(base, 32) == Some(CALLBACK) => {
                Below::Group(Frame { base: below, place: Place::Unknown })
            }
            CONTINUATION => {
                let Some(pc) = self.slot(base, 24) else { return Below::Torn };
                self.checked(base, Frame { base: below, place: Place::Behind(pc) })
            }
            VARARGS => match self.checked(base, Frame { base: below, place: Place::Unknown }) {
                Below::Frame(frame) => Below::Copy(frame),
                other => other,
            },
            // A protected call: the frame below is that of the VM's own `pcall` or `xpcall`.
            _ => self.checked(base, Frame { base: below, place: Place::Unknown }),
        }
    }

    fn checked(&self, base: u64, frame: Frame) -> Below {
        if frame.base < base && self.thread.holds(frame.base) {
            Below::Frame(frame)
        } else {
            Below::Torn
        }
    }

    /// As [`Frames::checked`], of a Lua function that stands at a call.
    fn calling(&self, base: u64, frame: Frame, caller: &mut Option<Known>) -> Below {
        let below = self.checked(base, frame);
        if matches!(below, Below::Torn) {
            return below;
        }
        *caller = self.look(&frame);
        match caller {
            Some(known) if known.runs.is_lua_at(frame.place) => below,
            _ => Below::Torn,
        }
    }

    /// Emits the frames of one group, from `frame` on; or passes over them. `step` is asked before some frames. `sure`: nothing was doubtful so
    /// far.
    pub fn group(&self, frame: Frame, emit: bool, sure: bool, step: &mut dyn FnMut(u64) -> bool) -> End {
        let mut frame = frame;
        let mut copy = false;
        let mut told = 0u32;
        // What is known of it since it was looked at as a caller.
        let (mut known, mut caller): (Option<Known>, Option<Known>) = (None, None);
        while step(1) {
            // The lowest frame holds the thread itself, not a function.
            if frame.base <= self.thread.stack.wrapping_add(16) {
                return End::Bottom;
            }
            if sure && !copy && is_point(told) {
                // What was learned of it was read before.
                known = None;
                if self.rest_is_known(&frame) {
                    return End::Known;
                }
            }
            if emit && !copy && told > 0 && self.above(frame.base).is_none() {
                let passed = stretch::tell(self.vm, self.thread, &mut frame, up_to_point(told));
                if passed.full {
                    return End::Full;
                }
                if passed.told > 0 {
                    told += passed.told as u32;
                    known = None;
                    if step(passed.told) {
                        continue;
                    }
                    break;
                }
            }
            let link = known.as_ref().and_then(|known| known.link).or_else(|| self.link(frame.base));
            let below = link.map_or(Below::Torn, |link| self.below_by(frame.base, link, &mut caller));
            if emit && !copy {
                if known.is_none() {
                    known = self.look(&frame);
                }
                let Some(known) = known.as_ref().filter(|known| known.runs.fits(frame.place)) else {
                    return End::Torn;
                };
                if !self.emit(&frame, known, &below, caller.as_ref()) {
                    return End::Full;
                }
                told += 1;
            }
            known = caller;
            (frame, copy) = match below {
                Below::Frame(next) => (next, false),
                // The same function's frame once more, as it was called: the upper one was shown.
                Below::Copy(next) => (next, true),
                Below::Group(next) => return End::Next(next.base),
                Below::Torn => return End::Torn,
            };
        }
        End::Torn
    }

    /// False: the stack is full.
    #[inline(never)]
    fn emit(&self, frame: &Frame, known: &Known, below: &Below, caller: Option<&Known>) -> bool {
        let called = Called { object: known.object, caller: caller.map_or(0, |caller| caller.object) };
        let caller = self.caller(below, caller);
        match known.runs {
            Runs::Lua(code) => name::emit_lua(self.vm, self.thread, called, (code, frame.place), caller),
            Runs::Builtin(object, number) => name::emit_builtin(self.vm, object, number, caller),
            Runs::Other => true,
        }
    }

    /// The Lua function that calls what lies above `below`: through a copy, if the arguments were moved. Not inlined, so that it takes no
    /// stack beneath what names a function.
    #[inline(never)]
    fn caller(&self, below: &Below, known: Option<&Known>) -> Option<name::Caller> {
        let below = match below {
            Below::Copy(copy) => self.below(copy.base),
            other => *other,
        };
        let (runs, place) = match (&below, known) {
            (Below::Frame(caller), Some(known)) => (known.runs, caller.place),
            // C that a Lua function's instruction called, and that called Lua: a metamethod, or a handler of an error in it.
            (Below::Frame(caller) | Below::Group(caller), _) => (self.runs(caller)?, caller.place),
            _ => return None,
        };
        match runs {
            Runs::Lua(code) => Some((code, place)),
            _ => None,
        }
    }
}

/// The base of the caller of a function with this base, by the calling instruction: that tells where the one lies in the other's frame.
#[inline(always)]
pub fn base_below(base: u64, call: u32) -> u64 {
    base.wrapping_sub(16).wrapping_sub(u64::from(call >> 8 & 0xff).wrapping_mul(8))
}

/// What lies below a frame.
#[derive(Clone, Copy)]
enum Below {
    /// The caller's frame.
    Frame(Frame),
    /// A frame of the same function, below its variable arguments.
    Copy(Frame),
    /// The end of the group; the next one's innermost frame.
    Group(Frame),
    /// Nothing that makes sense.
    Torn,
}
