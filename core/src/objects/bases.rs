//! Where an object begins to run something on a part of another's stack, by what it exports: greenlet does so. What
//! lies beyond such a base is not the greenlet's, and other greenlets overwrite it.

use crate::exports::Tables;
use crate::memory::Reader;
use crate::span::Span;
use crate::stop_reason::StopReason;

/// Where the stacks end that an object begins. No larger than a span: objects are copied into the room of a walk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bases(Span);

impl Bases {
    /// It begins none.
    pub const NONE: Bases = Bases(Span::new(0, 0));
    /// In a function that it does not export: any may be it.
    const ANYWHERE: Bases = Bases(Span::new(0, u64::MAX));

    /// Why there is no caller of this code in the object, by where its stacks begin. `lookup`: the address to search
    /// with.
    pub fn reason(self, lookup: u64) -> Option<StopReason> {
        if self == Bases::ANYWHERE {
            // It may be the base, or a function that whoever starts another stack is in, too.
            return Some(StopReason::StackInTransit);
        }
        self.0.contains(lookup).then_some(StopReason::SwitchedStack)
    }
}

/// What modules of greenlet export: since version 1.0, and before.
const GREENLET: [&[u8]; 2] = [b"PyInit__greenlet", b"PyInit_greenlet"];

/// What runs a greenlet: `greenlet::UserGreenlet::inner_bootstrap(_greenlet*, _object*)` of greenlet 3
/// (`src/greenlet/TUserGreenlet.cpp`), and that of greenlet 2, which takes references of its own
/// (`src/greenlet/greenlet_greenlet.hpp`). greenlet 1 does it in a function that whoever starts one passes through,
/// too.
const RUNS_GREENLETS: [&[u8]; 2] = [
    b"_ZN8greenlet12UserGreenlet15inner_bootstrapEP9_greenletP7_object",
    b"_ZN8greenlet12UserGreenlet15inner_bootstrapERNS_4refs14_OwnedGreenletI9_greenlet\
      XadL_ZNS1_15GreenletCheckerEPvEEEERNS1_14OwnedReferenceI7_objectXadL_ZNS1_11NoOpCheckerES4_EEEE",
];

/// Those of the object with this `struct link_map`. At most some 2,500 reads, and mostly fewer than a hundred.
pub(super) fn of(link_map: u64, bias: u64, image: Span, reader: &mut Reader<'_>) -> Bases {
    // struct link_map { ElfW(Addr) l_addr; char *l_name; ElfW(Dyn) *l_ld; ... } (link.h)
    let dynamic = reader.word(link_map.wrapping_add(16));
    let Some(tables) = dynamic.and_then(|dynamic| Tables::of(dynamic, bias, reader)) else { return Bases::NONE };
    let mut exported = |name: &&[u8]| tables.function(bias, image, name, reader);
    if GREENLET.iter().find_map(&mut exported).is_none() {
        return Bases::NONE;
    }
    RUNS_GREENLETS.iter().find_map(exported).map_or(Bases::ANYWHERE, Bases)
}
