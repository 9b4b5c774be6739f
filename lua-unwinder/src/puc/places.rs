//! Variables of a native frame: values at the places that the analyse half found, read from the current frame.

use super::facts::{Facts, Location, Places};
use super::state::State;
use crate::registered::{self, Learned};
use uunwind_core::plugin::guest::Guest;

/// Callee-saved registers by DWARF number: rbx, rbp, r12 to r15.
const KEPT: [u8; 6] = [3, 6, 12, 13, 14, 15];
/// Limit of bytes of a frame, counted from its CFA downwards, that are searched.
const FRAME: u16 = 512;

/// The value at a place of the current frame, if it is available there.
pub fn value(guest: &Guest<'_>, place: Location) -> Option<u64> {
    match (place.as_register(), place.as_slot()) {
        (Some(register), _) => guest.register(register),
        (_, Some(below)) => guest.slot(below),
        _ => None,
    }
}

/// What `test` makes of the first value at one of the places that passes it.
pub fn first<T>(guest: &Guest<'_>, places: &Places, test: impl Fn(u64) -> Option<T>) -> Option<T> {
    places.iter().filter_map(|place| value(guest, *place)).find_map(test)
}

/// The state of a frame of `luaV_execute` that has none at the places that the analyse half found: a `lua_State`
/// with a registered `global_State`, at the place that was learned before, or anywhere in the frame. The place where it
/// is found is learned.
#[cold]
#[inline(never)]
pub fn of_registered(guest: &Guest<'_>, facts: &Facts) -> Option<State> {
    if !registered::any() {
        return None;
    }
    let learned = Learned::of(guest.view().facts)?;
    let at = |place: Location| {
        let address = value(guest, place).filter(|address| *address >= 0x1000)?;
        let state = State::read(guest, facts, address)?;
        let global = guest.word(address.wrapping_add(registered::global_offset(facts.minor)))?;
        registered::is_global_of_registered(global).then_some(state)
    };
    if let Some(state) = at(learned.place()) {
        return Some(state);
    }
    let registers = KEPT.iter().map(|number| Location::register(*number));
    let slots = (1..=FRAME / 8).map(|index| Location::slot(index * 8));
    let (place, state) = registers.chain(slots).find_map(|place| Some((place, at(place)?)))?;
    learned.learn(place);
    guest.learned();
    Some(state)
}
