//! Where a native frame keeps its variables: what the analyse half found, looked up in the frame in hand.

use super::facts::{Place, Places};
use crate::walk::Walk;

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
