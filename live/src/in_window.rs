//! The part of a walk's environment that concerns windows: the window that the current frame lies in, the frame's rule,
//! and the name of its function.

use crate::env::{by_frame_pointer, key, Calls, Live};
use crate::skipped::Surroundings;
use crate::state::{FUNCTIONS, REGISTRY, RULES};
use crate::window_functions::{self, NAME_ROOM};
use crate::window_rule::{self, Missing};
use core::ffi::c_void;
use uunwind_core::cursor::Cursor;
use uunwind_core::frame::window_identity;
use uunwind_core::memory::Reader;
use uunwind_core::plugin::{Description, Owner, Text, OWNER_WINDOW, TABLE_NONE};
use uunwind_core::recovery::Protector;
use uunwind_core::registry::functions;
use uunwind_core::registry::window::{Held, Kind};
use uunwind_core::registry::Windows;
use uunwind_core::rule::Packed;
use uunwind_core::slots::{Slot, Stake, Walking};
use uunwind_core::span::Span;
use uunwind_core::stop_reason::StopReason;
use uunwind_core::walk::{Claim, Env, Names};

/// Set in generations of windows, to distinguish them from those of objects in the caches that both use.
const WINDOW: u64 = 1 << 63;

/// A walk's view of the windows.
pub struct InWindow<'w> {
    /// The slot of a capture, which it enters before it looks at windows, and the capture's stack pointer.
    slot: Option<(&'w Slot, u64)>,
    walking: Option<Walking<'w>>,
    /// Set while the capture walks. It lies on the capture's stack and does not move.
    stake: Stake,
    /// All windows, as they were when this walk first looked at them.
    all: Option<Windows<'w>>,
    /// The window of the current frame.
    here: Option<&'w Held>,
}

impl<'w> InWindow<'w> {
    /// The view of a walk that has not looked at windows.
    #[allow(clippy::new_without_default, reason = "made once for each walk")]
    pub fn new() -> InWindow<'w> {
        InWindow { slot: None, walking: None, stake: Stake::new(), all: None, here: None }
    }

    /// See [`Live::marks_itself`].
    pub fn marks_itself(&mut self, slot: &'w Slot, sp: u64) {
        self.slot = Some((slot, sp));
    }

    /// Ends the walk: no window may be used after this.
    pub fn end(&mut self) {
        (self.all, self.here) = (None, None);
        if let Some(walking) = self.walking.take() {
            if walking.leave() {
                self.stake.withdraw();
            }
        }
    }

    /// The window of the current frame, if it lies in one.
    pub fn here(&self) -> Option<&'w Held> {
        self.here
    }

    /// Whether the window of the current frame covers the process address `address`, too.
    pub fn still_covers(&self, address: u64) -> bool {
        let range = self.here.map(|held| held.window()).map(|window| window.start..window.end);
        range.is_some_and(|range| range.contains(&address))
    }

    /// The window whose claim this is.
    pub fn of(&self, claim: &Claim) -> Option<&'w Held> {
        let held = self.all.filter(|_| claim.index == 0)?.find(claim.range.start)?;
        (held.window().generation == claim.generation).then_some(held)
    }

    /// Says that the current frame lies in an object.
    pub fn leave(&mut self) {
        self.here = None;
    }

    /// Looks for a window that covers the process address `address`, which no object covers.
    pub fn enter(&mut self, address: u64) {
        self.here = self.find(address);
    }

    /// Whether some window covers the process address `address`.
    pub fn covers(&mut self, address: u64) -> bool {
        self.find(address).is_some()
    }

    fn find(&mut self, address: u64) -> Option<&'w Held> {
        if let Some((slot, sp)) = self.slot.take() {
            self.walking = slot.enter(sp, slot.epoch(|| REGISTRY.epoch()), Some(&self.stake)).ok();
        }
        // SAFETY: every walk that uses `Live` has entered a slot with the registry's epoch by now: a sample at its
        // begin, a capture or a `uu_walk` in the lines above (which fails only inside a sample, where neither begins).
        // `'w` is that walk.
        let all = *self.all.get_or_insert_with(|| unsafe { REGISTRY.windows() });
        all.find(address)
    }
}

/// The claim of a window's stepper.
pub fn claim(held: &Held) -> Claim {
    let window = held.window();
    // SAFETY: `uu_register_window` stored a function of this type, or null.
    let step = unsafe { core::mem::transmute::<usize, Option<uunwind_core::plugin::Visit>>(window.callback as usize) };
    Claim {
        step,
        range: Span::new(window.start, window.end),
        generation: window.generation,
        user: window.user as *mut c_void,
        ..Claim::NOTHING
    }
}

/// The owner of an address that no loaded object covers.
pub fn owner(here: Option<&Held>) -> Owner {
    here.map(|held| held.window()).map_or(Owner::NONE, |window| Owner {
        start: window.start,
        end: window.end,
        generation: window.generation,
        kind: OWNER_WINDOW,
        ..Owner::NONE
    })
}

impl Live<'_> {
    /// How the window's functions are called. `None`: they must not be, because they failed too often, or because a
    /// fault in them could not be contained (a sampler handles faults, but SIGSEGV is blocked).
    pub fn window_protector(&self, held: &Held) -> Option<Protector> {
        self.may_call(held).then(|| self.protector(0))
    }

    /// Whether the window's functions may be called.
    pub fn may_call(&self, held: &Held) -> bool {
        self.calls() != Calls::None && held.may_be_called()
    }

    /// The rule of a frame that lies in no object: in a window, or in unowned code, where it may be left to be guessed.
    #[cold]
    #[inline(never)]
    pub fn rule_outside_objects(&mut self, cursor: &Cursor, reader: &mut Reader<'_>) -> Packed {
        let Some(held) = self.windows.here() else {
            // Recognition reads code on both sides of the pc. Next to a window's code may lie what another thread
            // unmaps at this moment; and what its registrar says about it is right.
            let recognised = uunwind_sources::outside_of_objects(cursor.regs.pc, reader);
            return match recognised {
                Some(rule) => rule.pack(),
                None => self.rule_by_code(cursor, reader).unwrap_or(Packed::failed(StopReason::NoOwner)),
            };
        };
        let (key, generation) = (key(cursor), held.window().generation | WINDOW);
        let without_data = [Kind::FramePointer, Kind::Opaque, Kind::Stepper, Kind::Code];
        let remembered = !without_data.contains(&held.window().kind);
        if remembered {
            if let Some(rule) = RULES.get(key, generation).and_then(Packed::from_words) {
                return self.or_rule_by_code(rule, cursor, reader);
            }
        }
        let protector = self.window_protector(held);
        let found = window_rule::find(held.window(), cursor, self, reader, protector);
        // Not cached: a miss in a growing window, which may be a hit later, and a miss because functions could not be
        // called.
        let lasts = match &found {
            Ok(_) => true,
            Err(Missing::NoRule(reason)) => {
                *reason == StopReason::NoRule
                    && !held.may_grow()
                    && (protector.is_some() || held.window().kind != Kind::Rule)
            }
            Err(Missing::Failed(_)) => false,
        };
        let rule = match found {
            Ok(rule) => rule.pack(),
            Err(Missing::NoRule(reason)) => Packed::failed(reason),
            Err(Missing::Failed(reason)) => {
                self.window_failed(held, reason);
                Packed::failed(StopReason::NoRule)
            }
        };
        if remembered && lasts {
            RULES.put(key, generation, rule.words());
        }
        self.or_rule_by_code(rule, cursor, reader)
    }

    /// `rule`, or, where there is none, the rule made from the machine code, or the rule by the frame pointer.
    fn or_rule_by_code(&mut self, rule: Packed, cursor: &Cursor, reader: &mut Reader<'_>) -> Packed {
        let by_code = if rule.failed_for(StopReason::NoRule) { self.rule_by_code(cursor, reader) } else { None };
        by_code.unwrap_or_else(|| or_frame_pointer(rule, cursor, self, reader))
    }

    /// The second word of a frame in a window: the window's generation, and the name id of its function.
    #[cold]
    #[inline(never)]
    pub fn window_identity(&mut self, held: &Held, cursor: &Cursor, reader: &mut Reader<'_>) -> u64 {
        let window = held.window();
        let name = if self.names_are_kept() && (window.name != 0 || window.functions != 0) {
            self.window_name(held, cursor.lookup_pc(), reader)
        } else {
            0
        };
        window_identity(window.generation, name)
    }

    /// Name id of the function at the process address `lookup`; 0: it has no name.
    fn window_name(&mut self, held: &Held, lookup: u64, reader: &mut Reader<'_>) -> u32 {
        let (window, epoch) = (held.window(), u64::from(self.epoch()));
        let generation = window.generation | WINDOW;
        // Name ids belong to a recording epoch: the child of a fork has new ones.
        if let Some([id, of, _]) = FUNCTIONS.get(lookup, generation) {
            if of == epoch {
                return id as u32;
            }
        }
        let mut buffer = [0; NAME_ROOM];
        let named = match functions::find(window, lookup, reader) {
            Some(function) if function.name != 0 && function.name_len != 0 => {
                let text = Text { address: function.name, len: function.name_len, width: 1, utf8: 1 };
                Some((window.start.wrapping_add(u64::from(function.start)), text))
            }
            _ => match self
                .window_protector(held)
                .map(|protector| window_functions::ask(window, lookup, &mut buffer, protector))
            {
                Some(Ok(named)) => named,
                Some(Err(reason)) => {
                    self.window_failed(held, reason);
                    None
                }
                None => None,
            },
        };
        let Some((start, name)) = named else { return 0 };
        let id = match self.find_name(0, start, generation) {
            0 => self.describe(0, &description(start, generation, name), reader),
            id => id,
        };
        if id != 0 {
            FUNCTIONS.put(lookup, generation, [u64::from(id), epoch, 0]);
        }
        id
    }
}

/// The description of a window's function. Its identity is its start and the window's generation, so that a function of
/// a later window at the same place has an id of its own.
pub fn description(start: u64, generation: u64, name: Text) -> Description {
    let none = Text { address: 0, len: 0, width: 1, utf8: 1 };
    Description {
        code: start,
        fingerprint: generation,
        name,
        file: none,
        table: none,
        first_line: 0,
        table_kind: TABLE_NONE,
    }
}

/// `rule`, or, where there is none, the rule by the frame pointer.
pub fn or_frame_pointer(
    rule: Packed,
    cursor: &Cursor,
    places: &mut dyn Surroundings,
    reader: &mut Reader<'_>,
) -> Packed {
    if rule.failed_for(StopReason::NoRule) {
        return by_frame_pointer(cursor, StopReason::NoRule, places, reader);
    }
    rule
}
