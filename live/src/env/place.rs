//! What lies at an address that a word of the stack names, without a change of the current object.

use super::{sources, Live};
use crate::skipped::{Place, Surroundings};
use crate::state::OBJECTS;
use crate::tables;
use uunwind_core::memory::Reader;
use uunwind_core::objects::{Lookup, Object};

impl Surroundings for Live<'_> {
    #[cold]
    #[inline(never)]
    fn place(&mut self, address: u64, reader: &mut Reader<'_>) -> Place {
        let was = reader.pause(true);
        let place = match OBJECTS.find(address, &mut self.memo, reader) {
            Lookup::Object(loaded) => {
                self.met.object(loaded.object, loaded.generation());
                self.place_in(loaded.object, loaded.generation(), address, reader)
            }
            // The walk does not depend on what is there: a word that counts makes it doubtful, which is not kept, and
            // one that does not was stored before anything is loaded there.
            Lookup::Nothing if self.windows.covers(address) => Place::Code,
            Lookup::Nothing => Place::Unowned,
            Lookup::Full => Place::Code,
        };
        reader.pause(was);
        place
    }
}

impl Live<'_> {
    fn place_in(&self, object: &Object, generation: u64, address: u64, reader: &mut Reader<'_>) -> Place {
        if !object.code.may_hold(address) {
            return Place::Data;
        }
        let table = tables::of(object, self.source(), self.client);
        if table.and_then(|table| table.function(address.wrapping_sub(object.bias))).is_some() {
            return Place::Described;
        }
        reader.begin_image(object.image, generation, object.last_page);
        let function = uunwind_sources::function(&sources(object), address, reader);
        reader.end_image();
        if function.is_some() {
            Place::Described
        } else {
            Place::Code
        }
    }
}
