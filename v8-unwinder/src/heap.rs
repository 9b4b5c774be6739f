//! Objects of V8's heap. A pointer to one has its lowest bit set. Which kind it is, is read from its map before any
//! other field is believed: an object that the collector has moved has its new address in place of the map
//! (<https://github.com/v8/v8/blob/11.3.244/src/objects/objects.h>, `MapWord`).

use crate::facts::Facts;
use uunwind_core::plugin::guest::Guest;

/// An object with its instance type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Object {
    /// Its address, without the tag.
    pub address: u64,
    /// The instance type in its map.
    pub kind: u16,
}

/// The heap, as one call reads it.
#[derive(Clone, Copy)]
pub struct Heap<'g, 'v> {
    pub guest: &'g Guest<'v>,
    pub facts: &'g Facts,
}

/// The address in a pointer to an object. `None`: it is a number, or a weak reference.
pub fn address(tagged: u64) -> Option<u64> {
    (tagged & 3 == 1).then_some(tagged & !3)
}

/// The strong reference to the same object as a weak one.
pub fn strong(tagged: u64) -> u64 {
    if tagged & 3 == 3 {
        tagged & !2
    } else {
        tagged
    }
}

/// A small integer. `None`: it is none.
pub fn integer(tagged: u64) -> Option<i32> {
    (tagged as u32 == 0).then_some((tagged >> 32) as i32)
}

impl Heap<'_, '_> {
    /// The object that a pointer leads to.
    pub fn object(&self, tagged: u64) -> Option<Object> {
        let mut address = address(tagged)?;
        let mut map = self.guest.word(address)?;
        if map & 1 == 0 {
            // It was moved, once in a collection.
            address = map;
            map = self.guest.word(address)?;
        }
        let map = self::address(map)?;
        let kind = self.guest.in_word(map.wrapping_add(self.facts.map_type.into()))? as u16;
        Some(Object { address, kind })
    }

    /// The object that a pointer leads to, if it is of this kind.
    pub fn of_kind(&self, tagged: u64, kind: u16) -> Option<Object> {
        self.object(tagged).filter(|object| object.kind == kind)
    }

    /// A field of an object.
    pub fn field(&self, object: Object, offset: u32) -> Option<u64> {
        self.guest.word(object.address.wrapping_add(offset.into()))
    }

    /// 32 bits of an object.
    pub fn half(&self, object: Object, offset: u32) -> Option<u32> {
        Some(self.guest.in_word(object.address.wrapping_add(offset.into()))? as u32)
    }

    /// The length and the first element of an array, or of an array of bytes.
    pub fn array(&self, array: Object) -> Option<(u32, u64)> {
        let length = integer(self.field(array, self.facts.array_length)?)?;
        Some((u32::try_from(length).ok()?, array.address.wrapping_add(self.facts.array_data.into())))
    }
}
