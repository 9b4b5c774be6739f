//! Where a native frame keeps its variables: what the analyse half found, looked up in the frame in hand.

use super::facts::{Facts, Place, Places};
use super::state::State;
use crate::registered::{self, Learned};
use crate::walk::Walk;

/// Callee-saved registers, by DWARF number: rbx, rbp, r12 to r15.
const KEPT: [u8; 6] = [3, 6, 12, 13, 14, 15];
/// Most bytes of a frame that are looked through.
const FRAME: u16 = 512;

/// The value at a place of the frame in hand, if it is known.
pub fn value(walk: &Walk<'_>, place: Place) -> Option<u64> {
    match (place.as_register(), place.as_slot()) {
        (Some(register), _) => walk.register(register),
        (_, Some(below)) => walk.slot(below),
        _ => None,
    }
}

/// The first value at one of the places that passes a test.
pub fn first<T>(walk: &Walk<'_>, places: &Places, test: impl Fn(u64) -> Option<T>) -> Option<T> {
    places.iter().filter_map(|place| value(walk, *place)).find_map(test)
}

/// The state of a frame of `luaV_execute` that has none at any place that the analyse half knows: a `lua_State` of a program that
/// was registered, where one was found before, or anywhere in the frame. What is found is learned.
#[cold]
#[inline(never)]
pub fn of_registered(walk: &Walk<'_>, facts: &Facts) -> Option<State> {
    if !registered::any() {
        return None;
    }
    let learned = Learned::of(walk.view().facts)?;
    let at = |place: Place| {
        let address = value(walk, place).filter(|address| *address >= 0x1000)?;
        let state = State::read(walk, facts, address)?;
        let global = walk.word(address.wrapping_add(registered::global_offset(facts.minor)))?;
        registered::is_known(global).then_some(state)
    };
    if let Some(state) = at(learned.place()) {
        return Some(state);
    }
    let registers = KEPT.iter().map(|number| Place::register(*number));
    let slots = (1..=FRAME / 8).map(|index| Place::slot(index * 8));
    let (place, state) = registers.chain(slots).find_map(|place| Some((place, at(place)?)))?;
    learned.learn(place);
    walk.learned();
    Some(state)
}
