//! The part of a walk's surroundings that concerns windows: which one the frame in hand lies in, its rule, its name.

use crate::env::{by_frame_pointer, key, Live};
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
use uunwind_core::stop_reason::StopReason;
use uunwind_core::walk::{Claim, Env};

/// Keeps generations of windows apart from those of objects in the tables that both share.
const WINDOW: u64 = 1 << 63;

/// What a walk knows of windows.
#[derive(Clone, Copy, Default)]
pub struct InWindow<'w> {
    /// All of them, as they were when this walk first asked.
    all: Option<Windows<'w>>,
    /// The one of the frame last asked for.
    here: Option<&'w Held>,
}

impl<'w> InWindow<'w> {
    /// The window of the frame last asked for.
    pub fn here(&self) -> Option<&'w Held> {
        self.here
    }

    /// Whether the frame last asked for lies in a window that covers `address`, too.
    pub fn still_covers(&self, address: u64) -> bool {
        let range = self.here.map(|held| held.window()).map(|window| window.start..window.end);
        range.is_some_and(|range| range.contains(&address))
    }

    /// The frame in hand lies in an object.
    pub fn leave(&mut self) {
        self.here = None;
    }

    /// No object covers `address`: perhaps a window does.
    pub fn enter(&mut self, address: u64) {
        // SAFETY: every caller of `Live` walks inside a slot entered with the registry's epoch, and `'w` is that walk.
        let all = *self.all.get_or_insert_with(|| unsafe { REGISTRY.windows() });
        self.here = all.find(address);
    }
}

/// The claim of a window's stepper.
pub fn claim(held: &Held) -> Claim {
    let window = held.window();
    // SAFETY: `uu_register_window` stored a function of this type, or null.
    let step = unsafe { core::mem::transmute::<usize, Option<uunwind_core::plugin::Visit>>(window.callback as usize) };
    Claim {
        step,
        range: (window.start, window.end),
        generation: window.generation,
        user: window.user as *mut c_void,
        ..Claim::NOTHING
    }
}

/// What covers an address that no loaded object does.
pub fn owner(here: Option<&Held>) -> Owner {
    here.map(|held| held.window()).map_or(Owner::NOBODY, |window| Owner {
        start: window.start,
        end: window.end,
        generation: window.generation,
        kind: OWNER_WINDOW,
        ..Owner::NOBODY
    })
}

impl Live<'_> {
    /// How a window's functions are called: not at all where a fault in them could not be contained although a sampler leads
    /// faults to us (SIGSEGV blocked), nor after too many failures.
    pub fn window_protector(&self, held: &Held, reader: &Reader<'_>) -> Option<Protector> {
        let contained = reader.is_guarded() || !self.has_recovery();
        (contained && held.may_be_called()).then(|| self.protector(0))
    }

    /// The rule of a frame that lies in no object: a window's, or nobody's.
    #[cold]
    #[inline(never)]
    pub fn window_rule(&mut self, cursor: &Cursor, reader: &mut Reader<'_>) -> Packed {
        let Some(held) = self.windows.here() else { return by_frame_pointer(cursor, StopReason::NoOwner) };
        let (key, generation) = (key(cursor), held.window().generation | WINDOW);
        let remembered = !matches!(held.window().kind, Kind::FramePointer | Kind::Opaque | Kind::Stepper);
        if remembered {
            if let Some(rule) = RULES.get(key, generation).and_then(Packed::from_words) {
                return or_frame_pointer(rule, cursor);
            }
        }
        let protector = self.window_protector(held, reader);
        let found = window_rule::find(held, cursor, reader, protector);
        // In a growing window a miss may be a hit later. Where functions could not be called, nothing was learned.
        let lasts = match &found {
            Ok(_) => true,
            Err(Missing::Told(reason)) => {
                *reason == StopReason::NoRule
                    && !held.may_grow()
                    && (protector.is_some() || held.window().kind != Kind::Rule)
            }
            Err(Missing::Failed(_)) => false,
        };
        let rule = match found {
            Ok(rule) => rule.pack(),
            Err(Missing::Told(reason)) => Packed::failed(reason),
            Err(Missing::Failed(reason)) => {
                self.failed(0, reason);
                Packed::failed(StopReason::NoRule)
            }
        };
        if remembered && lasts {
            RULES.put(key, generation, rule.words());
        }
        or_frame_pointer(rule, cursor)
    }

    /// The second word of a frame in a window: its generation, and who the function is.
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

    /// Name id of the function at `lookup`; 0: none.
    fn window_name(&mut self, held: &Held, lookup: u64, reader: &mut Reader<'_>) -> u32 {
        let (window, epoch) = (held.window(), u64::from(self.epoch()));
        let generation = window.generation | WINDOW;
        // Ids belong to the recording epoch: the child of a fork gives new ones.
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
                .window_protector(held, reader)
                .map(|protector| window_functions::ask(window, lookup, &mut buffer, protector))
            {
                Some(Ok(named)) => named,
                Some(Err(reason)) => {
                    self.failed(0, reason);
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

/// What a function of a window is called. Its identity is its start and the window's generation, so that a sample of an old
/// window is never named by a new one.
fn description(start: u64, generation: u64, name: Text) -> Description {
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

fn or_frame_pointer(rule: Packed, cursor: &Cursor) -> Packed {
    if rule.failed_for(StopReason::NoRule) {
        return by_frame_pointer(cursor, StopReason::NoRule);
    }
    rule
}
