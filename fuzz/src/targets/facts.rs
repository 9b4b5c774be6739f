//! The facts memfd as a target reads it.
//!
//! | bytes | |
//! |---|---|
//! | 8 x [`KEYS`] | keys to look up |
//! | rest | patches of an image of zeroes: 4 bytes offset, 1 byte length, the bytes |

use crate::guarded::Guarded;
use crate::input::Input;
use std::cell::RefCell;
use uunwind_built_in::python::signal::facts::Facts;
use uunwind_ring::facts::FactsView;

pub use uunwind_ring::facts::FACTS_BYTES as BYTES;

/// Keys in an input.
pub const KEYS: usize = 4;

pub fn run(data: &[u8]) -> bool {
    thread_local! {
        // Never unmapped: what a view finds is borrowed for ever.
        static IMAGE: RefCell<&'static mut Guarded> = RefCell::new(Box::leak(Box::new(Guarded::new(BYTES))));
    }
    let mut input = Input::new(data);
    let keys: [u64; KEYS] = std::array::from_fn(|_| input.u64());
    IMAGE.with_borrow_mut(|image| {
        let mut patched = Vec::new();
        while !input.is_empty() {
            let (offset, len) = (input.u32() as usize, usize::from(input.u8()));
            let bytes = input.bytes(len);
            if let Some(place) = image.all().get_mut(offset..offset.saturating_add(bytes.len())) {
                place.copy_from_slice(bytes);
                patched.push(offset..offset + bytes.len());
            }
        }
        let taken = look_up(image.all(), &keys);
        for range in patched {
            image.all()[range].fill(0);
        }
        taken
    })
}

fn look_up(image: &[u8], keys: &[u64]) -> bool {
    let range = image.as_ptr_range();
    // SAFETY: BYTES mapped bytes, page-aligned, which stay mapped. Nothing found is used after the lookups.
    let Some(view) = (unsafe { FactsView::new(range.start) }) else { return false };
    view.count();
    let mut taken = false;
    for key in keys {
        let Some(found) = view.find(*key) else { continue };
        let bytes = found.bytes.as_ptr_range();
        assert!(range.start <= bytes.start && bytes.end <= range.end, "facts outside of the memfd");
        // Both ends are read, so that a missing page would fault.
        std::hint::black_box((found.bytes.first(), found.bytes.last(), found.plugin));
        Facts::read(found.bytes);
        taken = true;
    }
    taken
}
