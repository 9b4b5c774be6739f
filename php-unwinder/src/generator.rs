//! Generators that wait for the one that they delegate to (`yield from`): the chain has one placeholder for all of
//! them, which lies in the outermost one (`zend_generator_check_placeholder_frame` in
//! <https://github.com/php/php-src/blob/PHP-8.2/Zend/zend_generators.c>).

use crate::emission::Emitted;
use crate::facts::Facts;
use crate::frame::Frame;
use crate::function::{self, Place};
use uunwind_core::plugin::guest::Guest;

/// Limit of generators that wait for each other.
const WAITING: usize = 16;

/// Emits those that the placeholder at `at` stands for, if it is one of a generator's.
#[inline(never)]
pub fn emit_waiting(guest: &Guest<'_>, facts: &Facts, at: u64, placeholder: &Frame) -> Emitted {
    let Some(outermost) = placeholder.object() else { return Emitted::Done };
    if outermost.wrapping_add(facts.generator_placeholder.into()) != at {
        return Emitted::Done;
    }
    let mut waiting = [0; WAITING];
    let mut count = 0;
    let mut generator = outermost;
    loop {
        let mut words = [0; 2];
        if guest.words(generator, [facts.generator_frame, facts.generator_parent], &mut words).is_none() {
            return Emitted::Invalid;
        }
        let [frame, parent] = words;
        // The one without a parent runs, and has its own place in the chain.
        if parent == 0 {
            break;
        }
        let Some(place) = waiting.get_mut(count) else { return Emitted::Invalid };
        (*place, count, generator) = (frame, count.wrapping_add(1), parent);
    }
    for at in waiting.iter().take(count).rev() {
        let Some(frame) = Frame::read(guest, facts, *at).filter(|frame| frame.is_generator()) else {
            return Emitted::Invalid;
        };
        match function::emit(guest, facts, &frame, Place::At(frame.opline)) {
            Emitted::Done => {}
            other => return other,
        }
    }
    Emitted::Done
}
